/** What changed between two versions: which layers moved, and a table of all changes. */

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { get, getJson, url, view, type Comparing, type Delta, type Diff, type Difference, type Page, type Store, type TensorMove } from "../api";
import { drawable } from "../elements";
import { Drawer } from "../focus";
import { bytes, figure, many, percent, rough, whole } from "../format";
import { Await, Trouble, useJson, useLoaded } from "../loading";
import { Pictures } from "../parts/heatmap";
import { Cut, Rows, type Column } from "../parts/rows";
import { diffPlace, go, modelPlace, useParameter } from "../place";
import { beforeVersion, byAge, familyOf, NUMBERS, repositoryOf, shortened } from "../versions";
import { figureOf, loadMoves, METRICS, namesIn, NO_PAIRS, type Metric, type Pairs } from "../xray/moves";
import { HeatStrip } from "../xray/strip";
import { Part } from "./part";

const SIGNS: Record<Difference["change"], string> = { added: "+", removed: "−", changed: "±", renamed: "→", reordered: "⇅" };
const MOST = 10_000;

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
  const moves = useMoves(before, after);
  // After the sample: the exact comparison of large models takes all of the service's time.
  const [progress, setProgress] = useState<Comparing | null>(null);
  const found = useLoaded<Diff>(moves.done ? names + exact : null, (signal) => allOf(before, after, !exact, signal, setProgress));
  const named: Sides = { before, after };
  return (
    <>
      <header class="model">
        <h1>What changed</h1>
        <p>
          Before: <Named name={before} /> · After: <Named name={after} /> ·{" "}
          <a href={diffPlace(after, before)}>Swap</a>
        </p>
      </header>
      {moves.pairs.total > 0 && <Moved {...moves} />}
      {found.error && <Trouble error={found.error} />}
      {found.value ? <Shown named={named} diff={found.value} moves={moves} evidence={<Evidence diff={found.value} onExact={() => setExact("1")} />} />
        : <Shown named={named} diff={sampled(before, after, moves.pairs.items)} moves={moves} evidence={!found.error && <Comparison progress={progress} />} />}
    </>
  );
}

/** How far the comparison of all bytes is: the rest of them may turn out to be equal at once. */
function Comparison({ progress }: { progress: Comparing | null }) {
  return (
    <p class="soft comparing">
      <span data-said>Loading: comparing all bytes …</span>
      {progress && <><progress max={progress.size} value={progress.read} aria-label="Bytes compared" /> {bytes(progress.read)} of at most {bytes(progress.size)}</>}
    </p>
  );
}

/** The differences that a sample tells, until all bytes have been compared. */
function sampled(before: string, after: string, moves: readonly TensorMove[]): Diff {
  const items = moves.filter(({ change, delta }) => change !== "compared" || delta?.changed).map((move): Difference => ({
    what: "tensor", path: move.name, change: move.change === "compared" || move.change === "reshaped" ? "changed" : move.change,
    before: move.change === "added" ? null : move.size, after: move.change === "removed" ? null : move.size,
    detail: [move.was && `was ${move.was}`, move.change === "reshaped" && "type or shape"].filter(Boolean).join("; "), address: move.address, was: move.was_address,
  }));
  return { before, after, equal: false, counts: [], read: 0, assumed: 0, items, next: null };
}

interface Moves { pairs: Pairs; done: boolean; error: Error | null }

/** The tensors of both versions in pairs, as they come; none for stores that are no models. */
function useMoves(before: string, after: string): Moves {
  const [state, set] = useState<Moves>({ pairs: NO_PAIRS, done: false, error: null });
  useEffect(() => {
    const leaving = new AbortController();
    loadMoves(before, after, leaving.signal, (pairs, done) => set({ pairs, done, error: null }))
      .catch((error: Error) => leaving.signal.aborted || set((known) => ({ ...known, done: true, error })));
    return () => leaving.abort();
  }, [before, after]);
  return state;
}

/** At a glance: which layers moved, and how far. */
function Moved({ pairs, done, error }: Moves) {
  const [metric, setMetric] = useParameter("metric");
  const [cell, setCell] = useParameter("cell");
  const by = (metric in METRICS ? metric : "relative") as Metric;
  return (
    <section aria-label="Changes by layer">
      <p class="filters">
        <label>Show <select value={by} onChange={(event) => setMetric(event.currentTarget.value === "relative" ? "" : event.currentTarget.value)}>
          {Object.entries(METRICS).map(([name, title]) => <option key={name} value={name}>{title}</option>)}
        </select></label>
        <span class="soft" data-said>{done ? "" : `${whole(pairs.compared)} of `}{many(pairs.total, "tensor")} compared, by a sample of their elements</span>
      </p>
      {error && <Trouble error={error} />}
      <HeatStrip pairs={pairs} metric={by} chosen={cell} onChoose={(key) => setCell(key)} />
    </section>
  );
}

