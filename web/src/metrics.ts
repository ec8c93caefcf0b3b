/** Metrics of the service, out of Prometheus' text format. */

export interface Sample { name: string; labels: Record<string, string>; value: number }

/** What the service told at a time. */
export interface Told { at: number; samples: readonly Sample[] }

export type Keep = (labels: Record<string, string>) => boolean;

export function parsed(text: string): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-z_:][\w:]*)(?:\{(.*)\})? (\S+)/i.exec(line) ?? [];
    // Bins of histograms are most of the lines, and nothing here is made of them.
    if (!name || name.endsWith("_bucket") || name.endsWith("_created")) continue;
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
    found.push({ name: name.replace(/^protoslice_/, ""), labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return found;
}

/** The sum of a metric over its labels; null where the service does not tell it. */
export function sum({ samples }: Told, name: string, keep: Keep = () => true): number | null {
  const found = samples.filter((sample) => sample.name === name && keep(sample.labels));
  return found.length ? found.reduce((total, { value }) => total + value, 0) : null;
}

/** The growth of a metric in a second between two tellings; null before there are two, and after a restart. */
export function rate(before: Told | undefined, now: Told, name: string, keep?: Keep): number | null {
  if (!before) return null;
  const [seconds, grown] = [(now.at - before.at) / 1000, (sum(now, name, keep) ?? 0) - (sum(before, name, keep) ?? 0)];
  return seconds > 0 && grown >= 0 ? grown / seconds : null;
}

/** The mean of a histogram's values; null where there are none. */
export function mean(told: Told, name: string, keep?: Keep): number | null {
  const count = sum(told, `${name}_count`, keep);
  return count ? (sum(told, `${name}_sum`, keep) ?? 0) / count : null;
}

/** The share of `name` among labels that `keep` holds; null where there is nothing yet. */
export function share(told: Told, name: string, keep: Keep): number | null {
  const all = sum(told, name);
  return all ? (sum(told, name, keep) ?? 0) / all : null;
}

export const isError: Keep = ({ status = "" }) => status >= "500";
export const isRefused: Keep = ({ status = "" }) => status >= "400" && status < "500";
