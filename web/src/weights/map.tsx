/** The weight map: tiles with names, over a picture of what is below them; zoomed by wheel, pinch, click and keys. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { hatch, useDark } from "../colours";
import { bytes, count, many } from "../format";
import { useFingers, within } from "../parts/fingers";
import type { Painter } from "./colours";
import { NAMED, roomForName, type Layout, type Look, type Tile } from "./layout";
import type { WeightNode } from "./nodes";

/** Of the picture's size on each side: what is drawn beyond it, so that it can be moved at once. */
const MARGIN = 0.2;
const TEXTURE = 3;

const START: Look = { x: 0, y: 0, k: 1 };

interface Given {
  layout: Layout;
  painter: Painter;
  /** Changes when nodes have been loaded or colours are known. */
  version: number;
  chosen: string | null;
  label: string;
  onAt: (tile: Tile) => void;
  onOpen: (node: WeightNode) => void;
  onUp: () => void;
  /** Called with what is visible once the view is at rest: groups that have room to be opened, and single tensors. */
  onSight: (groups: WeightNode[], tensors: WeightNode[]) => void;
  tip: (node: WeightNode) => ComponentChildren;
  /** True for a tensor whose file is missing. */
  missing: (node: WeightNode) => boolean;
}

export function WeightMap({ layout, painter, version, chosen, label, onAt, onOpen, onUp, onSight, tip, missing }: Given) {
  const box = useRef<HTMLDivElement>(null);
  const layer = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const live = useRef<Look>(START);
  const [look, setLook] = useState<Look>(live.current);
  const [focus, setFocus] = useState("");
  const [hovered, setHovered] = useState<{ tile: Tile; x: number; y: number } | null>(null);
  const dark = useDark();
  const { tiles, open } = useMemo(() => layout.shown(look, look.k > 1 ? MARGIN : 0), [layout, look, version]);
  const leaves = useMemo(() => tiles.filter((tile) => !open.has(tile)), [tiles, open]);
  const textures = useMemo(() => texturesOf(layout, leaves, look.k), [layout, leaves, look, version]);
  const current = tiles.some((tile) => tile.key === focus) ? focus : leaves[0]?.key;

  const settle = () => {
    setLook(live.current);
    onAt(layout.at(live.current));
  };
  const timer = useRef(0);
  const moved = (next: Look) => {
    live.current = layout.kept(next);
    const { x, y, k } = live.current;
    const scale = k / look.k;
    if (layer.current) layer.current.style.transform = `translate(${(look.x - x) * k}px, ${(look.y - y) * k}px) scale(${scale})`;
    clearTimeout(timer.current);
  };
  const turn = (next: Look) => {
    moved(next);
    timer.current = setTimeout(settle, 120);
  };
  const zoom = (factor: number, at: { x: number; y: number }) => {
    const { x, y, k } = live.current;
    const next = Math.min(Math.max(k * factor, 1), 1e9);
    turn({ k: next, x: x + at.x / k - at.x / next, y: y + at.y / k - at.y / next });
  };
  const flight = useRef(0);
  const fly = (to: Look, then: () => void = settle) => {
    cancelAnimationFrame(flight.current);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) { live.current = to; return then(); }
    const [from, begin] = [live.current, performance.now()];
    const step = (now: number) => {
      const share = Math.min((now - begin) / 260, 1);
      const eased = 1 - (1 - share) ** 3;
      // Along the scale's logarithm, so that it grows evenly, about the fixed point.
      const k = from.k * (to.k / from.k) ** eased;
      const part = to.k === from.k ? eased : (1 / from.k - 1 / k) / (1 / from.k - 1 / to.k);
      moved({ k, x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part });
      if (share < 1) flight.current = requestAnimationFrame(step);
      else { live.current = to; then(); }
    };
    flight.current = requestAnimationFrame(step);
  };
  // Another root: from the place that the old one has in it, or that it has in the old one.
  const shownRoot = useRef(layout);
  useLayoutEffect(() => {
    const [before, after] = [shownRoot.current, layout];
    shownRoot.current = layout;
    cancelAnimationFrame(flight.current);
    const inside = after.find(before.root.node);
    live.current = inside && inside !== after.root ? after.fit(inside) : START;
    if (layer.current) layer.current.style.transform = "";
    setLook(live.current);
    if (live.current !== START) fly(START);
  }, [layout]);
  useLayoutEffect(() => { if (layer.current) layer.current.style.transform = ""; }, [look]);
  useLayoutEffect(() => {
    if (canvas.current) paint(canvas.current, textures, { layout, look, painter, missing, dark });
  }, [textures, painter, missing, dark]);
  useEffect(() => {
    const groups = leaves.filter((tile) => tile.node.children === null && tile.w * look.k > 2 * NAMED.w && tile.h * look.k > 4 * NAMED.h);
    const single = textures.filter((tile) => tile.node.tensors === 1).sort((a, b) => b.w * b.h - a.w * a.h);
    onSight(groups.map((tile) => tile.node), single.map((tile) => tile.node));
  }, [leaves, textures]);

  const tileAt = (event: Event): Tile | null => {
    const key = (event.target as Element | null)?.closest<HTMLElement>("[data-tile]")?.dataset.tile;
    return tiles.find((tile) => tile.key === key) ?? null;
  };
  const choose = (tile: Tile) => {
    setFocus(tile.key);
    setHovered(null);
    if (tile.node.tensors > 1) fly(layout.fit(tile), () => onOpen(tile.node));
    else onOpen(tile.node);
  };
  const turned = useRef(0);
  const wheel = useRef((_: WheelEvent) => undefined as void);
  wheel.current = (event) => {
    if (live.current.k <= 1 && event.deltaY > 0) {
      if (!layout.root.node.parent) return; // the page's own scrolling
      event.preventDefault();
      turned.current += event.deltaY;
      if (turned.current > 80) { turned.current = 0; onUp(); }
      return;
    }
    event.preventDefault();
    turned.current = 0;
    cancelAnimationFrame(flight.current);
    const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002)), within(box.current!, event));
  };
  useEffect(() => {
    const roll = (event: WheelEvent) => wheel.current(event);
    // Listened to here, as Preact's listeners could not keep the page from scrolling.
    box.current!.addEventListener("wheel", roll, { passive: false });
    return () => { clearTimeout(timer.current); cancelAnimationFrame(flight.current); box.current?.removeEventListener("wheel", roll); };
  }, []);
  const { down, drag, up, dragged } = useFingers(box, {
    zoom, moves: () => live.current.k > 1,
    move: (dx, dy) => { const { x, y, k } = live.current; turn({ k, x: x - dx / k, y: y - dy / k }); },
  });
  const point = (event: PointerEvent) => {
    if (drag(event)) {
      if (dragged.current) setHovered(null);
      return;
    }
    const tile = tileAt(event);
    setHovered(tile && event.pointerType === "mouse" ? { tile, ...within(box.current!, event) } : null);
  };
  const arrive = (event: FocusEvent) => {
    const tile = tileAt(event);
    if (!tile) return;
    setFocus(tile.key);
    // A press shows the tip where it is.
    if ((event.target as Element).matches(":focus-visible")) setHovered({ tile, x: (tile.x + tile.w / 2 - look.x) * look.k, y: (tile.y + tile.h / 2 - look.y) * look.k });
  };
  const key = (event: KeyboardEvent) => {
    const tile = tileAt(event) ?? undefined;
    const next = tile && neighbour(tiles, open, tile, event.key);
    if (next) {
      setFocus(next.key);
      box.current?.querySelector<HTMLElement>(`[data-tile="${next.key}"]`)?.focus({ preventScroll: true });
    } else if (event.key === "Enter" || event.key === " ") tile && choose(tile);
    else if (event.key === "+" || event.key === "=") zoom(1.5, { x: layout.width / 2, y: layout.height / 2 });
    else if (event.key === "-") zoom(1 / 1.5, { x: layout.width / 2, y: layout.height / 2 });
    else if (event.key === "Escape" || event.key === "Backspace") onUp();
    else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  };
  return (
    <div class={look.k > 1 ? "map zoomed" : "map"} ref={box} style={{ height: layout.height }} onPointerDown={down} onPointerMove={point} onPointerUp={up} onPointerCancel={up}
      onPointerLeave={(event) => { up(event); setHovered(null); }} onClick={(event) => { const tile = tileAt(event); if (tile && !dragged.current) choose(tile); }} onKeyDown={key} onFocusIn={arrive} onFocusOut={() => setHovered(null)}>
      <div class="layer" ref={layer}>
        <canvas ref={canvas} aria-hidden="true" />
        <div role="tree" aria-label={label}>
          {tiles.map((tile) => <Shown key={tile.key} tile={tile} look={look} open={open.has(tile)} chosen={tile.node.address !== null && tile.node.address === chosen}
            focused={tile.key === current} missing={missing(tile.node)} colour={painter.says(tile.node)} />)}
        </div>
      </div>
      {hovered && (
        <div class="tip" ref={(element) => { if (element) placeTip(element, hovered, layout); }}>{tip(hovered.tile.node)}</div>
      )}
    </div>
  );
}

