/** Uploads: files and folders dropped anywhere, resumable (tus), with rate, time left and a pause. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Upload } from "tus-js-client";
import { Failure, getJson, type Store } from "../api";
import { bytes } from "../format";
import { Trouble } from "../loading";
import { go } from "../place";

interface Sending { name: string; sent: number; size: number; since: number; from: number; paused: boolean; error: Error | null }

/** A file with its path below what was dropped. */
interface Dropped { path: string; file: File }

export function Drop() {
  const [over, setOver] = useState(false);
  const [sending, setSending] = useState<Sending | null>(null);
  const upload = useRef<Upload | null>(null);
  const chosen = useRef<HTMLInputElement>(null);

  const start = async (files: Dropped[]) => {
    if (!files.length) return;
    setSending({ name: files.length === 1 ? files[0]!.path : `${files.length} files`, sent: 0, size: sum(files), since: Date.now(), from: 0, paused: false, error: null });
    try {
      if (files.length === 1) upload.current = await resumable(files[0]!.file, setSending);
      else go(`/m/${(await together(files)).id}`);
    } catch (error) {
      setSending((before) => before && { ...before, error: error as Error });
    }
  };
  const pause = () => setSending((before) => {
    if (!before) return before;
    if (before.paused) upload.current?.start();
    else void upload.current?.abort();
    return { ...before, paused: !before.paused, since: Date.now(), from: before.sent };
  });

  useEffect(() => {
    const drag = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes("Files")) return;
      event.preventDefault();
      setOver(event.type !== "dragleave" || event.relatedTarget !== null);
    };
    const drop = async (event: DragEvent) => {
      event.preventDefault();
      setOver(false);
      void start(await dropped(event.dataTransfer));
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", drag);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", drag);
      removeEventListener("drop", drop);
    };
  }, []);

  return (
    <section class={over ? "drop over" : "drop"} aria-label="Upload">
      <p>
        <strong>Drop a model here</strong>, or{" "}
        <button type="button" onClick={() => chosen.current?.click()}>choose files</button>
        <input ref={chosen} type="file" multiple hidden aria-label="Files to upload"
          onChange={(event) => void start([...(event.currentTarget.files ?? [])].map((file) => ({ path: file.name, file })))} />
        <span class="soft"> Any size, any format. An upload that breaks off goes on where it was.</span>
      </p>
      {sending && <Progress sending={sending} onPause={upload.current ? pause : null} />}
    </section>
  );
}

function Progress({ sending, onPause }: { sending: Sending; onPause: (() => void) | null }) {
  const { name, sent, size, since, from, paused, error } = sending;
  const rate = (sent - from) / Math.max(1, (Date.now() - since) / 1000);
  const left = rate > 0 ? Math.ceil((size - sent) / rate) : null;
  return (
    <div class="sending" role="status">
      <span dir="auto">{name}</span>
      <progress max={size || 1} value={sent} aria-label={`Upload of ${name}`} />
      <span class="soft">
        {bytes(sent)} of {bytes(size)}
        {paused ? " · paused" : sent === size ? " · being indexed" : rate > 0 && ` · ${bytes(rate)}/s · ${left} s left`}
      </span>
      {onPause && !error && sent < size && <button type="button" onClick={onPause}>{paused ? "Go on" : "Pause"}</button>}
      {error && <Trouble error={error} />}
    </div>
  );
}

const sum = (files: readonly Dropped[]): number => files.reduce((size, { file }) => size + file.size, 0);

type Set = (change: (before: Sending | null) => Sending | null) => void;

/** Sends a file in a resumable upload; one that began before, even before the page was loaded, goes on. */
async function resumable(file: File, set: Set): Promise<Upload> {
  const { Upload } = await import("tus-js-client");
  const upload = new Upload(file, {
    endpoint: "/v1/uploads",
    metadata: { filename: file.name },
    retryDelays: [0, 500, 1000, 2000, 4000, 8000, 8000, 8000],
    removeFingerprintOnSuccess: true,
    onProgress: (sent) => set((before) => before && { ...before, sent, ...(before.from || before.sent ? {} : { from: sent, since: Date.now() }) }),
    onError: (error) => set((before) => before && { ...before, error }),
    onSuccess: () => void store(upload.url).then((id) => go(`/m/${id}`), (error: Error) => set((before) => before && { ...before, error })),
  });
  const [earlier] = await upload.findPreviousUploads();
  if (earlier) upload.resumeFromPreviousUpload(earlier);
  upload.start();
  return upload;
}

/** The store that a finished upload became. */
async function store(upload: string | null): Promise<string> {
  const { pathname } = new URL(upload ?? "", location.href);
  const { store } = await getJson<{ store: string | null }>(pathname);
  if (store === null) throw new Failure(0, "the upload is whole, but no store was made of it");
  return store;
}

/** Sends several files in one form. */
async function together(files: readonly Dropped[]): Promise<Store> {
  const form = new FormData();
  for (const { path, file } of files) form.append("file", file, path);
  const answer = await fetch("/v1/stores", { method: "POST", body: form });
  const told = await answer.json() as Store & { detail?: string };
  if (!answer.ok) throw new Failure(answer.status, told.detail ?? `the service answered ${answer.status}`);
  return told;
}

async function dropped(data: DataTransfer | null): Promise<Dropped[]> {
  const entries = [...(data?.items ?? [])].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  return (await Promise.all(entries.map((entry) => below(entry, "")))).flat();
}

async function below(entry: FileSystemEntry, above: string): Promise<Dropped[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((take, fail) => (entry as FileSystemFileEntry).file(take, fail));
    return [{ path: above + entry.name, file }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: Dropped[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((take, fail) => reader.readEntries(take, fail));
    if (!some.length) return found;
    found.push(...(await Promise.all(some.map((each) => below(each, `${above}${entry.name}/`)))).flat());
  }
}
