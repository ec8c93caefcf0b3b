/** The library: what is stored, by name; the newest first, versions of one name together. */

import { useEffect, useLayoutEffect, useMemo, useState } from "preact/hooks";
import { change, getJson, registryNames, uploaderOf, url, type Page, type Repository, type Schemas, type Store } from "../api";
import { ago, bytes, many } from "../format";
import { Await, Trouble, useLoaded } from "../loading";
import { Drop } from "../parts/drop";
import { diffPlace, go, keep, kept, modelPlace, ofRepository, setParameters, SPACE, useParameter, usePlace } from "../place";
import { forgetRemoval, removals, type Removal } from "../removals";
import { allows } from "../session";
import { byAge, familyOf, nameOf, repositoryOf, shortened, titleOf, versionOf } from "../versions";
import { Thumbnail } from "../weights/thumbnail";

const PAGE = 50;
const SORTS = { "": "Newest first", created: "Oldest first", name: "By name", "-size": "Largest first", size: "Smallest first" };
/** Versions of a name that are shown at once. */
const SHOWN = 4;

/** What came after the first page of `place`. */
interface More<T> { place: string; items: T[]; next: string | null; error: Error | null }

export function Library() {
  const [of, setOf] = useParameter("of");
  const removed = of === "removed";
  const stores = of !== "repositories" && !removed;
  const [mayRestore, setMayRestore] = useState(false);
  useEffect(() => void allows("delete").then(setMayRestore, () => null), []);
  const { searchParams } = usePlace();
  // Links of earlier releases have `tag`.
  const sought = searchParams.get("name") ?? searchParams.get("tag") ?? "";
  const [type, setType] = useParameter("type");
  const [sort, setSort] = useParameter("sort");
  const [typed, setTyped] = useState(sought);
  useEffect(() => { if (typed.trim() === sought) return; const wait = setTimeout(() => setParameters({ name: typed.trim(), tag: "" }), 200); return () => clearTimeout(wait); }, [typed]);
  // At once: what is typed next must stay.
  useLayoutEffect(() => setTyped(sought), [sought]);
  const list = useList<Store & Repository & Schemas["Removed"]>((limit) => removed ? url(["v1", "removed"], { limit }) : stores ? url(["v1", "stores"], { name: sought, type, sort, limit }) : url(["v1", "repositories"], { prefix: sought, limit }), of);
  const types = [...new Set([type, ...list.items.map((each) => each.type ?? "")])].filter(Boolean).sort();
  const items = stores || removed || !type ? list.items : list.items.filter((each) => each.type === type);
  return (
    <>
      <h1 class="unseen">Library</h1>
      <Removed />
      <Drop />
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <span class="either" role="group" aria-label="List">
          <button type="button" aria-pressed={stores} onClick={() => setOf("", true)}>Models</button>
          <button type="button" aria-pressed={!stores && !removed} onClick={() => setOf("repositories", true)}>Repositories</button>
          {(mayRestore || removed) && <button type="button" aria-pressed={removed} onClick={() => setOf("removed", true)}>Removed</button>}
        </span>
        {!removed && <><input type="search" placeholder={stores ? "Search names, tags, repositories, files" : "Search repositories"} aria-label={stores ? "Search by any part of a name, tag, repository or file name" : "Search by the beginning of a name"} value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <select aria-label="Type" value={type} onChange={(event) => setType(event.currentTarget.value)}>
          <option value="">All types</option>
          {types.map((name) => <option key={name} value={name}>{name}</option>)}
        </select></>}
        {stores && (
          <select aria-label="Sort" value={sort} onChange={(event) => setSort(event.currentTarget.value)}>
            {Object.entries(SORTS).map(([value, title]) => <option key={value} value={value}>{title}</option>)}
          </select>
        )}
        <span class="unseen" data-said>{list.first.value && many(items.length, "result")}</span>
      </form>
      <Await of={list.first}>
        {() => removed ? <Restorable items={items} /> : items.length
          ? stores ? <Cards stores={items} whole={!list.cursor && !type} sought={sought} /> : <ul class="cards">{items.map((each) => <li key={each.name}><RepositoryCard repository={each} /></li>)}</ul>
          : list.cursor ? null : <Nothing sought={sought} type={type} stores={stores} />}
      </Await>
      {list.error && <Trouble error={list.error} />}
      {list.cursor && <p class="more"><button type="button" onClick={list.load}>More</button></p>}
    </>
  );
}

/** The most that a list has at once after Back. */
const MOST = 1000;

