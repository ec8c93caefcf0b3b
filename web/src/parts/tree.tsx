/** A tree that loads as it is opened: `role=tree`, arrows, Home and End. */

import { useEffect, useRef, useState } from "preact/hooks";
import { getJson, view, type Node, type Page } from "../api";
import { bytes, count, percent } from "../format";

interface Given {
  store: string; size: number; chosen: string; hovered: string | null;
  onChoose: (path: string) => void; onHover: (path: string | null) => void;
}

interface Branch { items: Node[]; next: string | null }

const PAGE = 100;

export function Tree({ store, size, chosen, hovered, onChoose, onHover }: Given) {
  const [branches, setBranches] = useState<ReadonlyMap<string, Branch>>(new Map());
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const [focus, setFocus] = useState("");
  const box = useRef<HTMLDivElement>(null);

  const load = async (path: string) => {
    const known = branches.get(path);
    if (known && known.next === null) return;
    const page = await getJson<Page<Node>>(view(store, ["tree"], { path, limit: PAGE, cursor: known?.next }));
    setBranches((before) => new Map(before).set(path, { items: [...(known?.items ?? []), ...page.items], next: page.next }));
    const most = page.items.find((node) => node.deeper && node.size > 0.9 * size);
    if (most && !known) toggle(most.path, true); // nothing but a frame around the rest
  };
  const toggle = (path: string, wanted = !open.has(path)) => {
    if (wanted && !branches.has(path)) void load(path).catch(() => undefined);
    setOpen((before) => {
      const after = new Set(before);
      if (wanted) after.add(path);
      else after.delete(path);
      return after;
    });
  };
  useEffect(() => { void load("").catch(() => undefined); }, [store]);
  useEffect(() => {
    for (const path of above(chosen)) toggle(path, true);
    setFocus(chosen);
  }, [chosen]);
  useEffect(() => {
    const item = box.current?.querySelector(`[data-focus="true"]`);
    if (item && box.current?.contains(document.activeElement)) (item as HTMLElement).focus({ preventScroll: false });
  }, [focus]);

  const visible: { node: Node; level: number }[] = [];
  const more = new Map<string, string>();
  const walk = (path: string, level: number) => {
    const branch = branches.get(path);
    for (const node of branch?.items ?? []) {
      visible.push({ node, level });
      if (open.has(node.path)) walk(node.path, level + 1);
    }
    const last = branch?.items.at(-1);
    if (branch?.next && last) more.set(last.path, path);
  };
  walk("", 1);
  const current = visible.some(({ node }) => node.path === focus) ? focus : visible[0]?.node.path ?? "";

  const key = (event: KeyboardEvent) => {
    const at = visible.findIndex(({ node }) => node.path === current);
    const { node } = visible[at] ?? {};
    const to = (number: number) => { const next = visible[number]; if (next) setFocus(next.node.path); };
    if (!node) return;
    if (event.key === "ArrowDown") to(at + 1);
    else if (event.key === "ArrowUp") to(at - 1);
    else if (event.key === "Home") to(0);
    else if (event.key === "End") to(visible.length - 1);
    else if (event.key === "ArrowRight") { if (node.deeper && !open.has(node.path)) toggle(node.path, true); else to(at + 1); }
    else if (event.key === "ArrowLeft") { if (open.has(node.path)) toggle(node.path, false); else setFocus(above(node.path).at(-1) ?? node.path); }
    else if (event.key === "Enter" || event.key === " ") onChoose(node.path);
    else return;
    event.preventDefault();
  };

  return (
    <div class="tree" role="tree" aria-label="Parts of the model" ref={box} onKeyDown={key} onMouseLeave={() => onHover(null)}>
      {visible.map(({ node, level }) => (
        <>
          <div key={node.path} role="treeitem" aria-level={level} aria-expanded={node.deeper ? open.has(node.path) : undefined}
            aria-selected={node.path === chosen} tabIndex={node.path === current ? 0 : -1} data-focus={node.path === current}
            class={`item${node.path === chosen ? " chosen" : ""}${node.path === hovered ? " hovered" : ""}`}
            ref={(item) => item?.style.setProperty("--level", String(level))}
            onMouseEnter={() => onHover(node.path)}
            onClick={() => { setFocus(node.path); onChoose(node.path); if (node.deeper) toggle(node.path); }}>
            <span class="twist" aria-hidden="true">{node.deeper ? (open.has(node.path) ? "▾" : "▸") : ""}</span>
            <span class="what" dir="auto">{step(node)}</span>
            <span class="soft facts" dir="auto">{facts(node)}</span>
            <span class="n">{bytes(node.size)}</span>
            <meter class="share" min={0} max={1} value={node.size / Math.max(size, 1)} title={percent(node.size / Math.max(size, 1))} aria-hidden="true" />
          </div>
          {more.has(node.path) && (
            <div role="treeitem" aria-level={level} tabIndex={0} class="item more" onClick={() => void load(more.get(node.path)!)}
              onKeyDown={(event) => { if (event.key === "Enter") void load(more.get(node.path)!); event.stopPropagation(); }}>more …</div>
          )}
        </>
      ))}
    </div>
  );
}

function facts(node: Node): string {
  if (node.text !== null) return node.text;
  const kind = (node.type ?? node.kind ?? "").split(".").pop() ?? "";
  return node.count === null ? kind : `${kind} × ${count(node.count)}`;
}

/** The last step of a path. */
export function step(node: { path: string }): string {
  const before = above(node.path).at(-1) ?? "";
  return node.path.slice(before.length).replace(/^\./, "") || "the whole model";
}

/** The paths above a path, from the top: of `graph.node[3].name`, `graph`, `graph.node`, `graph.node[3]`. */
export function above(path: string): string[] {
  const found: string[] = [];
  let quoted = false;
  let depth = 0;
  for (let at = 0; at < path.length; at += 1) {
    const sign = path[at];
    if (quoted && sign === "\\") at += 1;
    else if (sign === '"') quoted = !quoted;
    else if (quoted) continue;
    else if (sign === "[") { if (!depth) found.push(path.slice(0, at)); depth += 1; }
    else if (sign === "]") depth -= 1;
    else if (sign === "." && !depth) found.push(path.slice(0, at));
  }
  return found.filter(Boolean);
}
