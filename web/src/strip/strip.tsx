/** The strip of a graph: its levels as they are loaded, what is open and chosen, and the section between two marks. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { getJson, type GraphLevel, type GraphSection, type GraphValue, type Neighbourhood, type Store, view } from "../api";
import { count, many, shell, whole } from "../format";
import { Drawer } from "../focus";
import { Trouble, useJson } from "../loading";
import { modelPlace, setParameters, SPACE, usePlace } from "../place";
import type { Plan, Task } from "./layout";
import { calledBy, isEnd, isFunction, levelOf, placeOfLevel, type Shelf, shelfOf, type Shown, typeOf, within } from "./levels";
import { type Mark, PAD, StripView } from "./view";

/** Levels that are open at a time: each has at most 64 parts. */
const MOST_OPEN = 200;

const LEAST_HEIGHT = 230;

/** A place in a section as it is in the address: path of the first node, and number of nodes. */
const markOf = ({ block }: Shown): string => (block ? `${block.path} ${block.nodes}` : "");
const placeOf = (mark: string): { path: string; nodes: string } => ({ path: mark.replace(/ \d+$/, ""), nodes: / (\d+)$/.exec(mark)?.[1] ?? "1" });

interface Given {
  store: Store;
  name: string;
  graph: string;
  /** Called with what is known of the graph, once. */
  onGraphs: (level: GraphLevel) => void;
  node: (path: string, onClose: () => void, more: ComponentChildren) => ComponentChildren;
}