interface ShownTile { tile: Tile; look: Look; open: boolean; chosen: boolean; focused: boolean; missing: boolean; colour: string }

function Shown({ tile, look, open, chosen, focused, missing, colour }: ShownTile) {
  const { node, key } = tile;
  const k = look.k;
  const head = tile.head * k;
  const font = open ? Math.min(Math.max(head * 0.55, 10.5), 17) : 12;
  const named = open ? tile.w * k >= NAMED.w : roomForName(tile, k);
  // The name stays in sight of a group that begins beyond the left border.
  const inset = Math.max(0, Math.min((look.x - tile.x) * k, tile.w * k - 160));
  const kind = `tile${open ? " open" : node.tensors > 1 ? " closed" : ""}${chosen ? " chosen" : ""}`;
  return (
    <div role="treeitem" class={kind} data-tile={key} aria-level={tile.depth || 1} aria-expanded={node.tensors > 1 ? open : undefined} aria-selected={chosen}
      tabIndex={focused ? 0 : -1}
      style={{ left: (tile.x - look.x) * k, top: (tile.y - look.y) * k, width: tile.w * k, height: tile.h * k }}>
      <span class="unseen">{`${node.prefix || "all tensors"}${node.range ? ` ${node.label}` : ""}, ${node.tensors > 1 ? `${many(node.tensors, "tensor")}, ` : ""}${bytes(node.size)}${colour && `, ${colour}`}${missing ? ", file missing" : ""}`}</span>
      {named && (
        <span class="label" aria-hidden="true" style={open ? { fontSize: font, lineHeight: `${head}px`, paddingLeft: 5 + inset } : {}}>
          <b dir="auto">{cut(node.label, tile.w * k - 11, `bold ${font}px`)}</b>
          {(open ? tile.w * k > 260 && head > 18 : tile.h * k > 36 && tile.w * k > 11 + widthOf(caption(node), "11px")) && <span>{caption(node)}</span>}
        </span>
      )}
    </div>
  );
}

