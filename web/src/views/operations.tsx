/** For operators: what the service does now, and has done since it began, from its own metrics. */

import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { bytes, count, figure, percent, rough } from "../format";
import { Trouble } from "../loading";

const EVERY = 5000;
/** The second look comes soon: rates need two. */
const SOON = 1000;
/** Looks that are kept, five minutes. */
const KEPT = 61;

export function Operations() {
  const [told, set] = useState<readonly Told[]>([]);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const leaving = new AbortController();
    let timer = 0;
    const look = async (wait: number) => {
      try {
        if (!document.hidden) {
          const samples = parsed(await (await get("/metrics", leaving.signal, "text/plain")).text());
          set((before) => [...before, { at: Date.now(), samples }].slice(-KEPT));
          setError(null);
        }
      } catch (problem) {
        if (!leaving.signal.aborted) setError(problem as Error);
      }
      if (!leaving.signal.aborted) timer = setTimeout(() => void look(EVERY), wait);
    };
    void look(SOON);
    return () => { leaving.abort(); clearTimeout(timer); };
  }, []);
  return (
    <>
      <h1>Operations</h1>
      {error && <Trouble error={error} />}
      {told.length > 0 && <Shown told={told} />}
    </>
  );
}

function Shown({ told }: { told: readonly Told[] }) {
  const now = told.at(-1)!;
  return (
    <>
      <Traffic told={told} />
      <div class="groups">{groupsOf(now, told.at(-2)).map(([title, rows]) => <Group key={title} title={title} rows={rows} />)}</div>
      <Routes now={now} />
    </>
  );
}

const perSecond = (value: number | null, show: (value: number) => string): string => (value === null ? "…" : `${show(value)}/s`);
const orNone = (value: number | null, show: (value: number) => string): string => (value === null ? "–" : show(value));
const seconds = (value: number): string => (value < 1 ? `${rough(1000 * value)} ms` : `${rough(value)} s`);

/** What goes on now, with the last five minutes as a line. */
function Traffic({ told }: { told: readonly Told[] }) {
  const rates = (name: string, keep?: Keep) => told.map((each, n) => rate(told[n - 1], each, name, keep)).slice(1);
  const tiles: [string, (number | null)[], (value: number) => string][] = [
    ["requests", rates("requests_total"), rough],
    ["server errors", rates("requests_total", isError), rough],
    ["sent", rates("sent_bytes_total"), bytes],
    ["received", rates("received_bytes_total"), bytes],
  ];
  return (
    <dl class="figures tiles">
      {tiles.map(([what, values, show]) => (
        <div key={what}><dt>{what}</dt><dd>{perSecond(values.at(-1) ?? null, show)}<Line values={values} label={`${what} per second, last five minutes`} /></dd></div>
      ))}
    </dl>
  );
}

type Row = [what: string, value: string];

function groupsOf(now: Told, before: Told | undefined): [string, Row[]][] {
  // A metric whose labels have not occurred yet is not told.
  const total = (name: string, keep?: Keep) => count(sum(now, name, keep) ?? 0);
  const resumable = (wanted: string) => total("resumable_uploads_total", ({ event }) => event === wanted);
  return [
    ["Requests", [
      ["answered", total("requests_total")], ["client errors (4xx)", total("requests_total", isRefused)], ["server errors (5xx)", total("requests_total", isError)],
      ["in progress", total("open_requests")], ["mean time", orNone(mean(now, "request_seconds"), seconds)], ["truncated responses", total("broken_answers_total")],
    ]],
    ["Uploads", [
      ["in progress", total("open_uploads")], ["resumable, started", resumable("begun")], ["resumable, stored", resumable("stored")],
      ["resumable, failed", resumable("failed")], ["received", bytes(sum(now, "received_bytes_total") ?? 0)],
    ]],
    ["Cache", [
      ["hit rate", orNone(share(now, "cache_reads_total", ({ result }) => result === "hit"), percent)], ["bytes served", orNone(sum(now, "cache_read_bytes_total", ({ result }) => result === "hit"), bytes)],
      ["files evicted", total("cache_evictions_total")], ["failed writes", total("cache_write_failures_total")],
    ]],
    ["Storage", [
      ["stored", orNone(sum(now, "space_stored_bytes") ?? sum(now, "stored_bytes"), bytes)], ["stores", orNone(sum(now, "space_stores") ?? sum(now, "stores"), count)],
      ["calls", perSecond(rate(before, now, "storage_call_seconds_count"), rough)], ["mean call time", orNone(mean(now, "storage_call_seconds"), seconds)],
      ["failed calls", total("storage_errors_total")],
      ["checksum failures", total("damaged_reads_total")],
    ]],
  ];
}

