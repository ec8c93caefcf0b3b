/** The tensors: a table of any number of them, and a drawer with the numbers of one. */

import { useEffect, useRef, useState } from "preact/hooks";
import { getJson, hasGraph, view, type Page, type Statistics, type Store, type Tensor } from "../api";
import { drawable } from "../elements";
import { bytes, figure, percent, shape, whole } from "../format";
import { Await, Trouble, useJson } from "../loading";
import { Heatmap } from "../parts/heatmap";
import { Bars } from "../parts/histogram";
import { Rows, type Column } from "../parts/rows";
import { useParameter } from "../place";

const PAGE = 500;
const COLUMNS: Column<Tensor>[] = [
  { name: "name", title: "Name", sort: "name", show: (tensor) => <span title={tensor.name}>{tensor.name || tensor.address}</span> },
  { name: "dtype", title: "Type", sort: "dtype", show: (tensor) => tensor.dtype ?? "?" },
  { name: "shape", title: "Shape", sort: "shape", show: (tensor) => shape(tensor.shape) },
  { name: "size", title: "Size", sort: "size", right: true, show: (tensor) => (tensor.size === null ? "–" : bytes(tensor.size)) },
];

export function Tensors({ store }: { store: Store }) {
  const [search, setSearch] = useParameter("search");
  const [sort, setSort] = useParameter("sort");
  const [chosen, setChosen] = useParameter("tensor");
  const [typed, setTyped] = useState(search);
  const { rows, next, error, more } = usePages(store.id, search, sort || "-size");
  useEffect(() => { const wait = setTimeout(() => setSearch(typed), 150); return () => clearTimeout(wait); }, [typed]);
  return (
    <>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder="Words of a name, such as layer.3 bias" aria-label="Words in the name" value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <span class="soft" role="status">{rows === null ? "Loading …" : `${whole(rows.length)}${next ? "+" : ""} tensors`}</span>
      </form>
      {error && <Trouble error={error} />}
      <div class={chosen ? "both drawn" : ""}>
        {rows && (
          <Rows rows={rows} columns={COLUMNS} label="Tensors" keyOf={(tensor) => tensor.address} chosen={chosen}
            sort={sort || "-size"} onSort={(wanted) => setSort(wanted === "-size" ? "" : wanted)}
            onChoose={(tensor) => setChosen(tensor.address, true)} {...(next ? { onEnd: more } : {})} />
        )}
        {chosen && <Drawer key={chosen} store={store} address={chosen} onClose={() => setChosen("")} />}
      </div>
    </>
  );
}

/** The rows so far, and a way to the next ones; begins anew with another search or order. */
function usePages(store: string, search: string, sort: string) {
  const [state, set] = useState<{ rows: Tensor[] | null; next: string | null; error: Error | null }>({ rows: null, next: null, error: null });
  const asked = useRef("");
  const load = async (before: Tensor[], cursor: string | null) => {
    const mark = asked.current = `${store} ${search} ${sort} ${cursor}`;
    try {
      const page = await getJson<Page<Tensor>>(view(store, ["tensors"], { search, sort, limit: PAGE, cursor }));
      if (asked.current === mark) set({ rows: [...before, ...page.items], next: page.next, error: null });
    } catch (error) {
      if (asked.current === mark) set({ rows: before, next: null, error: error as Error });
    }
  };
  useEffect(() => { void load([], null); }, [store, search, sort]);
  const more = () => {
    if (state.rows && state.next && !asked.current.endsWith(` ${state.next}`)) void load(state.rows, state.next);
  };
  return { ...state, more };
}

function Drawer({ store, address, onClose }: { store: Store; address: string; onClose: () => void }) {
  const [slice, setSlice] = useParameter("slice");
  const [typed, setTyped] = useState(slice);
  const [all, setAll] = useState(false);
  const tensor = useJson<Tensor>(view(store.id, ["tensors", address], { format: "json" }));
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  const numeric = tensor.value !== null && tensor.value.size !== null && !tensor.value.problem;
  const stats = useJson<Statistics>(numeric ? view(store.id, ["tensors", address], { format: "stats", slice, ...(all ? { sample: 0 } : {}) }) : null);
  return (
    <aside class="drawer" ref={box} tabIndex={-1} aria-label="Tensor" onKeyDown={(event) => { if (event.key === "Escape") onClose(); }}>
      <button type="button" class="plain close" aria-label="Close" onClick={onClose}>✕</button>
      <Await of={tensor}>
        {(value) => (
          <>
            <h2 dir="auto">{value.name || value.address}</h2>
            <p class="soft"><b>{value.dtype ?? "?"}</b> {shape(value.shape)}{value.size !== null && ` · ${bytes(value.size)}`} · {value.kind}</p>
            {value.problem && <p class="trouble">{value.problem}</p>}
            {numeric && (
              <form class="slice" onSubmit={(event) => { event.preventDefault(); setSlice(typed.trim()); }}>
                <label>Slice <input value={typed} placeholder="all, or as 0:128,:" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
                <button type="submit">Show</button>
                <a href={view(store.id, ["tensors", address], { format: "npy", slice })} download>.npy</a>
              </form>
            )}
            {numeric && <Await of={stats}>{(found) => <Figures found={found} onAll={() => setAll(true)} />}</Await>}
            {numeric && drawable(value.dtype) && value.shape !== null && (value.size ?? 0) > 0 && <Heatmap store={store.id} tensor={value} />}
            <p class="soft"><code dir="auto">{value.address}</code>{hasGraph(store) && <> · <a href={`/m/${store.id}/graph?around=${encodeURIComponent(value.name)}`}>in the graph</a></>}</p>
          </>
        )}
      </Await>
    </aside>
  );
}

function Figures({ found, onAll }: { found: Statistics; onAll: () => void }) {
  const share = (part: number) => (part ? `${whole(part)} (${percent(part / Math.max(found.looked_at, 1))})` : "0");
  const rows: [string, string][] = [
    ["min", figure(found.min)], ["max", figure(found.max)], ["mean", figure(found.mean)], ["deviation", figure(found.deviation)],
    ["zeros", share(found.zeros)], ["NaN", share(found.nans)], ["infinite", share(found.infinities)],
  ];
  return (
    <>
      {found.histogram && <Bars histogram={found.histogram} />}
      <dl class="figures">{rows.map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}</dl>
      <p class="soft">
        {found.looked_at === found.elements ? `Exact: all ${whole(found.elements)} elements.` : `A sample of ${whole(found.looked_at)} of ${whole(found.elements)} elements, spread evenly. `}
        {found.looked_at < found.elements && <button type="button" class="plain" onClick={onAll}>Read all</button>}
      </p>
    </>
  );
}
