/** What changed between two versions: a treemap of where, and a table of what. */

import { useEffect, useMemo } from "preact/hooks";
import { getJson, url, view, type Delta, type Diff, type Difference, type Node, type Page, type Store } from "../api";
import { bytes, figure, many, percent, rough, whole } from "../format";
import { cellOf } from "../groups";
import { Await, Trouble, useJson, useLoaded, type Loaded } from "../loading";
import { focusRows, Rows, type Column } from "../parts/rows";
import { Treemap, type Cell, type Mark } from "../parts/treemap";
import { diffPlace, go, modelPlace, useParameter } from "../place";
import { beforeVersion, byAge, familyOf, repositoryOf, shortened } from "../versions";
import { Part } from "./part";

const SIGNS: Record<Difference["change"], string> = { added: "+", removed: "−", changed: "±", renamed: "→", reordered: "⇅" };
const MOST = 10_000;
const SAMPLE = 1 << 20;

export function DiffView({ names }: { names: string }) {
  const [before = "", after = ""] = names.split("...");
  return before ? <Between names={names} before={before} after={after} /> : <SinceBefore after={after} />;
}

/** Goes on to the difference from the version before `after`: of the stores of its name, the newest that is older. */
function SinceBefore({ after }: { after: string }) {
  const [named] = useParameter("repository");
  const repository = repositoryOf(after) || named;
  const found = useLoaded<string>(after, async (signal) => {
    if (repository) return beforeVersion(after, repository, signal);
    const name = `${familyOf(after)}:`;
    const [store, page] = await Promise.all([getJson<Store>(view(after, []), signal), getJson<Page<Store>>(url(["v1", "stores"], { tag: name, limit: 1000 }), signal)]);
    const [older] = page.items.filter((each) => each.id !== store.id && byAge(each, store) > 0).sort(byAge);
    return older?.tags.find((tag) => tag.startsWith(name)) ?? older?.id ?? "";
  });
  useEffect(() => { if (found.value) go(diffPlace(found.value, after), true); }, [found.value]);
  return <Await of={found} whole>{(older) => older ? null : <p class="empty"><Named name={after} /> is the first version, so there is nothing to compare it with.</p>}</Await>;
}

function Between({ names, before, after }: { names: string; before: string; after: string }) {
  const [exact, setExact] = useParameter("exact");
  const found = useLoaded<Diff>(names + exact, (signal) => allOf(before, after, !exact, signal));
  return (
    <>
      <header class="model">
        <h1>What changed</h1>
        <p>
          from <Named name={before} /> to <Named name={after} /> ·{" "}
          <a href={diffPlace(after, before)}>Swap</a>
        </p>
      </header>
      <Await of={found}>{(diff) => <Shown diff={diff} onExact={() => setExact("1")} />}</Await>
    </>
  );
}

function Named({ name }: { name: string }) {
  return <a href={modelPlace(name)} dir="auto"><b>{shortened(name)}</b></a>;
}

/** All listed differences, page by page. */
async function allOf(before: string, after: string, checksums: boolean, signal: AbortSignal): Promise<Diff> {
  const items: Difference[] = [];
  let [cursor, page]: [string | null, Diff | null] = [null, null];
  do {
    page = await getJson<Diff>(view(after, ["diff"], { before, checksums: checksums ? "true" : null, limit: 1000, cursor }), signal);
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < MOST);
  return { ...page, items };
}