/**
 * A list of which further pages are loaded on demand; items of another kind are not shown while these are loaded. After
 * Back it is as long as it was, and where it was.
 */
function useList<T>(placeOf: (limit: number) => string, kind: string) {
  const [more, setMore] = useState<More<T> | null>(null);
  const place = useMemo(() => placeOf(Math.min(Math.max(PAGE, kept().shown ?? 0), MOST)), [placeOf(0)]);
  const loaded = useLoaded<Page<T> & { kind: string }>(place, async (signal) => ({ ...await getJson<Page<T>>(place, signal), kind }));
  const first = { ...loaded, value: loaded.value?.kind === kind ? loaded.value : null };
  const after = more?.place === place ? more : null;
  const cursor = after ? after.next : first.value?.next;
  const items = [...(first.value?.items ?? []), ...(after?.items ?? [])];
  const load = () => void getJson<Page<T>>(`${placeOf(PAGE)}&cursor=${encodeURIComponent(cursor ?? "")}`).then(
    (page) => {
      keep({ shown: items.length + page.items.length });
      setMore({ place, items: [...(after?.items ?? []), ...page.items], next: page.next, error: null });
    },
    (error: Error) => setMore({ place, items: after?.items ?? [], next: cursor ?? null, error }),
  );
  useLayoutEffect(() => { if (first.value) scrollTo(0, kept().top ?? scrollY); }, [first.value === null]);
  return { first, items, cursor, load, error: after?.error };
}

/** Undo a removal, and show the model. */
async function restore({ id, was }: Pick<Removal, "id" | "was">): Promise<void> {
  const { tags } = await (await change("POST", url(["v1", "stores", id, "restore"]))).json() as Store;
  forgetRemoval(id);
  go(modelPlace(tags.includes(was) ? was : id));
}

