/** The address bar: the page's state that can be sent to others. */

import { useEffect, useState } from "preact/hooks";

const CHANGED = "placechange";

/** The beginning of the page's addresses, and of its calls, in a space other than the default one; empty in that. */
export const SPACE = /^\/spaces\/[a-z0-9-]+(?=\/|$)/.exec(location.pathname)?.[0] ?? "";

/** The steps of the path, decoded; one that is no text (`%E0%A4%A`) stays as it is. */
export function steps(): string[] {
  return location.pathname.slice(SPACE.length).split("/").filter(Boolean).map(decoded);
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

export function go(place: string, replace = false): void {
  if (place === location.pathname + location.search) return;
  if (!replace) keep({ top: scrollY });
  history[replace ? "replaceState" : "pushState"](null, "", place);
  dispatchEvent(new Event(CHANGED));
}

/** What the entry of the history keeps for Back: how far the page is scrolled, and how many items of a list are shown. */
interface Kept { top?: number; shown?: number }
export const kept = (): Kept => (history.state as Kept | null) ?? {};
export const keep = (more: Kept): void => history.replaceState({ ...kept(), ...more }, "");

/** The address of a comparison. */
export const diffPlace = (before: string, after: string): string =>
  `${SPACE}/diff/${encodeURIComponent(before)}...${encodeURIComponent(after)}`;

/** The address of a model, or of a view of it, which may have a query behind. */
export const modelPlace = (name: string, view = ""): string => `${SPACE}/m/${encodeURIComponent(name)}${view && `/${view}`}`;

/** Names the repository of a store whose reference does not tell it: one without a slash in its name. */
export const ofRepository = (repository: string): string => repository && `?repository=${encodeURIComponent(repository)}`;

/** Renders anew whenever the address changes. */
export function usePlace(): URL {
  const [place, set] = useState(location.href);
  useEffect(() => {
    const change = () => set(location.href);
    addEventListener(CHANGED, change);
    addEventListener("popstate", change);
    return () => {
      removeEventListener(CHANGED, change);
      removeEventListener("popstate", change);
    };
  }, []);
  return new URL(place);
}

/** Sets parameters of the address; those that are empty are left out. */
export function setParameters(values: Record<string, string>, push = false): void {
  const next = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.searchParams.set(name, value);
    else next.searchParams.delete(name);
  }
  go(next.pathname + next.search, !push);
}

/** One parameter of the address, and how to set it. */
export function useParameter(name: string): [string, (value: string, push?: boolean) => void] {
  const place = usePlace();
  return [place.searchParams.get(name) ?? "", (value, push) => setParameters({ [name]: value }, push)];
}

/** Follows links within the page without loading it anew. */
export function followLinks(): void {
  addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest("a");
    const plain = !event.defaultPrevented && !event.button && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (!link || !plain || link.hash || link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
    const inside = link.pathname.startsWith(SPACE) ? link.pathname.slice(SPACE.length) : "";
    if (!/^\/($|m\/|diff\/|operations$)/.test(inside)) return;
    event.preventDefault();
    // Another tab is the same place, looked at in another way.
    const isTab = link.role === "tab";
    if (isTab && link.ariaSelected === "true") return;
    go(link.pathname + link.search, isTab);
    if (!isTab) scrollTo(0, 0);
  });
}
