/** Changes of a model: its description and tags, and its removal, as far as the caller may make them. */

import { useEffect, useState } from "preact/hooks";
import { change, Failure, get, getJson, registryNames, url, view, type Page, type Schemas, type Store, type Tag } from "../api";
import { Trouble } from "../loading";
import { go, modelPlace, SPACE } from "../place";
import { noteRemoval } from "../removals";
import { allows } from "../session";

const MOST_TAGS = 1000;
const MOST_SHOWN = 50;

/** The tag as it is now with its entity tag; null where there is none. */
async function tagNow(tag: string): Promise<{ store: string; etag: string } | null> {
  // A list says so without an error, which browsers would log.
  if (!(await getJson<Page<Store>>(url(["v1", "stores"], { tag, limit: 1 }))).items.length) return null;
  try {
    const answer = await get(url(["v1", "tags", tag]));
    return { store: ((await answer.json()) as Tag).store, etag: answer.headers.get("etag") ?? "" };
  } catch (error) {
    if (error instanceof Failure && error.status === 404) return null;
    throw error;
  }
}

const tagsOf = async (store: string): Promise<string[]> =>
  (await getJson<Page<Tag>>(url(["v1", "tags"], { store, limit: MOST_TAGS }))).items.map(({ name }) => name);

export function Manage({ store, name, title, onChange }: { store: Store; name: string; title: string; onChange: () => void }) {
  const [may, setMay] = useState<{ write: boolean; delete: boolean } | null>(null);
  const [tags, setTags] = useState<string[]>(store.tags);
  const [error, setError] = useState<Error | null>(null);
  const [refused, setRefused] = useState<Error | null>(null);
  const [done, setDone] = useState("");
  const [busy, setBusy] = useState(false);
  const look = () => tagsOf(store.id).then(setTags);
  useEffect(() => {
    void Promise.all([allows("write"), allows("delete"), look()]).then(([write, remove]) => setMay({ write, delete: remove }), setError);
  }, [store.id]);
  /** One change at a time; its result is shown with what the service has then, once the next change is possible. */
  const run: Run = async (work, fail = setError) => {
    setBusy(true);
    setError(null);
    setRefused(null);
    setDone("");
    const show = await work().then((said) => () => setDone(said), (problem: Error) => () => fail(problem));
    await look().catch(() => null);
    show();
    setBusy(false);
  };
  const removeTag = (tag: string) => run(async () => {
    const now = await tagNow(tag);
    if (now?.store !== store.id) return `${tag} does not point at this version any more.`;
    await change("DELETE", url(["v1", "tags", tag]), undefined, { "if-match": now.etag });
    if (tag === name) go(modelPlace(store.id), true);
    return `Removed the tag ${tag}.`;
  });
  if (!may) return error ? <Trouble error={error} /> : <p class="soft" data-said>Loading …</p>;
  if (!may.write && !may.delete) return <p class="soft">You may read models here, but not change them.</p>;
  return (
    <div class="manage">
      {may.write && <Describe store={store} onRun={run} busy={busy} onChange={onChange} />}
      <section aria-label="Tags">
        <h2>Tags</h2>
        {tags.length === 0 && <p class="soft">No tags yet.</p>}
        <ul class="tags">
          {tags.slice(0, MOST_SHOWN).map((tag) => (
            <li key={tag} class="tag" dir="auto">
              {tag} {may.delete && <button type="button" class="plain" disabled={busy} aria-label={`Remove the tag ${tag}`} onClick={() => void removeTag(tag)}>✕</button>}
            </li>
          ))}
          {tags.length > MOST_SHOWN && <li class="soft">and {tags.length - MOST_SHOWN} more</li>}
        </ul>
        {may.write && <SetTag store={store} busy={busy} refused={refused} onRun={(work) => run(work, setRefused)} onType={() => setRefused(null)} />}
      </section>
      {may.delete && <Delete store={store} tags={tags} name={name} title={title} busy={busy} onError={setError} onBusy={setBusy} />}
      {error && <Trouble error={error} />}
      <p data-said class="soft" dir="auto">{done}</p>
    </div>
  );
}

/** Makes a change; `fail` gets its error, which is shown below everything otherwise. */
type Run = (work: () => Promise<string>, fail?: (error: Error) => void) => Promise<void>;

