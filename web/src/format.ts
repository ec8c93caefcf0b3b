/** Numbers, sizes and times as people read them. */


const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export function bytes(size: number): string {
  let unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en");

/** `124M`; below ten thousand as it is. */
export const count = (value: number): string => (value < 10_000 ? WHOLE.format(value) : SHORT.format(value));
export const whole = (value: number): string => WHOLE.format(value);
export const percent = (share: number): string =>
  share > 0 && share < 0.001 ? "<0.1 %" : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;

/** Six digits that matter. */
export function figure(value: number | null): string {
  if (value === null) return "–";
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return WHOLE.format(value);
  const size = Math.abs(value);
  return size >= 1e6 || size < 1e-4 ? value.toExponential(3) : String(Number(value.toPrecision(6)));
}

/** Three digits that matter, for a narrow column. */
export const rough = (value: number | null): string =>
  value === null || Number.isInteger(value) ? figure(value) : Math.abs(value) < 1e-4 ? value.toExponential(1) : String(Number(value.toPrecision(3)));

export const shape = (lengths: readonly number[] | null): string =>
  lengths === null ? "?" : lengths.length ? lengths.join(" × ") : "scalar";

const STEPS: [number, Intl.RelativeTimeFormatUnit][] = [
  [60, "second"], [60, "minute"], [24, "hour"], [30, "day"], [12, "month"], [Infinity, "year"],
];
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export function ago(time: string): string {
  let apart = (Date.parse(time) - Date.now()) / 1000;
  for (const [length, unit] of STEPS) {
    if (Math.abs(apart) < length) return AGO.format(Math.round(apart), unit);
    apart /= length;
  }
  return time;
}

/** A plural: `1 tensor`, `2 tensors`. */
export const many = (number: number, noun: string): string => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** One word of a shell. */
export const quoted = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

/** A command line of a shell, out of its words. */
export const shell = (...words: readonly string[]): string => words.map(quoted).join(" ");

/** A text as Python writes it: a JSON string is one. */
export const python = (text: string): string => JSON.stringify(text);

/** A name for a downloaded file: the last of its path, neither hidden nor an option. */
export const fileName = (path: string): string => path.split("/").pop()!.replace(/^[.~-]+/, "") || "model";
