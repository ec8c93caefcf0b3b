/** Loading of answers: what is there, what is under way, what failed. */

import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, getJson } from "./api";
import { SPACE } from "./place";

export interface Loaded<T> { value: T | null; error: Error | null; busy: boolean }

/** The answer at `place`, asked for again when the place changes; null asks for nothing. */
export function useJson<T>(place: string | null): Loaded<T> {
  return useLoaded(place, (signal) => getJson<T>(place ?? "", signal));
}

/** The result of `load` for `key`; the value before stays until the next one is there. */
export function useLoaded<T>(key: string | null, load: (signal: AbortSignal) => Promise<T>): Loaded<T> {
  const [state, set] = useState<Loaded<T> & { key: string | null }>({ value: null, error: null, busy: true, key: null });
  useEffect(() => {
    if (key === null) return set({ value: null, error: null, busy: false, key });
    const leaving = new AbortController();
    set((before) => ({ ...before, error: null, busy: true }));
    load(leaving.signal).then(
      (value) => set({ value, error: null, busy: false, key }),
      (error: Error) => leaving.signal.aborted || set({ value: null, error, busy: false, key }),
    );
    return () => leaving.abort();
  }, [key]);
  return state;
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
  if (of.error && whole) return <Missing error={of.error} />;
  if (of.error) return <Trouble error={of.error} />;
  if (of.value === null) return <p class="soft" data-said>{of.busy ? "Loading …" : ""}</p>;
  return <>{children(of.value)}</>;
}

function Missing({ error }: { error: Error }) {
  const absent = error instanceof Failure && error.status === 404;
  return (
    <>
      <h1>{absent ? "Not found" : "This cannot be shown right now"}</h1>
      <Trouble error={error} />
      <p>{!absent && <><button type="button" onClick={() => location.reload()}>Try again</button> </>}<a href={`${SPACE}/`}>Back to the library</a></p>
    </>
  );
}

export function Trouble({ error }: { error: Error }) {
  const page = error instanceof Failure && error.slug ? `/problems/${error.slug}` : null;
  return (
    <p class="trouble" data-said>
      {error.message}{page && <> · <a href={page}>What does this mean?</a></>}
    </p>
  );
}
