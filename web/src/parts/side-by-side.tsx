/** Two texts side by side: changed lines bear a sign, changed words a line through or under them. */

import { Fragment } from "preact";
import { useMemo, useState } from "preact/hooks";
import { many } from "../format";
import { sideBySide, type Pair, type Piece } from "../texts";

/** Equal lines that are shown around a change. */
const AROUND = 3;
/** Lines that are shown: more would make the page slow. */
const MOST = 2000;

export function SideBySide({ before, after }: { before: string; after: string }) {
  const [unfolded, unfold] = useState(false);
  const pairs = useMemo(() => sideBySide(before, after), [before, after]);
  const near = useMemo(() => nearChanges(pairs), [pairs]);
  const shown = pairs.slice(0, MOST);
  return (
    <div class="beside" tabIndex={0} role="region" aria-label="The text before and after">
      <table>
        <thead><tr><th scope="col">Before</th><th scope="col">After</th></tr></thead>
        <tbody>
          {shown.map((pair, n) => (
            unfolded || near[n] ? <Line key={n} pair={pair} /> : (n === 0 || near[n - 1]) && (
              <tr key={n}><td colSpan={2}><button type="button" class="plain" onClick={() => unfold(true)}>{many(folded(near, n), "equal line")} …</button></td></tr>
            )
          ))}
          {pairs.length > MOST && <tr><td colSpan={2} class="soft">{many(pairs.length - MOST, "line")} more</td></tr>}
        </tbody>
      </table>
    </div>
  );
}

function nearChanges(pairs: readonly Pair[]): boolean[] {
  const near = pairs.map(() => false);
  pairs.forEach((pair, n) => { if (!pair.same) near.fill(true, Math.max(0, n - AROUND), n + AROUND + 1); });
  // A line says no less than the button that hides it.
  near.forEach((is, n) => { if (!is && near[n - 1] !== false && near[n + 1] !== false) near[n] = true; });
  return near;
}

/** The number of lines from `from` on that are not near a change. */
const folded = (near: readonly boolean[], from: number): number => {
  const next = near.indexOf(true, from);
  return (next < 0 ? near.length : next) - from;
};

function Line({ pair: { before, after, same } }: { pair: Pair }) {
  return (
    <tr>
      <td class={same ? "" : "gone"}>{!same && before && <b class="sign">−<span class="unseen">removed</span></b>}{before && <Pieces of={before} as="del" />}</td>
      <td class={same ? "" : "come"}>{!same && after && <b class="sign">+<span class="unseen">added</span></b>}{after && <Pieces of={after} as="ins" />}</td>
    </tr>
  );
}

function Pieces({ of, as: Mark }: { of: readonly Piece[]; as: "del" | "ins" }) {
  return <code dir="auto">{of.map(({ text, marked }, n) => <Fragment key={n}>{marked ? <Mark>{text}</Mark> : text}</Fragment>)}</code>;
}
