/** Sending of batches: each file in a resumable upload of its own (tus), then one store of them all. */

import { Failure, getJson, signIn, whenSignedIn, type Store } from "../api";
import { SPACE } from "../place";
import { addTag, familyOf, freeTag, nameOf } from "../versions";
import { ARCHIVE } from "./archive";
import type { Chosen, Dropped } from "./dropped";
import { batchOf, forget, isSame, keep, note, partsOf, unfinished, type Batch, type Part } from "./journal";

/**
 * `left` is an upload of a page that was closed; `waiting` one whose service does not answer; `refused` one whose files are
 * not taken; `naming` one whose person is at the field of its tag; `unnamed` one whose store did not get its tag.
 */
export type State = "left" | "elsewhere" | "sending" | "waiting" | "paused" | "making" | "naming" | "unnamed" | "failed" | "refused";

const AT_ONCE = 3;
/** Files up to this many bytes go with the request that begins their upload. */
const SMALL = 1 << 20;
const ATTEMPTS = [0, 500, 1000, 2000, 4000, ...Array<number>(80).fill(8000)];
const PASSING = new Set([401, 408, 409, 423, 429, 500, 502, 503, 504]);
/** The same bytes would be refused again. */
const FINAL = new Set([400, 413, 415, 422]);

class Stopped extends Error {}

/** A batch on its way. `change` is called whenever there is something new to show. */
export class Sending {
  state: State = "left";
  sent = 0;
  error: Error | null = null;
  /** The store, once there is one. */
  store: Store | null = null;
  private kept = true;
  private suggested: Promise<unknown> | null = null;
  private inField = false;
  private onLeave = (): void => undefined;
  /** When the bytes `from` were there. */
  since = 0;
  from = 0;
  private files: Dropped[] = [];
  private readonly at = new Map<string, number>();
  private readonly stops = new Set<(reason: Error) => void>();
  private halted: Error | null = null;

  constructor(readonly batch: Batch, private readonly change: () => void) {}

  /** Send what is not there yet; a name of the store, or null when it was stopped or failed, or has not got its tag. */
  async send(files: Dropped[] = this.files): Promise<string | null> {
    Object.assign(this, { files, halted: null });
    this.show("sending", null);
    try {
      await alone(this.batch.id, () => this.whole());
      return await this.name();
    } catch (error) {
      const refused = error instanceof Failure && FINAL.has(error.status);
      if (refused) await this.forget();
      if (!(error instanceof Stopped)) this.show(refused ? "refused" : "failed", error as Error);
      return null;
    }
  }

  /** Suggest a tag that is free, unless there is one already. */
  suggest(base: string): void {
    if (this.batch.tag === undefined) this.suggested ??= freeTag(base).then((tag) => { if (this.batch.tag === undefined) void this.rename(tag, false); }, () => null);
  }

  /** Set the tag that the store will get; empty for none. */
  async rename(tag: string, typed = true): Promise<void> {
    Object.assign(this.batch, { tag, typed });
    this.change();
    if (this.kept) await keep(this.batch);
  }

  /** Say whether the person types in the field of the tag: the store gets it once they left. */
  edit(inField: boolean): void {
    this.inField = inField;
    if (!inField) this.onLeave();
  }

  /** Give the store its tag; the name to open it by, or null if the tag was refused. */
  async name(again = 3): Promise<string | null> {
    const { id, tags } = this.store!;
    await this.suggested;
    if (this.inField) {
      this.show("naming", null);
      await new Promise<void>((done) => { this.onLeave = done; });
    }
    const { tag: wanted = "", typed } = this.batch;
    const tag = wanted.trim();
    // These bytes may have a name already.
    if (!tag || tags.includes(tag) || (!typed && tags.length)) return tags.includes(tag) ? tag : nameOf(this.store!);
    this.show("making", null);
    try {
      await addTag(tag, id);
      return tag;
    } catch (error) {
      const taken = error instanceof Failure && error.status === 412;
      if (taken && !typed && again) {
        // Another upload took the number.
        await this.rename(await freeTag(familyOf(tag)).catch(() => tag), false);
        return this.name(again - 1);
      }
      this.show("unnamed", taken ? new Error(`${tag} already names another model: choose another version`) : error as Error);
      return null;
    }
  }

  /** Stop; a part that is under way stays with the service, as far as it has come. */
  pause(): void {
    this.halt(new Stopped());
    this.show("paused", null);
  }

  /** Stop for good, and have the service forget what it has. */
  async drop(): Promise<void> {
    this.pause();
    const parts = await partsOf(this.batch.id);
    await this.forget();
    for (const { url } of parts) fetch(url, { method: "DELETE", headers: { "tus-resumable": "1.0.0" }, keepalive: true }).catch(() => null);
  }

  /** Ask the service how far an upload of a page before has come. */
  async look(): Promise<void> {
    const parts = await partsOf(this.batch.id);
    const asked = await alone(this.batch.id, () => Promise.all(parts.map(async ({ whole, size, url }) =>
      (whole ? size : (await getJson<{ offset: number }>(url).catch(() => ({ offset: 0 }))).offset)))).catch(() => null);
    if (asked === null) return this.show("elsewhere", null);
    this.sent = asked.reduce((sum, size) => sum + size, 0);
    this.change();
  }

  private halt(reason: Error): void {
    this.halted = reason;
    for (const stop of [...this.stops]) stop(reason);
  }

  private show(state: State, error: Error | null): void {
    Object.assign(this, { state, error, since: 0 });
    this.change();
  }