const PEN = document.createElement("canvas").getContext("2d")!;
let family = "";

/** Pixels that a text takes. */
function widthOf(text: string, font: string): number {
  PEN.font = `${font} ${(family ||= getComputedStyle(document.body).fontFamily)}`;
  return PEN.measureText(text).width;
}

/** A name that takes at most `width` pixels: without its middle, as names begin alike, or its end where there is room for little. */
function cut(name: string, width: number, font: string): string {
  if (widthOf(name, font) <= width) return name;
  const letters = [...name];
  for (let kept = Math.min(letters.length - 1, Math.ceil(width / 3)); kept > 1; kept -= 1) {
    const end = kept < 7 ? 0 : kept >> 1;
    const shown = `${letters.slice(0, kept - end).join("")}…${letters.slice(letters.length - end).join("")}`;
    if (widthOf(shown, font) <= width) return shown;
  }
  return "…";
}

const caption = (node: WeightNode): string => (node.tensors > 1 ? `${bytes(node.size)} · ${many(node.tensors, "tensor")}` : `${node.shape?.join(" × ") ?? ""} ${node.dtype ?? ""}`);

export const totalsOf = (node: WeightNode): string => `${bytes(node.size)} · ${node.parameters || !node.elements ? `${count(node.parameters)} parameters` : `${count(node.elements)} elements`}`;

