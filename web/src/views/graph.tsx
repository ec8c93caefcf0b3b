/** The graph: what lies around one node, as a picture and as a table, and a drawer with all about a node. */

import { useEffect, useRef, useState } from "preact/hooks";
import { view, type GraphNode, type Neighbourhood, type Store } from "../api";
import { many, whole } from "../format";
import { Await, Trouble, useJson } from "../loading";
import { Drawing } from "../parts/drawing";
import { modelPlace, useParameter } from "../place";

const MOST = 60;
const HOPS = ["1", "2", "3", "4"];

export function Graph({ store, name }: { store: Store; name: string }) {
  const [graph, setGraph] = useParameter("graph");
  const [around, setAround] = useParameter("around");
  const [hops, setHops] = useParameter("hops");
  const [search, setSearch] = useParameter("search");
  const [chosen, setChosen] = useParameter("node");
  const [typed, setTyped] = useState(search);
  useEffect(() => { const wait = setTimeout(() => setSearch(typed), 150); return () => clearTimeout(wait); }, [typed]);
  const begin = useJson<Neighbourhood>(around && !search ? null : view(store.id, ["graph"], { graph, search, limit: MOST }));
  const middle = around || (search ? "" : begin.value && startOf(begin.value) || "");
  // Start with a wide view: no node is selected yet.
  const far = hops || (around ? "2" : "4");
  const near = useJson<Neighbourhood>(middle ? view(store.id, ["graph"], { graph: around ? graph : begin.value?.graph ?? "", around: middle, hops: far, limit: MOST }) : null);
  const centre = (path: string) => { setTyped(""); setSearch(""); setChosen(path); setAround(path, true); };
  const shown = near.value ?? begin.value;
  const node = near.value?.nodes.find((each) => each.path === chosen);
  return (
    <>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder="Search nodes" aria-label="Words in the name of a node" value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        {shown && shown.graphs.length > 1 && (
          <select aria-label="Graph" value={shown.graph} onChange={(event) => { setAround(""); setChosen(""); setGraph(event.currentTarget.value, true); }}>
            {!shown.graphs.some((each) => each.path === shown.graph) && <option value={shown.graph}>{shown.graph}</option>}
            {shown.graphs.map((each) => <option key={each.path} value={each.path}>{each.name || "graph"} ({whole(each.nodes)})</option>)}
          </select>
        )}
        <select aria-label="Hops" value={far} onChange={(event) => setHops(event.currentTarget.value)}>
          {HOPS.map((each) => <option key={each} value={each}>{many(Number(each), "hop")}</option>)}
        </select>
        <span class="soft" role="status">{told(search ? begin.value : near.value)}</span>
      </form>
      {begin.error && <Trouble error={begin.error} />}
      {search && begin.value && <Nodes label="Nodes found" nodes={begin.value.nodes} found={begin.value} onChoose={centre} />}
      {!search && middle && (
        <div class={node ? "both drawn" : ""}>
          <Await of={near}>
            {(found) => (
              <div>
                <Drawing found={found} chosen={chosen} onChoose={(path) => setChosen(path)} onCentre={centre} />
                <details class="equal">
                  <summary>Show as a table</summary>
                  <Nodes label="Nearby nodes" nodes={found.nodes} found={found} onChoose={centre} />
                </details>
              </div>
            )}
          </Await>
          {node && near.value && <Drawer key={node.path} node={node} found={near.value} model={name} onCentre={centre} onClose={() => setChosen("")} />}
        </div>
      )}
    </>
  );
}

/** The node to begin with: one that others are linked to, as a graph may have nodes that do nothing. */
const startOf = ({ nodes, edges }: Neighbourhood): string | undefined =>
  (nodes.find((node) => node.more > 0 || edges.some(({ source, target }) => source === node.path || target === node.path)) ?? nodes[0])?.path;

function told(found: Neighbourhood | null): string {
  if (!found) return "";
  return `${whole(found.nodes.length)}${found.more ? "+" : ""} ${found.around === null ? "nodes" : "nearby nodes"}`;
}

function Nodes({ label, nodes, found, onChoose }: { label: string; nodes: readonly GraphNode[]; found: Neighbourhood; onChoose: (path: string) => void }) {
  const called = new Map(found.nodes.map((node) => [node.path, node.name || node.path]));
  const takes = (node: GraphNode) => [...new Set(found.edges.filter((edge) => edge.target === node.path).map((edge) => called.get(edge.source)))].join(", ");
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label={label}>
      <table>
        <thead><tr><th class="n">Hops</th><th>Node</th><th>Operation</th><th>Inputs</th></tr></thead>
        <tbody>
          {nodes.map((node) => (
            <tr key={node.path}>
              <td class="n">{node.hops}</td>
              <td><button type="button" class="plain" dir="auto" onClick={() => onChoose(node.path)}>{called.get(node.path)}</button></td>
              <td>{node.op}</td><td dir="auto">{takes(node)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Shown { node: GraphNode; found: Neighbourhood; model: string; onCentre: (path: string) => void; onClose: () => void }

function Drawer({ node, found, model, onCentre, onClose }: Shown) {
  const box = useRef<HTMLElement>(null);
  const called = (path: string) => found.nodes.find((each) => each.path === path)?.name || path;
  const place = (tab: string, query: string) => `${modelPlace(model, tab)}?${query}`;
  const sides: [string, { path: string; value: string }[]][] = [
    ["Inputs", found.edges.filter((edge) => edge.target === node.path).map((edge) => ({ path: edge.source, value: edge.value || called(edge.source) }))],
    ["Outputs", found.edges.filter((edge) => edge.source === node.path).map((edge) => ({ path: edge.target, value: called(edge.target) }))],
  ];
  return (
    <aside class="drawer" ref={box} tabIndex={-1} aria-label="Node" onKeyDown={(event) => { if (event.key === "Escape") onClose(); }}>
      <button type="button" class="plain close" aria-label="Close" onClick={onClose}>✕</button>
      <h2 dir="auto">{node.name || node.path}</h2>
      <p class="path">
        <b>{node.op}</b>
        {node.path !== found.around && <button type="button" onClick={() => onCentre(node.path)}>Center on this node</button>}
        <a class="tag" href={place("message", `path=${encodeURIComponent(node.path)}`)}>message</a>
      </p>
      {node.weights.length > 0 && (
        <p>Weights: {node.weights.map((each) => <a key={each} class="tag" dir="auto" href={place("tensors", `tensor=${encodeURIComponent(each)}`)}>{each}</a>)}</p>
      )}
      {node.attributes.length > 0 && (
        <dl class="attributes">{node.attributes.map(([title, text]) => <div key={title}><dt dir="auto">{title}</dt><dd dir="auto">{text}</dd></div>)}</dl>
      )}
      {sides.map(([title, links]) => links.length > 0 && (
        <p key={title}>{title}: {links.map(({ path, value }) => <button type="button" class="plain" dir="auto" key={`${path} ${value}`} onClick={() => onCentre(path)}>{value || path}</button>)}</p>
      ))}
      {node.more > 0 && <p class="soft">{many(node.more, "more link")} to nodes not shown.</p>}
      <p class="soft"><code>{node.path}</code></p>
    </aside>
  );
}
