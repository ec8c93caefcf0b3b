/** Places of blocks: levels in ranks from left to right, which are broken into rows like words; open blocks around theirs. */

/** A part of a level, as far as its place depends on it. */
export interface Sized { id: number | null; lines: number; folded: boolean }
export interface Level { parts: Sized[]; links: readonly (readonly [source: number, target: number])[] }
/** What is laid out: levels by block, those that are open, and the width that the outermost may have. */
export interface Task { levels: ReadonlyMap<number, Level>; open: ReadonlySet<number>; width: number }

export interface Box { level: number; part: number; x: number; y: number; w: number; h: number; depth: number; open: boolean }
/** A line of one link, as a path, with its place; and where there is room for a word about it. */
export interface Wire { level: number; link: number; d: string; x: number; y: number; w: number; h: number; at: [x: number, y: number] | null }
export interface Plan { boxes: Box[]; wires: Wire[]; width: number; height: number }

export const BLOCK = { w: 150, h: 56 };
const LINE = 15;
export const GAP = 64;
const ROOM = 14;
const LANE = 10;
const ROWS = 34;
const HEAD = 26;
const EDGE = 18;
const SWEEPS = 4;

export function planOf(task: Task): Plan {
  const plan = arranged(task, 0, task.width, 0);
  return { ...plan, boxes: plan.boxes.sort((a, b) => a.depth - b.depth) };
}

interface Item { part: number; w: number; h: number; rank: number; y: number; inner: Plan | null }

function arranged(task: Task, id: number, width: number, depth: number): Plan {
  const { parts, links } = task.levels.get(id)!;
  const ranks = ranksOf(parts, links);
  const items = new Map<number, Item>();
  parts.forEach((part, number) => {
    if (part.folded) return;
    const opens = part.id !== null && task.open.has(part.id) && task.levels.has(part.id);
    const inner = opens ? arranged(task, part.id!, Math.max(width - 2 * EDGE, BLOCK.w * 2 + GAP), depth + 1) : null;
    const [w, h] = inner ? [inner.width + 2 * EDGE, inner.height + HEAD + EDGE] : [BLOCK.w, BLOCK.h + LINE * part.lines];
    items.set(number, { part: number, w, h, rank: ranks[number]!, y: 0, inner });
  });
  const forward = links.filter(([source, target]) => items.has(source) && items.has(target) && ranks[source]! < ranks[target]!);
  const columns = columnsOf([...items.values()], forward, ranks);
  heights(columns);
  return drawn(id, width, depth, columns, links);
}

/** Ranks: each part behind those that it takes from; what takes nothing just before what needs it; what is alone at the end. */
function ranksOf(parts: readonly Sized[], links: Level["links"]): number[] {
  const into = parts.map((): number[] => []);
  const out = parts.map((): number[] => []);
  const fed = new Set<number>();
  for (const [source, target] of links) {
    if (source < 0) fed.add(target);
    else if (target >= 0 && source < target && !parts[source]!.folded && !parts[target]!.folded) { into[target]!.push(source); out[source]!.push(target); }
  }
  const ranks = parts.map(() => 0);
  for (let part = 0; part < parts.length; part += 1) ranks[part] = Math.max(0, ...into[part]!.map((source) => ranks[source]! + 1));
  for (let part = parts.length - 1; part >= 0; part -= 1) {
    if (!into[part]!.length && out[part]!.length) ranks[part] = Math.max(0, Math.min(...out[part]!.map((target) => ranks[target]!)) - 1);
  }
  let next = Math.max(0, ...ranks) + 1;
  parts.forEach((part, number) => {
    if (!part.folded && !into[number]!.length && !out[number]!.length && parts.length > 1 && !(fed.has(number) && number === 0)) { ranks[number] = next; next += 1; }
  });
  // Ranks that nothing is in any more are closed.
  const used = [...new Set(ranks.filter((_, number) => !parts[number]!.folded))].sort((a, b) => a - b);
  const closed = new Map(used.map((rank, number) => [rank, number]));
  return ranks.map((rank) => closed.get(rank) ?? 0);
}

/** What stands in one rank: parts, and lanes of links that pass by. */
interface Slot { item: Item | null; source: number; h: number; y: number; before: Slot[]; after: Slot[] }

