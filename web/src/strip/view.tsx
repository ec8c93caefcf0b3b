/** A graph as a strip of blocks, in a window that is moved and zoomed; blocks open in their place. */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import { getJson, view, type Statistics } from "../api";
import { many, whole } from "../format";
import { kindOf, shapeOf, typeOf, type Shelf, type Shown } from "./levels";
import { BLOCK, GAP, type Box, type Plan, type Wire } from "./layout";
import { useMoves, type Look, type Size } from "./moves";

/** Of the window on each side: what is drawn beyond it, so that it can be moved at once. */
const MARGIN = 0.35;
/** Smaller blocks are not shown, and with words only larger ones. */
const SMALLEST = 5;
export const PAD = 20;
/** Most pixels of the small map, with what lies around it. */
const MAP = { width: 170, height: 130, around: 22 };
/** Pixels between a block and the border of the page's window, at least. */
const CLEAR = 12;
const SAMPLE = 1 << 14;
const AT_ONCE = 3;
/** Below this scale lines have no words and weights no curve. */
const NEAR = 0.55;

export type Mark = "start" | "end";
interface Given {
  store: string;
  plan: Plan;
  shelves: ReadonlyMap<number, Shelf>;
  window: Size;
  /** The scale at which all is legible. */
  scale: number;
  chosen: string;
  /** Places of nodes in the section that is shown. */
  spans: readonly (readonly [first: number, count: number])[];
  marks: Readonly<Record<Mark, string>>;
  /** A part to bring into the window. */
  sought: string;
  onOpen: (shown: Shown) => void;
  onChoose: (shown: Shown) => void;
  onMark: (mark: Mark, shown: Shown) => void;
  onEscape: (level: number) => void;
  /** What stands below, next to the buttons. */
  children: ComponentChildren;
}

