/** How far the tensors of a model moved between two versions: by layer and by kind. */

import { getJson, view, type EqualTensors, type TensorMove, type TensorMoves } from "../api";
import { NUMBERS } from "../versions";
import { KINDS } from "../colours";

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

/** Load all pairs page by page; `show` gets those that are there. */
export async function loadMoves(before: string, after: string, signal: AbortSignal, show?: (pairs: Pairs, done: boolean) => void, sample?: number): Promise<Pairs> {
  let found = NO_PAIRS;
  for (let cursor: string | null = ""; cursor !== null;) {
    const { items, equal, compared, total, next }: TensorMoves = await getJson(view(after, ["moves"], { before, sample, limit: 1000, cursor }), signal);
    found = { items: [...found.items, ...items], equal: [...found.equal, ...equal], compared: found.compared + compared, total };
    cursor = next;
    show?.(found, cursor === null);
  }
  return found;
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

interface Part { layer: string; kind: string; tensors: number; moves: TensorMove[] }

const partsOf = ({ items, equal }: Pairs): Part[] => [
  ...items.map((move) => ({ layer: move.layer, kind: move.kind, tensors: 1, moves: [move] })),
  ...equal.flatMap((run) => layersOf(run).map((layer) => ({ layer, kind: run.kind, tensors: run.count, moves: [] }))),
];

/** The columns of a strip, and the column of each layer. */
export interface Columns { names: string[]; at: Map<string, number> }

/** Columns for the layers of models. Where there are more than `most`, neighbours of the longest series share them. */
export function columnsOf(all: readonly Pairs[], most: number): Columns {
  const series = new Map<string, Map<string, number>>();
  for (const { layer } of all.flatMap(partsOf)) {
    const [stem, number] = numbered(layer);
    const members = series.get(stem) ?? new Map<string, number>();
    series.set(stem, members.set(layer, number));
  }
  let cap = most;
  while (cap > 1 && [...series.values()].reduce((sum, { size }) => sum + Math.min(size, cap), 0) > most) cap = Math.floor(cap * 0.9);
  const at = new Map<string, number>();
  const names: string[] = [];
  for (const [, members] of [...series].sort(([one], [other]) => NUMBERS.compare(one, other))) {
    const layers = [...members].sort(([, one], [, other]) => one - other).map(([layer]) => layer);
    const step = Math.ceil(layers.length / cap);
    layers.forEach((layer, n) => {
      if (n % step === 0) names.push(step > 1 && layers[n + 1] ? `${layer}${TO}${layers[Math.min(n + step, layers.length) - 1]}` : layer);
      at.set(layer, names.length - 1);
    });
  }
  return { names, at };
}

const TO = " … ";

/** Layers by kinds, or with all `kinds` in one row. */
export function stripOf(pairs: Pairs, { names, at }: Columns, kinds = true): Strip {
  const parts = partsOf(pairs);
  const known = new Set(parts.map(({ kind }) => kind));
  const rows = kinds ? KINDS.filter((kind) => known.has(kind)) : [""];
  const cells = new Map<string, Cell>();
  for (const { layer, kind, tensors, moves } of parts) {
    const [column, row] = [at.get(layer)!, kinds ? rows.indexOf(kind) : 0];
    const key = cellKey(names[column]!, rows[row]!);
    const cell = cells.get(key) ?? { column, row, moves: [], tensors: 0 };
    cell.moves.push(...moves);
    cell.tensors += tensors;
    cells.set(key, cell);
  }
  return { columns: names, rows, cells };
}

/** Names of the tensors that moved in a cell of any strip: one of neighbouring layers is named by its first and last. */
export function namesIn({ items }: Pairs, key: string): string[] {
  const space = key.lastIndexOf(" ");
  const [column, kind] = [key.slice(0, space), key.slice(space + 1)];
  const [first = "", last = first] = column.split(TO);
  const [[stem, from], [, to]] = [numbered(first), numbered(last)];
  const inside = (layer: string): boolean => {
    const [own, number] = numbered(layer);
    return layer === column || (own === stem && first !== last && from <= number && number <= to);
  };
  return items.filter((move) => inside(move.layer) && (!kind || move.kind === kind)).map(({ name }) => name);
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
