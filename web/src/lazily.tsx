/** Parts of the page that are loaded when they are first shown. */

import type { ComponentType } from "preact";
import { useEffect, useErrorBoundary, useReducer, useState } from "preact/hooks";
import { Failure } from "./api";
import { Missing, Trouble } from "./loading";

/** A part, which may be asked to load before it is shown. */
export type Lazy<P> = ComponentType<P> & { load(): Promise<unknown> };

/** The part that `load` imports. One that fails says so in its place; a `whole` page has a heading then. */
export function lazily<P extends object>(load: () => Promise<ComponentType<P>>, whole = false): Lazy<P> {
  let loaded: ComponentType<P> | null = null;
  const known = () => load().then((part) => (loaded = part));
  const part = (given: P) => {
    const [Shown, set] = useState<{ part: ComponentType<P> } | null>(loaded && { part: loaded });
    const [error, fail] = useState<Error | null>(null);
    const [tries, again] = useReducer((number: number) => number + 1, 0);
    const [broken, mend] = useErrorBoundary((error) => reportError(error));
    useEffect(() => {
      fail(null);
      // It may have been loaded since the first rendering: only what is shown counts.
      if (!Shown) known().then((found) => set({ part: found }), () => fail(new Failure(0, LOST)));
    }, [tries]);
    const Failed = whole ? Missing : Trouble;
    if (broken) return <Failed error={broken as Error} again={mend} />;
    if (error) return <Failed error={error} again={() => again(0)} />;
    return Shown ? <Shown.part {...given} /> : <p class="soft" data-said>Loading …</p>;
  };
  return Object.assign(part, { load: known });
}

/** No reload is forced: it would end an upload, and lose what was typed. */
const LOST = "This part of the page cannot be loaded: check your connection and try again. After an update of the service, reload the page.";
