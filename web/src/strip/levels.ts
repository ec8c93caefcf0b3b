/** Levels of blocks as they are shown: with the inputs and outputs of the graph as parts at its ends. */

import type { GraphBlock, GraphLevel, GraphNode, GraphValue, Neighbourhood } from "../api";
import { many } from "../format";
import type { Level, Sized } from "./layout";

/** A part that is shown: a block of the graph, or its inputs or outputs. */
export interface Shown { key: string; title: string; facts: string; times: number; block: GraphBlock | null; values: readonly GraphValue[]; calls: boolean }
/** A level: its parts, and its links by the numbers of these; -1 for what is outside of it. */
export interface Shelf { parts: Shown[]; links: { source: number; target: number; value: GraphValue; count: number }[]; sized: Level; folded: number }

const MOST_LINES = 3;

/** Operators of nodes that only hold a value: left out unless they are asked for. */
const CONSTANT = /^(Const|Constant|const|constant|fill_constant|assign_value|VarHandleOp|VariableV2)$/;

/** Operators that call one function. */
const CALL = /PartitionedCall$|^RemoteCall$/;

/** Graphs that a node calls or holds: functions by their names, and those below its path. */
export const calledBy = (node: GraphNode, { graphs }: Neighbourhood): Neighbourhood["graphs"] =>
  graphs.filter((each) => each.path.startsWith(`${node.path}.`) || (each.name !== each.path && node.attributes.some(([, text]) => text.includes(`name: "${each.name}"`)))).slice(0, 4);

/** Blocks of the functions that are open within a graph have numbers from these on, function by function. */
const FUNCTION = 1e9;
/** The number of a function's outermost level; `place` is that among the graphs of the model. */
export const levelOf = (place: number): number => (place + 1) * FUNCTION;
export const isFunction = (id: number): boolean => id >= FUNCTION && id % FUNCTION === 0;
/** The place of the graph of a level among those of the model, -1 for the graph that is shown; and its block there. */
export const placeOfLevel = (id: number): [place: number, block: number] => [Math.floor(id / FUNCTION) - 1, id % FUNCTION];

/** A level of a function with the numbers that its blocks have within the graph that is shown. */
export function within(level: GraphLevel, place: number): GraphLevel {
  if (place < 0) return level;
  const base = levelOf(place);
  return { ...level, block: level.block + base, trail: level.trail.map((id) => id + base), parts: level.parts.map((part) => ({ ...part, id: part.id === null ? null : part.id + base })) };
}

/** `calls` has the levels of the calls that are open, by the paths of their nodes. */
export function shelfOf(level: GraphLevel, above: Shown | null, constants: boolean, calls: ReadonlyMap<string, number>): Shelf {
  const parts = level.parts.map((block) => shownOf(block.kind === "node" ? { ...block, id: calls.get(block.path) ?? null } : block, above));
  const [inputs, outputs] = [endOf("inputs", level.inputs, level.block), endOf("outputs", level.outputs, level.block)];
  const shift = inputs ? 1 : 0;
  const [first, last] = [inputs ? 0 : -1, outputs ? parts.length + shift : -1];
  const links = level.links.map(({ source, target, value, count }) =>
    ({ source: source === null ? first : source + shift, target: target === null ? last : target + shift, value, count }));
  const all = [...(inputs ? [inputs] : []), ...parts, ...(outputs ? [outputs] : [])];
  const fed = new Set(links.map(({ target }) => target));
  const used = new Set(links.map(({ source }) => source));
  const sized = all.map(({ block, values }, number): Sized => ({
    id: block?.id ?? null,
    lines: Math.max(0, Math.min(values.length, MOST_LINES + 1) - 1),
    folded: !constants && block !== null && !fed.has(number) && used.has(number) && block.ops.every(({ op }) => CONSTANT.test(op)),
  }));
  return { parts: all, links, sized: { parts: sized, links: links.map(({ source, target }) => [source, target] as const) }, folded: sized.filter(({ folded }) => folded).length };
}

/** True for the key of the inputs or the outputs, which no node has as its name. */
export const isEnd = (key: string): boolean => /^\*(in|out)puts/.test(key);

function endOf(title: "inputs" | "outputs", values: readonly GraphValue[], level: number): Shown | null {
  if (!values.length) return null;
  return { key: `*${title}${level || ""}`, title: values.length === 1 ? title.slice(0, -1) : title, facts: "", times: 0, block: null, values, calls: false };
}

function shownOf(block: GraphBlock, above: Shown | null): Shown {
  const operators = block.ops.map(({ op }) => op);
  const most = telling(operators);
  const weights = block.elements ? many(block.elements, "param") : "";
  const facts = (first: string) => [first, weights].filter(Boolean).join(" · ");
  const calls = block.kind === "node" && CALL.test(operators[0] ?? "");
  const shown = { key: block.kind === "node" ? block.path : String(block.id), times: 0, block, values: [], calls, facts: weights || many(block.nodes, "node") };
  const name = stepOf(block.name);
  switch (block.kind) {
    case "node": return { ...shown, title: operators[0] || name || "node", facts: facts(name.replace(/[\d_]+$/, "") === operators[0] ? "" : name) };
    case "repeat": return { ...shown, title: block.name || most, times: block.items };
    case "group": return { ...shown, title: block.name };
  }
  const range = `${block.number}${block.kind === "part" && block.items > 1 ? `–${(block.number ?? 0) + block.items - 1}` : ""}`;
  if (!above?.times) return { ...shown, title: most };
  const named = `${stepOf(above.block?.name ?? "")} ${range}`.trim();
  return { ...shown, title: block.name || (named.length > 15 ? range : named) };
}

/** The operators that tell the most of a block. */
function telling(operators: readonly string[]): string {
  const shown = operators.filter((op) => !CONSTANT.test(op));
  const order = (op: string) => KINDS.findIndex(([, kind]) => kind === kindOf(op)) >>> 0;
  return (shown.length ? shown : operators).slice(0, 4).sort((a, b) => order(a) - order(b)).slice(0, 2).join(" · ");
}

/** The last step of a name. */
const stepOf = (name: string): string => name.split(/[/.:](?=[^/.:]*[^\d/.:])/).pop() ?? name;

/** A type in few letters: `F32`, `? × 512`. */
export const shapeOf = ({ shape }: GraphValue): string => (shape === null ? "" : shape.length ? shape.map((length) => length ?? "?").join("×") : "scalar");
export const typeOf = (value: GraphValue): string => [value.dtype, shapeOf(value)].filter(Boolean).join(" ");

const KINDS: [RegExp, string][] = [
  [/conv/i, "conv"], [/matmul|gemm|^dot|linear|inner_?product|^mul$|einsum|fully|^fc$|lstm|gru|rnn|attention/i, "dense"],
  [/norm|^bn$|^scale$/i, "norm"], [/relu|sigmoid|softmax|tanh|gelu|silu|swish|erf|activation|hard_?s|prelu|elu|clip/i, "active"],
  [/pool|reduce|mean|argmax|resize|upsample/i, "pool"], [/^(add|sub|div|mul|pow|sqrt|elementwise|bias|eltwise|exp|neg|max|min|equal|where)/i, "sums"],
];
/** The kind of an operator, which has a colour. */
export const kindOf = (op: string): string => (KINDS.find(([words]) => words.test(op)) ?? ["", "shape"])[1] as string;
