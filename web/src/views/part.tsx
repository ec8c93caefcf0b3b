/** A changed part of a message as text: before and after, side by side, within the message that holds it. */

import { view, type Diff, type Difference, type Store } from "../api";
import { bytes } from "../format";
import { Drawer } from "../focus";
import { Await, useJson, useLoaded } from "../loading";
import { SideBySide } from "../parts/side-by-side";
import { above } from "../parts/tree";
import { readable, type Text } from "../texts";

/** Bytes of text of a side; a part that is larger is shown from its beginning. */
const MOST = 1 << 16;

interface Side { store: string; path: string | null }

export function Part({ diff, row, onClose }: { diff: Diff; row: Difference; onClose: () => void }) {
  const store = useJson<Store>(view(diff.after, []));
  const whole = row.change === "reordered" || row.path.includes(":");
  return (
    <Drawer label="Part" kind="drawer part" onClose={onClose}>
      <h2 dir="auto"><code>{row.path || "(the root)"}</code></h2>
      <p class="soft">{[row.change, row.detail, sizesOf(row)].filter(Boolean).join(" · ")}</p>
      {store.value && !whole && <Texts diff={diff} row={row} file={fileOf(store.value, row.path)} />}
    </Drawer>
  );
}

const sizesOf = ({ before, after }: Difference): string =>
  [before, after].map((size) => (size === null ? "nothing" : bytes(size))).join(" before, ") + " after";

/** The file of a record, which a store of one stream need not be asked for. */
const fileOf = ({ root, files }: Store, path: string): string | null =>
  (root === null && path.startsWith("records[") ? files[0]?.path ?? null : null);

function Texts({ diff, row, file }: { diff: Diff; row: Difference; file: string | null }) {
  const sides: Side[] = [{ store: diff.before, path: row.before === null ? null : row.was }, { store: diff.after, path: row.after === null ? null : row.address }];
  const found = useLoaded(JSON.stringify(sides), (signal) => textsOf(sides, file, signal));
  return (
    <Await of={found}>
      {([before, after]) => (
        <>
          <SideBySide before={before!.text.trimEnd()} after={after!.text.trimEnd()} />
          {before!.whole && after!.whole ? null : <p class="soft">Only the first {bytes(MOST)} of each side are shown.</p>}
        </>
      )}
    </Await>
  );
}

/** Both texts: of the messages that hold the part, or of the part alone where those are long. */
async function textsOf(sides: readonly Side[], file: string | null, signal: AbortSignal): Promise<Text[]> {
  const read = (pick: (path: string) => string) => Promise.all(sides.map(({ store, path }) =>
    (path === null ? { text: "", whole: true } : readable(view(store, ["merge"], { path: pick(path), file, omit_larger_than: "1KiB" }), view(store, ["merge"], { path: pick(path), file }), "text/plain", MOST, signal))));
  const frames = sides.map(({ path }) => path && frameOf(path));
  if (frames.every(Boolean)) {
    const found = await read((path) => frameOf(path)!);
    // A frame without its fields above 1 KiB may show no difference.
    if (found.every(({ whole }) => whole) && found[0]!.text !== found[1]!.text) return found;
  }
  return read((path) => path);
}

/** The message that holds a field; null where that is the whole, or an element is told of. */
function frameOf(path: string): string | null {
  return above(path).filter((each) => path[each.length] === ".").at(-1) ?? null;
}