/** Models that anybody deleted, as long as they can be restored. */
function Restorable({ items }: { items: readonly Schemas["Removed"][] }) {
  const [error, setError] = useState<Error | null>(null);
  if (!items.length) return <p class="soft empty">Nothing to restore: deleted models are kept for a day.</p>;
  return (
    <>
      {error && <Trouble error={error} />}
      <ul class="cards">
        {items.map(({ id, tags, restorable_until: until }) => (
          <li key={id} class="card">
            <strong dir="auto">{tags.join(", ") || shortened(id)}</strong>
            <span class="soft">{shortened(id)} · until {TIME.format(new Date(until))}</span>
            <button type="button" aria-label={`Restore ${tags[0] ?? shortened(id)}`} onClick={() => void restore({ id, was: nameOf({ id, tags }) }).catch(setError)}>Restore</button>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Models that were deleted in this tab, and the way back. */
function Removed() {
  const [noted, setNoted] = useState(removals);
  const [error, setError] = useState<Error | null>(null);
  const forget = (id: string) => { forgetRemoval(id); setNoted(removals()); };
  return (
    <>
      {noted.map((each) => (
        <p key={each.id} class="removed">
          <span data-said>Deleted <b dir="auto">{each.title}</b>. You can restore it until {TIME.format(new Date(each.until))}.</span>{" "}
          <button type="button" onClick={() => void restore(each).catch(setError)}>Restore</button>
          <button type="button" class="plain" aria-label="Close" onClick={() => forget(each.id)}>✕</button>
        </p>
      ))}
      {error && <Trouble error={error} />}
    </>
  );
}

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

function Nothing({ sought, type, stores }: { sought: string; type: string; stores: boolean }) {
  if (sought || type) {
    return (
      <p class="soft empty" dir="auto">
        No matches{sought && ` for “${sought}”`}{type && ` of type ${type}`}. {stores ? "The search finds any part of names, tags, repositories and file names." : "Type the beginning of a name."}{" "}
        <button type="button" onClick={() => setParameters({ name: "", tag: "", type: "" })}>Show all</button>
      </p>
    );
  }
  if (stores) return <p class="soft empty">No models yet: drop one above.</p>;
  return (
    <p class="soft empty">
      No repositories yet. Push to {location.origin} with <code>huggingface_hub</code>, an OCI client such as <code>oras</code>, or MLflow.
    </p>
  );
}

const CLIENTS: Record<Repository["protocol"], string> = { hub: "Hugging Face", oci: "OCI", mlflow: "MLflow" };

function RepositoryCard({ repository: { name, protocol, ref, type, size, files, updated } }: { repository: Repository }) {
  const shown = protocol === "mlflow" ? name.replace(/^mlflow-artifacts:\//, "") : name;
  const version = ref && repositoryOf(ref) ? ref.slice(name.length + 1) : "";
  // A name without a slash is taken for a tag, so that its head has the name of its store.
  const place = ref && protocol === "oci" && !version ? ofRepository(name) : "";
  const about = (
    <>
      <Title name={shown} version={version} />
      <span class="soft" dir="auto">{CLIENTS[protocol]} · {type ?? (files !== null ? "files" : protocol === "mlflow" ? "not indexed yet" : "empty")}</span>
      <span class="facts">{size !== null && <b>{bytes(size)}</b>}{files !== null && <span>{many(files, "file")}</span>}<span>{ago(updated)}</span></span>
    </>
  );
  if (ref === null) return <div class="card">{about}</div>;
  return (
    <>
      <a class="card" href={modelPlace(ref) + place}>{about}</a>
      {(version || place) && <p class="soft under"><a href={diffPlace("", ref) + place}>latest changes</a></p>}
    </>
  );
}

/** Stores whose tags begin with one name, the newest first. */
interface Family { name: string; stores: Store[] }

function families(stores: readonly Store[]): Family[] {
  const found = new Map<string, Store[]>();
  for (const store of stores) {
    const name = familyOf(nameOf(store));
    const members = found.get(name) ?? [];
    if (!members.some(({ id }) => id === store.id)) found.set(name, [...members, store]);
  }
  return [...found].map(([name, members]) => ({ name, stores: members.sort(byAge) }));
}


/** `whole`: these are all stores with names like `sought`, so that a name with one version has no others. */
function Cards({ stores, whole, sought }: { stores: readonly Store[]; whole: boolean; sought: string }) {
  const all = (name: string) => whole && name.toLowerCase().includes(sought.toLowerCase());
  return <ul class="cards">{families(stores).map((family) => <li key={family.name}><Card {...family} whole={all(family.name)} /></li>)}</ul>;
}

const Title = ({ name, version }: { name: string; version: string }) => (
  <span class="name"><strong dir="auto" title={name}>{name}</strong>{version && <span class="version" dir="auto">{version}</span>}</span>
);

const COMMIT = /@([0-9a-f]{7})[0-9a-f]{33}$/;

function Card({ name, stores, whole }: Family & { whole: boolean }) {
  const [newest, before] = stores;
  const ref = nameOf(newest!);
  const version = versionOf(ref);
  const changed = version && (before || !whole);
  // Commits come last, and by their first digits.
  const names = registryNames(newest!).sort((a, b) => Number(COMMIT.test(a)) - Number(COMMIT.test(b))).map((each) => each.replace(COMMIT, "@$1"));
  return (
    <>
      <a class="card" href={modelPlace(ref)}>
        <Title name={newest!.tags.length ? name : titleOf(newest!)} version={newest!.tags.length ? version : names[0] ? "" : name.slice(0, 12)} />
        <span class="soft" dir="auto">{newest!.type ?? "files"}</span>
        {newest!.root !== null && <Thumbnail store={newest!.id} />}
        <span class="facts"><b>{bytes(newest!.size)}</b><span>{many(newest!.files.length, "file")}</span><span>{newest!.uploader && `${uploaderOf(newest!)} · `}{ago(newest!.created)}</span></span>
      </a>
      {(changed || newest!.tags.length > 1 || names.length > (newest!.tags.length ? 0 : 1)) && (
        <p class="soft under">
          {/* Without a first name, the page of differences looks for the version before. */}
          {changed && <a href={diffPlace(before ? nameOf(before) : "", ref)}>{before ? `changes since ${versionOf(nameOf(before)) || "the previous version"}` : "latest changes"}</a>}
          <Others family={{ name, stores }} but={ref} />
          {names.slice(newest!.tags.length ? 0 : 1, SHOWN).map((each) => <span key={each} class="tag" dir="auto">{each}</span>)}
        </p>
      )}
    </>
  );
}

function Others({ family: { name, stores }, but }: { family: Family; but: string }) {
  const tags = stores.flatMap((store) => store.tags).filter((tag) => tag !== but);
  return (
    <>
      {tags.slice(0, SHOWN).map((tag) => <a key={tag} class="tag" href={modelPlace(tag)} dir="auto">{familyOf(tag) === name && versionOf(tag) || tag}</a>)}
      {tags.length > SHOWN && <a href={`${SPACE}/?name=${encodeURIComponent(`${name}:`)}`}>all</a>}
    </>
  );
}
