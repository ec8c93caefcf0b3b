/** Many files as one: a tar archive whose bytes are read from the disk as they are sent. */

import type { Chosen, Dropped } from "./dropped";

/** Files that are uploaded one by one: the service keeps a limited number of open uploads of a client. */
const MOST = 200;
/** Files that a store holds. */
const LIMIT = 10_000;
/** The path of an archive, which no file has. */
export const ARCHIVE = "";

const BLOCK = 512;
const LARGEST = 0o77777777777;
const TEXT = new TextEncoder();

/** The same files, as an archive if there are many. */
export function archived(chosen: Chosen): Chosen {
  const { files, name } = chosen;
  if (files.length > LIMIT) throw new Error(`${files.length} files are too many: a store holds at most ${LIMIT}. Upload the folders of this folder one at a time`);
  if (files.length <= MOST) return chosen;
  // Blobs of files hold no bytes.
  const parts = files.flatMap((each) => [headerOf(each), each.file, new Uint8Array(-each.file.size & (BLOCK - 1))]);
  // Other files are another archive, as a file of another time is.
  const file = new File([...parts, new Uint8Array(2 * BLOCK)] as BlobPart[], name, { lastModified: fingerprint(files) });
  return { ...chosen, files: [{ path: ARCHIVE, file }], count: files.length };
}

/** The header of a file, behind one with what does not fit into it. */
function headerOf({ path, file: { size } }: Dropped): Uint8Array {
  const name = TEXT.encode(path);
  if (name.length <= 100 && size <= LARGEST) return header(name, size, "0");
  const records = new Uint8Array([...record("path", path), ...record("size", String(size))]);
  const padded = new Uint8Array(Math.ceil(records.length / BLOCK) * BLOCK);
  padded.set(records);
  return new Uint8Array([...header(TEXT.encode("more"), records.length, "x"), ...padded, ...header(TEXT.encode("file"), Math.min(size, LARGEST), "0")]);
}

/** A line whose first number is its own length in bytes. */
function record(name: string, value: string): Uint8Array {
  const rest = TEXT.encode(` ${name}=${value}\n`).length;
  let length = rest + String(rest).length;
  length = rest + String(length).length;
  return TEXT.encode(`${length} ${name}=${value}\n`);
}

function header(name: Uint8Array, size: number, kind: string): Uint8Array {
  const block = new Uint8Array(BLOCK);
  const put = (at: number, text: string) => block.set(TEXT.encode(text), at);
  block.set(name);
  put(100, "0000644\0" + "0000000\0".repeat(2) + size.toString(8).padStart(11, "0") + "\0" + "0".repeat(11) + "\0" + " ".repeat(8) + kind);
  put(257, "ustar\u000000");
  put(148, block.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, "0") + "\0 ");
  return block;
}

/** A number of paths, sizes and times (FNV-1a in two halves). */
function fingerprint(files: readonly Dropped[]): number {
  let [high, low] = [0x811c9dc5, 0x1b873593];
  for (const { path, file } of files) {
    for (const byte of TEXT.encode(`${path}\n${file.size}\n${file.lastModified}\n`)) {
      high = Math.imul(high ^ byte, 0x01000193) >>> 0;
      low = Math.imul(low ^ byte, 0x01000193) >>> 0;
    }
  }
  // Times of files go to 8.64e15 at most.
  return (high & 0xfffff) * 2 ** 32 + low;
}
