/** Places of tiles: siblings next to each other, as many levels as have room for theirs. */

import { treemapSquarify } from "d3-hierarchy";
import { keyOf, pathTo, rangeOf, type Measure, type WeightNode } from "./nodes";

export interface Box { x: number; y: number; w: number; h: number }

/** A tile in the picture's own coordinates. */
export interface Tile extends Box {
  node: WeightNode;
  key: string;
  depth: number;
  /** The part at its top that has its name, while it is open. */
  head: number;
  above: Tile | null;
  children: Tile[] | null;
}

/** What is seen: the point at the upper left, and the scale. */
export interface Look { x: number; y: number; k: number }

/** Pixels that a name needs. */
export const NAMED = { w: 38, h: 15 };
const HEAD = 0.09;
const MOST_HEAD = 24;
/** The share of a group's area that may belong to tiles without room for a name. */
const UNNAMED = 0.04;

export class Layout {
  readonly root: Tile;

  constructor(node: WeightNode, readonly width: number, readonly height: number, private readonly measure: Measure, private readonly heads = true) {
    this.root = { node, key: keyOf(node), x: 0, y: 0, w: width, h: height, depth: 0, head: 0, above: null, children: null };
  }

  /** The tiles of a group; null while they are not loaded, and for a tensor. */
  below(tile: Tile): Tile[] | null {
    if (tile.children) return tile.children;
    const nodes = tile.node.children;
    if (!nodes?.length) return null;
    tile.head = tile.depth && this.heads ? Math.min(HEAD * tile.h, MOST_HEAD) : 0;
    // Small neighbours become one until those that are left have room for their names when the group fills the picture.
    const k = Math.min(this.width / tile.w, this.height / tile.h);
    for (let least = (2 * NAMED.w * NAMED.h) / (this.width * this.height); ; least *= 2) {
      const found = this.placed(tile, this.folded(tile, nodes, least));
      if (least > 0.2 || this.named(tile, found, k)) return (tile.children = found);
    }
  }

  /** True where nearly all of a group's area is of members with room for their names at the scale `k`. */
  private named(tile: Tile, children: readonly Tile[], k: number): boolean {
    const area = children.reduce((sum, child) => sum + (roomForName(child, k) ? child.w * child.h : 0), 0);
    return area >= (1 - UNNAMED) * tile.w * (tile.h - tile.head);
  }

  private amount = (node: WeightNode): number => Math.max(node[this.measure], 0);

  private placed(tile: Tile, nodes: WeightNode[]): Tile[] {
    const value = nodes.reduce((sum, node) => sum + this.amount(node), 0);
    const spots = nodes.map((node) => ({ node, value: this.amount(node), x0: 0, y0: 0, x1: 0, y1: 0 }));
    const shown = spots.filter((spot) => spot.value > 0);
    // The tiling needs no more of a hierarchy than this.
    treemapSquarify({ value, children: shown } as never, tile.x, tile.y + tile.head, tile.x + tile.w, tile.y + tile.h);
    return shown.map(({ node, x0, y0, x1, y1 }) => ({
      node, key: keyOf(node), x: x0, y: y0, w: x1 - x0, h: y1 - y0, depth: tile.depth + 1, head: 0, above: tile, children: null,
    }));
  }

  /** The nodes in the order in which they are shown; neighbours that have less than `least` of the group are one. */
  private folded(tile: Tile, nodes: WeightNode[], least: number): WeightNode[] {
    const whole = Math.max(this.amount(tile.node), 1);
    const numbered = nodes.filter(({ label }) => /^\P{L}*\d/u.test(label)).length > nodes.length / 2;
    const even = nodes.reduce((most, node) => Math.max(most, this.amount(node)), 0) * nodes.length < 6 * whole;
    const ordered = (numbered || tile.node.range) && even ? nodes : [...nodes].sort((a, b) => this.amount(b) - this.amount(a));
    const small = (node: WeightNode) => this.amount(node) < least * whole;
    if (ordered.reduce((sum, node) => sum + (small(node) ? this.amount(node) : 0), 0) <= (UNNAMED / 2) * whole) return ordered;
    const [found, run]: [WeightNode[], WeightNode[]] = [[], []];
    let size = 0;
    const flush = () => {
      if (run.length) found.push(run.length === 1 ? run[0]! : rangeOf([...run], tile.node));
      [run.length, size] = [0, 0];
    };
    for (const node of ordered) {
      if (!small(node)) { flush(); found.push(node); continue; }
      run.push(node);
      if ((size += this.amount(node)) >= 2 * least * whole) flush();
    }
    flush();
    // Neighbours that are everything would be a group in itself, for ever.
    return found.length > 1 ? found : ordered;
  }

