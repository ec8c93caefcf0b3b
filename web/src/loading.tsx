/** Loading of answers: what is there, what is under way, what failed. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, getJson } from "./api";

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

/** `children` of a value that is there; else a word about its coming. */
export function Await<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  if (of.error) return <Trouble error={of.error} />;
  if (of.value === null) return <p class="soft" role="status">{of.busy ? "Loading …" : ""}</p>;
  return <>{children(of.value)}</>;
}

export function Trouble({ error }: { error: Error }) {
  const page = error instanceof Failure && error.slug ? `/problems/${error.slug}` : null;
  return (
    <p class="trouble" role="alert">
      {error.message}{page && <> · <a href={page}>what this means</a></>}
    </p>
  );
}
