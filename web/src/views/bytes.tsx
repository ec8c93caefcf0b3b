/** Where the bytes are: a treemap beside a tree; what is chosen in one is chosen in both. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { type Node, type Store, view } from "../api";
import { Await, Trouble, useJson } from "../loading";
import { above, step, Tree } from "../parts/tree";
import { type Cell, Treemap } from "../parts/treemap";
import { modelPlace, useParameter } from "../place";
import { bytes, many } from "../format";

export function Bytes({ store, onPictured }: { store: Store; onPictured: () => void }) {
  const [path, setPath] = useParameter("path");
  const [chosen, setChosen] = useState(path);
  const [hovered, setHovered] = useState<string | null>(null);
  const found = useJson<Node>(view(store.id, ["treemap"], { path, depth: 8, min_share: 0.0005 }));
  const cell = useMemo(() => found.value && cellOf(found.value), [found.value]);
  useEffect(() => { if (!found.busy) onPictured(); }, [found.busy]);
  const zoom = (to: string) => { setChosen(to); setPath(to, true); };
  const size = store.files.find((file) => file.path === store.root)?.size ?? store.size;
  return (
    <>
      <Path key={path} path={path} onGo={zoom} />
      {found.error && <Trouble error={found.error} />}
      <div class="both">
        <div>
          <Await of={{ ...found, error: null }}>
            {() => cell && (
              <Treemap root={cell} height={innerWidth < 700 ? 320 : 520} label={`Treemap of ${path || "the whole model"}; the tree next to it shows the same parts`}
                chosen={hovered ?? chosen} onHover={setHovered}
                onChoose={(at) => { if (at.key.includes("\u0000")) return; setChosen(at.key); if (at.deeper && at.key !== path) setPath(at.key, true); }} />
            )}
          </Await>
          <Places store={store} path={chosen} />
        </div>
        <Tree store={store.id} size={size} chosen={chosen} hovered={hovered} onHover={setHovered}
          onChoose={(to) => setChosen(to)} />
      </div>
    </>
  );
}

/** A path bar: a link for each step, and the path as text that can be edited. */
function Path({ path, onGo }: { path: string; onGo: (path: string) => void }) {
  const [typed, setTyped] = useState(path);
  const steps = path ? [...above(path), path] : [];
  return (
    <form class="path" onSubmit={(event) => { event.preventDefault(); onGo(typed.trim()); }}>
      <nav aria-label="Path">
        <button type="button" class="plain" onClick={() => onGo("")}>all</button>
        {steps.map((each) => <button key={each} type="button" class="plain" onClick={() => onGo(each)} dir="auto">{step({ path: each })}</button>)}
      </nav>
      <input aria-label="Field path" placeholder="field path, such as graph.node[3]" value={typed} spellcheck={false}
        onInput={(event) => setTyped(event.currentTarget.value)} />
      <button type="submit">Go</button>
    </form>
  );
}

/** What can be had of the chosen part. */
function Places({ store, path }: { store: Store; path: string }) {
  if (!path) return <p class="soft hint">Click a part to inspect or download it. Hatched: small items, grouped.</p>;
  const name = encodeURIComponent(path);
  return (
    <p class="chosen-part">
      <code dir="auto" data-said>{path}</code>
      <a href={`${modelPlace(store.tags[0] ?? store.id, "message")}?path=${name}`}>view message</a>
      <a href={`${modelPlace(store.tags[0] ?? store.id, "bytes")}?path=${name}`}>zoom in</a>
      <a href={view(store.id, ["merge"], { path })} download>download</a>
    </p>
  );
}

/** The cells of a node. What has a single large part is shown as that part; small parts are summed up in a rest. */
function cellOf(node: Node): Cell {
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
