/** A small weight map, with the number of parameters: for a card of the library. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useDark } from "../colours";
import { count } from "../format";
import { useSeen } from "../loading";
import { painter } from "./colours";
import { Layout, type Tile } from "./layout";
import { loadRoot, type WeightNode } from "./nodes";

const SIZE = { width: 600, height: 88 };
const NODES = 200;
/** Pixels from which on a group is shown by its members. */
const LEAST = 6;
const AT_ONCE = 2;
const STATISTICS: ReadonlyMap<string, null> = new Map();

const known = new Map<string, Promise<WeightNode | null>>();
const waiting: (() => void)[] = [];
let busy = 0;

/** The tensors of a store, asked for once, a few stores at a time; null where there are none to show. */
function tensorsOf(store: string): Promise<WeightNode | null> {
  const load = async () => {
    if (busy >= AT_ONCE) await new Promise<void>((go) => waiting.push(go));
    busy += 1;
    try {
      const root = await loadRoot(store, new AbortController().signal, NODES);
      return root.tensors && root.size ? root : null;
    } catch {
      return null;
    } finally {
      busy -= 1;
      waiting.shift()?.();
    }
  };
  const found = known.get(store) ?? load();
  known.set(store, found);
  return found;
}

export function Thumbnail({ store }: { store: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [root, setRoot] = useState<WeightNode | null>(null);
  const dark = useDark();
  const seen = useSeen(canvas, "200px");
  useEffect(() => { if (seen) void tensorsOf(store).then(setRoot); }, [seen, store]);
  useEffect(() => { if (root) draw(canvas.current!, root, dark); }, [root, dark]);
  return (
    <span class="thumbnail">
      <canvas ref={canvas} {...SIZE} aria-hidden="true" />
      {root && <span class="soft">{count(root.parameters)} parameters{root.dtype && ` · ${root.dtype}`}</span>}
    </span>
  );
}

function draw(canvas: HTMLCanvasElement, root: WeightNode, dark: boolean): void {
  const pen = canvas.getContext("2d")!;
  const { of } = painter("kind", dark, STATISTICS);
  const layout = new Layout(root, SIZE.width, SIZE.height, "size", false);
  const show = (tile: Tile) => {
    const below = Math.min(tile.w, tile.h) > LEAST ? layout.below(tile) : null;
    if (below) return below.forEach(show);
    pen.fillStyle = of(tile.node);
    pen.fillRect(tile.x, tile.y, Math.max(tile.w - 1, 1), Math.max(tile.h - 1, 1));
  };
  pen.clearRect(0, 0, SIZE.width, SIZE.height);
  show(layout.root);
}
