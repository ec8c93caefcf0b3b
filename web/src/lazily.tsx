/** Parts of the page that are loaded when they are first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Trouble } from "./loading";

/** A part, which may be asked to load before it is shown. */
export type Lazy<P> = ComponentType<P> & { load(): Promise<unknown> };

export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const known = () => load().then((part) => (loaded = part));
  const part = (given: P) => {
    const [Shown, set] = useState<{ part: ComponentType<P> } | null>(loaded && { part: loaded });
    const [error, fail] = useState<Error | null>(null);
    // Whoever asked before may have got it since the first rendering: only what is shown counts.
    useEffect(() => { if (!Shown) known().then((found) => set({ part: found }), fail); }, []);
    if (error) return <Trouble error={error} />;
    return Shown ? <Shown.part {...given} /> : <p class="soft" role="status">Loading …</p>;
  };
  return Object.assign(part, { load: known });
}
