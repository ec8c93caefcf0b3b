/** For operators: what the service has been doing since it began, from its own metrics. */

import { useEffect, useState } from "preact/hooks";
import { get } from "../api";
import { bytes, count } from "../format";
import { Trouble } from "../loading";

interface Sample { name: string; labels: Record<string, string>; value: number }

const EVERY = 5000;

export function Operations() {
  const [samples, set] = useState<Sample[] | null>(null);
  const [error, setError] = useState<Error | null>(null);
  useEffect(() => {
    const leaving = new AbortController();
    const look = () => get("/metrics", leaving.signal, "text/plain").then(async (answer) => { set(parsed(await answer.text())); setError(null); })
      .catch((problem: Error) => { if (!leaving.signal.aborted) setError(problem); });
    void look();
    const timer = setInterval(() => { if (!document.hidden) void look(); }, EVERY);
    return () => { leaving.abort(); clearInterval(timer); };
  }, []);
  return (
    <>
      <h1>Operations</h1>
      {error && <Trouble error={error} />}
      {samples && <Shown samples={samples} />}
    </>
  );
}

function Shown({ samples }: { samples: readonly Sample[] }) {
  const sum = (name: string, keep: (sample: Sample) => boolean = () => true) =>
    samples.filter((sample) => sample.name === name && keep(sample)).reduce((total, sample) => total + sample.value, 0);
  const routes = new Map<string, { requests: number; errors: number; sent: number }>();
  for (const { name, labels, value } of samples) {
    const route = `${labels["method"] ?? ""} ${labels["route"] ?? ""}`;
    const row = routes.get(route) ?? { requests: 0, errors: 0, sent: 0 };
    if (name === "protoslice_requests_total") {
      row.requests += value;
      if ((labels["status"] ?? "") >= "500") row.errors += value;
    } else if (name === "protoslice_sent_bytes_total") row.sent += value;
    else continue;
    routes.set(route, row);
  }
  const tiles: [string, string][] = [
    ["requests", count(sum("protoslice_requests_total"))],
    ["errors of ours", count(sum("protoslice_requests_total", ({ labels }) => (labels["status"] ?? "") >= "500"))],
    ["sent", bytes(sum("protoslice_sent_bytes_total"))],
    ["received", bytes(sum("protoslice_received_bytes_total"))],
  ];
  const rows = [...routes].sort(([, a], [, b]) => b.requests - a.requests);
  return (
    <>
      <dl class="figures tiles">{tiles.map(([what, value]) => <div key={what}><dt>{what}</dt><dd>{value}</dd></div>)}</dl>
      <div class="scroll" tabIndex={0} role="region" aria-label="Requests by route">
        <table>
          <thead><tr><th scope="col">Route</th><th scope="col" class="n">Requests</th><th scope="col" class="n">5xx</th><th scope="col" class="n">Sent</th></tr></thead>
          <tbody>
            {rows.map(([route, row]) => (
              <tr key={route}><td><code>{route}</code></td><td class="n">{count(row.requests)}</td><td class="n">{count(row.errors)}</td><td class="n">{bytes(row.sent)}</td></tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** The samples of Prometheus' text format. */
export function parsed(text: string): Sample[] {
  const found: Sample[] = [];
  for (const line of text.split("\n")) {
    const [, name, labels = "", value] = /^([a-z_:][\w:]*)(?:\{(.*)\})? (\S+)/i.exec(line) ?? [];
    if (!name) continue;
    const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key, text]) => [key, text]);
    found.push({ name, labels: Object.fromEntries(pairs), value: Number(value) });
  }
  return found;
}