export function StripView({ store, plan, shelves, window, scale, chosen, spans, marks, sought, onOpen, onChoose, onMark, onEscape, children }: Given) {
  const frame = useRef<HTMLDivElement>(null);
  const layer = useRef<HTMLDivElement>(null);
  const map = useRef<HTMLCanvasElement>(null);
  const [look, setLook] = useState<Look>({ x: -PAD, y: -PAD, k: 1 });
  const [focus, setFocus] = useState("");
  const wantsFocus = useRef("");
  const picture = { width: plan.width + 2 * PAD, height: plan.height + 2 * PAD, spare: 0 };
  // The last blocks can be moved out from below the small map.
  picture.spare = mapScale(picture) * picture.height + MAP.around;
  const moving = useRef(0);
  const apply = (next: Look) => {
    if (layer.current) layer.current.style.transform = `scale(${next.k}) translate(${-next.x}px, ${-next.y}px)`;
    if (map.current) drawMap(map.current, plan, picture, window, next);
  };
  const moves = useMoves(frame, window, picture, (next) => {
    layer.current?.classList.add("moving");
    // As soon as the picture's rim comes into the window, more of it is drawn.
    const [across, down] = [(MARGIN * window.width) / next.k, (MARGIN * window.height) / next.k];
    if (Math.abs(next.x - look.x) > across * 0.8 || Math.abs(next.y - look.y) > down * 0.8 || next.k < look.k * 0.7) setLook(next);
    cancelAnimationFrame(moving.current);
    moving.current = requestAnimationFrame(() => apply(next));
  }, (next) => { layer.current?.classList.remove("moving"); setLook(next); });
  const shownOf = (box: Box): Shown => shelves.get(box.level)!.parts[box.part]!;
  const keyOf = (box: Box): string => shownOf(box).key;
  const boxes = useMemo(() => new Map(plan.boxes.filter((box) => shelves.get(box.level)?.parts[box.part]).map((box) => [keyOf(box), box])), [plan, shelves]);

  // What was opened or closed stays where it is, else what is chosen; at first, the begin of the strip is shown.
  const opening = useRef("");
  const anchor = useRef<{ key: string; x: number; y: number } | null>(null);
  const last = useRef<ReadonlyMap<string, Box> | null>(null);
  useLayoutEffect(() => {
    const { x, y, k } = moves.live.current;
    const before = anchor.current ?? (last.current?.get(chosen) && { key: chosen, ...last.current.get(chosen)! });
    const after = before && boxes.get(before.key);
    if (before && after) moves.turn({ k, x: x + after.x - before.x, y: y + after.y - before.y });
    else if (!last.current) moves.turn({ x: 0, y: 0, k: picture.height * 0.75 < window.height ? Math.min(scale, window.height / picture.height) : scale });
    else moves.turn(moves.live.current);
    // What is being opened waits for its parts.
    const waits = anchor.current && anchor.current.key === opening.current && after && !after.open;
    anchor.current = waits ? { key: opening.current, x: after.x, y: after.y } : null;
    last.current = boxes;
    setLook(moves.live.current);
    apply(moves.live.current);
  }, [boxes, window.width, window.height]);
  useLayoutEffect(() => apply(moves.live.current), [look]);

  /** Scrolls the page so that a block, as far as it is in the picture's window, is in that of the page. */
  const reveal = (box: Box) => {
    const { y, k } = moves.live.current;
    const about = frame.current!.getBoundingClientRect();
    const at = (inner: number) => about.top + Math.min(Math.max((inner - y) * k, 0), window.height);
    const [top, bottom] = [at(box.y + PAD) - CLEAR, at(box.y + PAD + box.h) + CLEAR];
    if (top < 0) scrollBy(0, top);
    else if (bottom > innerHeight) scrollBy(0, Math.min(bottom - innerHeight, top));
  };
  useEffect(() => {
    const box = boxes.get(opening.current);
    if (!box?.open) return;
    opening.current = "";
    reveal(box);
  }, [boxes]);
  const show = (box: Box, always = false) => {
    const { x, y, k } = moves.live.current;
    const [left, top, w, h] = [box.x + PAD, box.y + PAD, window.width / k, window.height / k];
    const inside = left >= x && top >= y && left + Math.min(box.w, w) <= x + w && top + Math.min(box.h, h) <= y + h;
    if (inside && !always) return;
    moves.turn({ k, x: left + Math.min(box.w, w) / 2 - w / 2, y: top + Math.min(box.h, h) / 2 - h / 2 });
    setLook(moves.live.current);
  };
  const found = useRef("");
  useEffect(() => {
    const box = sought && found.current !== sought ? boxes.get(sought) : undefined;
    if (box) { found.current = sought; show(box, true); reveal(box); setFocus(sought); }
    if (!sought) found.current = "";
  }, [sought, boxes]);

  const [visible, wires] = useMemo(() => seen(plan, look, window), [plan, look, window.width, window.height]);
  const current = boxes.has(focus) ? focus : boxes.has(chosen) ? chosen : plan.boxes[0] && keyOf(plan.boxes[0]);
  const drawn = useMemo(() => (current && !visible.some((box) => keyOf(box) === current) && boxes.get(current) ? [...visible, boxes.get(current)!] : visible), [visible, current, boxes]);
  useEffect(() => {
    if (!focus || wantsFocus.current !== focus) return;
    wantsFocus.current = "";
    frame.current?.querySelector<HTMLElement>(`[data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  });
  const curves = useCurves(store, look.k >= NEAR ? drawn.map(shownOf) : []);

  const open = (box: Box) => {
    opening.current = box.open ? "" : keyOf(box);
    anchor.current = { key: keyOf(box), x: box.x, y: box.y };
    onOpen(shownOf(box));
  };
  const choose = (box: Box) => {
    anchor.current = { key: keyOf(box), x: box.x, y: box.y };
    onChoose(shownOf(box));
  };
  const act = (box: Box) => (opens(shownOf(box)) ? open(box) : choose(box));
  const boxAt = (event: Event): Box | undefined => {
    const key = (event.target as Element | null)?.closest<HTMLElement>("[data-key]")?.dataset.key;
    return key === undefined ? undefined : boxes.get(key);
  };
  const click = (event: MouseEvent) => {
    const box = boxAt(event);
    if (!box || moves.dragged.current) return;
    setFocus(keyOf(box));
    const twist = (event.target as Element).closest(".twist");
    if (event.shiftKey) onMark(marks.start ? "end" : "start", shownOf(box));
    else if (twist || (box.open && !(event.target as Element).closest(".title"))) open(box);
    else choose(box);
  };
  const key = (event: KeyboardEvent) => {
    const box = current === undefined ? undefined : boxes.get(current);
    const next = box && stepFrom(plan.boxes, box, event.key);
    if (next) {
      setFocus((wantsFocus.current = keyOf(next)));
      show(next);
      reveal(next);
    } else if (event.key === "Enter" && box) event.shiftKey ? choose(box) : act(box);
    else if (event.key === " " && box) choose(box);
    else if (event.key === "s" && box) onMark("start", shownOf(box));
    else if (event.key === "e" && box) onMark("end", shownOf(box));
    else if (event.key === "+" || event.key === "=") moves.zoom(1.4);
    else if (event.key === "-") moves.zoom(1 / 1.4);
    else if (event.key === "0") fit();
    else if (event.key === "Escape" && box) {
      const level = box.open ? shownOf(box).block!.id! : box.level;
      const around = plan.boxes.find((each) => shownOf(each).block?.id === level);
      if (around) { anchor.current = { key: keyOf(around), x: around.x, y: around.y }; setFocus((wantsFocus.current = keyOf(around))); }
      onEscape(level);
    } else if (!event.key.startsWith("Arrow")) return;
    event.preventDefault();
  };
  const fit = () => {
    moves.turn({ x: 0, y: 0, k: Math.min(1, window.width / picture.width, window.height / picture.height) });
    setLook(moves.live.current);
  };
  const steer = (event: PointerEvent) => {
    if (!(event.buttons & 1)) return;
    const { left, top, width, height } = map.current!.getBoundingClientRect();
    const { k } = moves.live.current;
    moves.turn({ k, x: ((event.clientX - left) / width) * picture.width - window.width / k / 2, y: ((event.clientY - top) / height) * picture.height - window.height / k / 2 });
    event.stopPropagation();
  };
  const larger = picture.width * look.k > window.width + 1 || picture.height * look.k > window.height + 1;
  return (
    <>
    <div class={`strip-view${look.k < NEAR ? " far" : ""}`} ref={frame} style={{ height: window.height }} {...moves.handlers} onClick={click} onDblClick={(event) => { const box = boxAt(event); if (box && !box.open) act(box); }} onKeyDown={key}>
      <div class="layer" ref={layer}>
        <svg class="wires" aria-hidden="true" width={picture.width} height={picture.height} viewBox={`${-PAD} ${-PAD} ${picture.width} ${picture.height}`}>
          {drawn.filter((box) => box.open).map((box) => <rect key={keyOf(box)} class={`frame depth-${box.depth % 2}`} x={box.x} y={box.y} width={box.w} height={box.h} rx={10} />)}
          {wires.map((wire) => <Line key={`${wire.level} ${wire.link}`} wire={wire} shelf={shelves.get(wire.level)} near={look.k >= NEAR} chosen={chosen} />)}
        </svg>
        <div role="tree" aria-label="Blocks of the graph. Keys: arrows to move, Enter to open, Space for details, S and E for start and end of a section">
          {drawn.map((box) => {
            const shown = shownOf(box);
            return <Block key={shown.key} box={box} shown={shown} chosen={shown.key === chosen} focused={shown.key === current} curve={shown.block?.weight ? curves.get(shown.block.weight) : undefined}
              within={shown.block !== null && spans.some(([first, count]) => first < shown.block!.first + shown.block!.nodes && shown.block!.first < first + count)}
              mark={shown.key === marks.start ? "start" : shown.key === marks.end ? "end" : null} />;
          })}
        </div>
      </div>
      {larger && <canvas class="minimap" ref={map} aria-hidden="true" onPointerDown={(event) => { event.stopPropagation(); map.current!.setPointerCapture(event.pointerId); steer(event); }} onPointerMove={steer} onClick={(event) => event.stopPropagation()} />}
    </div>
    <div class="strip-under">
      {children}
      <div class="zoom">
        <button type="button" aria-label="Zoom in" onClick={() => moves.zoom(1.4)}>+</button>
        <button type="button" aria-label="Zoom out" onClick={() => moves.zoom(1 / 1.4)}>−</button>
        <button type="button" aria-label="Show all" onClick={fit}>⤢</button>
      </div>
    </div>
    </>
  );
}

/** True for what opens in its place: a block, and a call of a function. */
const opens = ({ block, calls }: Shown): boolean => calls || (block !== null && block.id !== null);

interface ShownBlock { box: Box; shown: Shown; chosen: boolean; focused: boolean; within: boolean; mark: Mark | null; curve: readonly number[] | undefined }

function Block({ box, shown, chosen, focused, within, mark, curve }: ShownBlock) {
  const { block, title, facts, times, values } = shown;
  const isGroup = opens(shown);
  const bars = curve ?? (block && block.bars.length > 1 ? block.bars : null);
  const kind = block ? (isGroup ? "group" : `node-${kindOf(block.ops[0]?.op ?? "")}`) : "end";
  const words = block ? [title, times ? `× ${times}` : "", block.name && block.name !== title ? block.name : "", facts, mark ? `${mark} of the section` : ""].filter(Boolean).join(", ")
    : `${title}: ${values.map((value) => `${value.name} ${typeOf(value)}`).join(", ")}`;
  return (
    <div role="treeitem" data-key={shown.key} aria-level={box.depth + 1} aria-expanded={isGroup ? box.open : undefined} aria-selected={chosen} tabIndex={focused ? 0 : -1}
      class={`block ${kind}${box.open ? " open" : ""}${times && !box.open ? " times" : ""}${chosen ? " chosen" : ""}${within ? " within" : ""}`}
      style={{ left: box.x + PAD, top: box.y + PAD, width: box.w, height: box.open ? 26 : box.h }} title={block?.name || undefined}>
      <span class="unseen">{words}</span>
      <span class="title" aria-hidden="true">
        {isGroup && <i class="twist">{box.open ? "▾" : "▸"}</i>}
        <b dir="auto">{title}</b>
        {times > 0 && box.open && <em>× {whole(times)}</em>}
        {mark && <em class="mark">{mark === "start" ? "S" : "E"}</em>}
      </span>
      {!box.open && (values.length ? values.slice(0, values.length > 4 ? 3 : 4).map((value) => <span key={value.name} class="fact" aria-hidden="true"><span dir="auto">{value.name}</span> {typeOf(value)}</span>) : <span class="fact" aria-hidden="true">{times > 0 && <em>× {whole(times)} </em>}{facts}</span>)}
      {!box.open && values.length > 4 && <span class="fact" aria-hidden="true">{many(values.length - 3, "more value")}</span>}
      {!box.open && bars && <Spark counts={bars} />}
    </div>
  );
}

function Spark({ counts }: { counts: readonly number[] }) {
  const most = Math.max(...counts, 1);
  const d = counts.map((each, n) => (each ? `M${n} 10V${(9.2 - 9.2 * (each / most)).toFixed(1)}H${n + 0.8}V10Z` : "")).join("");
  return <svg class="spark" viewBox={`0 0 ${counts.length} 10`} preserveAspectRatio="none" aria-hidden="true"><path d={d} /></svg>;
}

function Line({ wire, shelf, near, chosen }: { wire: Wire; shelf: Shelf | undefined; near: boolean; chosen: string }) {
  const link = shelf?.links[wire.link];
  if (!link) return null;
  const bound = chosen !== "" && (shelf.parts[link.source]?.key === chosen || shelf.parts[link.target]?.key === chosen);
  const [shape, { dtype }] = [shapeOf(link.value), link.value];
  // Next to the sheets of a repeat.
  const shift = shelf.parts[link.source]?.times ? 7 : 0;
  return (
    <g class={bound ? "bound" : undefined}>
      <path d={wire.d}>{near && <title>{`${link.value.name} ${typeOf(link.value)}${link.count > 1 ? `, ${many(link.count - 1, "more value")}` : ""}`}</title>}</path>
      {near && wire.at && shape && <text x={wire.at[0] + shift} y={wire.at[1] - 4}>{fitting(shape, shift)}</text>}
      {near && wire.at && dtype && <text x={wire.at[0] + shift} y={wire.at[1] + 11}>{dtype}</text>}
    </g>
  );
}

/** As much of a shape as a gap has room for: its last lengths. */
const fitting = (shape: string, shift: number): string => {
  const most = Math.floor((GAP - 8 - shift) / 6);
  return shape.length <= most ? shape : `…${shape.slice(1 - most)}`;
};

/** Histograms of the weights of blocks that are shown, a few at a time. */
function useCurves(store: string, shown: readonly Shown[]): ReadonlyMap<string, readonly number[]> {
  const known = useRef(new Map<string, readonly number[]>());
  const asked = useRef(new Set<string>());
  const busy = useRef(0);
  const [, bump] = useState(0);
  const wanted = useRef<readonly Shown[]>([]);
  wanted.current = shown;
  const work = () => {
    for (const { block } of wanted.current) {
      if (busy.current >= AT_ONCE) return;
      if (!block?.weight || block.id !== null || !block.elements || asked.current.has(block.weight)) continue;
      const address = block.weight;
      asked.current.add(address);
      busy.current += 1;
      void getJson<Statistics>(view(store, ["tensors", address], { format: "stats", sample: SAMPLE })).then((found) => {
        const counts = found.histogram?.counts ?? [];
        if (counts.some(Boolean)) known.current.set(address, thinned(counts));
      }, () => undefined).finally(() => { busy.current -= 1; bump((n) => n + 1); });
    }
  };
  useEffect(work);
  return known.current;
}

/** At most 24 bars. */
function thinned(counts: readonly number[]): number[] {
  const step = Math.ceil(counts.length / 24);
  return Array.from({ length: Math.ceil(counts.length / step) }, (_, n) => counts.slice(n * step, (n + 1) * step).reduce((sum, each) => sum + each, 0));
}

/** Boxes and wires in the window and somewhat around it. */
function seen(plan: Plan, { x, y, k }: Look, window: Size): [Box[], Wire[]] {
  const [left, top] = [x - PAD - (MARGIN * window.width) / k, y - PAD - (MARGIN * window.height) / k];
  const [right, bottom] = [left + ((1 + 2 * MARGIN) * window.width) / k, top + ((1 + 2 * MARGIN) * window.height) / k];
  const within = (each: { x: number; y: number; w: number; h: number }) => each.x < right && each.x + each.w > left && each.y < bottom && each.y + each.h > top;
  return [plan.boxes.filter((box) => box.h * k >= SMALLEST && within(box)), k * BLOCK.h >= SMALLEST ? plan.wires.filter(within) : []];
}

const mapScale = (picture: Size): number => Math.min(MAP.width / picture.width, MAP.height / picture.height);

function drawMap(canvas: HTMLCanvasElement, plan: Plan, picture: Size, window: Size, { x, y, k }: Look): void {
  const scale = mapScale(picture);
  const ratio = Math.min(devicePixelRatio || 1, 2);
  const [width, height] = [Math.max(picture.width * scale, 24), Math.max(picture.height * scale, 24)];
  if (canvas.width !== Math.round(width * ratio)) {
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
  }
  const pen = canvas.getContext("2d")!;
  const style = getComputedStyle(canvas);
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  for (const box of plan.boxes) {
    pen.fillStyle = box.open ? style.borderColor : style.color;
    pen.globalAlpha = box.open ? 0.35 : 0.5;
    pen.fillRect((box.x + PAD) * scale, (box.y + PAD) * scale, Math.max(box.w * scale, 1), Math.max(box.h * scale, 1));
  }
  pen.globalAlpha = 1;
  pen.strokeStyle = style.outlineColor;
  pen.lineWidth = 1.5;
  pen.strokeRect(Math.max(x * scale, 1), Math.max(y * scale, 1), Math.min((window.width / k) * scale, width - 2), Math.min((window.height / k) * scale, height - 2));
}

/** The box that a key leads to: the nearest in an arrow's direction, into an open one first; or the first or the last. */
function stepFrom(boxes: readonly Box[], from: Box, key: string): Box | undefined {
  if (key === "Home") return boxes[0];
  if (key === "End") return boxes.at(-1);
  const [dx, dy] = ({ ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] } as Record<string, [number, number]>)[key] ?? [0, 0];
  if (!dx && !dy) return undefined;
  const centre = (box: Box) => ({ x: box.x + (box.open ? 40 : box.w / 2), y: box.y + (box.open ? 13 : box.h / 2) });
  const here = centre(from);
  let [best, least]: [Box | undefined, number] = [undefined, Infinity];
  for (const box of boxes) {
    const { x, y } = centre(box);
    const along = (x - here.x) * dx + (y - here.y) * dy;
    if (box === from || along <= 1) continue;
    const far = along + 3 * Math.abs((x - here.x) * dy + (y - here.y) * dx);
    if (far < least) [best, least] = [box, far];
  }
  if (best || !dx) return best;
  // From the end of a row to the begin of the next one, in the order of the strip.
  const level = boxes.filter((box) => box.level === from.level).sort((a, b) => a.part - b.part);
  return level[level.indexOf(from) + dx];
}
