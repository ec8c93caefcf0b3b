/** The address bar: the page's state that can be sent to others. */

import { useEffect, useState } from "preact/hooks";

const CHANGED = "placechange";

/** The steps of the path, decoded. */
export function steps(): string[] {
  return location.pathname.split("/").filter(Boolean).map((step) => decodeURIComponent(step));
}

export function go(place: string, replace = false): void {
  if (place === location.pathname + location.search) return;
  history[replace ? "replaceState" : "pushState"](null, "", place);
  dispatchEvent(new Event(CHANGED));
}

/** The address of a comparison. */
export const diffPlace = (before: string, after: string): string =>
  `/diff/${encodeURIComponent(before)}...${encodeURIComponent(after)}`;

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

/** One parameter of the address, and how to set it. */
export function useParameter(name: string): [string, (value: string, push?: boolean) => void] {
  const place = usePlace();
  return [place.searchParams.get(name) ?? "", (value, push = false) => {
    const next = new URL(location.href);
    if (value) next.searchParams.set(name, value);
    else next.searchParams.delete(name);
    go(next.pathname + next.search, !push);
  }];
}

/** Follows links within the page without loading it anew. */
export function followLinks(): void {
  addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest("a");
    const plain = !event.defaultPrevented && !event.button && !event.metaKey && !event.ctrlKey && !event.shiftKey;
    if (!link || !plain || link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
    if (!/^\/($|m\/|diff\/|operations$)/.test(link.pathname)) return;
    event.preventDefault();
    go(link.pathname + link.search);
    scrollTo(0, 0);
  });
}