function Group({ title, rows }: { title: string; rows: readonly Row[] }) {
  return (
    <section class="group" aria-label={title}>
      <h2>{title}</h2>
      <dl>{rows.map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

function Routes({ now }: { now: Told }) {
  const routes = new Map<string, Told & { samples: Sample[] }>();
  for (const sample of now.samples) {
    const { method, route } = sample.labels;
    if (method === undefined || route === undefined) continue;
    const own = routes.get(`${method} ${route}`);
    if (own) own.samples.push(sample);
    else routes.set(`${method} ${route}`, { at: now.at, samples: [sample] });
  }
  const rows = [...routes].filter(([, own]) => sum(own, "requests_total") !== null).map(([route, own]) => ({
    route, requests: sum(own, "requests_total") ?? 0, time: mean(own, "request_seconds"), sent: sum(own, "sent_bytes_total") ?? 0,
    errors: sum(own, "requests_total", isError) ?? 0,
  })).sort((a, b) => b.requests - a.requests);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Requests by route">
      <table>
        <thead><tr><th scope="col">Route</th>{["Requests", "5xx", "Mean time", "Sent"].map((title) => <th key={title} scope="col" class="n">{title}</th>)}</tr></thead>
        <tbody>
          {rows.map(({ route, requests, errors, time, sent }) => (
            <tr key={route}><td><code>{route}</code></td><td class="n">{count(requests)}</td><td class="n">{figure(errors)}</td><td class="n">{orNone(time, seconds)}</td><td class="n">{bytes(sent)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const [WIDTH, HEIGHT] = [120, 28];

function Line({ values, label }: { values: readonly (number | null)[]; label: string }) {
  const most = Math.max(...values.map((value) => value ?? 0), Number.MIN_VALUE);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const points = values.map((value, n) => `${(n * step).toFixed(1)},${(HEIGHT - 2 - ((value ?? 0) / most) * (HEIGHT - 4)).toFixed(1)}`);
  return (
    <svg class="line" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={label}>
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}

interface Sample { name: string; labels: Record<string, string>; value: number }

/** What the service told at a time. */
interface Told { at: number; samples: readonly Sample[] }

type Keep = (labels: Record<string, string>) => boolean;

function parsed(text: string): Sample[] {
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
function sum({ samples }: Told, name: string, keep: Keep = () => true): number | null {
  const found = samples.filter((sample) => sample.name === name && keep(sample.labels));
  return found.length ? found.reduce((total, { value }) => total + value, 0) : null;
}

/** The growth of a metric in a second between two tellings; null before there are two, and after a restart. */
function rate(before: Told | undefined, now: Told, name: string, keep?: Keep): number | null {
  if (!before) return null;
  const [seconds, grown] = [(now.at - before.at) / 1000, (sum(now, name, keep) ?? 0) - (sum(before, name, keep) ?? 0)];
  return seconds > 0 && grown >= 0 ? grown / seconds : null;
}

/** The mean of a histogram's values; null where there are none. */
function mean(told: Told, name: string, keep?: Keep): number | null {
  const count = sum(told, `${name}_count`, keep);
  return count ? (sum(told, `${name}_sum`, keep) ?? 0) / count : null;
}

/** The share of `name` among labels that `keep` holds; null where there is nothing yet. */
function share(told: Told, name: string, keep: Keep): number | null {
  const all = sum(told, name);
  return all ? (sum(told, name, keep) ?? 0) / all : null;
}

const isError: Keep = ({ status = "" }) => status >= "500";
const isRefused: Keep = ({ status = "" }) => status >= "400" && status < "500";
