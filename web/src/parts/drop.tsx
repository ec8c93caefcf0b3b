/** Uploads: files and folders dropped anywhere, with rate, time left and a pause; those of a closed page go on. */

import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { say } from "../focus";
import { bytes, many } from "../format";
import { Trouble } from "../loading";
import { go, modelPlace, steps } from "../place";
import { archived } from "../uploads/archive";
import { again, dropped, picked, type Chosen } from "../uploads/dropped";
import { remembered, sendingOf, type Sending, type State } from "../uploads/sending";

/** All that is on its way, also while another view is shown. */
let sendings: Sending[] | null = null;
let shown: () => void = () => undefined;
const change = (): void => {
  shown();
  for (const sending of sendings ?? []) {
    const { batch: { name }, state } = sending;
    // Away from the library nothing else shows it.
    if (steps().length && heard.get(sending) !== state && SAYS[state]) say(`${name}: ${SAYS[state]}`);
    heard.set(sending, state);
  }
};
const heard = new WeakMap<Sending, State>();

export function Drop() {
  const [over, setOver] = useState(false);
  const [, refresh] = useReducer((number: number) => number + 1, 0);
  const [trouble, setTrouble] = useState<Error | null>(null);
  const start = (chosen: Promise<Chosen>) => void chosen.then(begin).then(() => setTrouble(null), setTrouble);
  useEffect(() => {
    shown = () => refresh(0);
    void known();
    return () => { shown = () => undefined; };
  }, []);
  useEffect(() => {
    const drag = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type !== "dragleave" || event.relatedTarget !== null);
    };
    const drop = (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      start(dropped(event.dataTransfer));
    };
    const events = { dragover: drag, dragleave: drag, drop };
    for (const [name, listen] of Object.entries(events)) addEventListener(name, listen as EventListener);
    return () => { for (const [name, listen] of Object.entries(events)) removeEventListener(name, listen as EventListener); };
  }, []);
  return (
    <section class={over ? "drop over" : "drop"} aria-label="Upload">
      <p>
        <strong>Drop a model here</strong>, a file or a folder, or{" "}
        <Choose title="choose files" label="Files to upload" onChosen={start} />{" "}
        <Choose title="choose a folder" label="Folder to upload" folder onChosen={start} />
        <span class="soft hint">Any size, any format. Uploads resume, even after you close the tab.</span>
      </p>
      {trouble && <Trouble error={trouble} />}
      {(sendings ?? []).map((sending) => <Progress key={sending.batch.id} sending={sending} onGo={() => start(again(sending.batch.handles))} />)}
    </section>
  );
}

function Choose({ title, label, folder = false, onChosen }: { title: string; label: string; folder?: boolean; onChosen: (chosen: Promise<Chosen>) => void }) {
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => { if (folder) input.current!.webkitdirectory = true; }, []);
  return (
    <>
      <button type="button" onClick={() => input.current?.click()}>{title}</button>
      <input ref={input} type="file" multiple hidden aria-label={label}
        onChange={(event) => { onChosen(Promise.resolve(picked(event.currentTarget.files))); event.currentTarget.value = ""; }} />
    </>
  );
}

/** The sendings, with those that a page before has left. */
async function known(): Promise<Sending[]> {
  if (sendings === null) {
    const found = await remembered(change);
    sendings ??= found;
    for (const sending of found) void sending.look();
    change();
  }
  return sendings;
}

async function begin(chosen: Chosen): Promise<void> {
  if (!chosen.files.length) return;
  const before = await known();
  const sent = archived(chosen);
  const sending = await sendingOf(sent, before, change);
  if (busy(sending)) return;
  if (!before.includes(sending)) before.push(sending);
  await follow(sending, sent.files);
}

const follow = (sending: Sending, files?: Chosen["files"]): Promise<void> => sending.send(files).then((name) => show(sending, name));

/** Shows the model that has got its name, if the person is still in the library. */
function show(sending: Sending, name: string | null): void {
  if (name === null) return;
  leaves(sending);
  if (steps().length) say(`${sending.batch.name}: stored`);
  else go(modelPlace(name));
}

function leaves(sending: Sending): void {
  sendings = sendings!.filter((each) => each !== sending);
  change();
}

const busy = ({ state }: Sending): boolean => ["sending", "waiting", "making", "naming"].includes(state);

const SAYS: Record<State, string> = {
  left: "not finished", elsewhere: "uploading in another window", sending: "", waiting: "waiting for the service",
  paused: "paused", making: "indexing", failed: "not finished", refused: "not stored",
  naming: "stored; press Enter to give it this name", unnamed: "stored without a name",
};

function Progress({ sending, onGo }: { sending: Sending; onGo: () => void }) {
  const { batch: { name, size, count, handles }, state, sent, error } = sending;
  const remove = () => void sending.drop().then(() => { leaves(sending); say(`Removed ${name}`); });
  return (
    <div class="sending">
      <strong dir="auto">{name}</strong>
      {state !== "refused" && state !== "elsewhere" && <Name sending={sending} />}
      <progress max={size || 1} value={sent} aria-label={`Upload of ${name}`} />
      <span class="soft">{count > 1 && `${many(count, "file")} · `}{bytes(sent)} of {bytes(size)}{state === "sending" && rateOf(sending)}</span>
      <span data-said>{SAYS[state]}</span>
      {(state === "sending" || state === "waiting") && <button type="button" onClick={() => sending.pause()}>Pause</button>}
      {(state === "paused" || state === "failed") && <button type="button" onClick={() => void follow(sending)}>Resume</button>}
      {state === "left" && handles.length > 0 && <button type="button" onClick={onGo}>Resume</button>}
      {state === "unnamed" && <a class="button" href={modelPlace(sending.store!.id)} onClick={() => leaves(sending)}>Open without a name</a>}
      {!busy(sending) && state !== "elsewhere" && state !== "unnamed" && <button type="button" class="plain" onClick={remove}>Remove</button>}
      {state === "left" && <span class="soft">{handles.length ? "" : `Drop or choose the same ${count > 1 ? "files" : "file"} again to resume.`}</span>}
      {error && state !== "unnamed" && <Trouble error={error} />}
    </div>
  );
}

/** The field of the tag, which says why a tag was refused. */
function Name({ sending }: { sending: Sending }) {
  const { batch: { id, name, tag = "" }, state, error } = sending;
  const refused = state === "unnamed" && error;
  useEffect(() => () => sending.edit(false), []);
  return (
    <form onSubmit={(event) => { event.preventDefault(); if (refused) void sending.name().then((given) => show(sending, given)); sending.edit(false); }}>
      <label>Name <input aria-label={`Name for ${name}`} value={tag} placeholder="name:version" maxLength={128} spellcheck={false} autocomplete="off" dir="auto"
        aria-invalid={refused ? true : undefined} aria-describedby={refused ? `why-${id}` : undefined}
        onBlur={() => sending.edit(false)} onInput={(event) => { sending.edit(true); void sending.rename(event.currentTarget.value); }} /></label>
      {refused && <><button type="submit">Name it</button><span id={`why-${id}`}><Trouble error={error} /></span></>}
    </form>
  );
}

function rateOf({ sent, since, from, batch: { size } }: Sending): string {
  const rate = since ? (sent - from) / Math.max(1, (Date.now() - since) / 1000) : 0;
  return rate > 0 ? ` · ${bytes(rate)}/s · ${Math.ceil((size - sent) / rate)} s left` : "";
}
