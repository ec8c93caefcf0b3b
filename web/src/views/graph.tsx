/** The graph: as a strip of blocks; what lies around one node, as a picture and as a table; and a drawer with all about a node. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { view, type GraphLevel, type GraphNode, type Neighbourhood, type Store } from "../api";
import { Drawer } from "../focus";
import { many, whole } from "../format";
import { Await, lazily, Trouble, useJson } from "../loading";
import { modelPlace, setParameters, useParameter } from "../place";
import { calledBy } from "../strip/levels";

const Strip = lazily(async () => (await import("../strip/strip")).Strip);
const Drawing = lazily(async () => (await import("../parts/drawing")).Drawing);

const MOST = 60;
const HOPS = ["1", "2", "3", "4"];

export function Graph({ store, name }: { store: Store; name: string }) {
  const [graph] = useParameter("graph");
  const [around, setAround] = useParameter("around");
  const [hops, setHops] = useParameter("hops");
  const [search, setSearch] = useParameter("search");
  const [chosen, setChosen] = useParameter("node");
  const [typed, setTyped] = useState(search);
  const [level, setLevel] = useState<GraphLevel | null>(null);
  useEffect(() => { const wait = setTimeout(() => setSearch(typed), 150); return () => clearTimeout(wait); }, [typed]);
  const found = useJson<Neighbourhood>(search ? view(store.id, ["graph"], { graph, search, limit: MOST }) : null);
  const far = hops || "2";
  const near = useJson<Neighbourhood>(around && !search ? view(store.id, ["graph"], { graph, around, hops: far, limit: MOST }) : null);
  // What the model puts out, also when only what is around a node has been loaded.
  const ends = useJson<GraphLevel>(around && chosen && !level ? view(store.id, ["graph", "blocks"], { graph }) : null);
  const known = level ?? ends.value;
  const centre = (path: string) => { setTyped(""); setParameters({ search: "", node: path, around: path }, true); };
  const reveal = (path: string) => { setTyped(""); setParameters({ search: "", around: "", node: path }, true); };
  const { graphs, graph: shown } = near.value ?? found.value ?? level ?? { graphs: [], graph: "" };
  const node = near.value?.nodes.find((each) => each.path === chosen);
  const other = (path: string) => setParameters({ graph: path, around: "", node: "", open: "", start: "", end: "" }, true);
  return (
    <>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder="Search nodes" aria-label="Words in the name of a node" value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        {graphs.length > 1 && (
          <select aria-label="Graph" value={shown} onChange={(event) => other(event.currentTarget.value)}>
            {!graphs.some((each) => each.path === shown) && <option value={shown}>{shown}</option>}
            {graphs.map((each) => <option key={each.path} value={each.path}>{each.name || "graph"} ({whole(each.nodes)})</option>)}
          </select>
        )}
        {around && !search && (
          <>
            <select aria-label="Hops" value={far} onChange={(event) => setHops(event.currentTarget.value)}>
              {HOPS.map((each) => <option key={each} value={each}>{many(Number(each), "hop")}</option>)}
            </select>
            <button type="button" onClick={() => setAround("", true)}>Show the whole graph</button>
          </>
        )}
        <span class="soft" data-said>{search ? told(found.value) : around ? told(near.value) : level ? many(level.nodes, "node") : ""}</span>
      </form>
      {found.error && <Trouble error={found.error} />}
      {search && found.value?.nodes.length === 0 && <p>No nodes match “<bdi>{search}</bdi>”.</p>}
      {search && found.value && found.value.nodes.length > 0 && <Nodes label="Nodes found" nodes={found.value.nodes} found={found.value} onChoose={reveal} />}
      {!search && !around && (
        <Strip key={graph} store={store} name={name} graph={graph} onGraphs={setLevel}
          node={(path, close, more) => <Detail key={path} store={store} path={path} model={name} level={known} more={more} onNode={reveal} onCentre={centre} onClose={close} onGraph={other} />} />
      )}
      {!search && around && (
        <div class={node ? "both drawn" : ""}>
          <Await of={near}>
            {(value) => (
              <div>
                <Drawing found={value} chosen={chosen} onChoose={(path) => setChosen(path)} onCentre={centre} />
                <details class="equal">
                  <summary>Show as a table</summary>
                  <Nodes label="Nearby nodes" nodes={value.nodes} found={value} onChoose={centre} />
                </details>
              </div>
            )}
          </Await>
          {node && near.value && <NodeDrawer key={node.path} node={node} found={near.value} model={name} level={known} onNode={centre} onCentre={centre} onGraph={other} onClose={() => setChosen("")} />}
        </div>
      )}
    </>
  );
}

/** The drawer of a node, of which only the path is known. */
function Detail({ store, path, ...rest }: { store: Store; path: string } & Omit<Shown, "node" | "found">) {
  const found = useJson<Neighbourhood>(view(store.id, ["graph"], { around: path, hops: 1, limit: MOST }));
  const node = found.value?.nodes[0];
  if (!node || !found.value) return <Drawer label="Node" stays onClose={rest.onClose}>{found.error ? <Trouble error={found.error} /> : <p class="soft" data-said>Loading …</p>}</Drawer>;
  return <NodeDrawer node={node} found={{ ...found.value, around: null }} {...rest} />;
}