function Shown({ diff, onExact }: { diff: Diff; onExact: () => void }) {
  const [chosen, setChosen] = useParameter("at");
  const store = useJson<Store>(view(diff.after, []));
  const rows = diff.items;
  const columns = useMemo(() => columnsOf(diff), [diff]);
  const row = rows.find((each) => keyOf(each) === chosen);
  const close = () => { setChosen(""); focusRows(); };
  const told = <Evidence diff={diff} onExact={onExact} />;
  if (diff.equal) return <><p class="empty">No changes: both are equal{diff.assumed ? "" : ", byte for byte"}.</p>{told}</>;
  return (
    <div class="changes">
      <ul class="counts" aria-label="Number of changes">
        {diff.counts.map(({ what, change, count }) => (
          <li key={what + change} class={`is-${change}`}><b aria-hidden="true">{SIGNS[change]}</b> {many(count, what)} {change}</li>
        ))}
      </ul>
      {told}
      {store.value?.root && <Where diff={diff} chosen={row ?? null} onChoose={setChosen} />}
      {row?.what === "part" && <Part key={chosen} diff={diff} row={row} onClose={close} />}
      <div class={row?.what === "tensor" ? "both drawn" : ""}>
        <Rows rows={rows} columns={columns} label="Changes" keyOf={keyOf} chosen={chosen} sort="" onSort={() => undefined}
          onChoose={(each) => setChosen(keyOf(each), true)} />
        {row?.what === "tensor" && <Drawer key={chosen} diff={diff} row={row} onClose={close} />}
      </div>
    </div>
  );
}

/** What the answer rests on: bytes, digests, or checksums alone. */
function Evidence({ diff, onExact }: { diff: Diff; onExact: () => void }) {
  return (
    <p class="soft">
      {diff.read ? `${bytes(diff.read)} compared` : "No data had to be read"}
      {diff.assumed ? <>; {bytes(diff.assumed)} assumed equal, because the checksums of their blocks are.{" "}
        <button type="button" class="plain" onClick={onExact}>Compare every byte</button></> : "; the rest matched by checksum."}
    </p>
  );
}

const keyOf = (each: Difference): string => `${each.what} ${each.path}`;
/** The path in the second version; empty for what is not in it. */
const placeOf = (each: Difference): string => (each.what === "file" || each.change === "removed" ? "" : each.address.replace(/^path:/, ""));
/** Of what a row tells beyond its place: its own words, and the place before where that was another. */
const toldOf = (each: Difference): string =>
  [each.detail, each.what === "part" && each.was && each.was !== each.address ? `was ${each.was}` : ""].filter(Boolean).join("; ");
const comparable = (each: Difference): boolean =>
  each.what === "tensor" && (each.change === "renamed" || (each.change === "changed" && !each.detail));

function columnsOf(diff: Diff): Column<Difference>[] {
  const size = (value: number | null) => (value === null ? "" : bytes(value));
  const delta = (each: Difference, show: (found: Delta) => string) =>
    comparable(each) ? <Distance diff={diff} row={each} show={show} /> : "";
  return [
    { name: "change", title: "Change", show: (each) => <span class={`is-${each.change}`}><b aria-hidden="true">{SIGNS[each.change]}</b> {each.change}</span> },
    { name: "what", title: "Kind", show: (each) => each.what },
    { name: "name", title: "Where", show: (each) => <span title={each.path}>{each.path || "(the root)"}<span class="soft"> {toldOf(each)}</span></span> },
    { name: "before", title: "Before", right: true, show: (each) => size(each.before) },
    { name: "after", title: "After", right: true, show: (each) => size(each.after) },
    { name: "max", title: "max |Δ|", right: true, show: (each) => delta(each, (found) => rough(found.max)) },
    { name: "mean", title: "mean |Δ|", right: true, show: (each) => delta(each, (found) => rough(found.mean)) },
    { name: "cosine", title: "cosine", right: true, show: (each) => delta(each, (found) => figure(found.cosine)) },
  ];
}

/** Answers that the columns of a row share. */
const DELTAS = new Map<string, Promise<Delta>>();

function useDelta(diff: Diff, row: Difference, sample?: number): Loaded<Delta> {
  const place = view(diff.after, ["diff", row.address], { before: diff.before, was: row.was, sample: sample ?? null });
  return useLoaded(place, () => {
    const found = DELTAS.get(place) ?? getJson<Delta>(place);
    DELTAS.set(place, found);
    found.catch(() => DELTAS.delete(place));
    return found;
  });
}

