/** The versions of a name, the newest first, and what changed at each step. */

import { useRef } from "preact/hooks";
import { getJson, uploaderOf, url, view, type Diff, type Page, type Store } from "../api";
import { ago, bytes, many } from "../format";
import { Await, useLoaded, useSeen } from "../loading";
import { diffPlace, modelPlace } from "../place";
import { byAge, commitsOf, familyOf, nameOf, shortened, versionsOf } from "../versions";

const MOST = 50;

/** A version: how it is called, and what else is known of it. */
interface Step { ref: string; names: string[]; time: string; size: number | null; about: string }

async function stepsOf(family: string, repository: string, ref: string, signal: AbortSignal): Promise<Step[]> {
  if (repository) {
    const commits = await commitsOf(repository, ref, signal);
    if (commits.length) return commits.map(({ id, title, date, authors }) => ({ ref: id, names: [id.slice(0, 7)], time: date, size: null, about: [title, authors[0]?.user].filter(Boolean).join(" · ") }));
    return (await versionsOf(repository, signal)).map((each) => ({ ref: each.ref, names: [each.name], time: each.updated, size: null, about: "" }));
  }
  const page = await getJson<Page<Store>>(url(["v1", "stores"], { tag: `${family}:`, limit: MOST }), signal);
  const once = [...new Map(page.items.map((store) => [store.id, store])).values()].sort(byAge);
  return once.map((store) => ({
    ref: nameOf(store), names: store.tags.filter((tag) => familyOf(tag) === family), time: store.created, size: store.size,
    about: [uploaderOf(store), store.description].filter(Boolean).join(" · "),
  }));
}

export function History({ family, repository, name, title }: { family: string; repository: string; name: string; title: string }) {
  const found = useLoaded<Step[]>(`${family} ${repository}`, async (signal) => (await stepsOf(family, repository, name, signal)).slice(0, MOST));
  return (
    <Await of={found}>
      {(steps) => steps.length < 2 ? <p class="soft">This is the only version of {repository || family || title}.</p> : (
        <ol class="history">
          {steps.map((step, n) => (
            <li key={step.ref} aria-current={step.ref === name || step.names.includes(name) ? "true" : undefined}>
              <a href={modelPlace(step.ref)} dir="auto">{step.names.join(", ") || shortened(step.ref)}</a>{" "}
              <span class="soft" dir="auto">{ago(step.time)}{step.size !== null && ` · ${bytes(step.size)}`}{step.about && ` · ${step.about}`}</span>
              {steps[n + 1] && <Changes before={steps[n + 1]!.ref} after={step.ref} />}
            </li>
          ))}
        </ol>
      )}
    </Await>
  );
}

/** What changed since the version before, looked for once this is in sight: equal checksums count as equal bytes. */
function Changes({ before, after }: { before: string; after: string }) {
  const place = useRef<HTMLAnchorElement>(null);
  const seen = useSeen(place);
  const found = useLoaded<string>(seen ? `${before} ${after}` : null, async (signal) =>
    summaryOf(await getJson<Diff>(view(after, ["diff"], { before, checksums: "true", limit: 1 }), signal)));
  return <a ref={place} class="changes" href={diffPlace(before, after)}>{found.value ?? (found.busy ? "…" : "what changed")}</a>;
}

/** The tensors that changed; the files and parts where no tensor did. */
function summaryOf({ equal, counts }: Diff): string {
  if (equal) return "no changes";
  const [tensors, others] = [counts.filter(({ what }) => what === "tensor"), counts.filter(({ what }) => what !== "tensor")];
  return (tensors.length ? tensors : others).map(({ what, change, count }) => `${many(count, what)} ${change}`).join(", ");
}
