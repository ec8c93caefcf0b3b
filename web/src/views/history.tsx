/** The versions of a name, the newest first, and what changed at each step: in words, and by layer. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getJson, uploaderOf, view, type Diff } from "../api";
import { useDark } from "../colours";
import { ago, bytes, many } from "../format";
import { Await, useLoaded, useSeen } from "../loading";
import { diffPlace, modelPlace } from "../place";
import { commitsOf, familyOf, shortened, storesOf, versionsOf } from "../versions";
import { columnsOf, farthest, loadMoves, stripOf, type Pairs, type Strip } from "../xray/moves";
import { backgroundOf, Legend, movedIn, shortColumn, useWidth } from "../xray/strip";

/** Versions that are listed at first, and further ones at a time. */
const PAGE = 50;
/** Elements of each tensor that are compared: few, as all tensors of all versions are. */
const SAMPLE = 256;
/** Pixels of a cell, which is large enough for a finger. */
const CELL = 25;
const WIDEST = 60;
/** Pixels of a column's name. */
const HEAD = 34;
/** Pixels of a row before its cells. */
const INDENT = 30;

/** A version: how it is called, and what else is known of it. */
interface Step { ref: string; names: string[]; time: string; size: number | null; about: string }

/** At least `most` versions, the newest first, or all. */
async function stepsOf(family: string, repository: string, ref: string, most: number, signal: AbortSignal): Promise<Step[]> {
  if (repository) {
    const commits = await commitsOf(repository, ref, signal);
    if (commits.length) return commits.map(({ id, title, date, authors }) => ({ ref: id, names: [id.slice(0, 7)], time: date, size: null, about: [title, authors[0]?.user].filter(Boolean).join(" · ") }));
    return (await versionsOf(repository, signal)).map((each) => ({ ref: each.ref, names: [each.name], time: each.updated, size: null, about: "" }));
  }
  return (await storesOf(family, most, signal)).map((store) => {
    const names = store.tags.filter((tag) => familyOf(tag) === family);
    const about = [uploaderOf(store), store.description].filter(Boolean).join(" · ");
    return { ref: names.includes(ref) ? ref : names[0]!, names, time: store.created, size: store.size, about };
  });
}

export function History({ family, repository, name, title }: { family: string; repository: string; name: string; title: string }) {
  const [most, setMost] = useState(PAGE);
  const found = useLoaded<Step[]>(`${family} ${repository} ${most}`, (signal) => stepsOf(family, repository, name, most + 1, signal));
  return (
    <Await of={found}>
      {(steps) => steps.length < 2 ? <p class="soft">This is the only version of {repository || family || title}.</p> : (
        <>
          <Steps steps={steps} most={most} name={name} />
          {steps.length > most && <p class="more"><button type="button" onClick={() => setMost(most + PAGE)}>Older versions</button></p>}
        </>
      )}
    </Await>
  );
}

