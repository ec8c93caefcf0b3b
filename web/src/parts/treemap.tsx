/** A treemap on a canvas: areas are bytes. The tree or table beside it says the same in words. */

import { hierarchy, treemap, treemapSquarify, type HierarchyRectangularNode } from "d3-hierarchy";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { hatch, useDark } from "../colours";
import { bytes, percent } from "../format";

export interface Cell {
  key: string; label: string; size: number;
  /** True for what a cell sums up and does not show. */
  rest?: boolean;
  deeper?: boolean;
  children?: Cell[];
}

type Box = HierarchyRectangularNode<Cell>;

interface Given {
  root: Cell; height: number; label: string; chosen: string | null;
  onHover: (key: string | null) => void;
  onChoose: (cell: Cell) => void;
}

export function Treemap({ root, height, label, chosen, onHover, onChoose }: Given) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  const [hovered, setHovered] = useState<{ box: Box; x: number; y: number } | null>(null);
  const boxes = useMemo(() => (width ? laidOut(root, width, height) : []), [root, width, height]);
  const dark = useDark();

  useEffect(() => {
    const holder = canvas.current?.parentElement;
    if (!holder) return;
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry?.contentRect.width ?? 0)));
    watch.observe(holder);
    return () => watch.disconnect();
  }, []);
  useEffect(() => {
    if (canvas.current && width) draw(canvas.current, boxes, { width, height, chosen: hovered?.box.data.key ?? chosen, dark });
  }, [boxes, chosen, hovered, width, height, dark]);

  const at = (event: MouseEvent): Box | null => {
    const { offsetX: x, offsetY: y } = event;
    for (let n = boxes.length - 1; n >= 0; n -= 1) {
      const box = boxes[n]!;
      if (x >= box.x0 && x < box.x1 && y >= box.y0 && y < box.y1) return box;
    }
    return null;
  };
  const move = (event: MouseEvent) => {
    const box = at(event);
    setHovered(box && { box, x: event.offsetX, y: event.offsetY });
    onHover(box?.data.key ?? null);
  };
  const leave = () => { setHovered(null); onHover(null); };

  return (
    <div class="treemap">
      <canvas
        ref={canvas} role="img" aria-label={label} onMouseMove={move} onMouseLeave={leave}
        onClick={(event) => { const box = at(event); if (box) onChoose(box.data); }}
      />
      {hovered && (
        <div class={hovered.x > width / 2 ? "tip left" : "tip"} ref={(tip) => { if (tip) place(tip, hovered, width); }}>
          <strong>{hovered.box.data.label}</strong>
          <span>
            {bytes(hovered.box.data.size)} · {percent(hovered.box.data.size / Math.max(root.size, 1))}
          </span>
        </div>
      )}
    </div>
  );
}

function place(tip: HTMLElement, { x, y }: { x: number; y: number }, width: number): void {
  tip.style.top = `${y + 14}px`;
  tip.style.left = x > width / 2 ? "auto" : `${x + 14}px`;
  tip.style.right = x > width / 2 ? `${width - x + 14}px` : "auto";
}

const HEAD = 18;

function laidOut(root: Cell, width: number, height: number): Box[] {
  // A part without parts is a single cell.
  const tree = hierarchy(root.children?.length ? root : { ...root, children: [{ ...root, deeper: false }] }, (cell) => cell.children).sum((cell) => (cell.children?.length ? 0 : cell.size));
  treemap<Cell>().tile(treemapSquarify.ratio(1.3)).size([width, height]).round(true)
    .paddingInner(1).paddingOuter((box) => (box.depth ? 2 : 0)).paddingTop((box) => (box.depth && box.height ? HEAD : 0))(tree);
  return (tree.descendants() as Box[]).filter((box) => box.depth && box.x1 > box.x0 && box.y1 > box.y0);
}

interface Look { width: number; height: number; chosen: string | null; dark: boolean }

/** Hues of the groups at the top, apart for eyes that see few colours; names and borders say the same. */
const HUES = [217, 28, 162, 268, 48, 338, 192, 95];

function draw(canvas: HTMLCanvasElement, boxes: readonly Box[], { width, height, chosen, dark }: Look): void {
  const ratio = devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d")!;
  const ink = dark ? "#eef2f8" : "#10203a";
  pen.scale(ratio, ratio);
  pen.textBaseline = "middle";
  const groups = new Map(branches(boxes).map((box, n) => [box, HUES[n % HUES.length]!]));
  for (const box of boxes) {
    const [w, h] = [box.x1 - box.x0, box.y1 - box.y0];
    pen.fillStyle = fill(box, hueOf(box, groups), dark);
    pen.fillRect(box.x0, box.y0, w, h);
    if (box.data.rest) hatch(pen, box, dark ? "hsl(220 9% 30%)" : "hsl(220 9% 80%)");
    if (w > 34 && h > 13) name(pen, box, ink);
  }
  const marked = boxes.find((box) => box.data.key === chosen);
  if (marked) {
    pen.lineWidth = 2;
    pen.strokeStyle = dark ? "#fff" : "#0b1b34";
    pen.strokeRect(marked.x0 + 1, marked.y0 + 1, marked.x1 - marked.x0 - 2, marked.y1 - marked.y0 - 2);
  }
}

function hueOf(box: Box, groups: Map<Box, number>): number | null {
  if (box.data.rest) return null;
  const group = (box.ancestors() as Box[]).find((each) => groups.has(each));
  return (group && groups.get(group)) ?? null;
}

/** The groups that get a colour each: the largest is opened until there are some. */
function branches(boxes: readonly Box[]): Box[] {
  let found = boxes.filter((box) => box.depth === 1);
  while (found.length < HUES.length) {
    const largest = found.filter((box) => box.children).sort((a, b) => (b.value ?? 0) - (a.value ?? 0))[0];
    if (!largest) break;
    found = found.flatMap((box) => (box === largest ? largest.children! : [box]));
  }
  return found;
}

function fill(box: Box, hue: number | null, dark: boolean): string {
  const depth = Math.min(box.depth - 1, 5);
  const light = dark ? 20 + depth * 4.5 : 90 - depth * 4.5;
  const grey = (dark ? 18 : 93) + (box.children ? 0 : dark ? 6 : -6);
  return hue === null ? `hsl(220 9% ${grey}%)` : `hsl(${hue} ${dark ? 42 : 68}% ${light}%)`;
}

function name(pen: CanvasRenderingContext2D, box: Box, ink: string): void {
  const [w, group] = [box.x1 - box.x0 - 8, box.height > 0];
  pen.font = `${group ? "600 " : ""}11px ui-sans-serif, system-ui, sans-serif`;
  pen.fillStyle = ink;
  const text = fitted(pen, box.data.label, w);
  if (text) pen.fillText(text, box.x0 + 5, box.y0 + 10);
  if (!group && box.y1 - box.y0 > 28) {
    pen.globalAlpha = 0.75;
    pen.fillText(fitted(pen, bytes(box.data.size), w), box.x0 + 5, box.y0 + 23);
    pen.globalAlpha = 1;
  }
}

/** As much of `text` as `width` has room for. */
function fitted(pen: CanvasRenderingContext2D, text: string, width: number): string {
  text = text.slice(0, 120);
  if (pen.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (pen.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? `${text.slice(0, low)}…` : "";
}
