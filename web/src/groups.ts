/** Parts of a model as nested areas: by field, and below a list of named elements by the steps of their names. */

import type { Node } from "./api";
import { bytes, many } from "./format";
import { step } from "./parts/tree";
import type { Cell } from "./parts/treemap";

/** The cells of a node. What has a single large part is shown as that part; small parts are summed up in a rest. */
export function cellOf(node: Node): Cell {
  const shown = node.children ?? [];
  const cell: Cell = { key: node.path, label: labelOf(node), size: node.size, deeper: node.deeper };
  const only = shown.length === 1 && shown[0]!.size > 0.9 * node.size ? shown[0]! : null;
  if (!shown.length || (only && !only.children?.length)) return cell;
  if (only && !node.text) return cellOf(only);
  cell.children = grouped(shown.map(cellOf), node.path);
  const rest = node.size - shown.reduce((sum, child) => sum + child.size, 0);
  if (rest > 0 && node.more) {
    cell.children.push({ key: `${node.path}\u0000rest`, label: `${many(node.more, "smaller part")}, ${bytes(rest)}`, size: rest, rest: true });
  }
  return cell;
}

const labelOf = (node: Node): string => (node.text !== null && node.deeper ? unquoted(node.text) : step(node));
const unquoted = (text: string): string => text.replace(/^"(.*)"$/s, "$1");

/** Cells with names such as `encoder.layer.0.weight` nested by the steps of the names, where several share one. */
function grouped(cells: Cell[], above: string): Cell[] {
  const groups = new Map<string, Cell[]>();
  for (const cell of cells) {
    const first = /^[^./:]+(?=[./:])/.exec(cell.label.replace(/^[./]+/, ""))?.[0];
    const key = first ?? `\u0000${cell.key}`;
    groups.set(key, [...(groups.get(key) ?? []), cell]);
  }
  if (groups.size === cells.length) return cells;
  return [...groups].map(([name, members]) => (members.length === 1 ? members[0]! : group(name, members, above)));
}

function group(name: string, members: Cell[], above: string): Cell {
  const key = `${above}\u0000${name}`;
  const rest = members.map((cell) => ({ ...cell, label: cell.label.replace(/^[./]+/, "").slice(name.length + 1) }));
  const children = grouped(rest, key);
  const [only] = children;
  // A step that all have is part of the label, not a frame of its own.
  if (children.length === 1 && only?.children) return { ...only, label: `${name}.${only.label}` };
  return { key, label: name, size: members.reduce((sum, cell) => sum + cell.size, 0), children };
}
