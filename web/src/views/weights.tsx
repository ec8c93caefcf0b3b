/** The weight map of a model: where its parameters are, by the hierarchy of their names. */

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, view, type Branch, type Page, type Statistics, type Store, type Tensor } from "../api";
import { useDark } from "../colours";
import { drawable } from "../elements";
import { bytes, many, percent, shape } from "../format";
import { Await, Trouble, useLoaded } from "../loading";
import { Preview } from "../parts/heatmap";
import { modelPlace, setParameters, useParameter, usePlace } from "../place";
import { needsStatistics, painter as painterOf, WAYS, type Way } from "../weights/colours";
import { Layout } from "../weights/layout";
import { totalsOf, WeightMap } from "../weights/map";
import { loadBelow, loadRoot, nodeAt, pathTo, rangeIn, type Measure, type WeightNode } from "../weights/nodes";
import { TensorDrawer } from "./tensor";

/** Elements that statistics are made of for a colour. */
const SAMPLE = 1 << 14;
const AT_ONCE = 4;
/** Tensors of one view whose statistics are asked for. */
const MOST = 120;

export function Weights({ store, name, incomplete, onPictured }: { store: Store; name: string; incomplete: boolean; onPictured: () => void }) {
  const root = useLoaded<WeightNode>(store.id, (signal) => loadRoot(store.id, signal));
  useEffect(() => { if (!root.busy) onPictured(); }, [root.busy]);
  if (root.error) return <><Trouble error={root.error} /><Elsewhere name={name} /></>;
  return <Await of={root}>{(value) => (value.tensors ? <Mapped store={store} name={name} root={value} incomplete={incomplete} /> : <><p class="empty soft">This model has no tensors.</p><Elsewhere name={name} /></>)}</Await>;
}

const Elsewhere = ({ name }: { name: string }) => <p><a href={modelPlace(name, "bytes")}>Show the proto</a></p>;

function Mapped({ store, name, root, incomplete }: { store: Store; name: string; root: WeightNode; incomplete: boolean }) {
  const { searchParams: asking } = usePlace();
  const [at, range] = [asking.get("at") ?? "", asking.get("range") ?? ""];
  const [chosen, setChosen] = useParameter("tensor");
  const [colour, setColour] = useParameter("colour");
  const [area, setArea] = useParameter("area");
  const [version, bump] = useState(0);
  const [loaded, setLoaded] = useState(0);
  const entered = useRef(new Set<WeightNode>());
  const [here, setHere] = useState<WeightNode>(root);
  const [top, setTop] = useState<WeightNode>(root);
  const [error, setError] = useState<Error | null>(null);
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const measure: Measure = area === "parameters" ? "elements" : "size";
  const height = innerWidth < 700 ? Math.min(420, Math.round(innerHeight * 0.55)) : Math.max(380, Math.round(innerHeight * 0.63));
  const layout = useMemo(() => (width ? new Layout(top, width, height, measure) : null), [top, width, height, measure, loaded]);
  const way = (colour in WAYS ? colour : "kind") as Way;
  const statistics = useRef(new Map<string, Statistics | null>());
  const unread = useLoaded<ReadonlySet<string>>(incomplete ? store.id : null, (signal) => unreadable(store.id, signal));
  const missing = useCallback(({ address, tensors }: WeightNode) => !!unread.value && (unread.value.size === root.tensors || (tensors === 1 && unread.value.has(address ?? ""))), [unread.value, root]);
  const dark = useDark();
  const painter = useMemo(() => painterOf(way, dark, statistics.current), [way, dark, version]);

  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(holder.current!);
    return () => watch.disconnect();
  }, []);
  // The address leads to a node: at first, and as the reader goes back.
  const known = useRef(" ");
  useEffect(() => {
    if (known.current === `${at} ${range}`) return;
    const wanted = known.current = `${at} ${range}`;
    void nodeOf(store.id, root, at, range).then((node) => known.current === wanted && enter(node), setError);
  }, [at, range]);
  const enter = (node: WeightNode) => {
    setTop(node);
    setHere(node);
    if (node === root || node.gathered || entered.current.has(node)) return;
    // Deeper than it is known yet, in one call.
    entered.current.add(node);
    run(loadBelow(store.id, node).then(() => setLoaded((n) => n + 1)));
  };
  const follow = (node: WeightNode, push: boolean) => {
    const real = node.gathered ? node.parent! : node;
    const [prefix, places] = [real === root ? "" : real.prefix, real.range ? `${real.start}-${real.tensors}` : ""];
    if (known.current === `${prefix} ${places}`) return;
    known.current = `${prefix} ${places}`;
    setParameters({ at: prefix, range: places }, push);
  };
  const go = (node: WeightNode) => {
    follow(node, true);
    enter(node);
  };
  const open = (node: WeightNode) => { if (node.tensors === 1) setChosen(node.address ?? "", true); else go(node); };

  const [seen, setSeen] = useState<WeightNode[]>([]);
  const sight = useRef<{ groups: WeightNode[]; tensors: WeightNode[] }>({ groups: [], tensors: [] });
  const loading = useRef(0);
  const asked = useRef(new Set<WeightNode>());
  const work = () => {
    for (const node of sight.current.groups) {
      if (loading.current >= AT_ONCE || asked.current.has(node)) continue;
      asked.current.add(node);
      run(loadBelow(store.id, node));
    }
    if (!needsStatistics(way)) return;
    for (const { address } of sight.current.tensors.slice(0, MOST)) {
      if (loading.current >= AT_ONCE || address === null || statistics.current.has(address)) continue;
      statistics.current.set(address, null);
      run(getJson<Statistics>(view(store.id, ["tensors", address], { format: "stats", sample: SAMPLE }))
        .then((found) => void statistics.current.set(address, found), () => undefined));
    }
  };
  const run = (job: Promise<unknown>) => {
    loading.current += 1;
    void job.catch(setError).finally(() => { loading.current -= 1; bump((n) => n + 1); work(); });
  };
  useEffect(work, [way]);
  const legend = painter.legend(seen);

  return (
    <>
      <div class="filters">
        <Crumbs node={here} onGo={go} />
        <label>Color <select value={way} onChange={(event) => setColour(event.currentTarget.value === "kind" ? "" : event.currentTarget.value)}>
          {Object.entries(WAYS).map(([each, title]) => <option key={each} value={each}>{title}</option>)}
        </select></label>
        <Legend {...legend} />
        <label>Area <select value={area || "bytes"} onChange={(event) => setArea(event.currentTarget.value === "bytes" ? "" : event.currentTarget.value)}>
          <option value="bytes">Bytes</option><option value="parameters">Elements</option>
        </select></label>
      </div>
      {error && <Trouble error={error} />}
      <div class={chosen ? "both drawn" : ""}>
        <div ref={holder} class="weights">
          {layout && (
            <WeightMap layout={layout} painter={painter} version={version} chosen={chosen} label="Weight map. Keys: arrows to move, Enter to open, Escape to go back"
              onAt={(tile) => { setHere(tile.node); follow(tile.node, false); }} onOpen={open} onUp={() => go((here === top ? top.parent : top) ?? root)}
              onSight={(groups, tensors) => { sight.current = { groups, tensors }; setSeen(tensors); work(); }}
              missing={missing} tip={(node) => <NodeTip node={node} root={root} measure={measure} store={store.id} />} />
          )}
        </div>
        {chosen && <TensorDrawer key={chosen} store={store} name={name} address={chosen} onClose={() => setChosen("")} />}
      </div>
    </>
  );
}