  /** True for a group whose members have room for their names at the scale `k`. */
  private opens(tile: Tile, k: number): boolean {
    const children = this.below(tile);
    if (!children) return false;
    if (!tile.depth) return true;
    if (tile.w * k < 2.5 * NAMED.w || tile.head * k < 0.8 * NAMED.h) return false;
    return this.named(tile, children, k);
  }

  /** The groups that open: those that look alike, such as numbered layers, all or none. */
  private *alike(tiles: readonly Tile[], k: number): Iterable<Tile> {
    const closed = new Set<number>();
    for (const tile of tiles) if (!this.opens(tile, k)) closed.add(tile.node.tensors);
    for (const tile of tiles) if (!closed.has(tile.node.tensors)) yield tile;
  }

  /** The tiles in sight, groups before their members; `open` has those whose members are shown. */
  shown({ x, y, k }: Look, margin: number): { tiles: Tile[]; open: Set<Tile> } {
    const [tiles, open]: [Tile[], Set<Tile>] = [[], new Set()];
    const forced = new Set<Tile>();
    for (let tile: Tile | null = this.at({ x, y, k }); tile; tile = tile.above) forced.add(tile);
    const [dx, dy] = [(margin * this.width) / k, (margin * this.height) / k];
    const area = { x: x - dx, y: y - dy, w: this.width / k + 2 * dx, h: this.height / k + 2 * dy };
    const walk = (tile: Tile) => {
      if (!overlap(tile, area) || tile.w * k < 1 || tile.h * k < 1) return;
      if (tile.depth) tiles.push(tile);
      // What fills the view is open, or there would be no way into it.
      if (!this.below(tile) || !(forced.has(tile) || wanted.has(tile))) return;
      open.add(tile);
      const children = this.below(tile)!.filter((child) => overlap(child, area));
      for (const child of this.alike(children, k)) wanted.add(child);
      children.forEach(walk);
    };
    const wanted = new Set([this.root]);
    walk(this.root);
    if (!this.below(this.root)) tiles.push(this.root);
    return { tiles, open };
  }

  /** The tile of a node; null where it is not among those loaded, or not below this root. */
  find(node: WeightNode): Tile | null {
    const path = pathTo(node);
    let tile = this.root;
    for (const step of path.slice(path.indexOf(tile.node) + 1)) {
      while (tile.node !== step) {
        const next = this.below(tile)?.find((child) => child.node === step || gathers(child.node, step));
        if (!next) return null;
        tile = next;
      }
    }
    return tile.node === node ? tile : null;
  }

  /** The look at which a tile fills the picture. */
  fit(tile: Tile): Look {
    const k = Math.max(1, Math.min(this.width / tile.w, this.height / tile.h));
    return this.kept({ x: tile.x + tile.w / 2 - this.width / (2 * k), y: tile.y + tile.h / 2 - this.height / (2 * k), k });
  }

  /** The look nearest to `look` that shows nothing beyond the picture. */
  kept({ x, y, k }: Look): Look {
    const scale = Math.min(Math.max(k, 1), 1e9);
    const most = (size: number) => size - size / scale;
    return { k: scale, x: Math.min(Math.max(x, 0), most(this.width)), y: Math.min(Math.max(y, 0), most(this.height)) };
  }

  /** The smallest group that holds most of what is seen. */
  at(look: Look): Tile {
    const area = { x: look.x, y: look.y, w: this.width / look.k, h: this.height / look.k };
    let tile = this.root;
    for (; look.k > 1;) {
      const next = this.below(tile)?.find((child) => child.node.tensors > 1 && common(child, area) >= 0.6 * area.w * area.h);
      if (!next) break;
      tile = next;
    }
    return tile;
  }
}

/** True for neighbours shown as one, with `node` among them. */
const gathers = (group: WeightNode, node: WeightNode): boolean =>
  group.gathered && group.children!.some((child) => child === node || gathers(child, node));

export const roomForName = (box: Box, k: number): boolean => box.w * k >= NAMED.w && box.h * k >= NAMED.h;

const overlap = (one: Box, other: Box): boolean => common(one, other) > 0;

function common(one: Box, other: Box): number {
  const w = Math.min(one.x + one.w, other.x + other.w) - Math.max(one.x, other.x);
  const h = Math.min(one.y + one.h, other.y + other.h) - Math.max(one.y, other.y);
  return w > 0 && h > 0 ? w * h : 0;
}
