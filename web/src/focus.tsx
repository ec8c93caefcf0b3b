/** Where the keyboard's focus is, and what a screen reader says: one place that moves it, and one live region. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const FOCUSABLE = ["a[href]", "button:enabled", "input[type=checkbox]:enabled", "select:enabled", "summary", "[tabindex='0']"].join();
/** Fields only of the form that the focus was in: an upload waits while the person is in the field of its name. */
const IN_FORM = `${FOCUSABLE},input:enabled,textarea:enabled`;

const region = document.createElement("div");

/** Announces a text; those before stay for a while, so that none is cut short by the next. */
export function say(text: string): void {
  region.append(Object.assign(document.createElement("p"), { textContent: text }));
  if (region.children.length > 5) region.firstChild!.remove();
}

/** The focused element with those around it, from the inside out; none once the person has left. */
let around: Element[] = [];
/** Its number among what can be focused in each of those. */
let numbers: number[] = [];
const focusableIn = (each: Element): Element[] => [...each.querySelectorAll(each.closest("form") ? IN_FORM : FOCUSABLE)];
/** What had the focus before a drawer took it. */
const openers = new WeakMap<Element, Element>();

const movesTo = (element: Element | undefined): boolean => {
  if (!element?.isConnected || element === document.body || element.matches(":disabled")) return false;
  (element as HTMLElement).focus({ preventScroll: true });
  return document.activeElement === element;
};

/** A part next to a view that shows one thing; takes the focus unless it `stays` where that was chosen, and gives it back. */
export function Drawer({ label, kind = "drawer", stays = false, onClose, children }: { label: string; kind?: string; stays?: boolean; onClose: () => void; children: ComponentChildren }) {
  const box = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const active = document.activeElement!;
    // The drawer before may be gone already, with the focus.
    const opener = active === document.body ? openers.get(around.find((each) => openers.has(each))!) : active;
    if (opener) openers.set(box.current!, opener);
    if (!stays) movesTo(box.current!);
  }, []);
  return (
    <aside class={kind} ref={box} tabIndex={-1} aria-label={label} onKeyDown={(event) => { if (event.key === "Escape") onClose(); }}>
      <button type="button" class="plain close" aria-label="Close" onClick={onClose}>✕</button>
      {children}
    </aside>
  );
}

/** A button that copies a text. */
export function Copy({ text, what, children }: { text: string | (() => string); what: string; children: string }) {
  const [done, setDone] = useState("");
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "string" ? text : text());
    setDone("copied");
    say(`Copied the ${what}`);
  };
  const refused = () => { setDone("select it to copy it"); say(`This browser does not allow copying the ${what} here.`); };
  return <><button type="button" class="plain" aria-label={children.includes(what) ? undefined : `Copy the ${what}`} onClick={() => void copy().catch(refused)}>{children}</button><span class="soft" aria-hidden="true">{done}</span></>;
}

/**
 * Moves the focus from what is gone, moved or disabled to what is nearest, and announces what is new: the title of
 * another view, and the heading of a drawer and each text marked by `data-said`.
 */
export function keepFocus(app: Element): void {
  region.className = "unseen";
  region.ariaLive = "polite";
  document.body.append(region);
  addEventListener("focusin", ({ target }) => {
    around = [];
    for (let each = target as Element | null; each; each = each.parentElement) around.push(each);
    numbers = around.slice(1).map((each) => focusableIn(each).indexOf(target as Element));
  });
  // What the person leaves is still there, unlike what the page removes.
  const left = () => { if (document.activeElement === document.body) around = []; };
  addEventListener("pointerdown", () => setTimeout(left), true);
  addEventListener("keydown", (event) => { if (event.key === "Tab") setTimeout(left); }, true);
  const keep = () => {
    const active = document.activeElement ?? document.body;
    if (!around.length || (active !== document.body && !active.matches(":disabled"))) return;
    const [focused, ...others] = around;
    const drawer = others.find((each) => openers.has(each) && !each.isConnected) ?? (focused && !focused.isConnected ? focused : undefined);
    if (movesTo(focused) || (drawer && movesTo(openers.get(drawer)))) return;
    const main = document.getElementById("main")!;
    for (const [n, each] of others.entries()) {
      if (!each.isConnected) continue;
      if (each === main || each.contains(main)) break;
      const near = focusableIn(each);
      // What is in its place now, as "Resume" does for "Pause".
      if (movesTo(near[Math.min(Math.max(numbers[n]!, 0), near.length - 1)])) return;
    }
    movesTo(main);
  };
  let known = new Map<Element, string>();
  let place: string | null = null;
  const announce = () => {
    const text = (of: string) => app.querySelector(of)?.textContent ?? "";
    const [before, title] = [place, text("main h1")];
    if (title) place = [title, text("[role=tab][aria-selected=true]")].filter(Boolean).join(", ");
    const now = new Map([...app.querySelectorAll("[data-said], .drawer h2")].map((each) => [each, each.textContent!.trim()]));
    const news = [...now].filter(([each, words]) => words && words !== known.get(each)).map(([, words]) => words);
    known = now;
    // What a page has when it is loaded is read as its content.
    if (before === null) return;
    if (place !== before) news.unshift(place!);
    if (news.length) say(news.join(". "));
  };
  // A browser takes the focus from a disabled button only once it draws.
  let due = false;
  const check = () => { due = false; keep(); announce(); };
  const soon = () => { if (!due) { due = true; requestAnimationFrame(() => setTimeout(check)); } };
  new MutationObserver(soon).observe(app, { subtree: true, childList: true, characterData: true, attributeFilter: ["disabled", "aria-selected"] });
}