function told(found: Neighbourhood | null): string {
  if (!found) return "";
  const kind = found.around === null ? "node" : "nearby node";
  return found.more ? `${whole(found.nodes.length)}+ ${kind}s` : many(found.nodes.length, kind);
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

interface Shown {
  node: GraphNode;
  found: Neighbourhood;
  model: string;
  /** The whole graph, once it is known. */
  level: GraphLevel | null;
  /** Called with a neighbour that is chosen, with the node to centre on, and with the path of a function that it calls. */
  onNode: (path: string) => void;
  onCentre: (path: string) => void;
  onGraph: (path: string) => void;
  onClose: () => void;
  more?: ComponentChildren;
}

function NodeDrawer({ node, found, model, level, onNode, onCentre, onGraph, onClose, more }: Shown) {
  const called = (path: string) => found.nodes.find((each) => each.path === path)?.name || path;
  const place = (tab: string, query: string) => `${modelPlace(model, tab)}?${query}`;
  const inputs = found.edges.filter((edge) => edge.target === node.path);
  const taken = found.edges.filter((edge) => edge.source === node.path);
  const isOutput = (value: string) => level !== null && node.path.startsWith(level.graph ? `${level.graph}.` : "node[") && level.outputs.some((each) => each.name === value);
  // Nodes may take a value by a longer name than that of its maker, which stands for it then.
  const values = new Set(taken.map((edge) => edge.value));
  const others = [...values].filter((value) => !node.outputs.includes(value));
  const outputs = [...node.outputs.filter((value) => values.has(value) || isOutput(value) || !others.length), ...others];
  const ending = level && (level.graph === "graph" || level.graphs.length === 1) ? "output of the model" : "output of the graph";
  return (
    <Drawer label="Node" stays onClose={onClose}>
      <h2 dir="auto">{node.name || node.path}</h2>
      <p class="path">
        <b>{node.op}</b>
        {node.path !== found.around && <button type="button" onClick={() => onCentre(node.path)}>{found.around === null ? "Show nearby nodes" : "Center on this node"}</button>}
        {more}
        {calledBy(node, found).map((each) => <button key={each.path} type="button" onClick={() => onGraph(each.path)}>Open {each.name.length > 24 ? "function" : each.name}</button>)}
        <a class="tag" href={place("message", `path=${encodeURIComponent(node.path)}`)}>message</a>
      </p>
      {node.weights.length > 0 && (
        <p>Weights: {node.weights.map((each) => <a key={each} class="tag" dir="auto" href={place("tensors", `tensor=${encodeURIComponent(each)}`)}>{each}</a>)}</p>
      )}
      {node.attributes.length > 0 && (
        <dl class="attributes">{node.attributes.map(([title, text]) => <div key={title}><dt dir="auto">{title}</dt><dd dir="auto">{text}</dd></div>)}</dl>
      )}
      {inputs.length > 0 && <p>Inputs: {inputs.map(({ source, value, input }) => <button type="button" class="plain" dir="auto" key={`${source} ${input}`} onClick={() => onNode(source)}>{value || called(source)}</button>)}</p>}
      {outputs.length > 0 && <div>Outputs:<ul class="made">{outputs.map((value) => {
        const takers = [...new Set(taken.filter((edge) => edge.value === value).map((edge) => edge.target))];
        return (
          <li key={value}>
            <bdi>{value}</bdi>{(takers.length > 0 || isOutput(value)) && " → "}
            {isOutput(value) && <b>{ending}</b>}{isOutput(value) && takers.length > 0 && ", "}
            {takers.map((path) => <button type="button" class="plain" dir="auto" key={path} onClick={() => onNode(path)}>{called(path)}</button>)}
          </li>
        );
      })}</ul></div>}
      {node.more > 0 && <p class="soft">{many(node.more, "more link")} to nodes not shown.</p>}
      <p class="soft"><code>{node.path}</code></p>
    </Drawer>
  );
}

