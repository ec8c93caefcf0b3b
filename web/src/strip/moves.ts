/** Moves of a picture below a window: by wheel, drag and pinch, within its borders. */

import { useEffect, useRef } from "preact/hooks";
import type { RefObject } from "preact";
import { useFingers, within, type Point } from "../parts/fingers";

/** The place of the window's corner in the picture, and the scale. */
export interface Look { x: number; y: number; k: number }
export interface Size { width: number; height: number }
/** A picture, and the pixels of the window that may stay empty below it. */
export interface Picture extends Size { spare: number }

const LEAST = 0.05;
const MOST = 4;
const REST = 140;

export interface Moves {
  live: { current: Look };
  turn: (next: Look) => void;
  zoom: (factor: number, at?: Point) => void;
  /** True after a drag, until the next press. */
  dragged: { current: boolean };
  handlers: Record<"onPointerDown" | "onPointerMove" | "onPointerUp" | "onPointerCancel", (event: PointerEvent) => void>;
}

/** `onMove` is called at once, `onRest` when nothing has moved for a moment. */
export function useMoves(box: RefObject<HTMLElement>, window: Size, picture: Picture, onMove: (look: Look) => void, onRest: (look: Look) => void): Moves {
  const live = useRef<Look>({ x: 0, y: 0, k: 1 });
  const timer = useRef(0);
  const turn = (next: Look) => {
    live.current = kept(next, window, picture);
    onMove(live.current);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onRest(live.current), REST);
  };
  const zoom = (factor: number, at: Point = { x: window.width / 2, y: window.height / 2 }) => {
    const { x, y, k } = live.current;
    const next = Math.min(Math.max(k * factor, LEAST), MOST);
    turn({ k: next, x: x + at.x / k - at.x / next, y: y + at.y / k - at.y / next });
  };
  const wheel = useRef((_: WheelEvent) => undefined as void);
  wheel.current = (event) => {
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      return zoom(Math.exp(-event.deltaY * unit * 0.006), within(box.current!, event));
    }
    const { x, y, k } = live.current;
    const [dx, dy] = event.shiftKey && !event.deltaX ? [event.deltaY, 0] : [event.deltaX, event.deltaY];
    const next = kept({ k, x: x + (dx * unit) / k, y: y + (dy * unit) / k }, window, picture);
    if (next.x === x && next.y === y) return; // the page's own scrolling
    event.preventDefault();
    turn(next);
  };
  useEffect(() => {
    const roll = (event: WheelEvent) => wheel.current(event);
    box.current?.addEventListener("wheel", roll, { passive: false });
    return () => { clearTimeout(timer.current); box.current?.removeEventListener("wheel", roll); };
  }, []);
  const { down, drag, up, dragged } = useFingers(box, {
    zoom, move: (dx, dy) => { const { x, y, k } = live.current; turn({ k, x: x - dx / k, y: y - dy / k }); },
  });
  const handlers = { onPointerDown: down, onPointerMove: (event: PointerEvent) => void drag(event), onPointerUp: up, onPointerCancel: up };
  return { live, turn, zoom, dragged, handlers };
}

/** A look that shows something of the picture: what is smaller than the window stays whole, and in the middle. */
export function kept({ x, y, k }: Look, window: Size, picture: Picture): Look {
  const along = (at: number, size: number, room: number, middle: boolean, spare: number) => {
    const rest = size - room / k;
    return rest <= 0 ? (middle ? rest / 2 : 0) : Math.min(Math.max(at, 0), rest + spare / k);
  };
  return { x: along(x, picture.width, window.width, true, 0), y: along(y, picture.height, window.height, false, picture.spare), k };
}
