/** Drags by one finger or the mouse, and pinches by two, over a picture that can be moved and zoomed. */

import { useRef } from "preact/hooks";
import type { RefObject } from "preact";

export interface Point { x: number; y: number }

interface Picture {
  /** Move by so many pixels. */
  move: (dx: number, dy: number) => void;
  zoom: (factor: number, at: Point) => void;
  /** False where a drag does nothing. */
  moves?: () => boolean;
}

export interface Fingers {
  down: (event: PointerEvent) => void;
  /** True for a move of a finger that is down. */
  drag: (event: PointerEvent) => boolean;
  up: (event: PointerEvent) => void;
  /** True after a drag, until the next press. */
  dragged: { current: boolean };
}

/** Pixels that a press may stray and still be a click. */
const STRAY = 4;

export function useFingers(box: RefObject<HTMLElement>, { move, zoom, moves }: Picture): Fingers {
  const fingers = useRef(new Map<number, Point>());
  const dragged = useRef(false);
  const drag = (event: PointerEvent): boolean => {
    const before = fingers.current.get(event.pointerId);
    if (!before) return false;
    const now = within(box.current!, event);
    const other = [...fingers.current].find(([id]) => id !== event.pointerId)?.[1];
    if (other) zoom(apart(now, other) / Math.max(apart(before, other), 1), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    else {
      if (moves && !moves()) return true;
      if (!dragged.current && apart(before, now) < STRAY) return true;
      if (!dragged.current) box.current!.setPointerCapture(event.pointerId);
      move(now.x - before.x, now.y - before.y);
    }
    dragged.current = true;
    fingers.current.set(event.pointerId, now);
    return true;
  };
  const down = (event: PointerEvent) => {
    fingers.current.set(event.pointerId, within(box.current!, event));
    if (fingers.current.size === 1) dragged.current = false;
  };
  return { down, drag, up: (event) => { fingers.current.delete(event.pointerId); }, dragged };
}

/** Where an event is in a box. */
export const within = (box: HTMLElement, event: MouseEvent): Point => {
  const { left, top } = box.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
};

const apart = (one: Point, other: Point): number => Math.hypot(one.x - other.x, one.y - other.y);
