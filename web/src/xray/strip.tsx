/** The heat strip: layers from left to right, kinds from above to below; darker moved farther. */

import type { RefObject } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useDark } from "../colours";
import { many, rough } from "../format";
import { cellKey, columnsOf, farthest, METRICS, stripOf, structureOf, type Cell, type Metric, type Pairs, type Structural } from "./moves";

const LABELS = 104;
const ROW = 24;
const HEAD = 34;
const LEAST = 4;

/** The width of an element, in whole pixels. */
export function useWidth(element: RefObject<Element>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(element.current!);
    return () => watch.disconnect();
  }, []);
  return width;
}

interface Given { pairs: Pairs; metric: Metric; chosen: string; onChoose: (key: string) => void }

export function HeatStrip({ pairs, metric, chosen, onChoose }: Given) {
  const holder = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(holder);
  const [at, setAt] = useState<{ column: number; row: number } | null>(null);
  const dark = useDark();
  const strip = useMemo(() => stripOf(pairs, columnsOf([pairs], Math.max(1, Math.floor((width - LABELS) / LEAST)))), [pairs, width]);
  const step = Math.min((width - LABELS) / Math.max(strip.columns.length, 1), 60);
  const height = HEAD + ROW * strip.rows.length;
  const figures = useMemo(() => new Map([...strip.cells].map(([key, cell]) => [key, farthest(cell, metric)])), [strip, metric]);
  const most = Math.max(0, ...[...figures.values()].filter((figure): figure is number => figure !== null));
  const keyAt = ({ column, row }: { column: number; row: number }) => cellKey(strip.columns[column] ?? "", strip.rows[row] ?? "");
  useEffect(() => {
    if (!canvas.current || !width) return;
    const pen = prepared(canvas.current, width, height);
    for (const [key, cell] of strip.cells) {
      pen.fillStyle = colour(figures.get(key) ?? null, most, structureOf(cell), dark);
      const wide = Math.max(step - (step > 8 ? 1 : 0), 1);
      pen.fillRect(LABELS + cell.column * step, HEAD + cell.row * ROW, wide, ROW - 2);
      pen.fillStyle = renamedColour(dark);
      if (cell.moves.some(({ change }) => change === "renamed")) pen.fillRect(LABELS + cell.column * step, HEAD + (cell.row + 1) * ROW - 6, wide, 4);
    }
    labels(pen, strip, step, dark);
    for (const key of [chosen, at ? keyAt(at) : ""]) {
      const cell = strip.cells.get(key);
      if (!cell) continue;
      pen.strokeStyle = dark ? "#fff" : "#0b1b34";
      pen.lineWidth = 2;
      pen.strokeRect(LABELS + cell.column * step - 1, HEAD + cell.row * ROW - 1, step + 1, ROW);
    }
  }, [strip, figures, step, dark, chosen, at, width]);
  const placed = (event: MouseEvent) => {
    const { left, top } = canvas.current!.getBoundingClientRect();
    const place = { column: Math.floor((event.clientX - left - LABELS) / step), row: Math.floor((event.clientY - top - HEAD) / ROW) };
    return strip.cells.has(keyAt(place)) ? place : null;
  };
  const key = (event: KeyboardEvent) => {
    const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[event.key] ?? [0, 0];
    if (event.key === "Enter" && at) onChoose(keyAt(at));
    else if (event.key === "Escape") onChoose("");
    else if (dx || dy) {
      const next = nextCell(strip, at, dx, dy);
      if (next) setAt(next);
    } else return;
    event.preventDefault();
  };
  const shown = at && strip.cells.get(keyAt(at));
  return (
    <div class="strip" ref={holder}>
      <div role="group" tabIndex={0} aria-label="Table of layers by kind; use the arrow keys to move between cells, and Enter to list the tensors of a cell" onKeyDown={key}>
        <canvas ref={canvas} role="img" aria-label={`${METRICS[metric]} of ${many(pairs.compared, "tensor")} in ${many(strip.columns.length, "layer")}; the table below has the numbers`}
          onMouseMove={(event) => setAt(placed(event))} onMouseLeave={() => setAt(null)}
          onClick={(event) => { const place = placed(event); onChoose(place && keyAt(place) !== chosen ? keyAt(place) : ""); }} />
      </div>
      <p class="soft hint" data-said dir="auto">{shown ? described(shown, strip.columns, strip.rows, metric) : most ? `Stronger colors are larger changes, on a logarithmic scale up to ${rough(most)}. Click a cell for its tensors.` : "No values changed. Click a cell for its tensors."}</p>
      <Legend most={most} dark={dark} />
    </div>
  );
}

/** What the colors of cells mean; `most` is the figure of the one that moved farthest. */
export function Legend({ most, dark }: { most: number; dark: boolean }) {
  return (
    <ul class="legend" aria-label="Colors">
      {(["added", "removed", "reshaped"] as const).map((change) => <li key={change}><i style={{ background: STRUCTURE[change](dark) }} />{change}</li>)}
      <li><i style={{ background: `linear-gradient(transparent 65%, ${renamedColour(dark)} 0)` }} />renamed</li>
      <li><i style={{ background: colour(0, 1, null, dark) }} />unchanged</li>
      {most > 0 && [1e-2, 1e-1, 1].map((share) => <li key={share}><i style={{ background: colour(share, 1, null, dark) }} />{rough(share * most)}</li>)}
    </ul>
  );
}