/** The tiles that the picture below the names shows: as deep as they are loaded, and larger than a few pixels; groups below their members. */
function texturesOf(layout: Layout, leaves: readonly Tile[], k: number): Tile[] {
  const found: Tile[] = [];
  const walk = (tile: Tile) => {
    const children = tile.w * k > 4 * TEXTURE && tile.h * k > 4 * TEXTURE ? layout.below(tile) : null;
    found.push(tile);
    for (const child of children ?? []) if (child.w * k >= TEXTURE / 2 && child.h * k >= TEXTURE / 2) walk(child);
  };
  leaves.forEach(walk);
  return found;
}

interface Scene { layout: Layout; look: Look; painter: Painter; missing: (node: WeightNode) => boolean; dark: boolean }

function paint(canvas: HTMLCanvasElement, textures: readonly Tile[], { layout, look, painter, missing, dark }: Scene): void {
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const margin = look.k > 1 ? MARGIN : 0;
  const [left, top] = [margin * layout.width, margin * layout.height];
  const [width, height] = [layout.width + 2 * left, layout.height + 2 * top];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  Object.assign(canvas.style, { left: `${-left}px`, top: `${-top}px`, width: `${width}px`, height: `${height}px` });
  const pen = canvas.getContext("2d")!;
  pen.scale(ratio, ratio);
  pen.translate(left, top);
  pen.strokeStyle = dark ? "#161d29" : "#fff";
  pen.lineWidth = 0.5;
  for (const tile of textures) {
    const [x, y, w, h] = [(tile.x - look.x) * look.k, (tile.y - look.y) * look.k, tile.w * look.k, tile.h * look.k];
    pen.fillStyle = painter.of(tile.node);
    pen.fillRect(x, y, w, h);
    if (missing(tile.node)) hatch(pen, { x0: x, y0: y, x1: x + w, y1: y + h }, dark ? "#fff8" : "#0008");
    if (!tile.children && w > 5 && h > 5) pen.strokeRect(x, y, w, h);
  }
}

/** The tile that an arrow key leads to: the nearest in its direction, among those that are not open. */
function neighbour(tiles: readonly Tile[], open: ReadonlySet<Tile>, from: Tile, key: string): Tile | null {
  const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[key] ?? [0, 0];
  const centre = (tile: Tile) => ({ x: tile.x + tile.w / 2, y: tile.y + (open.has(tile) ? tile.head : tile.h) / 2 });
  const here = centre(from);
  let [best, least]: [Tile | null, number] = [null, Infinity];
  for (const tile of tiles) {
    const { x, y } = centre(tile);
    const along = (x - here.x) * dx + (y - here.y) * dy;
    if (tile === from || open.has(tile) || along <= 0) continue;
    const far = along + 3 * Math.abs((x - here.x) * dy + (y - here.y) * dx);
    if (far < least) [best, least] = [tile, far];
  }
  return best;
}

function placeTip(tip: HTMLElement, { x, y }: { x: number; y: number }, { width, height }: Layout): void {
  tip.style.left = x > width / 2 ? "auto" : `${x + 14}px`;
  tip.style.right = x > width / 2 ? `${width - x + 14}px` : "auto";
  tip.style.top = `${Math.max(0, Math.min(y + 14, height - tip.offsetHeight))}px`;
}
