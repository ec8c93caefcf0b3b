/** One tensor: its facts, its numbers in figures, as a histogram and as a picture. */

import { useEffect, useState } from "preact/hooks";
import { hasGraph, type Histogram, type Statistics, type Store, type Tensor, view } from "../api";
import { bytes, figure, percent, python, shape, whole } from "../format";
import { drawable } from "../elements";
import { Copy, Drawer } from "../focus";
import { Await, useJson } from "../loading";
import { Heatmap } from "../parts/heatmap";
import { modelPlace, useParameter } from "../place";

export function TensorDrawer({ store, name, address, onClose }: { store: Store; name: string; address: string; onClose: () => void }) {
  const [slice, setSlice] = useParameter("slice");
  const [typed, setTyped] = useState(slice);
  const [all, setAll] = useState(false);
  const tensor = useJson<Tensor>(view(store.id, ["tensors", address], { format: "json" }));
  useEffect(() => {
    const before = document.title;
    if (tensor.value) document.title = `${tensor.value.name || tensor.value.address} — ${before}`;
    return () => { document.title = before; };
  }, [tensor.value]);
  const numeric = tensor.value !== null && tensor.value.size !== null && !tensor.value.problem;
  const stats = useJson<Statistics>(numeric ? view(store.id, ["tensors", address], { format: "stats", slice, ...(all ? { sample: 0 } : {}) }) : null);
  return (
    <Drawer label="Tensor" onClose={onClose}>
      <Await of={tensor}>
        {(value) => (
          <>
            <h2 dir="auto">{value.name || value.address}</h2>
            <p class="soft"><b>{value.dtype ?? "?"}</b> {shape(value.shape)}{value.size !== null && ` · ${bytes(value.size)}`} · {value.role} · {value.kind}</p>
            <p class="soft"><code dir="auto">{value.address}</code>{" "}· <Copy text={() => location.href} what="link">copy link</Copy>{hasGraph(store) && <> · <a href={`${modelPlace(store.id, "graph")}?around=${encodeURIComponent(value.name)}`}>in the graph</a></>}</p>
            {value.problem && <p class="trouble">{value.problem}</p>}
            {numeric && (
              <form class="slice" onSubmit={(event) => { event.preventDefault(); setSlice(typed.trim()); }}>
                <label>Slice <input value={typed} placeholder="such as 0:128,:" spellcheck={false} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
                <button type="submit">Show</button>
                <a href={view(store.id, ["tensors", address], { format: "npy", slice })} download>.npy</a>
              </form>
            )}
            {numeric && <Await of={stats}>{(found) => <Figures found={found} onAll={() => setAll(true)} />}</Await>}
            {numeric && drawable(value.dtype) && value.shape !== null && (value.size ?? 0) > 0 && <Heatmap store={store.id} tensor={value} />}
            {numeric && <Loading model={name} tensor={value} slice={slice} />}
          </>
        )}
      </Await>
    </Drawer>
  );
}

/** A slice as Python's subscript takes it. */
const SLICE = /^[\d\s:,.-]+$/;

/** Code that loads this tensor, or a slice of it, and nothing else. */
function Loading({ model, tensor, slice }: { model: string; tensor: Tensor; slice: string }) {
  const place = `${location.origin}${modelPlace(model)}`;
  const line = `import protoslice; layer = protoslice.open_model(${python(place)})[${python(tensor.name || tensor.address)}][${SLICE.test(slice) ? slice : "..."}]; print(layer.shape, layer.dtype)`;
  return <dl class="ways"><dt>Python</dt><dd><code>{line}</code><Copy text={line} what="Python code">copy</Copy></dd></dl>;
}

function Figures({ found, onAll }: { found: Statistics; onAll: () => void }) {
  const share = (part: number) => (part ? `${whole(part)} (${percent(part / Math.max(found.looked_at, 1))})` : "0");
  const rows: [string, string][] = [
    ["min", figure(found.min)], ["max", figure(found.max)], ["mean", figure(found.mean)], ["std", figure(found.deviation)],
    ["zeros", share(found.zeros)], ["NaN", share(found.nans)], ["infinite", share(found.infinities)],
  ];
  return (
    <>
      {found.histogram && <Bars histogram={found.histogram} />}
      <dl class="figures">{rows.map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}</dl>
      <p class="soft">
        {found.looked_at === found.elements ? `Exact: all ${whole(found.elements)} elements.` : `Sample of ${whole(found.looked_at)} of ${whole(found.elements)} elements, evenly spread. `}
        {found.looked_at < found.elements && <button type="button" class="plain" onClick={onAll}>Read all</button>}
      </p>
    </>
  );
}

function Bars({ histogram }: { histogram: Histogram }) {
  const { start, width, counts } = histogram;
  const [at, setAt] = useState<number | null>(null);
  const most = Math.max(...counts, 1);
  const border = (number: number) => figure(start + width * number);
  const label = `Histogram of ${counts.length} bins from ${border(0)} to ${border(counts.length)}; the largest bin has ${whole(most)} elements and starts at ${border(counts.indexOf(most))}`;
  return (
    <figure class="bars">
      <svg viewBox={`0 0 ${counts.length} 40`} preserveAspectRatio="none" role="img" aria-label={label}
        onMouseLeave={() => setAt(null)}>
        {counts.map((count, number) => {
          const height = count ? Math.max(0.6, (40 * count) / most) : 0;
          return (
            <g key={number} onMouseEnter={() => setAt(number)}>
              <rect class="back" x={number} y={0} width={1} height={40} />
              <rect class={number === at ? "bar on" : "bar"} x={number + 0.06} y={40 - height} width={0.88} height={height} />
            </g>
          );
        })}
      </svg>
      <figcaption class="soft">
        <span>{border(0)}</span>
        <span>{at === null ? "" : `${border(at)} … ${border(at + 1)}: ${whole(counts[at] ?? 0)}`}</span>
        <span>{border(counts.length)}</span>
      </figcaption>
    </figure>
  );
}
