/** Text of the service, read no further than the page can show, and in what two texts differ. */

import { Failure, get } from "./api";

export interface Text { text: string; whole: boolean }

/** At most `most` bytes of an answer as text; the rest is not fetched. */
export async function textAt(place: string, most: number, signal: AbortSignal, accept = "text/plain"): Promise<Text> {
  const { body } = await get(place, signal, accept);
  const [reader, decoder] = [body!.getReader(), new TextDecoder()];
  let [text, left] = ["", most];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return { text: text + decoder.decode(), whole: true };
    text += decoder.decode(value.subarray(0, left), { stream: true });
    left -= value.length;
    if (left < 0) {
      void reader.cancel();
      return { text, whole: false };
    }
  }
}

/** Bytes shown of what no text can be made of. */
const RAW = 1024;

/** A message as text or JSON; the first bytes of `raw` where the service has no type for it, or it is too large. */
export async function readable(place: string, raw: string, form: string, most: number, signal: AbortSignal): Promise<Text> {
  try {
    const shown = await textAt(place, most, signal, form);
    return form === "application/json" && shown.whole ? { ...shown, text: JSON.stringify(JSON.parse(shown.text), null, 2) } : shown;
  } catch (error) {
    if (!(error instanceof Failure) || ![406, 413].includes(error.status)) throw error;
    return hexOf(raw, signal);
  }
}

/** Bytes of an answer, none of which are fetched. */
export async function lengthOf(place: string, signal: AbortSignal): Promise<number> {
  const answer = await fetch(place, { method: "HEAD", headers: { accept: "*/*" }, signal });
  return Number(answer.headers.get("content-length") ?? 0);
}

/** The first bytes in rows of sixteen, read as a range. */
export async function hexOf(place: string, signal: AbortSignal): Promise<Text> {
  const answer = await get(place, signal, "*/*", { range: `bytes=0-${RAW - 1}` }).catch((error: unknown) => {
    if (error instanceof Failure && error.status === 416) return null; // nothing in it
    throw error;
  });
  const found = answer ? new Uint8Array(await answer.arrayBuffer()).subarray(0, RAW) : new Uint8Array();
  const rows = Array.from({ length: Math.ceil(found.length / 16) }, (_, n) => [...found.subarray(16 * n, 16 * n + 16)]);
  const text = rows.map((row, n) => `${(16 * n).toString(16).padStart(4, "0")}  ${row.map((each) => each.toString(16).padStart(2, "0")).join(" ")}`).join("\n");
  return { text, whole: found.length < RAW };
}

/** Pieces of a line; those that only one side has are marked. */
export interface Piece { text: string; marked: boolean }

/** Lines that stand side by side; null where a side has none. `same` ones are equal. */
export interface Pair { before: Piece[] | null; after: Piece[] | null; same: boolean }

/** Steps of a comparison at most: two texts that differ in more are shown as one replaced by the other. */
const STEPS = 4_000_000;

/** Two texts line by line, changed lines word by word. */
export function sideBySide(before: string, after: string): Pair[] {
  const found: Pair[] = [];
  const [olds, news] = [before.split("\n"), after.split("\n")];
  let [gone, come]: [string[], string[]] = [[], []];
  const flush = () => {
    for (let n = 0; n < Math.max(gone.length, come.length); n += 1) found.push(pairOf(gone[n], come[n]));
    [gone, come] = [[], []];
  };
  for (const [old, now] of aligned(olds, news)) {
    if (old !== null && now !== null) {
      flush();
      found.push({ before: plain(old), after: plain(now), same: true });
    } else if (old !== null) gone.push(old);
    else if (now !== null) come.push(now);
  }
  flush();
  return found;
}

const plain = (text: string): Piece[] => [{ text, marked: false }];

function pairOf(old: string | undefined, now: string | undefined): Pair {
  if (old === undefined || now === undefined) return { before: old === undefined ? null : plain(old), after: now === undefined ? null : plain(now), same: false };
  const [before, after]: [Piece[], Piece[]] = [[], []];
  for (const [one, other] of aligned(words(old), words(now))) {
    if (one !== null) add(before, one, other === null);
    if (other !== null) add(after, other, one === null);
  }
  return { before, after, same: false };
}

const words = (text: string): string[] => text.match(/\s+|[\p{L}\p{N}_]+|./gsu) ?? [];

function add(pieces: Piece[], text: string, marked: boolean): void {
  const last = pieces.at(-1);
  if (last?.marked === marked) last.text += text;
  else pieces.push({ text, marked });
}

/** Both lists in order: what both have together, else alone (longest common subsequence). */
function aligned(before: readonly string[], after: readonly string[]): [string | null, string | null][] {
  let [start, end] = [0, 0];
  const least = Math.min(before.length, after.length);
  while (start < least && before[start] === after[start]) start += 1;
  while (end < least - start && before.at(-1 - end) === after.at(-1 - end)) end += 1;
  const both = (line: string): [string, string] => [line, line];
  const middle = between(before.slice(start, before.length - end), after.slice(start, after.length - end));
  return [...before.slice(0, start).map(both), ...middle, ...before.slice(before.length - end).map(both)];
}

function between(before: readonly string[], after: readonly string[]): [string | null, string | null][] {
  const [rows, columns] = [before.length, after.length];
  const replaced = (): [string | null, string | null][] => [...before.map((line): [string, null] => [line, null]), ...after.map((line): [null, string] => [null, line])];
  if (!rows || !columns || rows * columns > STEPS) return replaced();
  // The longest common subsequence of what is left from each place on.
  const lengths = new Uint16Array((rows + 1) * (columns + 1));
  const at = (row: number, column: number) => row * (columns + 1) + column;
  for (let row = rows - 1; row >= 0; row -= 1) {
    for (let column = columns - 1; column >= 0; column -= 1) {
      lengths[at(row, column)] = before[row] === after[column] ? lengths[at(row + 1, column + 1)]! + 1 : Math.max(lengths[at(row + 1, column)]!, lengths[at(row, column + 1)]!);
    }
  }
  const found: [string | null, string | null][] = [];
  let [row, column] = [0, 0];
  while (row < rows && column < columns) {
    if (before[row] === after[column]) found.push([before[row++]!, after[column++]!]);
    else if (lengths[at(row + 1, column)]! >= lengths[at(row, column + 1)]!) found.push([before[row++]!, null]);
    else found.push([null, after[column++]!]);
  }
  while (row < rows) found.push([before[row++]!, null]);
  while (column < columns) found.push([null, after[column++]!]);
  return found;
}
