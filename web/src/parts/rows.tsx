/** A table of any number of rows, of which only those in sight are in the page. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { say } from "../focus";

export interface Column<T> {
  name: string; title: string; sort?: string; right?: boolean; show: (row: T) => ComponentChildren;
}

/** Rows by number; undefined for those that are not here yet. Lists are such, too. */
export interface Numbered<T> { readonly length: number; at(number: number): T | undefined }

interface Given<T> {
  rows: Numbered<T>; columns: readonly Column<T>[]; label: string; keyOf: (row: T) => string; chosen: string | null;
  sort: string; onSort: (sort: string) => void; onChoose: (row: T) => void;
  /** Called with the numbers of the first row in sight, and of that behind the last. */
  onSee?: (first: number, last: number) => void;
}

/** A name that keeps its end where there is no room for all of it, from a number on: names begin alike. */
export function Cut({ name }: { name: string }) {
  const letters = [...name];
  const number = letters.findIndex((each, at) => /\d/.test(each) && !/\d/.test(letters[at - 1] ?? "") && letters.length - at <= KEPT);
  const at = letters.length > 20 ? Math.min(number < 0 ? letters.length : number, letters.length - 14) : letters.length;
  return <span class="cut" title={name}><span>{letters.slice(0, at).join("")}</span><span>{letters.slice(at).join("")}</span></span>;
}

const KEPT = 28;

const HEIGHT = 33;
const SPARE = 8;
/** Rows among which the chosen one is looked for. */
const LED = 10_000;

export function Rows<T>(given: Given<T>) {
  const { rows, columns, label, keyOf, chosen, onChoose, onSee } = given;
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState({ first: 0, count: 30 });
  const [moved, setFocus] = useState(0);
  const focus = Math.max(0, Math.min(moved, rows.length - 1));
  // Fewer rows than before, as a search finds them: those in sight may be behind their end.
  const first = Math.max(0, Math.min(seen.first, rows.length - seen.count));
  const last = Math.min(rows.length, first + seen.count);

  const look = () => {
    const holder = box.current;
    if (!holder) return;
    const first = Math.max(0, Math.floor(holder.scrollTop / HEIGHT) - SPARE);
    const count = Math.ceil(holder.clientHeight / HEIGHT) + 2 * SPARE;
    setSeen((before) => (before.first === first && before.count === count ? before : { first, count }));
  };
  useLayoutEffect(look, [rows.length]);
  // A link leads to a row: it is where keys begin, and in sight.
  const led = useRef(false);
  useLayoutEffect(() => {
    if (led.current || !chosen || !rows.length) return;
    led.current = true;
    for (let number = 0; number < Math.min(rows.length, LED); number += 1) {
      const row = rows.at(number);
      if (row === undefined || keyOf(row) !== chosen) continue;
      setFocus(number);
      box.current!.scrollTop = Math.max(0, number * HEIGHT - box.current!.clientHeight / 2);
      return;
    }
  }, [rows]);
  useEffect(() => onSee?.(first, last), [first, last, rows, onSee]);

  const step = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor((box.current?.clientHeight ?? 0) / HEIGHT) - 2);
    const moves: Record<string, number> = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length,
    };
    const move = moves[event.key];
    const row = rows.at(focus);
    if (event.key === "Enter" && row && event.target === box.current) onChoose(row);
    if (move === undefined) return;
    event.preventDefault();
    const next = Math.min(Math.max(0, focus + move), rows.length - 1);
    setFocus(next);
    const holder = box.current!;
    const [top, view] = [next * HEIGHT, holder.clientHeight - HEIGHT];
    if (top < holder.scrollTop) holder.scrollTop = top;
    else if (top + HEIGHT > holder.scrollTop + view) holder.scrollTop = top + HEIGHT - view;
  };

  return (
    <div class="rows" ref={box} onScroll={look} onKeyDown={step} tabIndex={0} role="grid" aria-label={label}
      aria-rowcount={rows.length + 1} aria-activedescendant={focus >= first && focus < last ? `row-${focus}` : undefined}>
      <div role="row" class="row head" aria-rowindex={1}>
        {columns.map((column) => <Head key={column.name} column={column} given={given} />)}
      </div>
      <div role="presentation" ref={(pad) => { if (pad) pad.style.height = `${first * HEIGHT}px`; }} />
      {Array.from({ length: Math.max(0, last - first) }, (_, n) => {
        const number = first + n;
        const row = rows.at(number);
        const key = row === undefined ? `#${number}` : keyOf(row);
        const state = `row${number === focus ? " focus" : ""}${key === chosen ? " chosen" : ""}`;
        return (
          <div key={key} id={`row-${number}`} role="row" class={state} aria-rowindex={number + 2}
            aria-selected={key === chosen} onClick={() => { setFocus(number); if (row !== undefined) onChoose(row); }}>
            {columns.map((column, place) => (
              <span key={column.name} role="gridcell" class={cellClass(column)} dir="auto">{row !== undefined ? column.show(row) : place ? "" : "…"}</span>
            ))}
          </div>
        );
      })}
      <div role="presentation" ref={(pad) => { if (pad) pad.style.height = `${(rows.length - last) * HEIGHT}px`; }} />
    </div>
  );
}

const cellClass = <T,>(column: Column<T>): string => `cell c-${column.name}${column.right ? " n" : ""}`;

function Head<T>({ column, given }: { column: Column<T>; given: Given<T> }) {
  const { sort, onSort } = given;
  const way = sort === column.sort ? "ascending" : sort === `-${column.sort}` ? "descending" : "none";
  if (!column.sort) return <span role="columnheader" class={cellClass(column)}>{column.title}</span>;
  const next = way === "descending" ? column.sort : `-${column.sort}`;
  return (
    <span role="columnheader" class={cellClass(column)} aria-sort={way}>
      <button type="button" class="plain" onClick={() => { onSort(next); say(`Sorted by ${column.title}, ${way === "descending" ? "ascending" : "descending"}`); }}>
        {column.title}<span aria-hidden="true">{way === "none" ? "" : way === "ascending" ? " ▲" : " ▼"}</span>
      </button>
    </span>
  );
}
