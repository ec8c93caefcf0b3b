/** For operators: what the service does now, and has done since it began, from its own metrics. */

import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { bytes, count, figure, percent, rough } from "../format";
import { Trouble } from "../loading";
import { isError, isRefused, mean, parsed, rate, share, sum, type Keep, type Sample, type Told } from "../metrics";
import { Line } from "../parts/line";

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
