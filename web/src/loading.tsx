/** Loading of answers, and of parts of the page when they are first shown: what is there, what is under way, what failed. */

import type { ComponentChildren, ComponentType, RefObject } from "preact";
import { useEffect, useErrorBoundary, useReducer, useState } from "preact/hooks";
import { Failure, getJson } from "./api";
import { SPACE } from "./place";

export interface Loaded<T> { value: T | null; error: Error | null; busy: boolean; again: () => void }

/** The answer at `place`, asked for again when the place changes; null asks for nothing. */
export function useJson<T>(place: string | null): Loaded<T> {
  return useLoaded(place, (signal) => getJson<T>(place ?? "", signal));
}

/** The result of `load` for `key`; the value before stays until the next one is there. */
export function useLoaded<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [tries, again] = useReducer((number: number) => number + 1, 0);
  const [state, set] = useState<Omit<Loaded<T>, "again"> & { key: string | null }>({ value: null, error: null, busy: true, key: null });
  useEffect(() => {
    if (key === null) return set({ value: null, error: null, busy: false, key });
    const leaving = new AbortController();
    set((before) => ({ ...before, error: null, busy: true }));
    load(leaving.signal).then(
      (value) => set({ value, error: null, busy: false, key }),
      (error: Error) => leaving.signal.aborted || set({ value: null, error, busy: false, key }),
    );
    return () => leaving.abort();
  }, [key, tries]);
  return { ...state, again: () => again(0) };
}

/** True once the element has been in sight, or within `margin` of it. */
export function useSeen(element: RefObject<Element>, margin = "0px"): boolean {
  const [seen, setSeen] = useState(false);
  useEffect(() => {
    const watch = new IntersectionObserver((entries) => {
      if (!entries.some((each) => each.isIntersecting)) return;
      watch.disconnect();
      setSeen(true);
    }, { rootMargin: margin });
    watch.observe(element.current!);
    return () => watch.disconnect();
  }, []);
  return seen;
}

/** `children` of a value that is there; else a word about its coming. Without the `whole` there is nothing on the page. */
export function Await<T>({ of, whole = false, children }: { of: Loaded<T>; whole?: boolean; children: (value: T) => ComponentChildren }) {
  if (of.error && whole) return <Missing error={of.error} again={of.again} />;
  if (of.error) return <Trouble error={of.error} again={of.again} />;
  if (of.value === null) return <p class="soft" data-said>{of.busy ? "Loading …" : ""}</p>;
  return <>{children(of.value)}</>;
}

export function Missing({ error, again }: { error: Error; again: () => void }) {
  const absent = error instanceof Failure && error.status === 404;
  return (
    <>
      <h1>{absent ? "Not found" : "This cannot be shown right now"}</h1>
      <Trouble error={error} again={again} />
      <p><a href={`${SPACE}/`}>Back to the library</a></p>
    </>
  );
}

/** What failed, with a button to try it `again` where that may help. */
export function Trouble({ error, again }: { error: Error; again?: () => void }) {
  const lasts = error instanceof Failure && error.status >= 400 && error.status < 500 && ![401, 408, 429].includes(error.status);
  const page = error instanceof Failure && error.slug ? `/problems/${error.slug}` : null;
  return (
    <p class="trouble" data-said>
      {error.message}{page && <> · <a href={page}>What does this mean?</a></>}{again && !lasts && <> <button type="button" onClick={again}>Try again</button></>}
    </p>
  );
}

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
