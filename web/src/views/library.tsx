/** The library: what is stored, by name; the newest first. */

import { useEffect, useState } from "preact/hooks";
import { getJson, url, type Page, type Store } from "../api";
import { ago, bytes } from "../format";
import { Await, useJson } from "../loading";
import { Drop } from "../parts/drop";
import { useParameter } from "../place";

const PAGE = 50;

export function Library() {
  const [tag, setTag] = useParameter("tag");
  const [type, setType] = useParameter("type");
  const [typed, setTyped] = useState(tag);
  const [more, setMore] = useState<Store[]>([]);
  const [next, setNext] = useState<string | null | undefined>(undefined);
  const found = useJson<Page<Store>>(url(["v1", "stores"], { tag, type, limit: PAGE }));
  useEffect(() => { const wait = setTimeout(() => setTag(typed.trim()), 200); return () => clearTimeout(wait); }, [typed]);
  useEffect(() => { setMore([]); setNext(undefined); }, [found.value]);

  const items = [...(found.value?.items ?? []), ...more];
  const cursor = next === undefined ? found.value?.next : next;
  const types = [...new Set([type, ...items.map((store) => store.type ?? "")])].filter(Boolean).sort();
  const load = async () => {
    const page = await getJson<Page<Store>>(url(["v1", "stores"], { tag, type, limit: PAGE, cursor }));
    setMore([...more, ...page.items]);
    setNext(page.next);
  };
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
      {cursor && <p><button type="button" onClick={() => void load()}>More</button></p>}
    </>
  );
}

function Cards({ stores }: { stores: readonly Store[] }) {
  return (
    <ul class="cards">
      {stores.map((store) => {
        const [name = store.id.slice(0, 12), ...others] = store.tags;
        return (
          <li key={store.id}>
            <a class="card" href={`/m/${encodeURIComponent(store.tags[0] ?? store.id)}`}>
              <strong dir="auto">{name}</strong>
              <span class="soft" dir="auto">{store.type ?? "files"}</span>
              <span class="facts"><b>{bytes(store.size)}</b><span>{ago(store.created)}</span></span>
            </a>
            {others.length > 0 && (
              <p class="soft under">
                {others.slice(0, 3).map((tag) => <a key={tag} class="tag" href={`/m/${encodeURIComponent(tag)}`} dir="auto">{tag}</a>)}
              </p>
            )}
          </li>
        );
      })}
    </ul>
  );
}