export function Strip({ store, name, graph, onGraphs, node }: Given) {
  const asking = usePlace().searchParams;
  const [openText, chosen, constants] = [asking.get("open") ?? "", asking.get("node") ?? "", asking.get("constants") === "1"];
  const marks = { start: asking.get("start") ?? "", end: asking.get("end") ?? "" };
  const [levels, setLevels] = useState<ReadonlyMap<number, GraphLevel>>(new Map());
  const [error, setError] = useState<Error | null>(null);
  const asked = useRef(new Set<number>());
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  // Narrow screens show all a bit smaller, which puts two blocks next to each other.
  const scale = width < 560 ? 0.82 : 1;
  const height = innerWidth < 700 ? Math.min(520, Math.round(innerHeight * 0.62)) : Math.max(400, Math.round(innerHeight * 0.62));
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(holder.current!);
    return () => watch.disconnect();
  }, []);
  const add = (level: GraphLevel) => { asked.current.add(level.block); setLevels((before) => new Map(before).set(level.block, level)); };
  const graphs = levels.get(0)?.graphs;
  /** The path of the graph that has a level; null as long as that is not known. */
  const graphOf = (id: number): string | null => {
    const [place] = placeOfLevel(id);
    return place < 0 ? graph : graphs?.[place]?.path ?? null;
  };
  const load = (id: number) => {
    const [[place, block], of] = [placeOfLevel(id), graphOf(id)];
    if (of === null || asked.current.has(id)) return;
    asked.current.add(id);
    getJson<GraphLevel>(view(store.id, ["graph", "blocks"], { graph: of, block })).then((level) => { add(within(level, place)); if (!id) begin(level); }, setError);
  };
  // A group that is nearly all of the graph opens at first.
  const begin = (level: GraphLevel) => {
    onGraphs(level);
    const main = level.parts.find((part) => part.kind === "group" && part.nodes > 0.8 * level.nodes);
    if (main && !openText && !chosen) setOpen([main.id!]);
  };
  // The numbers of blocks; a function has the path of the call in which it is open behind its number.
  const [open, calls] = useMemo(() => {
    const entries = openText.split(",").map((each) => [parseInt(each), each.split("@")[1] ?? ""] as const).filter(([id]) => id > 0).slice(0, MOST_OPEN);
    // Each at one place: an address may name a function within itself.
    const functions = new Map(entries.filter(([id, path]) => path && isFunction(id)));
    return [entries.map(([id]) => id), new Map([...functions].map(([id, path]) => [path, id]))];
  }, [openText]);
  useEffect(() => { load(0); open.forEach(load); }, [openText, graphs]);
  // The chosen node is brought to light: all blocks around it open.
  const isNode = /\D/.test(chosen) && !isEnd(chosen);
  const sought = useRef("");
  useEffect(() => {
    if (!isNode || sought.current === chosen || (calls.size && !graphs)) return;
    sought.current = chosen;
    // In a function that is open within the graph.
    if (calls.size && graphs?.some(({ path }) => path !== levels.get(0)!.graph && path === chosen.replace(/\.[^.]*$/, ""))) return;
    getJson<GraphLevel>(view(store.id, ["graph", "blocks"], { graph, node: chosen })).then((level) => {
      add(level);
      const named = level.parts.find((part) => part.id === null && part.name === chosen);
      if (named) { sought.current = named.path; setParameters({ node: named.path }); }
      const more = level.trail.filter((id) => id > 0 && !open.includes(id));
      if (more.length) setOpen([...open, ...more]);
    }, setError);
  }, [chosen, graphs]);

  const setOpen = (ids: readonly number[], all: ReadonlyMap<string, number> = calls) => {
    const paths = new Map([...all].map(([path, id]) => [id, path]));
    setParameters({ open: ids.map((id) => (paths.has(id) ? `${id}@${paths.get(id)}` : id)).join(",") });
  };
  const shelves = useMemo(() => {
    const found = new Map<number, Shelf>();
    const walk = (id: number, above: Shown | null) => {
      const level = levels.get(id);
      if (!level) return;
      const shelf = shelfOf(level, above, constants, calls);
      found.set(id, shelf);
      for (const part of shelf.parts) if (part.block?.id != null && open.includes(part.block.id)) {
        const passes = part.block.kind === "part" && above?.block && above.times;
        walk(part.block.id, passes ? above : part);
      }
    };
    walk(0, null);
    return found;
  }, [levels, openText, constants]);
  const task = useMemo((): Task | null => (width && shelves.size ? { levels: new Map([...shelves].map(([id, { sized }]) => [id, sized])), open: new Set(open), width: width / scale - 2 * PAD - 4 } : null), [shelves, width]);
  const planned = usePlan(task, shelves);

  const section = useJson<GraphSection>(marks.start && marks.end ? sectionPlace(store, calls.size ? "" : graph, marks) : null);
  const all = [...shelves.values()].flatMap(({ parts }) => parts);
  const shown = all.find((part) => part.key === chosen);
  const choose = (key: string) => { if (/\D/.test(key)) sought.current = key; setParameters({ node: key }, true); };
  const mark = (which: Mark, part: Shown) => { if (part.block) setParameters({ [which]: markOf(part) }); };
  const keyed = (text: string) => (text && all.find((part) => markOf(part) === text)?.key) || "";
  const close = () => setParameters({ node: "" });
  const folded = [...shelves.values()].reduce((sum, shelf) => sum + shelf.folded, 0);
  const detail = isNode && chosen ? node(chosen, close, shown && <MarkButtons shown={shown} onMark={mark} />) : shown?.block ? <BlockDrawer shown={shown} isOpen={open.includes(shown.block.id!)} onClose={close} onOpen={() => toggle(shown)} onMark={mark} /> : shown ? <EndDrawer key={shown.key} store={store} graph={graphOf(Number(shown.key.replace(/\D/g, ""))) ?? graph} shown={shown} onNode={(path) => setParameters({ node: path }, true)} onClose={close} /> : null;
  /** Open the function that a node calls in its place; one that is open elsewhere, or is not listed, is only named. */
  const call = async (path: string) => {
    const found = await getJson<Neighbourhood>(view(store.id, ["graph"], { around: path, hops: 1, limit: 1 }));
    const node = found.nodes.find((each) => each.path === path);
    const [called] = node ? calledBy(node, found) : [];
    const place = graphs?.findIndex((each) => each.path === called?.path) ?? -1;
    const id = levelOf(place);
    if (place < 0 || open.includes(id) || called!.path === levels.get(0)!.graph) choose(path);
    else setOpen([...open, id], new Map(calls).set(path, id));
  };
  const toggle = ({ block, calls: isCall }: Shown) => {
    if (isCall && block!.id === null) return void call(block!.path).catch(setError);
    if (block?.id == null) return;
    setOpen(open.includes(block.id) ? open.filter((id) => id !== block.id) : [...open, block.id]);
  };
  return (
    <>
      {error && <Trouble error={error} />}
      <div class={detail ? "both drawn beneath" : ""}>
        <div ref={holder} class="weights" >
          {planned && <StripView store={store.id} plan={planned.plan} shelves={planned.along} window={{ width, height: Math.min(height, Math.max((planned.plan.height + 2 * PAD + 8) * scale, LEAST_HEIGHT)) }} scale={scale} chosen={chosen} sought={isNode || shown ? chosen : ""} spans={(!calls.size && section.value?.spans) || []}
            marks={{ start: keyed(marks.start), end: keyed(marks.end) }} onOpen={toggle} onChoose={(part) => choose(part.key)} onMark={mark} onEscape={(level) => (level ? setOpen(open.filter((id) => id !== level)) : close())}>
            {(folded > 0 || constants) && <label class="check"><input type="checkbox" checked={constants} onChange={(event) => setParameters({ constants: event.currentTarget.checked ? "1" : "" })} /> Show constants{folded > 0 && ` (${whole(folded)} hidden)`}</label>}
            <span class="hint soft">Click a block for details, ▸ to open it. Shift-click two blocks to see what is between them. Keys: arrows, Enter, Space, S, E, +, −, 0.</span>
          </StripView>}
          {!planned && !error && <p class="soft" data-said>Loading …</p>}
        </div>
        {detail}
      </div>
      {(marks.start || marks.end) && <Section store={store} name={name} marks={marks} found={section.value} error={section.error} onNode={choose} />}
    </>
  );
}