/** The next cell in a direction: sideways in the same row, or the nearest one of the next layer. */
function nextCell({ columns, rows, cells }: ReturnType<typeof stripOf>, at: { column: number; row: number } | null, dx: number, dy: number): { column: number; row: number } | null {
  const has = (column: number, row: number) => cells.has(cellKey(columns[column] ?? "", rows[row] ?? ""));
  const { column, row } = at ?? { column: -1, row: 0 };
  if (dy) {
    for (let next = row + dy; next >= 0 && next < rows.length; next += dy) if (has(column, next)) return { column, row: next };
    return null;
  }
  const next = column + (at ? dx : 1);
  const near = rows.map((_, n) => n).filter((n) => has(next, n)).sort((a, b) => Math.abs(a - row) - Math.abs(b - row));
  return near.length ? { column: next, row: near[0]! } : null;
}

const described = (cell: Cell, columns: readonly string[], rows: readonly string[], metric: Metric): string =>
  [`${columns[cell.column]} · ${rows[cell.row]}`, many(cell.tensors, "tensor"), movedIn(cell, metric)].filter(Boolean).join(" · ");

/** In words, how far tensors of a cell moved, and what became of them beyond numbers. */
export function movedIn(cell: Cell, metric: Metric): string {
  const figure = farthest(cell, metric);
  const renamed = cell.moves.filter(({ change }) => change === "renamed").length;
  return [figure === null ? "" : `${METRICS[metric]}: up to ${rough(figure)}`, structureOf(cell) ?? "", renamed ? `${renamed} renamed` : ""].filter(Boolean).join(" · ");
}

const STRUCTURE: Record<Structural, (dark: boolean) => string> = {
  added: (dark) => `hsl(145 45% ${dark ? 45 : 42}%)`, removed: (dark) => `hsl(350 60% ${dark ? 58 : 50}%)`, reshaped: (dark) => `hsl(268 45% ${dark ? 62 : 52}%)`,
};

const renamedColour = (dark: boolean): string => `hsl(221 75% ${dark ? 70 : 48}%)`;

/** The background of a cell that is an element. */
export function backgroundOf(cell: Cell, most: number, dark: boolean): string {
  const plain = colour(farthest(cell, "relative"), most, structureOf(cell), dark);
  return cell.moves.some(({ change }) => change === "renamed") ? `linear-gradient(${plain} 80%, ${renamedColour(dark)} 0)` : plain;
}

/** From pale to dark orange along the logarithm, of which three powers of ten are distinguished. */
function colour(figure: number | null, most: number, structure: Structural | null, dark: boolean): string {
  if (structure) return STRUCTURE[structure](dark);
  if (figure === null) return dark ? "hsl(220 10% 30%)" : "hsl(220 10% 80%)";
  if (figure === 0 || !most) return dark ? "hsl(220 18% 17%)" : "hsl(220 22% 92%)";
  const at = Math.min(Math.max(1 + Math.log10(figure / most) / 3, 0.06), 1);
  return dark ? `hsl(${42 - 18 * at} ${70 + 25 * at}% ${19 + 36 * at}%)` : `hsl(${42 - 22 * at} ${70 + 20 * at}% ${90 - 50 * at}%)`;
}

function prepared(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  [canvas.width, canvas.height] = [width * ratio, height * ratio];
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  return pen;
}

function labels(pen: CanvasRenderingContext2D, { columns, rows }: { columns: readonly string[]; rows: readonly string[] }, step: number, dark: boolean): void {
  pen.fillStyle = dark ? "#9fabc0" : "#55627a";
  pen.font = "12px ui-sans-serif, system-ui, sans-serif";
  pen.textBaseline = "middle";
  rows.forEach((row, n) => pen.fillText(row, 0, HEAD + n * ROW + ROW / 2));
  pen.font = "11px ui-sans-serif, system-ui, sans-serif";
  const every = Math.max(1, Math.ceil(52 / step));
  columns.forEach((_, n) => {
    if (n % every === 0 && n + Math.min(every, 30 / step) <= columns.length) pen.fillText(shortColumn(columns, n), LABELS + n * step, HEAD - 10, Math.max(every * step - 6, 20));
  });
  // The group of the numbers below, where its columns have room for a word.
  for (let n = 0, end = 0; n < columns.length; n = end) {
    const group = groupOf(columns[n]!);
    while (end < columns.length && groupOf(columns[end]!) === group) end += 1;
    const most = Math.floor(((end - n) * step - 6) / 6.5);
    if (group && most >= 4) pen.fillText(group.length > most ? `…${group.slice(1 - most)}` : group, LABELS + n * step, 8);
  }
}

/** What the names of a series of columns begin with; empty for a column that stands alone. */
const groupOf = (name: string): string => /^(.*?)[._/]*\d/.exec(name)?.[1] ?? "";

/** The end of a column's name: a number, where its neighbours have the same group. */
export function shortColumn(columns: readonly string[], n: number): string {
  const [name, group] = [columns[n]!, groupOf(columns[n]!)];
  const alike = [n - 1, n + 1].some((other) => columns[other] !== undefined && groupOf(columns[other]) === group);
  return (alike && /(\d+)(?: … |$)/.exec(name)?.[1]) || name.replace(/^.*[./](?=.)/, "").slice(0, 12);
}
