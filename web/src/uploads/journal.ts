/** Uploads that are under way, kept by the browser (IndexedDB) so that a page opened later goes on with them. */

import { SPACE } from "../place";
import type { Chosen, Dropped, Handle } from "./dropped";

/** Files that are uploaded together, and the tag that their store gets, which a person may have `typed`. */
export interface Batch { id: string; name: string; size: number; count: number; handles: Handle[]; tag?: string; typed?: boolean }

/** A file of a batch: the upload that it goes to, and whether all of it is there. */
export interface Part { batch: string; path: string; size: number; modified: number; url: string; whole: boolean }

const BATCHES = "batches";
const PARTS = "parts";

let opening: Promise<IDBDatabase> | null = null;

function opened(): Promise<IDBDatabase> {
  opening ??= new Promise((take, fail) => {
    const request = indexedDB.open(`protoslice-uploads${SPACE}`, 1);
    request.onupgradeneeded = () => {
      request.result.createObjectStore(BATCHES, { keyPath: "id" });
      request.result.createObjectStore(PARTS, { keyPath: ["batch", "path"] });
    };
    request.onsuccess = () => take(request.result);
    request.onerror = () => fail(request.error);
  });
  return opening;
}

/** The result of `work`; null where the browser keeps nothing, in a private window for example. */
async function within<T>(mode: IDBTransactionMode, work: (batches: IDBObjectStore, parts: IDBObjectStore) => IDBRequest<T>): Promise<T | null> {
  try {
    const change = (await opened()).transaction([BATCHES, PARTS], mode);
    const request = work(change.objectStore(BATCHES), change.objectStore(PARTS));
    return await new Promise<T>((take, fail) => {
      change.oncomplete = () => take(request.result);
      change.onabort = () => fail(change.error);
    });
  } catch {
    return null;
  }
}

const ofBatch = (id: string): IDBKeyRange => IDBKeyRange.bound([id], [id, []]);

export const unfinished = async (): Promise<Batch[]> => (await within("readonly", (batches) => batches.getAll() as IDBRequest<Batch[]>)) ?? [];
export const partsOf = async (id: string): Promise<Part[]> => (await within("readonly", (_, parts) => parts.getAll(ofBatch(id)) as IDBRequest<Part[]>)) ?? [];
export const note = (part: Part): Promise<unknown> => within("readwrite", (_, parts) => parts.put(part));

export const forget = (id: string): Promise<unknown> => within("readwrite", (batches, parts) => {
  parts.delete(ofBatch(id));
  return batches.delete(id);
});

/** The batch of these files: one that began before and has a file in common, or a new one. */
export async function batchOf({ name, files, handles, count = files.length }: Chosen): Promise<Batch> {
  let begun: Pick<Batch, "id" | "tag" | "typed"> = { id: crypto.getRandomValues(new Uint32Array(2)).join("-") };
  for (const batch of await unfinished()) {
    const known = new Map((await partsOf(batch.id)).map((part) => [part.path, part]));
    if (batch.name === name && (!known.size || files.some((each) => isSame(known.get(each.path), each)))) begun = batch;
  }
  const batch: Batch = { ...begun, name, handles, size: files.reduce((size, { file }) => size + file.size, 0), count };
  await keep(batch);
  return batch;
}

export async function keep(batch: Batch): Promise<void> {
  // Some browsers cannot keep handles.
  if ((await within("readwrite", (batches) => batches.put(batch))) === null) await within("readwrite", (batches) => batches.put({ ...batch, handles: [] }));
}

export const isSame = (part: Part | undefined, { file }: Dropped): boolean =>
  part !== undefined && part.size === file.size && part.modified === file.lastModified;
