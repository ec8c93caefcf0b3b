/** How far the tensors of a model moved between two versions: by layer and by kind. */

import { getJson, view, type EqualTensors, type TensorMove, type TensorMoves } from "../api";
import { NUMBERS } from "../versions";
import { KINDS } from "../weights/dtypes";

export const METRICS = { relative: "Relative change", cosine: "1 − cosine", max: "max |Δ|", changed: "Share of changed elements" } as const;
export type Metric = keyof typeof METRICS;

/** A figure of a tensor that is zero for one that did not move; null where there is none. */
export function figureOf({ delta }: TensorMove, metric: Metric): number | null {
  if (!delta) return null;
  if (metric === "changed") return delta.looked_at ? delta.changed / delta.looked_at : null;
  if (metric === "cosine") return delta.cosine === null ? null : Math.max(0, 1 - delta.cosine);
  return delta[metric] ?? (delta.changed ? null : 0);
}

/** The tensors of two models: those that moved, how many others are equal, and how many of all have been compared. */
export type Pairs = Omit<TensorMoves, "next">;
export const NO_PAIRS: Pairs = { items: [], equal: [], compared: 0, total: 0 };

/** Loads all pairs page by page; `show` gets those that are there. */
export async function loadMoves(before: string, after: string, signal: AbortSignal, show: (pairs: Pairs, done: boolean) => void): Promise<void> {
  let found = NO_PAIRS;
  for (let cursor: string | null = ""; cursor !== null;) {
    const { items, equal, compared, total, next }: TensorMoves = await getJson(view(after, ["moves"], { before, limit: 1000, cursor }), signal);
    found = { items: [...found.items, ...items], equal: [...found.equal, ...equal], compared: found.compared + compared, total };
    cursor = next;
    show(found, cursor === null);
  }
}

/** Tensors of one kind in one column: those that moved, and the number of all. */
export interface Cell { column: number; row: number; moves: TensorMove[]; tensors: number }
export interface Strip { columns: string[]; rows: string[]; cells: Map<string, Cell> }

export const cellKey = (column: string, row: string): string => `${column} ${row}`;

/** What a layer's name begins with, and the number at its end; -1 where there is none. */
function numbered(layer: string): [stem: string, number: number] {
  const [digits] = /\d*$/.exec(layer)!;
  return [layer.slice(0, layer.length - digits.length), digits ? Number(digits) : -1];
}

/** The layers of a run. */
function layersOf({ layer, last }: EqualTensors): string[] {
  const [stem, first] = numbered(layer);
  return last === null ? [layer] : Array.from({ length: last - first + 1 }, (_, n) => `${stem}${first + n}`);
}

/** Layers by kinds. Where there are more than `most`, neighbours of the longest series share columns. */
export function stripOf({ items, equal }: Pairs, most: number): Strip {
  const series = new Map<string, Map<string, number>>();
  const counted = equal.flatMap((run) => layersOf(run).map((layer) => ({ layer, kind: run.kind, count: run.count, moves: [] as TensorMove[] })));
  const all = [...items.map((move) => ({ layer: move.layer, kind: move.kind, count: 1, moves: [move] })), ...counted];
  for (const { layer } of all) {
    const [stem, number] = numbered(layer);
    const members = series.get(stem) ?? new Map<string, number>();
    series.set(stem, members.set(layer, number));
  }
  let cap = most;
  while (cap > 1 && [...series.values()].reduce((sum, { size }) => sum + Math.min(size, cap), 0) > most) cap = Math.floor(cap * 0.9);
  const place = new Map<string, number>();
  const columns: string[] = [];
  for (const [, members] of [...series].sort(([one], [other]) => NUMBERS.compare(one, other))) {
    const layers = [...members].sort(([, one], [, other]) => one - other).map(([layer]) => layer);
    const step = Math.ceil(layers.length / cap);
    layers.forEach((layer, n) => {
      if (n % step === 0) columns.push(step > 1 && layers[n + 1] ? `${layer} … ${layers[Math.min(n + step, layers.length) - 1]}` : layer);
      place.set(layer, columns.length - 1);
    });
  }
  const kinds = new Set<string>(all.map(({ kind }) => kind));
  const rows = KINDS.filter((kind) => kinds.has(kind));
  const cells = new Map<string, Cell>();
  for (const { layer, kind, count, moves } of all) {
    const [column, row] = [place.get(layer)!, rows.indexOf(kind)];
    const key = cellKey(columns[column]!, rows[row]!);
    const cell = cells.get(key) ?? { column, row, moves: [], tensors: 0 };
    cell.moves.push(...moves);
    cell.tensors += count;
    cells.set(key, cell);
  }
  return { columns, rows, cells };
}

/** Names of the tensors that moved in a cell of any strip: one of neighbouring layers is named by its first and last. */
export function namesIn(pairs: Pairs, key: string): string[] {
  for (let most = pairs.total; most > 1; most = Math.floor(most / 2)) {
    const cell = stripOf(pairs, most).cells.get(key);
    if (cell) return cell.moves.map((move) => move.name);
  }
  return [];
}

/** The figure of a cell: that of the tensor that moved farthest. */
export function farthest(cell: Cell, metric: Metric): number | null {
  const figures = cell.moves.map((move) => figureOf(move, metric)).filter((figure): figure is number => figure !== null);
  if (cell.tensors > cell.moves.length) figures.push(0);
  return figures.length ? Math.max(...figures) : null;
}

export type Structural = "added" | "removed" | "reshaped";

/** What became of a cell beyond numbers. */
export const structureOf = (cell: Cell): Structural | null =>
  (["reshaped", "removed", "added"] as const).find((change) => cell.moves.some((move) => move.change === change)) ?? null;