const sectionPlace = (store: Store, graph: string, { start, end }: Record<Mark, string>): string =>
  view(store.id, ["graph", "between"], { graph, start: placeOf(start).path, start_nodes: placeOf(start).nodes, end: placeOf(end).path, end_nodes: placeOf(end).nodes });

interface ShownBlock { shown: Shown; isOpen: boolean; onClose: () => void; onOpen: () => void; onMark: (mark: Mark, shown: Shown) => void }

function BlockDrawer({ shown, isOpen, onClose, onOpen, onMark }: ShownBlock) {
  const block = shown.block!;
  return (
    <Drawer label="Block" stays onClose={onClose}>
      <h2 dir="auto">{shown.title}{shown.times > 0 && ` × ${whole(shown.times)}`}</h2>
      {block.name && block.name !== shown.title && <p class="soft" dir="auto">{block.name}</p>}
      <p class="path">
        <button type="button" onClick={onOpen}>{isOpen ? "Close block" : "Open block"}</button>
        <MarkButtons shown={shown} onMark={onMark} />
      </p>
      <dl class="attributes">
        <div><dt>Nodes</dt><dd>{whole(block.nodes)}</dd></div>
        {block.elements > 0 && <div><dt>Parameters</dt><dd>{count(block.elements)}</dd></div>}
        {block.ops.map(({ op, nodes }) => <div key={op}><dt dir="auto">{op}</dt><dd>{whole(nodes)}</dd></div>)}
      </dl>
      <p class="soft"><code>{block.path}</code>{block.nodes > 1 && ` and ${many(block.nodes - 1, "node")} more`}</p>
    </Drawer>
  );
}

function MarkButtons({ shown, onMark }: { shown: Shown; onMark: (mark: Mark, shown: Shown) => void }) {
  return (
    <>
      <button type="button" onClick={() => onMark("start", shown)}>Start section</button>
      <button type="button" onClick={() => onMark("end", shown)}>End section</button>
    </>
  );
}

/** Inputs or outputs whose node is looked up at once; others are looked up on demand. */
const MOST_SOUGHT = 12;

interface ShownEnd { store: Store; graph: string; shown: Shown; onNode: (path: string) => void; onClose: () => void }

function EndDrawer({ store, graph, shown, onNode, onClose }: ShownEnd) {
  return (
    <Drawer label="Values" stays onClose={onClose}>
      <h2>{shown.title}</h2>
      <dl class="attributes">{shown.values.map((value, number) => <EndValue key={value.name} store={store} graph={graph} value={value} isInput={shown.key.startsWith("*in")} atOnce={number < MOST_SOUGHT} onNode={onNode} />)}</dl>
    </Drawer>
  );
}

/** An input or an output with its type, and a node that uses or makes it. */
function EndValue({ store, graph, value, isInput, atOnce, onNode }: { store: Store; graph: string; value: GraphValue; isInput: boolean; atOnce: boolean; onNode: (path: string) => void }) {
  const [isSought, seek] = useState(atOnce);
  const { value: found } = useJson<Neighbourhood>(isSought && value.name ? view(store.id, ["graph"], { graph, around: value.name, hops: 1, limit: 60 }) : null);
  const made = found?.nodes.find((node) => node.outputs.includes(value.name)) ?? found?.edges.find((edge) => edge.value === value.name);
  const path = isInput ? found?.around : made && ("path" in made ? made.path : made.source);
  const node = found?.nodes.find((each) => each.path === path);
  return (
    <div>
      <dt dir="auto">{value.name}</dt>
      <dd>
        {typeOf(value) || "type not stated"}
        {node && <>{isInput ? " · first used by " : " · made by "}{node.op !== node.name && node.op && <><b>{node.op}</b>{" "}</>}<button type="button" class="plain" dir="auto" onClick={() => onNode(node.path)}>{node.name || node.path}</button></>}
        {!isSought && <button type="button" class="plain" onClick={() => seek(true)}>Find the node</button>}
      </dd>
    </div>
  );
}

interface ShownSection { store: Store; name: string; marks: Record<Mark, string>; found: GraphSection | null; error: Error | null; onNode: (path: string) => void }

/** Values of an ONNX model that a URL may name. */
const MOST_PORTS = 100;