function Steps({ steps, most, name }: { steps: readonly Step[]; most: number; name: string }) {
  const dark = useDark();
  const list = useRef<HTMLOListElement>(null);
  const width = useWidth(list) - INDENT;
  const [known, setKnown] = useState<ReadonlyMap<string, Pairs>>(new Map());
  // All rows have the same columns and colors, so that versions can be compared.
  const columns = useMemo(() => columnsOf([...known.values()], Math.max(1, Math.floor(width / CELL))), [known, width]);
  const strips = useMemo(() => new Map([...known].map(([ref, pairs]) => [ref, stripOf(pairs, columns, false)])), [known, columns]);
  const far = Math.max(0, ...[...strips.values()].flatMap(({ cells }) => [...cells.values()].map((cell) => farthest(cell, "relative") ?? 0)));
  const every = Math.ceil(HEAD / Math.min(WIDEST, width / Math.max(columns.names.length, 1)));
  return (
    <>
      <div class="heads" aria-hidden="true" style={{ width: `${width}px`, ...gridOf(columns.names) }}>
        {columns.names.map((each, n) => n % every === 0 && <span key={each} style={{ gridColumn: `${n + 1} / span ${Math.min(every, columns.names.length - n)}` }}>{shortColumn(columns.names, n)}</span>)}
      </div>
      <ol class="history" ref={list}>
        {steps.slice(0, most).map((step, n) => {
          const before = steps[n + 1]?.ref;
          const strip = strips.get(step.ref);
          return (
            <li key={step.ref} aria-current={step.ref === name || step.names.includes(name) ? "true" : undefined}>
              <a href={modelPlace(step.ref)} dir="auto">{step.names.join(", ") || shortened(step.ref)}</a>{" "}
              <span class="soft" dir="auto">{ago(step.time)}{step.size !== null && ` · ${bytes(step.size)}`}{step.about && ` · ${step.about}`}</span>
              {before && <Changes before={before} after={step.ref} onPairs={(pairs) => setKnown((others) => new Map(others).set(step.ref, pairs))} />}
              {before && strip && strip.cells.size > 0 && <Cells strip={strip} far={far} place={diffPlace(before, step.ref)} dark={dark}
                label={`Changes by layer since ${shortened(before)}; use the arrow keys to move between layers`} />}
            </li>
          );
        })}
      </ol>
      {columns.names.length > 0 && <Legend most={far} dark={dark} />}
    </>
  );
}

const gridOf = (columns: readonly string[]) => ({ gridTemplateColumns: `repeat(${columns.length}, minmax(0, ${WIDEST}px))` });

/** What changed since the version before, looked for once this is in sight: equal checksums count as equal bytes. */
function Changes({ before, after, onPairs }: { before: string; after: string; onPairs: (pairs: Pairs) => void }) {
  const place = useRef<HTMLAnchorElement>(null);
  const seen = useSeen(place);
  const key = seen ? `${before} ${after}` : null;
  const found = useLoaded<string>(key, async (signal) =>
    summaryOf(await getJson<Diff>(view(after, ["diff"], { before, checksums: "true", limit: 1 }), signal)));
  const pairs = useLoaded<Pairs>(key, (signal) => loadMoves(before, after, signal, undefined, SAMPLE));
  useEffect(() => { if (pairs.value) onPairs(pairs.value); }, [pairs.value]);
  return <a ref={place} class="changes" href={diffPlace(before, after)}>{found.value ?? (found.busy ? "…" : "what changed")}</a>;
}

/** How far each layer moved; each cell is a link to the comparison of its tensors. */
function Cells({ strip, far, place, dark, label }: { strip: Strip; far: number; place: string; dark: boolean; label: string }) {
  const step = (event: KeyboardEvent) => {
    const link = event.target as Element;
    const next = event.key === "ArrowRight" ? link.nextElementSibling : event.key === "ArrowLeft" ? link.previousElementSibling : null;
    if (next instanceof HTMLElement) { event.preventDefault(); next.focus(); }
  };
  const cells = [...strip.cells].sort(([, one], [, other]) => one.column - other.column);
  return (
    <div class="cells" role="group" aria-label={label} onKeyDown={step} style={gridOf(strip.columns)}>
      {cells.map(([key, cell], n) => {
        const name = `${strip.columns[cell.column]}: ${cell.moves.length ? movedIn(cell, "relative") : "no change found in a sample"}`;
        return (
          <a key={key} href={`${place}?cell=${encodeURIComponent(key)}`} title={name} aria-label={name} tabIndex={n ? -1 : 0}
            style={{ gridColumn: cell.column + 1, background: backgroundOf(cell, far, dark) }} />
        );
      })}
    </div>
  );
}

/** The tensors that changed; the files and parts where no tensor did. */
function summaryOf({ equal, counts }: Diff): string {
  if (equal) return "no changes";
  const [tensors, others] = [counts.filter(({ what }) => what === "tensor"), counts.filter(({ what }) => what !== "tensor")];
  return (tensors.length ? tensors : others).map(({ what, change, count }) => `${many(count, what)} ${change}`).join(", ");
}
