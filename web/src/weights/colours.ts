/** Colours of tensors by what is known of them. */

import type { Statistics } from "../api";
import { DTYPES, flat, hueOf, KINDS } from "../colours";
import type { WeightNode } from "./nodes";

export const WAYS = { kind: "Kind", dtype: "Data type", deviation: "Standard deviation", zeros: "Sparsity", outliers: "Outliers" } as const;
export type Way = keyof typeof WAYS;
export const needsStatistics = (way: Way): boolean => way !== "kind" && way !== "dtype";

const UNKNOWN = (dark: boolean): string => (dark ? "hsl(220 12% 20%)" : "hsl(220 20% 93%)");

/** A figure of a tensor's statistics that is made a colour; null where there is none. */
export function figureOf(way: Way, { looked_at: count, zeros, deviation, min, max, mean }: Statistics): number | null {
  if (way === "zeros") return count ? zeros / count : null;
  if (deviation === null || !(deviation > 0)) return null;
  if (way === "deviation") return Math.log10(deviation);
  return min === null || max === null ? null : Math.max(max - (mean ?? 0), (mean ?? 0) - min) / deviation;
}

export interface Scale { least: number; most: number }

/** The colours that a way makes of its figures. */
export function scaleOf(way: Way, found: ReadonlyMap<string, Statistics | null>): Scale {
  if (way === "zeros") return { least: 0, most: 1 };
  const figures = [...found.values()].map((each) => each && figureOf(way, each)).filter((each): each is number => each !== null && Number.isFinite(each));
  return { least: Math.min(...figures, Infinity), most: Math.max(...figures, -Infinity) };
}

/** From violet over teal to yellow: lighter is more. */
const ramp = (at: number, dark: boolean): string => `hsl(${280 - 225 * at} ${55 + 20 * at}% ${(dark ? 24 : 38) + (dark ? 38 : 42) * at}%)`;

export interface Painter {
  of: (node: WeightNode) => string;
  /** What the color of a node means, in words. */
  says: (node: WeightNode) => string;
  legend: (nodes: readonly WeightNode[]) => Legend;
}
export interface Legend { swatches: { name: string; colour: string }[]; scale: [string, string] | null }

export function painter(way: Way, dark: boolean, statistics: ReadonlyMap<string, Statistics | null>): Painter {
  if (needsStatistics(way)) {
    const scale = scaleOf(way, statistics);
    const label = (value: number) => (way === "zeros" ? `${Math.round(100 * value)} %` : way === "deviation" ? (10 ** value).toPrecision(2) : `${value.toPrecision(2)} σ`);
    const figureAt = (node: WeightNode) => {
      const found = node.address === null ? null : statistics.get(node.address);
      return found ? figureOf(way, found) : null;
    };
    const says = (node: WeightNode) => { const figure = figureAt(node); return figure === null ? "" : `${WAYS[way]} ${label(figure)}`; };
    const of = (node: WeightNode) => {
      const figure = figureAt(node);
      if (figure === null) return UNKNOWN(dark);
      return ramp(scale.most > scale.least ? (figure - scale.least) / (scale.most - scale.least) : 0.5, dark);
    };
    const ends = (): [string, string] | null => (scale.most >= scale.least ? [label(scale.least), label(scale.most)] : null);
    return { of, says, legend: () => ({ swatches: [0, 0.25, 0.5, 0.75, 1].map((at) => ({ name: "", colour: ramp(at, dark) })), scale: ends() }) };
  }
  const name = way === "kind" ? (node: WeightNode) => node.kind ?? "other" : (node: WeightNode) => node.dtype ?? "unknown";
  const names = way === "kind" ? KINDS : DTYPES;
  const of = (node: WeightNode) => flat(hueOf(names, name(node)), dark);
  const legend = (nodes: readonly WeightNode[]): Legend => {
    const sizes = new Map<string, number>();
    for (const node of nodes) sizes.set(name(node), (sizes.get(name(node)) ?? 0) + node.size);
    const shown = [...sizes].sort((a, b) => b[1] - a[1]).slice(0, 10);
    return { swatches: shown.map(([each]) => ({ name: each, colour: flat(hueOf(names, each), dark) })), scale: null };
  };
  return { of, says: name, legend };
}
