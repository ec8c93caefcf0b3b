/** Parts of the page that are loaded when they are first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Trouble } from "./loading";

/** A part, which may be asked to load before it is shown. */
export type Lazy<P> = ComponentType<P> & { load(): Promise<unknown> };

export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const known = () => load().then((part) => (loaded = part), reloaded);
  const part = (given: P) => {
    const [Shown, set] = useState<{ part: ComponentType<P> } | null>(loaded && { part: loaded });
    const [error, fail] = useState<Error | null>(null);
    // Whoever asked before may have got it since the first rendering: only what is shown counts.
    useEffect(() => { if (!Shown) known().then((found) => set({ part: found }), fail); }, []);
    if (error) return <Trouble error={error} />;
    return Shown ? <Shown.part {...given} /> : <p class="soft" data-said>Loading …</p>;
  };
  return Object.assign(part, { load: known });
}

const RELOADED = "reloaded";

/** A part that is not there any more belongs to a page from before an update of the service: its new one is loaded, once. */
async function reloaded(error: Error): Promise<never> {
  const before = Number(sessionStorage.getItem(RELOADED) ?? 0);
  if (Date.now() - before > 30_000) {
    sessionStorage.setItem(RELOADED, String(Date.now()));
    location.reload();
    return new Promise(() => undefined);
  }
  throw error;
}