/** One figure of a tensor, of a sample of its elements. */
function Distance({ diff, row, show }: { diff: Diff; row: Difference; show: (found: Delta) => string }) {
  const { value, error } = useDelta(diff, row, SAMPLE);
  return <span title={error?.message}>{value ? show(value) : error ? "–" : "…"}</span>;
}

function Drawer({ diff, row, onClose }: { diff: Diff; row: Difference; onClose: () => void }) {
  return (
    <aside class="drawer" aria-label="Tensor" onKeyDown={(event) => { if (event.key === "Escape") onClose(); }}>
      <button type="button" class="plain close" aria-label="Close" onClick={onClose}>✕</button>
      <h2 dir="auto">{row.path}</h2>
      <p class="soft">{SIGNS[row.change]} {row.change}{row.detail && ` · ${row.detail}`}</p>
      {comparable(row) && <Figures diff={diff} row={row} />}
      <ul>
        {row.was && <li><a href={tensorPlace(diff.before, row.was)}>Before</a></li>}
        {row.address && <li><a href={tensorPlace(diff.after, row.address)}>After</a></li>}
      </ul>
    </aside>
  );
}

const tensorPlace = (store: string, address: string): string => `${modelPlace(store, "tensors")}?tensor=${encodeURIComponent(address)}`;

function Figures({ diff, row }: { diff: Diff; row: Difference }) {
  const found = useDelta(diff, row);
  return (
    <Await of={found}>
      {(delta) => (
        <>
          <dl class="figures">
            {Object.entries({
              "max |Δ|": figure(delta.max), "mean |Δ|": figure(delta.mean), cosine: figure(delta.cosine),
              changed: `${whole(delta.changed)} (${percent(delta.changed / Math.max(delta.looked_at, 1))})`,
              "not finite": whole(delta.incomparable),
            }).map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}
          </dl>
          <p class="soft">
            {delta.looked_at === delta.elements ? `Exact: all ${whole(delta.elements)} elements.` : `Sample of ${whole(delta.looked_at)} of ${whole(delta.elements)} elements, evenly spread.`}
          </p>
        </>
      )}
    </Await>
  );
}

/** The treemap of the second version; what changed has a colour and a sign, all else is grey. */
function Where({ diff, chosen, onChoose }: { diff: Diff; chosen: Difference | null; onChoose: (key: string) => void }) {
  const found = useJson<Node>(view(diff.after, ["treemap"], { depth: 8, min_share: 0.0005 }));
  const places = useMemo(() => diff.items.filter(placeOf), [diff]);
  const cell = useMemo(() => found.value && marked(cellOf(found.value), places), [found.value, places]);
  if (found.error) return <Trouble error={found.error} />;
  if (!cell) return null;
  return (
    <Treemap root={cell} height={innerWidth < 700 ? 240 : 340} label="Treemap of the second version; the table below lists the changes"
      chosen={chosen && placeOf(chosen)} onHover={() => undefined}
      onChoose={(at) => { const row = places.find((each) => within(at.key, placeOf(each)) || within(placeOf(each), at.key)); if (row) onChoose(keyOf(row)); }} />
  );
}

const within = (path: string, above: string): boolean =>
  path === above || (path.startsWith(above) && ".[".includes(path[above.length] ?? ""));

/** The cells with their marks: of a change that a cell is part of, or that is part of the cell. */
function marked(cell: Cell, places: readonly Difference[]): Cell {
  if (cell.children?.length) return { ...cell, children: cell.children.map((each) => marked(each, places)) };
  const change = places.find((each) => within(cell.key, placeOf(each)) || within(placeOf(each), cell.key));
  const mark: Mark = change ? change.change : "same";
  return { ...cell, mark, label: change ? `${SIGNS[change.change]} ${cell.label}` : cell.label };
}