/** Tensors that are looked at for missing files. */
const MOST_LOOKED_AT = 20_000;

/** Addresses of the tensors whose bytes cannot be read. */
async function unreadable(store: string, signal: AbortSignal): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  let cursor: string | null = "";
  for (let seen = 0; cursor !== null && seen < MOST_LOOKED_AT;) {
    const page: Page<Tensor> = await getJson(view(store, ["tensors"], { limit: 1000, cursor }), signal);
    for (const { address, problem } of page.items) if (problem) found.add(address);
    seen += page.items.length;
    cursor = page.next;
  }
  return found;
}

/** The node that the address names. */
async function nodeOf(store: string, root: WeightNode, at: string, range: string): Promise<WeightNode> {
  const places = rangeIn(range);
  if (places) return nodeAt(store, root, ...places);
  if (!at) return root;
  const found = await getJson<Branch>(view(store, ["tensortree"], { prefix: at, limit: 1 }));
  return found.tensors ? nodeAt(store, root, found.start, found.tensors) : root;
}

function Crumbs({ node, onGo }: { node: WeightNode; onGo: (node: WeightNode) => void }) {
  const path = pathTo(node);
  return (
    <nav class="steps crumbs" aria-label="Place in the model">
      {path.map((each, n) => (
        <button key={n} type="button" class="plain" dir="auto" aria-current={n === path.length - 1 ? "location" : undefined} onClick={() => onGo(each)}>{n ? each.label : "all"}</button>
      ))}
      <span class="soft" data-said>{many(node.tensors, "tensor")} · {totalsOf(node)}</span>
    </nav>
  );
}

function NodeTip({ node, root, measure, store }: { node: WeightNode; root: WeightNode; measure: Measure; store: string }) {
  const { address, dtype } = node;
  return (
    <>
      <strong dir="auto">{node.prefix}{node.range && ` ${node.label}`}</strong>
      <span>{node.tensors > 1 ? many(node.tensors, "tensor") : `${dtype ?? "?"} ${shape(node.shape)}`} · {node.tensors > 1 ? totalsOf(node) : bytes(node.size)} · {percent(node[measure] / Math.max(root[measure], 1))}</span>
      {address !== null && drawable(dtype) && node.size > 0 && <Preview key={address} store={store} tensor={{ address, dtype, shape: node.shape as number[] }} />}
    </>
  );
}

function Legend({ swatches, scale }: ReturnType<ReturnType<typeof painterOf>["legend"]>) {
  return (
    <ul class={scale ? "legend scaled" : "legend"} aria-label="Colors">
      {scale && <li>{scale[0]}</li>}
      {swatches.map(({ name, colour }, n) => <li key={n}><i style={{ background: colour }} />{name}</li>)}
      {scale && <li>{scale[1]}</li>}
    </ul>
  );
}