function columnsOf(items: readonly Item[], links: Level["links"], ranks: readonly number[]): Slot[][] {
  const columns: Slot[][] = [];
  const slotOf = new Map<number, Slot>();
  const slot = (rank: number, item: Item | null, source: number, h: number): Slot => {
    const made: Slot = { item, source, h, y: 0, before: [], after: [] };
    (columns[rank] ??= []).push(made);
    return made;
  };
  for (const item of items) slotOf.set(item.part, slot(item.rank, item, item.part, item.h));
  const lanes = new Map<number, Slot[]>();
  const join = (one: Slot, other: Slot) => { if (!one.after.includes(other)) { one.after.push(other); other.before.push(one); } };
  for (const [source, target] of links) {
    const lane = lanes.get(source) ?? [slotOf.get(source)!];
    lanes.set(source, lane);
    const first = ranks[source]!;
    while (first + lane.length < ranks[target]!) {
      const next = slot(first + lane.length, null, source, LANE);
      join(lane.at(-1)!, next);
      lane.push(next);
    }
    join(lane[ranks[target]! - first - 1]!, slotOf.get(target)!);
  }
  return Array.from(columns, (column) => column ?? []);
}

const mean = (slots: readonly Slot[], otherwise: number): number => (slots.length ? slots.reduce((sum, each) => sum + each.y, 0) / slots.length : otherwise);

/** Orders the slots of each rank and gives them heights: near those they are linked to, and apart from each other. */
function heights(columns: readonly Slot[][]): void {
  columns.forEach((column) => spread(column, column.map((_, number) => number)));
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const along = sweep % 2 ? [...columns].reverse() : columns;
    for (const column of along) {
      const wanted = new Map(column.map((slot) => {
        const [near, far] = sweep % 2 ? [slot.after, slot.before] : [slot.before, slot.after];
        return [slot, mean(near.length ? near : far, slot.y)];
      }));
      column.sort((a, b) => wanted.get(a)! - wanted.get(b)!);
      spread(column, column.map((slot) => wanted.get(slot)!));
    }
  }
}

/** Gives `column` the heights nearest to `wanted` at which nothing overlaps: neighbours that would are moved as one. */
function spread(column: readonly Slot[], wanted: readonly number[]): void {
  const groups: { first: number; sum: number; count: number; size: number }[] = [];
  const offsets: number[] = [];
  let offset = 0;
  column.forEach((slot, number) => {
    offsets.push(offset + slot.h / 2);
    offset += slot.h + ROOM;
    let last = { first: number, sum: wanted[number]! - offsets[number]!, count: 1, size: slot.h + ROOM };
    for (let before = groups.at(-1); before && before.sum / before.count >= last.sum / last.count; before = groups.at(-1)) {
      groups.pop();
      last = { first: before.first, sum: before.sum + last.sum, count: before.count + last.count, size: before.size + last.size };
    }
    groups.push(last);
  });
  groups.forEach(({ first, sum, count }, number) => {
    const end = groups[number + 1]?.first ?? column.length;
    for (let at = first; at < end; at += 1) column[at]!.y = sum / count + offsets[at]!;
  });
}

interface Row { top: number; bottom: number; right: number; y: number; lanes: number }

function drawn(id: number, width: number, depth: number, columns: readonly Slot[][], links: Level["links"]): Plan {
  const rows: Row[] = [];
  const rowOf: number[] = [];
  const left: number[] = [];
  const wide = columns.map((column) => Math.max(0, ...column.map((slot) => slot.item?.w ?? 0)));
  columns.forEach((column, rank) => {
    let row = rows.at(-1);
    if (!row || (row.right > 0 && row.right + GAP + wide[rank]! > width)) rows.push((row = { top: Infinity, bottom: -Infinity, right: 0, y: 0, lanes: 0 }));
    rowOf[rank] = rows.length - 1;
    left[rank] = row.right && row.right + GAP;
    row.right = left[rank]! + wide[rank]!;
    for (const slot of column) {
      row.top = Math.min(row.top, slot.y - slot.h / 2);
      row.bottom = Math.max(row.bottom, slot.y + slot.h / 2);
    }
  });
  let bottom = 0;
  for (const row of rows) { row.y = bottom - row.top; bottom += row.bottom - row.top + ROWS; }
  const plan: Plan = { boxes: [], wires: [], width: Math.max(0, ...rows.map((row) => row.right)), height: Math.max(0, bottom - ROWS) };
  const placeOf = new Map<number, { x: number; y: number; item: Item }>();
  const laneY = new Map<string, number>();
  columns.forEach((column, rank) => {
    const row = rows[rowOf[rank]!]!;
    for (const { item, source, y } of column) {
      if (!item) { laneY.set(`${source} ${rank}`, y + row.y); continue; }
      const x = left[rank]! + (wide[rank]! - item.w) / 2;
      const top = y + row.y - item.h / 2;
      placeOf.set(item.part, { x, y: y + row.y, item });
      plan.boxes.push({ level: id, part: item.part, x, y: top, w: item.w, h: item.h, depth, open: item.inner !== null });
      if (item.inner) put(plan, item.inner, x + EDGE, top + HEAD);
    }
  });
  const labelled = new Set<number>();
  links.forEach(([source, target], link) => {
    const [from, to] = [placeOf.get(source), placeOf.get(target)];
    const pen = new Pen();
    let at: Wire["at"] = null;
    if (from && to && from.item.rank < to.item.rank) {
      pen.move(from.x + from.item.w, from.y);
      for (let rank = from.item.rank; rank < to.item.rank; rank += 1) {
        const next = rank + 1 === to.item.rank;
        const y = next ? to.y : laneY.get(`${source} ${rank + 1}`)!;
        if (rowOf[rank] !== rowOf[rank + 1]) {
          const row = rows[rowOf[rank]!]!;
          const shift = (row.lanes % 5) * 4 - 8;
          row.lanes += 1;
          pen.turn(row.right + 8 + shift / 2, row.bottom + row.y + ROWS / 2 + shift, shift / 2 - 8, y, left[rank + 1]!);
        } else pen.curve(left[rank + 1]!, y);
        if (next) pen.line(to.x, y); else pen.line(left[rank + 1]! + wide[rank + 1]!, y);
      }
      const apart = left[from.item.rank + 1]! - (from.x + from.item.w);
      if (!labelled.has(source) && rowOf[from.item.rank] === rowOf[from.item.rank + 1] && apart >= GAP - 1) { labelled.add(source); at = [from.x + from.item.w + 3, from.y]; }
    } else if (from && to && source !== target) { // against the order: around below
      const below = Math.max(from.y + from.item.h / 2, to.y + to.item.h / 2) + 9;
      pen.move(from.x + from.item.w, from.y);
      pen.corners([[from.x + from.item.w + 10, from.y], [from.x + from.item.w + 10, below], [to.x - 10, below], [to.x - 10, to.y], [to.x, to.y]]);
    } else if (id && from && target < 0) { pen.move(from.x + from.item.w, from.y); pen.line(from.x + from.item.w + EDGE, from.y); }
    else if (id && to && source < 0) { pen.move(to.x - EDGE, to.y); pen.line(to.x, to.y); }
    if (pen.d) plan.wires.push({ level: id, link, d: pen.d, ...pen.box(), at });
  });
  return plan;
}

