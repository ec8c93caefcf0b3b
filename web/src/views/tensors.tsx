/** The tensors: a table of any number of them, flat or by the steps of their names. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, view, type Page, type Store, type Tensor } from "../api";
import { bytes, many, shape, whole } from "../format";
import { Trouble, useLoaded } from "../loading";
import { Cut, Rows, type Column, type Numbered } from "../parts/rows";
import { setParameters, useParameter } from "../place";
import { keyOf, loadGroup, rangeIn, rangeOf, type WeightNode } from "../weights/nodes";
import { TensorDrawer } from "./tensor";

const PAGE = 500;
const WAYS = { search: "Words", regex: "Regex" } as const;
type Way = keyof typeof WAYS;

export function Tensors({ store, name, onPictured }: { store: Store; name: string; onPictured: () => void }) {
  const [search, setSearch] = useParameter("search");
  const [regex, setRegex] = useParameter("regex");
  const [prefix] = useParameter("prefix");
  const [range] = useParameter("range");
  const [grouped, setGrouped] = useParameter("grouped");
  const [sort, setSort] = useParameter("sort");
  const [chosen, setChosen] = useParameter("tensor");
  const [way, setWay] = useState<Way>(regex ? "regex" : "search");
  const [typed, setTyped] = useState(regex || search);
  const sought = way === "regex" ? regex : search;
  // What is sought is looked for in all names: groups come back once nothing is.
  const groups = grouped !== "" && !sought;
  const all = !sought && !prefix;
  const flat = usePages<Tensor>((place) => (groups ? "" : view(store.id, ["tensors"], { search, regex, prefix, sort: sort || "-size", limit: PAGE, ...place })), all);
  const group = useLoaded<WeightNode>(groups ? `${prefix} ${range}` : null, (signal) => loadGroup(store.id, prefix, rangeIn(range), signal));
  const rows: Numbered<Row> | null = groups ? group.value && (group.value.tensors === 1 ? [group.value] : group.value.children ?? []) : flat.rows;
  const alone = !group.value?.children?.some(isGroup);
  const error = groups ? group.error : flat.error;
  useEffect(() => { if (rows || error) onPictured(); }, [rows === null, error]);
  useEffect(() => {
    const wait = setTimeout(() => { (way === "regex" ? setRegex : setSearch)(typed); (way === "regex" ? setSearch : setRegex)(""); }, 150);
    return () => clearTimeout(wait);
  }, [typed, way]);
  const columns = useMemo(() => columnsOf(groups), [groups]);
  const enter = (prefix: string, range = "") => setParameters({ prefix, range }, true);
  const choose = (row: Row) => {
    if (isGroup(row)) enter(row.prefix, row.range ? `${row.start}-${row.tensors}` : "");
    else setChosen(row.address ?? "", true);
  };
  return (
    <>
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder={way === "regex" ? "Regular expression, such as layer\\.(3|11)\\..*bias$" : "Search tensors, such as layer.3 bias"}
          aria-label={way === "regex" ? "Regular expression to find in the name" : "Words in the name"} value={typed} spellcheck={false}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <select aria-label="Search mode" value={way} onChange={(event) => setWay(event.currentTarget.value as Way)}>
          {Object.entries(WAYS).map(([name, title]) => <option key={name} value={name}>{title}</option>)}
        </select>
        <label class="check"><input type="checkbox" checked={grouped !== ""} onChange={(event) => setGrouped(event.currentTarget.checked ? "1" : "")} /> Group by name</label>
        <span class="soft" data-said>{rows === null ? "Loading …" : `${whole(rows.length)}${!groups && flat.next && !all ? "+" : ""} ${groups && !alone ? "group" : "tensor"}${rows.length === 1 ? "" : "s"}`}</span>
      </form>
      {(prefix || (groups && range)) && <Steps prefix={prefix} within={range && group.value?.children?.length ? rangeOf(group.value.children, group.value).label : ""} onGo={enter} />}
      {error && <Trouble error={error} />}
      <div class={chosen ? "both drawn" : ""}>
        {rows && (
          <Rows rows={rows} columns={columns} label="Tensors" keyOf={(row) => (isGroup(row) ? keyOf(row) : row.address ?? "")} chosen={chosen}
            sort={groups ? "" : sort || "-size"} onSort={(wanted) => setSort(wanted === "-size" ? "" : wanted)}
            onChoose={choose} {...(groups ? {} : { onSee: flat.see })} />
        )}
        {chosen && <TensorDrawer key={chosen} store={store} name={name} address={chosen} onClose={() => setChosen("")} />}
      </div>
    </>
  );
}

/** A tensor; by name, a node of the tree of names. */
type Row = Tensor | WeightNode;
const isNode = (row: Row): row is WeightNode => "tensors" in row;
const isGroup = (row: Row): row is WeightNode => isNode(row) && row.tensors > 1;

