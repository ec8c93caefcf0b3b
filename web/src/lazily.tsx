/** Parts of the page that are loaded when they are first shown. */

import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";

export function lazily<P extends object>(load: () => Promise<ComponentType<P>>): ComponentType<P> {
  let loaded: ComponentType<P> | null = null;
  return (given: P) => {
    const [Shown, set] = useState<{ part: ComponentType<P> } | null>(loaded && { part: loaded });
    useEffect(() => { if (!loaded) void load().then((part) => set({ part: (loaded = part) })); }, []);
    return Shown ? <Shown.part {...given} /> : <p class="soft" role="status">Loading …</p>;
  };
}
