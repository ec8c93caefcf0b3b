/** How far the tensors of a model moved between two versions: by layer and by kind. */

import { getJson, view, type Page, type TensorMove } from "../api";
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

/** Loads all pairs page by page; `show` gets those that are there. */
export async function loadMoves(before: string, after: string, signal: AbortSignal, show: (moves: TensorMove[], done: boolean) => void): Promise<void> {
  const found: TensorMove[] = [];
  for (let cursor: string | null = ""; cursor !== null;) {
    const page: Page<TensorMove> = await getJson(view(after, ["moves"], { before, limit: 1000, cursor }), signal);
    found.push(...page.items);
    cursor = page.next;
    show([...found], cursor === null);
  }
}

export interface Cell { column: number; row: number; moves: TensorMove[] }
export interface Strip { columns: string[]; rows: string[]; cells: Map<string, Cell> }

export const cellKey = (column: string, row: string): string => `${column} ${row}`;

/** The column of a tensor: its layer, which the first number in its name tells, else the first step of its name. */
function columnOf(name: string): string {
  const [, layer] = /^(.*?\d+)(?=\D|$)/.exec(name) ?? [];
  return layer ?? /^[./]*[^./:]*/.exec(name)![0];
}

/** Layers by kinds. Where there are more than `most`, neighbours of the longest series share columns. */
export function stripOf(moves: readonly TensorMove[], most: number): Strip {
  const layers = [...new Set(moves.map((move) => columnOf(move.name)))];
  const series = new Map<string, string[]>();
  for (const layer of layers) {
    const name = layer.replace(/\d+$/, "");
    const members = series.get(name);
    if (members) members.push(layer);
    else series.set(name, [layer]);
  }
  let cap = most;
  while (cap > 1 && [...series.values()].reduce((sum, { length }) => sum + Math.min(length, cap), 0) > most) cap = Math.floor(cap * 0.9);
  const place = new Map<string, number>();
  const columns: string[] = [];
  for (const members of series.values()) {
    const step = Math.ceil(members.length / cap);
    members.forEach((layer, n) => {
      if (n % step === 0) columns.push(step > 1 && members[n + 1] ? `${layer} … ${members[Math.min(n + step, members.length) - 1]}` : layer);
      place.set(layer, columns.length - 1);
    });
  }
  const rows = KINDS.filter((kind) => moves.some((move) => move.kind === kind));
  const cells = new Map<string, Cell>();
  for (const move of moves) {
    const [column, row] = [place.get(columnOf(move.name))!, rows.indexOf(move.kind)];
    const key = cellKey(columns[column]!, rows[row]!);
    const cell = cells.get(key) ?? { column, row, moves: [] };
    cell.moves.push(move);
    cells.set(key, cell);
  }
  return { columns, rows, cells };
}

/** Names of the tensors in a cell of any strip: one of neighbouring layers is named by its first and last. */
export function namesIn(moves: readonly TensorMove[], key: string): string[] {
  for (let most = moves.length; most > 1; most = Math.floor(most / 2)) {
    const cell = stripOf(moves, most).cells.get(key);
    if (cell) return cell.moves.map((move) => move.name);
  }
  return [];
}

/** The figure of a cell: that of the tensor that moved farthest. */
export function farthest(cell: Cell, metric: Metric): number | null {
  const figures = cell.moves.map((move) => figureOf(move, metric)).filter((figure): figure is number => figure !== null);
  return figures.length ? Math.max(...figures) : null;
}

export type Structural = "added" | "removed" | "reshaped";

/** What became of a cell beyond numbers. */
export const structureOf = (cell: Cell): Structural | null =>
  (["reshaped", "removed", "added"] as const).find((change) => cell.moves.some((move) => move.change === change)) ?? null;