function Section({ store, name, marks, found, error, onNode }: ShownSection) {
  const clear = () => setParameters({ start: "", end: "" });
  const isWhole = Boolean(marks.start && marks.end);
  const ports = found ? found.inputs.length + found.outputs.length : 0;
  const extracts = store.type === "onnx.ModelProto" && found !== null && found.count > 0 && found.outputs.length > 0 && ports <= MOST_PORTS;
  const query = new URLSearchParams([...(found?.inputs ?? []).map((each) => ["inputs", each]), ...(found?.outputs ?? []).map((each) => ["outputs", each])]).toString();
  const options = found ? [...found.inputs.flatMap((each) => ["--input", each]), ...found.outputs.flatMap((each) => ["--output", each])] : [];
  const line = shell("protoslice", "extract", `${location.origin}${SPACE}/v1/stores/${encodeURIComponent(name)}`, "part/", ...options);
  return (
    <section class="section" aria-label="Section">
      <h2>Section</h2>
      <button type="button" class="plain close" aria-label="Clear section" onClick={clear}>✕</button>
      {!isWhole && <p class="soft" data-said>{marks.start ? "Now choose the end of the section: Shift-click a block, or press E." : "Now choose the start of the section: press S."}</p>}
      {isWhole && error && <Trouble error={error} />}
      {isWhole && found && (found.count === 0 ? <p data-said>No path leads from the start to the end.</p> : (
        <>
          <p data-said><b>{many(found.count, "node")}</b>{found.elements > 0 && <> with <b>{count(found.elements)}</b> parameters</>} · in: <code dir="auto">{found.inputs.slice(0, 4).join(", ") || "nothing"}{found.inputs.length > 4 && " …"}</code> · out: <code dir="auto">{found.outputs.slice(0, 4).join(", ") || "nothing"}{found.outputs.length > 4 && " …"}</code></p>
          {extracts && (
            <>
              <p><a class="button" href={`${view(store.id, ["onnx", "model.onnx"])}?${query}`} download>Extract this sub-model</a></p>
              <dl class="ways"><dt>CLI</dt><dd><code>{line}</code></dd></dl>
            </>
          )}
          {found.weights.length > 0 && <details class="equal"><summary>{many(found.weights.length, "weight")}{found.weights.length === 200 && " or more"}</summary><p>{found.weights.map((each) => <a key={each} class="tag" dir="auto" href={`${modelPlace(name, "tensors")}?tensor=${encodeURIComponent(each)}`}>{each}</a>)}</p></details>}
          <details class="equal">
            <summary>{found.nodes.length < found.count ? `The first ${whole(found.nodes.length)} nodes` : many(found.count, "node")}</summary>
            <div class="scroll" tabIndex={0} role="region" aria-label="Nodes of the section">
              <table>
                <thead><tr><th>Node</th><th>Operation</th></tr></thead>
                <tbody>{found.nodes.map((each) => <tr key={each.path}><td><button type="button" class="plain" dir="auto" onClick={() => onNode(each.path)}>{each.name || each.path}</button></td><td>{each.op}</td></tr>)}</tbody>
              </table>
            </div>
          </details>
        </>
      ))}
    </section>
  );
}

/** The worker's file, which the build names; workers come from the page's own origin alone. */
declare const WORKER: string;

interface Policy { createScriptURL: (url: string) => string }
declare const trustedTypes: { createPolicy: (name: string, rules: Policy) => Policy } | undefined;

/** The one URL that becomes a script; the Content-Security-Policy names this policy. */
const trusted = (url: string): string => {
  const factory = typeof trustedTypes === "undefined" ? undefined : trustedTypes;
  return factory ? (policy ??= factory.createPolicy("strip", { createScriptURL: (given) => new URL(WORKER, import.meta.url).href === given ? given : "" })).createScriptURL(url) : url;
};
let policy: Policy | undefined;

/** The plan of the last task, with what was given along with it. */
function usePlan<T>(task: Task | null, along: T): { plan: Plan; along: T } | null {
  const [done, set] = useState<{ plan: Plan; along: T } | null>(null);
  const worker = useRef<Worker | null>(null);
  const asked = useRef({ number: 0, along });
  useEffect(() => {
    worker.current = new Worker(trusted(new URL(WORKER, import.meta.url).href));
    worker.current.onmessage = ({ data: [number, plan] }: MessageEvent<[number, Plan]>) => { if (number === asked.current.number) set({ plan, along: asked.current.along }); };
    return () => worker.current?.terminate();
  }, []);
  useEffect(() => {
    if (!task) return;
    asked.current = { number: asked.current.number + 1, along };
    worker.current?.postMessage([asked.current.number, task]);
  }, [task]);
  return done;
}
