/** The records of a stream: a table of their numbers and sizes, and one of them as text or JSON. */

import { useState } from "preact/hooks";
import { view, type Node, type Page, type Records as Summary, type Store } from "../api";
import { bytes, whole } from "../format";
import { Drawer } from "../focus";
import { Await, useJson, useLoaded } from "../loading";
import { Rows, type Column } from "../parts/rows";
import { useParameter } from "../place";
import { hexOf, lengthOf, readable, type Text } from "../texts";

const PAGE = 200;
/** Bytes of text shown of a record: more would make the page slow, and are a download away. */
const MOST = 200_000;
/** Bytes of a record without its large fields above which no text is asked for: the service takes seconds to make it. */
const LARGE = 4 << 20;
const FORMS = { "text/plain": "Text", "application/json": "JSON" } as const;
type Form = keyof typeof FORMS;

export function Records({ store }: { store: Store }) {
  const [file, setFile] = useParameter("file");
  const shards = useJson<Summary>(!file && store.files.length > 1 ? null : view(store.id, ["records"], { file, summary: "true" }));
  return (
    <>
      {store.files.length > 1 && (
        <form class="filters" onSubmit={(event) => event.preventDefault()}>
          <select aria-label="File" value={file} onChange={(event) => setFile(event.currentTarget.value, true)}>
            <option value="">Choose a stream …</option>
            {store.files.map((each) => <option key={each.path} value={each.path}>{each.path}</option>)}
          </select>
        </form>
      )}
      <Await of={shards}>{(stream) => <Shown key={stream.file} store={store} stream={stream} />}</Await>
    </>
  );
}

function Shown({ store, stream }: { store: Store; stream: Summary }) {
  const [from, setFrom] = useParameter("from");
  const [chosen, setChosen] = useParameter("record");
  const [typed, setTyped] = useState("");
  const last = Math.max(stream.count - 1, 0);
  const first = Math.min(Number.parseInt(from || "0", 10) || 0, last);
  const page = useJson<Page<Node>>(view(store.id, ["tree"], { file: stream.file, path: "records", from: first || null, limit: PAGE }));
  const at = (number: number) => setFrom(number > 0 ? String(Math.min(number, last)) : "", true);
  const jump = (event: Event) => {
    event.preventDefault();
    const number = Math.min(Math.max(Number.parseInt(typed, 10) || 0, 0), last);
    at(number);
    setChosen(String(number));
  };
  return (
    <>
      <form class="filters jump" onSubmit={jump}>
        <input type="number" inputMode="numeric" min={0} max={last} placeholder={`Number, 0 to ${whole(last)}`} aria-label="Number of a record"
          value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
        <button type="submit">Go</button>
        <button type="button" disabled={first === 0} onClick={() => at(first - PAGE)}>Previous</button>
        <button type="button" disabled={first + PAGE >= stream.count} onClick={() => at(first + PAGE)}>Next</button>
        <span class="soft" data-said>
          {whole(stream.count)} records, {whole(first)} to {whole(Math.min(first + PAGE, stream.count) - 1)} shown · {bytes(stream.size)} · {stream.framing} · {stream.type ?? "unknown type"}
        </span>
      </form>
      {stream.fault && <p class="warn">The stream is damaged at its end: {stream.fault}</p>}
      <div class={chosen ? "both drawn" : ""}>
        <Await of={page}>
          {({ items }) => (
            <Rows key={items[0]?.path} rows={items} columns={columnsOf(items)} label="Records" keyOf={numberOf} chosen={chosen}
              sort="" onSort={() => undefined} onChoose={(row) => setChosen(numberOf(row), true)} />
          )}
        </Await>
        {chosen && page.value && <RecordDrawer key={chosen} store={store} stream={stream} number={chosen} size={page.value.items.find((row) => numberOf(row) === chosen)?.size ?? LARGE + 1} onClose={() => setChosen("")} />}
      </div>
    </>
  );
}

const numberOf = (row: Node): string => row.path.replace(/\D/g, "");

function columnsOf(items: readonly Node[]): Column<Node>[] {
  const largest = Math.max(...items.map((row) => row.size), 1);
  return [
    { name: "number", title: "Number", right: true, show: (row) => whole(Number(numberOf(row))) },
    { name: "length", title: "Relative size", show: (row) => <meter class="share" min={0} max={largest} value={row.size} aria-hidden="true" /> },
    { name: "size", title: "Size", right: true, show: (row) => bytes(row.size) },
  ];
}

function RecordDrawer({ store, stream, number, size, onClose }: { store: Store; stream: Summary; number: string; size: number; onClose: () => void }) {
  const [form, setForm] = useState<Form>("text/plain");
  const raw = view(store.id, ["records", number], { file: stream.file });
  const short = view(store.id, ["merge"], { file: stream.file, path: `records[${number}]`, omit_larger_than: "1KiB" });
  const shown = useLoaded<Text>(`${form} ${short}`, async (signal) => {
    const plain = stream.type === null || (size > LARGE && (await lengthOf(short, signal)) > LARGE);
    return plain ? hexOf(raw, signal) : readable(short, raw, form, MOST, signal);
  });
  return (
    <Drawer label="Record" onClose={onClose}>
      <h2>Record {whole(Number(number))}</h2>
      <p class="path">
        {stream.type !== null && (
          <select aria-label="Format" value={form} onChange={(event) => setForm(event.currentTarget.value as Form)}>
            {Object.entries(FORMS).map(([type, name]) => <option key={type} value={type}>{name}</option>)}
          </select>
        )}
        <a class="tag" href={raw} download>raw</a>
      </p>
      <Await of={shown}>
        {({ text, whole }) => (
          <>
            <pre class="message" tabIndex={0} dir="auto" aria-label="The record">{text}</pre>
            {!whole && <p class="warn">Only the beginning is shown; "raw" downloads all of it.</p>}
          </>
        )}
      </Await>
      {stream.type !== null && <p class="soft">Fields larger than 1 KiB are left out.</p>}
    </Drawer>
  );
}