function Describe({ store, busy, onRun, onChange }: { store: Store; busy: boolean; onRun: Run; onChange: () => void }) {
  const [text, setText] = useState(store.description);
  const save = () => onRun(async () => {
    await change("PATCH", view(store.id, []), { description: text.trim() });
    onChange();
    return "Saved the description.";
  });
  return (
    <form aria-label="Description" onSubmit={(event) => { event.preventDefault(); void save(); }}>
      <h2>Description</h2>
      <textarea aria-label="Description of this version" rows={2} maxLength={2000} dir="auto" value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button type="submit" disabled={busy || text.trim() === store.description}>Save</button>
    </form>
  );
}

/** Gives the store a tag; one that points elsewhere is moved once the person has agreed. */
function SetTag({ store, busy, refused, onRun, onType }: { store: Store; busy: boolean; refused: Error | null; onRun: Run; onType: () => void }) {
  const [tag, setTag] = useState("");
  const [elsewhere, setElsewhere] = useState<{ tag: string; store: string; etag: string } | null>(null);
  const wanted = tag.trim();
  const put = (condition: Record<string, string>, what: string) => onRun(async () => {
    await change("PUT", url(["v1", "tags", wanted]), { store: store.id }, condition);
    setTag("");
    setElsewhere(null);
    return `${what} ${wanted}.`;
  });
  const submit = async () => {
    let now: Awaited<ReturnType<typeof tagNow>> | undefined;
    await onRun(async () => {
      now = await tagNow(wanted);
      return now?.store === store.id ? `${wanted} points at this version already.` : "";
    });
    const found = now as typeof now | undefined;
    if (found === undefined) return; // it was refused
    if (found === null) await put({ "if-none-match": "*" }, "Added the tag");
    else if (found.store !== store.id) setElsewhere({ tag: wanted, ...found });
  };
  return (
    <form class="filters" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
      <input aria-label="Tag to add or move here" placeholder="name:version" value={tag} spellcheck={false} dir="auto"
        aria-invalid={refused ? true : undefined} aria-describedby="refused-tag"
        onInput={(event) => { setTag(event.currentTarget.value); setElsewhere(null); onType(); }} />
      <button type="submit" disabled={busy || !wanted}>Add</button>
      <span id="refused-tag">{refused && <Trouble error={refused} />}</span>
      {elsewhere && (
        <span>
          <span dir="auto">{elsewhere.tag}</span> points at <a href={modelPlace(elsewhere.store)}><code>{elsewhere.store.slice(0, 12)}</code></a>.{" "}
          <button type="button" disabled={busy} onClick={() => void put({ "if-match": elsewhere.etag }, "Moved the tag")}>Move it here</button>
        </span>
      )}
    </form>
  );
}

function Delete({ store, tags, name, title, busy, onError, onBusy }: { store: Store; tags: string[]; name: string; title: string; busy: boolean; onError: (error: Error | null) => void; onBusy: (busy: boolean) => void }) {
  const [asked, setAsked] = useState<string[] | null>(null);
  const ask = () => void getJson<Store>(view(store.id, [])).then((now) => setAsked([...new Set([...tags, ...registryNames(now)])]), onError);
  const remove = async () => {
    onBusy(true);
    onError(null);
    try {
      const forced = asked!.map((each) => `force=${encodeURIComponent(each)}`).join("&");
      const removed = await (await change("DELETE", `${view(store.id, [])}${forced && `?${forced}`}`)).json() as Schemas["Removed"];
      noteRemoval({ id: store.id, was: name, title, until: removed.restorable_until });
      go(`${SPACE}/`);
    } catch (error) {
      setAsked(null);
      onError(error as Error);
      onBusy(false);
    }
  };
  return (
    <section aria-label="Deletion">
      <h2>Delete</h2>
      {asked === null
        ? <button type="button" class="danger" disabled={busy} onClick={ask}>Delete this version …</button>
        : (
          <div class="asked" role="group" aria-label="Confirm the deletion">
            <p>
              Delete <code>{store.id.slice(0, 12)}</code>?{" "}
              {asked.length > 0 ? <>Its names stop working: <span dir="auto">{asked.slice(0, MOST_SHOWN).join(", ")}</span>{asked.length > MOST_SHOWN && ` and ${asked.length - MOST_SHOWN} more`}.</> : "This version has no names."}
              {" "}You can undo this in the library for some time.
            </p>
            <button type="button" class="danger" disabled={busy} onClick={() => void remove()}>Delete</button>{" "}
            <button type="button" disabled={busy} onClick={() => setAsked(null)}>Cancel</button>
          </div>
        )}
    </section>
  );
}
