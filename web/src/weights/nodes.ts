/** Tensors as a tree of their names: nodes are loaded as they come into sight. */

import { getJson, view, type Branch } from "../api";

export interface WeightNode {
  /** What is shown of the name. */
  label: string;
  /** What all names below begin with; of a single tensor its name. */
  prefix: string;
  parent: WeightNode | null;
  start: number;
  tensors: number;
  size: number;
  elements: number;
  /** Elements of weights. */
  parameters: number;
  dtype: string | null;
  /** The kind of layer with the most bytes. */
  kind: string | null;
  /** Of a single tensor. */
  address: string | null;
  shape: readonly number[] | null;
  range: boolean;
  /** True for neighbours that are shown as one because they are small. */
  gathered: boolean;
  /** Null before they are loaded; empty for a single tensor. */
  children: WeightNode[] | null;
}

export type Measure = "size" | "elements";

/** The nodes of an answer. */
export function nodeOf(branch: Branch, above = "", parent: WeightNode | null = null): WeightNode {
  const range = branch.last !== undefined && branch.last !== null;
  const prefix = range ? above : above + branch.name;
  const node: WeightNode = {
    label: labelOf(branch), prefix, parent, start: branch.start, tensors: branch.tensors, size: branch.size, elements: branch.elements, parameters: branch.parameters ?? branch.elements,
    dtype: branch.dtype, kind: branch.kind, address: branch.address ?? null, shape: branch.shape ?? null, range, gathered: false, children: branch.tensors < 2 ? [] : null,
  };
  if (branch.children?.length) node.children = branch.children.map((child) => nodeOf(child, prefix, node));
  return node;
}

function labelOf({ name, last, address }: Branch): string {
  const first = stripped(name) || name || address || "(same name)";
  return last ? spanned(stripped(name), stripped(last)) : first;
}

/** A range by its ends: `0–11`, `MatMul_10 … 99`. */
const spanned = (first: string, last: string): string => {
  const end = shortLast(first, last);
  return /^\d+$/.test(first) && /^\d+$/.test(end) ? `${first}–${end}` : `${first} … ${end}`;
};

const stripped = (name: string): string => name.replace(/[./:]+$/, "");

/** The end of a range without what it has in common with its beginning: `MatMul_10 … 99`. */
function shortLast(first: string, last: string): string {
  let same = 0;
  while (same < Math.min(first.length, last.length) && first[same] === last[same]) same += 1;
  while (same > 0 && /[\p{L}\p{N}]/u.test(last[same - 1]!) && /[\p{L}\p{N}]/u.test(last[same] ?? "")) same -= 1;
  return last.slice(same) || last;
}

/** Identifies a node in its model. */
export const keyOf = (node: WeightNode): string => `${node.start}+${node.tensors}.${node.prefix.length}${node.gathered ? "g" : node.range ? "r" : ""}`;

/** The whole of a model's tensors; its nodes are opened from the largest on. */
export const loadRoot = async (store: string, signal: AbortSignal, limit = 3000): Promise<WeightNode> =>
  nodeOf(await getJson<Branch>(view(store, ["tensortree"], { limit }), signal));

/** The first place and the number of tensors of a range in the address, such as `12-300`. */
export function rangeIn(text: string): [start: number, tensors: number] | null {
  const [, start, tensors] = /^(\d+)-(\d+)$/.exec(text) ?? [];
  return start ? [Number(start), Number(tensors)] : null;
}

/** The tensors whose names begin with `prefix`, or those of them in `range`, with the groups right below. */
export async function loadGroup(store: string, prefix: string, range: [number, number] | null, signal: AbortSignal): Promise<WeightNode> {
  const [start, tensors] = range ?? [null, null];
  return nodeOf(await getJson<Branch>(view(store, ["tensortree"], { prefix, start, tensors, limit: 400 }), signal));
}

/** Loads what is below a node. */
export async function loadBelow(store: string, node: WeightNode): Promise<void> {
  const place = view(store, ["tensortree"], { prefix: node.prefix, start: node.start, tensors: node.tensors, limit: 1000 });
  const found = nodeOf(await getJson<Branch>(place), "", node.parent);
  // Nothing below: names that cannot be distinguished any further.
  node.children = found.children ?? [];
  for (const child of node.children) child.parent = node;
}

const holds = (node: WeightNode, [from, to]: [number, number]): boolean => node.start <= from && to <= node.start + node.tensors;

/** The node with just these tensors, loaded on the way; else the smallest that holds them. */
export async function nodeAt(store: string, root: WeightNode, start: number, tensors: number): Promise<WeightNode> {
  let node = root;
  for (let depth = 0; depth < 64 && node.tensors > tensors; depth += 1) {
    if (!node.children) await loadBelow(store, node);
    const next = node.children?.find((child) => holds(child, [start, start + tensors]));
    if (!next) break;
    node = next;
  }
  return node;
}

/** A node that stands for neighbours which are too small for separate names. */
export function rangeOf(members: WeightNode[], parent: WeightNode): WeightNode {
  const ordered = [...members].sort((a, b) => a.start - b.start);
  const [first, last] = [ordered[0]!, ordered.at(-1)!];
  const sum = (of: (node: WeightNode) => number) => members.reduce((total, node) => total + of(node), 0);
  const most = (of: (node: WeightNode) => string | null) => {
    const totals = new Map<string | null, number>();
    for (const each of members) totals.set(of(each), (totals.get(of(each)) ?? 0) + each.size);
    return [...totals].sort((a, b) => b[1] - a[1])[0]![0];
  };
  const node: WeightNode = {
    label: spanned(first.label.split(/ … |–/)[0]!, last.label.split(/ … |–/).at(-1)!),
    prefix: parent.prefix, parent, start: first.start, tensors: sum((each) => each.tensors), size: sum((each) => each.size),
    elements: sum((each) => each.elements), parameters: sum((each) => each.parameters), dtype: most((each) => each.dtype), kind: most((each) => each.kind), address: null, shape: null, range: true, gathered: true, children: members,
  };
  return node;
}

/** The nodes from the root to a node. */
export function pathTo(node: WeightNode): WeightNode[] {
  return node.parent ? [...pathTo(node.parent), node] : [node];
}
