/** The library: what is stored, by name; the newest first, versions of one name together. */

import { useEffect, useState } from "preact/hooks";
import { getJson, url, type Page, type Store } from "../api";
import { ago, bytes, many } from "../format";
import { Await, Trouble, useJson } from "../loading";
import { Drop } from "../parts/drop";
import { diffPlace, useParameter } from "../place";
import { byAge, familyOf, nameOf, versionOf } from "../versions";

const PAGE = 50;
/** Versions of a name that are shown at once. */
const SHOWN = 4;

/** What came after the first page of `place`. */
interface More { place: string; items: Store[]; next: string | null; error: Error | null }

export function Library() {
  const [tag, setTag] = useParameter("tag");
  const [type, setType] = useParameter("type");
  const [typed, setTyped] = useState(tag);
  const [more, setMore] = useState<More | null>(null);
  const place = url(["v1", "stores"], { tag, type, limit: PAGE });
  const found = useJson<Page<Store>>(place);
  useEffect(() => { if (typed.trim() === tag) return; const wait = setTimeout(() => setTag(typed.trim()), 200); return () => clearTimeout(wait); }, [typed]);
  useEffect(() => setTyped(tag), [tag]);

  const after = more?.place === place ? more : null;
  const items = [...(found.value?.items ?? []), ...(after?.items ?? [])];
  const cursor = after ? after.next : found.value?.next;
  const types = [...new Set([type, ...items.map((store) => store.type ?? "")])].filter(Boolean).sort();
  const load = () => getJson<Page<Store>>(url(["v1", "stores"], { tag, type, limit: PAGE, cursor })).then(
    (page) => setMore({ place, items: [...(after?.items ?? []), ...page.items], next: page.next, error: null }),
    (error: Error) => setMore({ place, items: after?.items ?? [], next: cursor ?? null, error }),
  );
  return (
    <>
      <h1 class="unseen">Library</h1>
      <Drop />
      <form class="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder="Find by tag …" aria-label="Find by the beginning of a tag" value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <select aria-label="Type" value={type} onChange={(event) => setType(event.currentTarget.value)}>
          <option value="">All types</option>
          {types.map((name) => <option key={name} value={name}>{name}</option>)}
        </select>
      </form>
      <Await of={found}>
        {() => (items.length ? <Cards stores={items} /> : <p class="soft empty">Nothing here {tag || type ? "with these filters" : "yet: drop a model above"}.</p>)}
      </Await>
      {after?.error && <Trouble error={after.error} />}
      {cursor && <p class="more"><button type="button" onClick={() => void load()}>More</button></p>}
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

const placeOf = (name: string): string => `/m/${encodeURIComponent(name)}`;

function Cards({ stores }: { stores: readonly Store[] }) {
  return <ul class="cards">{families(stores).map((family) => <li key={family.name}><Card {...family} /></li>)}</ul>;
}

function Card({ name, stores }: Family) {
  const [newest, before] = stores;
  const ref = nameOf(newest!);
  const version = versionOf(ref);
  return (
    <>
      <a class="card" href={placeOf(ref)}>
        <strong dir="auto">{newest!.tags.length ? name : name.slice(0, 12)}{version && <span class="version" dir="auto">{version}</span>}</strong>
        <span class="soft" dir="auto">{newest!.type ?? "files"}</span>
        <span class="facts"><b>{bytes(newest!.size)}</b><span>{many(newest!.files.length, "file")}</span><span>{ago(newest!.created)}</span></span>
      </a>
      {(version || newest!.tags.length > 1) && (
        <p class="soft under">
          {/* Without a first name, the page of differences looks for the version before. */}
          {version && <a href={diffPlace(before ? nameOf(before) : "", ref)}>what changed{before ? ` since ${versionOf(nameOf(before)) || "before"}` : " before it?"}</a>}
          <Others family={{ name, stores }} but={ref} />
        </p>
      )}
    </>
  );
}

function Others({ family: { name, stores }, but }: { family: Family; but: string }) {
  const tags = stores.flatMap((store) => store.tags).filter((tag) => tag !== but);
  return (
    <>
      {tags.slice(0, SHOWN).map((tag) => <a key={tag} class="tag" href={placeOf(tag)} dir="auto">{familyOf(tag) === name && versionOf(tag) || tag}</a>)}
      {tags.length > SHOWN && <a href={`/?tag=${encodeURIComponent(`${name}:`)}`}>all</a>}
    </>
  );
}
