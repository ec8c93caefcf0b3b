/** Parts of the page that are loaded when they are first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

/** A part, which may be asked to load before it is shown. */
export type Lazy<P> = ComponentType<P> & { load(): Promise<unknown> };

export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const known = () => load().then((part) => (loaded = part));
  const part = (given: P) => {
    const [Shown, set] = useState<{ part: ComponentType<P> } | null>(loaded && { part: loaded });
    useEffect(() => { if (!loaded) void known().then((found) => set({ part: found })); }, []);
    return Shown ? <Shown.part {...given} /> : <p class="soft" role="status">Loading …</p>;
  };
  return Object.assign(part, { load: known });
}