  private progress(path: string, sent: number): void {
    this.at.set(path, sent);
    this.sent = [...this.at.values()].reduce((sum, size) => sum + size, 0);
    if (this.state === "waiting") this.state = "sending";
    if (!this.since) Object.assign(this, { since: Date.now(), from: this.sent });
    this.change();
  }

  private async whole(): Promise<void> {
    const known = new Map((await partsOf(this.batch.id)).map((part) => [part.path, part]));
    const uploads: Record<string, string> = {};
    const left = this.files.values();
    this.at.clear();
    const sendSome = async () => {
      for (const each of left) uploads[each.path] = await this.part(each, known.get(each.path));
    };
    // One that fails stops the others.
    await Promise.all(Array.from({ length: AT_ONCE }, () => sendSome().catch((error: Error) => {
      this.halt(error);
      throw error;
    })));
    this.show("making", null);
    const archive = uploads[ARCHIVE];
    this.store = await made(JSON.stringify(archive ? { archive } : { uploads }));
    await this.forget();
  }

  private forget(): Promise<unknown> {
    this.kept = false;
    return forget(this.batch.id);
  }

  /** The URL of the upload that has the whole file, once it has. */
  private async part(each: Dropped, known: Part | undefined): Promise<string> {
    const { Upload } = await import("tus-js-client");
    const { path, file } = each;
    const noted = (url: string | null, whole: boolean) =>
      note({ batch: this.batch.id, path, size: file.size, modified: file.lastModified, url: pathOf(url), whole });
    if (this.halted) throw this.halted;
    let kept: Promise<unknown> = Promise.resolve();
    return new Promise<string>((take, fail) => {
      const upload = new Upload(file, {
        endpoint: `${SPACE}/v1/uploads`,
        uploadUrl: isSame(known, each) ? known!.url : null,
        headers: { "upload-concat": "partial" },
        metadata: { filename: path || "archive.tar" },
        uploadDataDuringCreation: file.size <= SMALL,
        retryDelays: ATTEMPTS,
        storeFingerprintForResuming: false,
        onUploadUrlAvailable: () => { kept = noted(upload.url, false); },
        // No bytes go to an upload that a page opened later would not know of.
        onBeforeRequest: () => kept.then(whenSignedIn).then(() => { if (this.halted) throw this.halted; }),
        onProgress: (sent) => this.progress(path, sent),
        onShouldRetry: (error) => this.retried(error.originalResponse?.getStatus() ?? 0, file, stop),
        // An upload that cannot be asked about now is not begun anew, as one that is gone is.
        onAfterResponse: (request, answer) => { if (request.getMethod() === "HEAD" && PASSING.has(answer.getStatus())) throw new Error(`The service responded with status ${answer.getStatus()}`); },
        onError: (error) => stop(problemOf(error)),
        onSuccess: () => { this.stops.delete(stop); this.progress(path, file.size); void noted(upload.url, true).then(() => take(pathOf(upload.url))); },
      });
      const stop = (reason: Error) => { this.stops.delete(stop); void upload.abort(); fail(reason); };
      this.stops.add(stop);
      upload.start();
    });
  }

  /** True when a request is to be made again; a file that changed on the disk is reported instead. */
  private retried(status: number, file: File, stop: (reason: Error) => void): boolean {
    if (status && !PASSING.has(status)) return false;
    if (status === 401) signIn().catch(stop);
    file.slice(0, 1).arrayBuffer().catch(() => stop(new Error(`${file.name} was changed or moved: drop it here again`)));
    this.show("waiting", null);
    return true;
  }
}

/** Uploads that the browser knows of from pages before. */
export const remembered = async (change: () => void): Promise<Sending[]> => (await unfinished()).map((batch) => new Sending(batch, change));

/** A new sending, or the one before of the same files. */
export async function sendingOf(chosen: Chosen, before: readonly Sending[], change: () => void): Promise<Sending> {
  const batch = await batchOf(chosen);
  const sending = before.find((each) => each.batch.id === batch.id) ?? new Sending(batch, change);
  sending.suggest(chosen.base);
  return sending;
}

/** The result of `work` while no other window sends the same; browsers without locks do not look. */
function alone<T>(id: string, work: () => Promise<T>): Promise<T> {
  if (!navigator.locks) return work();
  return navigator.locks.request(`upload ${id}`, { ifAvailable: true }, (lock) => {
    if (lock === null) throw new Error("another window is uploading this");
    return work();
  }) as Promise<T>;
}

/** The store that a request makes; one that makes the same again gets the same. */
async function made(body: string): Promise<Store> {
  const asked = { method: "POST", headers: { "content-type": "application/json" }, body };
  for (const wait of [...ATTEMPTS.slice(1), -1]) {
    const answer = await fetch(`${SPACE}/v1/stores/assemble`, asked).catch(() => null);
    const store = await answer?.json().catch(() => null) as Store & { detail?: string } | null | undefined;
    if (answer?.ok && store?.id) return store;
    if (answer?.status === 401) await signIn();
    if (wait < 0 || (answer && !PASSING.has(answer.status))) throw new Failure(answer?.status ?? 0, store?.detail ?? "The service does not respond");
    await new Promise((done) => setTimeout(done, wait));
  }
  throw new Failure(0, "The service does not respond");
}

const pathOf = (url: string | null): string => new URL(url ?? "", location.href).pathname;

/** What the service says of a failure, which tus-js-client wraps. */
function problemOf(error: Error & { originalResponse?: { getBody(): string; getStatus(): number } | null }): Error {
  const answer = error.originalResponse;
  if (!answer) return error;
  try {
    return new Failure(answer.getStatus(), (JSON.parse(answer.getBody()) as { detail: string }).detail);
  } catch {
    return new Failure(answer.getStatus(), `The service responded with status ${answer.getStatus()}`);
  }
}
