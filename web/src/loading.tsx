/** Loading of answers: what is there, what is under way, what failed. */

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useReducer, useState } from "preact/hooks";
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