function columnsOf(groups: boolean): Column<Row>[] {
  const name = (row: Row) => {
    if (isGroup(row)) return <><span aria-hidden="true" class="twist">▸ </span>{row.label}</>;
    return <Cut name={isNode(row) ? row.label : row.name || row.address} />;
  };
  const sorted = (column: string) => (groups ? {} : { sort: column });
  return [
    { name: "name", title: "Name", ...sorted("name"), show: name },
    { name: "dtype", title: "Type", ...sorted("dtype"), show: (row) => (isGroup(row) ? "" : row.dtype ?? "?") },
    { name: "shape", title: "Shape", ...sorted("shape"), show: (row) => (isGroup(row) ? many(row.tensors, "tensor") : shape(row.shape)) },
    { name: "size", title: "Size", ...sorted("size"), right: true, show: (row) => (row.size === null ? "–" : bytes(row.size)) },
  ];
}

/** The way to a group, each step of which leads back to it. */
function Steps({ prefix, within, onGo }: { prefix: string; within: string; onGo: (prefix: string) => void }) {
  const ends = [...prefix.matchAll(/[^./:][./:]/g)].map((found) => found.index + 2);
  if (prefix && ends.at(-1) !== prefix.length) ends.push(prefix.length);
  return (
    <nav class="steps" aria-label="Group">
      <button type="button" class="plain" onClick={() => onGo("")}>all</button>
      {ends.map((end, n) => <button key={end} type="button" class="plain" dir="auto" onClick={() => onGo(prefix.slice(0, end))}>{prefix.slice(ends[n - 1] ?? 0, end)}</button>)}
      {within && <span dir="auto">{within}</span>}
    </nav>
  );
}

interface Found<T> { rows: Blocks<T> | null; next: string | null; error: Error | null }

/** The rows that are here, and a way to those that come into sight; another place starts over, an empty one has none. */
function usePages<T extends object>(placeOf: (place: { cursor?: string | null; from?: string | null }) => string, whole: boolean) {
  const [state, set] = useState<Found<T>>({ rows: null, next: null, error: null });
  const asked = useRef<AbortController | null>(null);
  const coming = useRef<string | null>(null);
  const load = async (before: Blocks<T> | null, from: string | null) => {
    asked.current?.abort();
    const { signal } = asked.current = new AbortController();
    coming.current = from;
    try {
      let [found, cursor, total]: [T[], string | null, number] = [[], whole ? null : from, 0];
      // A page may be empty though others follow: the service searches so many names for each.
      do {
        const page = await getJson<Page<T> & { total?: number }>(placeOf(cursor ? { cursor } : { from: whole ? from : null }), signal);
        found = page.items;
        [cursor, total] = [page.next, page.total ?? 0];
      } while (!found.length && cursor);
      const start = whole ? Number(from ?? 0) : before?.length ?? 0;
      set({ rows: (before ?? Blocks.none as Blocks<T>).with(start, found, whole ? total : 0), next: cursor, error: null });
    } catch (error) {
      if (!signal.aborted) set({ rows: before, next: null, error: error as Error });
    }
    if (asked.current?.signal === signal) [asked.current, coming.current] = [null, null];
  };
  useEffect(() => { if (placeOf({})) void load(null, null); return () => asked.current?.abort(); }, [placeOf({})]);
  const wait = useRef(0);
  const see = (first: number, last: number) => {
    clearTimeout(wait.current);
    const { rows, next } = state;
    if (!rows) return;
    const from = whole ? rows.missing(first, last)?.toString() ?? null : last >= rows.length ? next : null;
    // Rows that fly past are not asked for.
    if (from !== null && from !== coming.current) wait.current = setTimeout(() => void load(rows, from), 60);
  };
  return { ...state, see };
}

/** Rows in blocks, of which some are here. */
class Blocks<T> {
  private constructor(readonly length: number, private readonly blocks: readonly (readonly [start: number, rows: readonly T[]])[] = []) {}

  static readonly none = new Blocks<never>(0);

  at(number: number): T | undefined {
    const block = this.blocks.find(([start, rows]) => start <= number && number < start + rows.length);
    return block && block[1][number - block[0]];
  }

  /** The rows, and those from `start` on, of `total` at least. */
  with(start: number, rows: readonly T[], total: number): Blocks<T> {
    return new Blocks(Math.max(total, this.length, start + rows.length), [...this.blocks, [start, rows]]);
  }

  /** The first row that is not here: of a block before `first`, so that rows above come with it. */
  missing(first: number, last: number): number | null {
    for (let number = first; number < last; number += 1) {
      if (this.at(number) === undefined) return number > first ? number : Math.max(this.after(number), number - (PAGE >> 1));
    }
    return null;
  }

  /** The end of the last block before a row. */
  private after(number: number): number {
    return Math.max(0, ...this.blocks.map(([start, rows]) => start + rows.length).filter((end) => end <= number));
  }
}
