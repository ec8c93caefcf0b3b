/** A message as text or JSON, without its large fields. */

import { useState } from "preact/hooks";
import { view, type Store } from "../api";
import { Await, useLoaded } from "../loading";
import { useParameter } from "../place";
import { readable } from "../texts";

const FORMS = { "text/plain": "Text", "application/json": "JSON" } as const;
/** Bytes that are shown: more would make the page slow, and are a download away. */
const SHOWN = 200_000;

export function Message({ store }: { store: Store }) {
  const [path, setPath] = useParameter("path");
  const [typed, setTyped] = useState(path);
  const [form, setForm] = useState<keyof typeof FORMS>("text/plain");
  const place = view(store.id, ["merge"], { path, omit_larger_than: "1KiB" });
  const text = useLoaded(`${form} ${place}`, (signal) => readable(place, view(store.id, ["merge"], { path }), form, SHOWN, signal));
  return (
    <>
      <form class="path" onSubmit={(event) => { event.preventDefault(); setPath(typed.trim(), true); }}>
        <input aria-label="Field path" placeholder="field path, such as graph.node[3]" value={typed} spellcheck={false}
          onInput={(event) => setTyped(event.currentTarget.value)} />
        <button type="submit">Go</button>
        <select aria-label="Format" value={form} onChange={(event) => setForm(event.currentTarget.value as keyof typeof FORMS)}>
          {Object.entries(FORMS).map(([type, name]) => <option key={type} value={type}>{name}</option>)}
        </select>
      </form>
      <Await of={text}>
        {(shown) => (
          <>
            <pre class="message" tabIndex={0} dir="auto" aria-label="The message">{shown.text}</pre>
            {!shown.whole && <p class="soft">Only the beginning is shown; <a href={place} download>download</a> all of it.</p>}
          </>
        )}
      </Await>
      <p class="soft" data-said>{path || "The whole message"}: fields larger than 1 KiB are left out.</p>
    </>
  );
}