/** Puts an inner plan into `plan`. */
function put(plan: Plan, inner: Plan, x: number, y: number): void {
  for (const box of inner.boxes) plan.boxes.push({ ...box, x: box.x + x, y: box.y + y });
  for (const wire of inner.wires) {
    const d = wire.d.replace(/(-?[\d.]+) (-?[\d.]+)/g, (_, a: string, b: string) => `${round(Number(a) + x)} ${round(Number(b) + y)}`);
    plan.wires.push({ ...wire, d, x: wire.x + x, y: wire.y + y, at: wire.at && [wire.at[0] + x, wire.at[1] + y] });
  }
}

const round = (value: number): number => Math.round(value * 10) / 10;

/** Writes a path, all of whose numbers are coordinates. */
class Pen {
  d = "";
  private x = 0;
  private y = 0;
  private least = [Infinity, Infinity];
  private most = [-Infinity, -Infinity];

  box() { return { x: this.least[0]!, y: this.least[1]!, w: this.most[0]! - this.least[0]!, h: this.most[1]! - this.least[1]! }; }
  move(x: number, y: number): void { this.add("M", [x, y]); }
  line(x: number, y: number): void { if (Math.abs(x - this.x) > 0.1 || Math.abs(y - this.y) > 0.1) this.add("L", [x, y]); }

  /** To the right, level at both ends. */
  curve(x: number, y: number): void {
    if (Math.abs(y - this.y) < 0.1) return this.line(x, y);
    const middle = (this.x + x) / 2;
    this.add("C", [middle, this.y], [middle, y], [x, y]);
  }

  /** Around the end of a row to the begin of the next. */
  turn(right: number, below: number, before: number, y: number, x: number): void {
    this.corners([[right, this.y], [right, below], [before, below], [before, y], [x, y]]);
  }

  /** Straight to all `points`, with round corners between. */
  corners(points: readonly (readonly [number, number])[]): void {
    points.forEach(([x, y], number) => {
      const next = points[number + 1];
      if (!next) return this.line(x, y);
      const radius = Math.min(8, Math.hypot(x - this.x, y - this.y) / 2, Math.hypot(next[0] - x, next[1] - y) / 2);
      this.line(x - Math.sign(x - this.x) * radius, y - Math.sign(y - this.y) * radius);
      this.add("Q", [x, y], [x + Math.sign(next[0] - x) * radius, y + Math.sign(next[1] - y) * radius]);
    });
  }

  private add(letter: string, ...points: (readonly [number, number])[]): void {
    this.d += letter + points.map(([x, y]) => `${round(x)} ${round(y)}`).join(" ");
    for (const [x, y] of points) {
      this.least = [Math.min(this.least[0]!, x), Math.min(this.least[1]!, y)];
      this.most = [Math.max(this.most[0]!, x), Math.max(this.most[1]!, y)];
      [this.x, this.y] = [x, y];
    }
  }
}