function Named({ name }: { name: string }) {
  return <a href={modelPlace(name)} dir="auto"><b>{shortened(name)}</b></a>;
}

/** All listed differences, page by page; `show` gets the progress of the comparison. */
async function allOf(before: string, after: string, checksums: boolean, signal: AbortSignal, show: (progress: Comparing) => void): Promise<Diff> {
  const items: Difference[] = [];
  let [cursor, page]: [string | null, Diff | null] = [null, null];
  do {
    const place = view(after, ["diff"], { before, checksums: checksums ? "true" : null, wait: 1, limit: 1000, cursor });
    let answer = await get(place, signal);
    for (; answer.status === 202; answer = await get(place, signal)) show(await answer.json() as Comparing);
    page = await answer.json() as Diff;
    items.push(...page.items);
    cursor = page.next;
  } while (cursor && items.length < MOST);
  return { ...page, items };
}

/** Both versions as the address names them. */
interface Sides { before: string; after: string }

function Shown({ named, diff, moves, evidence }: { named: Sides; diff: Diff; moves: Moves; evidence: ComponentChildren }) {
  const [chosen, setChosen] = useParameter("at");
  const [cell, setCell] = useParameter("cell");
  const known = useMemo(() => new Map(moves.pairs.items.map((move) => [move.address || move.was_address, move])), [moves]);
  const within = useMemo(() => new Set(cell ? namesIn(moves.pairs, cell) : []), [moves, cell]);
  const [sort, setSort] = useParameter("sort");
  const some = cell ? diff.items.filter((each) => each.what === "tensor" && within.has(each.path.replace(/#\d+$/, ""))) : diff.items;
  const rows = useMemo(() => sorted(some, sort, known), [diff, cell, sort, known]);
  const columns = useMemo(() => columnsOf(known, moves.done), [moves]);
  const row = diff.items.find((each) => keyOf(each) === chosen);
  const close = () => setChosen("");
  if (diff.equal) return <><p class="empty">No changes: both are equal{diff.assumed ? "" : ", byte for byte"}.</p>{evidence}</>;
  return (
    <div class="changes">
      <ul class="counts" aria-label="Number of changes">
        {diff.counts.map(({ what, change, count }) => (
          <li key={what + change} class={`is-${change}`}><b aria-hidden="true">{SIGNS[change]}</b> {many(count, what)} {change}</li>
        ))}
      </ul>
      {evidence}
      {cell && <p><span class="tag" dir="auto">{cell}</span> <span data-said>{many(rows.length, "change")}</span> <button type="button" class="plain" onClick={() => setCell("")}>Show all</button></p>}
      {row?.what === "part" && <Part key={chosen} diff={diff} row={row} onClose={close} />}
      <div class={row?.what === "tensor" ? "both drawn" : ""}>
        <Rows rows={rows} columns={columns} label="Changes" keyOf={keyOf} chosen={chosen} sort={sort} onSort={(wanted) => setSort(wanted)}
          onChoose={(each) => setChosen(keyOf(each), true)} />
        {row?.what === "tensor" && <TensorDrawer key={chosen} named={named} diff={diff} row={row} onClose={close} />}
      </div>
    </div>
  );
}

/** What the answer rests on: bytes, digests, or checksums alone. */
function Evidence({ diff, onExact }: { diff: Diff; onExact: () => void }) {
  return (
    <p class="soft">
      {diff.read ? `Changes found by comparing ${bytes(diff.read)}` : "Changes found by checksum, without reading data"}
      {diff.assumed ? <>; {bytes(diff.assumed)} assumed equal, because the checksums of their blocks are equal.{" "}
        <button type="button" class="plain" onClick={onExact}>Compare every byte</button></> : diff.read ? "; the rest has equal checksums." : "."}
    </p>
  );
}

const keyOf = (each: Difference): string => `${each.what} ${each.path}`;
/** Of what a row tells beyond its place: its own words, and the place before where that was another. */
const toldOf = (each: Difference): string =>
  [each.detail, each.what === "part" && each.was && each.was !== each.address ? `was ${each.was}` : ""].filter(Boolean).join("; ");
const comparable = (each: Difference): boolean =>
  each.what === "tensor" && (each.change === "renamed" || (each.change === "changed" && !each.detail));

/** The rows by a column, whose name has - in front for the largest first; those without a figure come last. */
function sorted(rows: readonly Difference[], sort: string, known: ReadonlyMap<string, TensorMove>): readonly Difference[] {
  const [column, way] = sort.startsWith("-") ? [sort.slice(1), -1] : [sort, 1];
  if (column === "name") return [...rows].sort((a, b) => way * NUMBERS.compare(a.path, b.path));
  const valueOf = (each: Difference): number | null => {
    if (column === "before" || column === "after") return each[column];
    const move = each.what === "tensor" && column in METRICS ? known.get(each.address || each.was) : undefined;
    return move ? figureOf(move, column as Metric) : null;
  };
  const keys = new Map(rows.map((each) => [each, valueOf(each)]));
  return [...rows].sort((a, b) => {
    const [one, other] = [keys.get(a)!, keys.get(b)!];
    return one === null || other === null ? Number(one === null) - Number(other === null) : way * (one - other);
  });
}

function columnsOf(known: ReadonlyMap<string, TensorMove>, all: boolean): Column<Difference>[] {
  const size = (value: number | null) => (value === null ? "" : bytes(value));
  const figure = (metric: Metric) => (each: Difference) => {
    const move = each.what === "tensor" ? known.get(each.address || each.was) : undefined;
    if (each.what !== "tensor") return "";
    if (!move) return all ? "≈ 0" : "…"; // equal as far as the sample goes
    const value = figureOf(move, metric);
    return `${value && move.delta && move.delta.looked_at < move.delta.elements ? "≈ " : ""}${rough(value)}`;
  };
  return [
    { name: "change", title: "Change", show: (each) => <span class={`is-${each.change}`}><b aria-hidden="true">{SIGNS[each.change]}</b> {each.change}</span> },
    { name: "what", title: "Kind", show: (each) => each.what },
    { name: "name", title: "Where", sort: "name", show: (each) => <><Cut name={each.path || "(the root)"} /><span class="soft"> {toldOf(each)}</span></> },
    { name: "before", title: "Before", sort: "before", right: true, show: (each) => size(each.before) },
    { name: "after", title: "After", sort: "after", right: true, show: (each) => size(each.after) },
    { name: "relative", title: "relative change", sort: "relative", right: true, show: figure("relative") },
    { name: "max", title: "max |Δ|", sort: "max", right: true, show: figure("max") },
    { name: "cosine", title: "1 − cosine", sort: "cosine", right: true, show: figure("cosine") },
  ];
}

function TensorDrawer({ named, diff, row, onClose }: { named: Sides; diff: Diff; row: Difference; onClose: () => void }) {
  return (
    <Drawer label="Tensor" onClose={onClose}>
      <h2 dir="auto">{row.path}</h2>
      <p class="soft">{SIGNS[row.change]} {row.change}{row.detail && ` · ${row.detail}`}</p>
      {comparable(row) && <Figures diff={diff} row={row} />}
      <p>
        {row.was && <a class="tag" href={tensorPlace(named.before, row.was)} dir="auto">Before: {shortened(named.before)}</a>}
        {row.address && <a class="tag" href={tensorPlace(named.after, row.address)} dir="auto">After: {shortened(named.after)}</a>}
      </p>
    </Drawer>
  );
}

const tensorPlace = (store: string, address: string): string => `${modelPlace(store, "tensors")}?tensor=${encodeURIComponent(address)}`;

function Figures({ diff, row }: { diff: Diff; row: Difference }) {
  const found = useJson<Delta>(view(diff.after, ["diff", row.address], { before: diff.before, was: row.was }));
  return (
    <Await of={found}>
      {(delta) => (
        <>
          <dl class="figures">
            {Object.entries({
              "relative change": figure(delta.relative), "max |Δ|": figure(delta.max), "mean |Δ|": figure(delta.mean), cosine: figure(delta.cosine),
              changed: `${whole(delta.changed)} (${percent(delta.changed / Math.max(delta.looked_at, 1))})`,
              "not finite": whole(delta.incomparable),
            }).map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}
          </dl>
          <p class="soft">
            {delta.looked_at === delta.elements ? `Exact: all ${whole(delta.elements)} elements.` : `Sample of ${whole(delta.looked_at)} of ${whole(delta.elements)} elements, evenly spread.`}
          </p>
          {drawable(delta.dtype) && delta.elements > 0 && <Pictures before={{ store: diff.before, address: row.was }} after={{ store: diff.after, address: row.address }} dtype={delta.dtype} shape={delta.shape} />}
        </>
      )}
    </Await>
  );
}
