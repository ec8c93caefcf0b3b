/** A 2-D slice of a tensor as a picture: every n-th element, fetched as such. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { get, view, type Tensor } from "../api";
import { axesOf, numbersIn, pictureOf } from "../elements";
import { figure } from "../format";
import { Await, useLoaded, type Loaded } from "../loading";

const MOST = 128;

interface Picture { values: Float64Array; rows: number; columns: number; least: number; most: number }

/** What a picture is made of. */
export type Pictured = Pick<Tensor, "address" | "dtype" | "shape">;

/** Every n-th element of a tensor's two longest dimensions, the others at `place`; nothing is fetched for null. */
function usePicture(store: string, tensor: Pictured | null, place: readonly number[], edge: number): Loaded<Picture> & { slice: string } {
  const { slice, rows, columns } = pictureOf(tensor?.shape ?? [], place, edge);
  const where = tensor && view(store, ["tensors", tensor.address], tensor.shape?.length ? { slice } : {});
  const found = useLoaded<Picture>(where, async (signal) => {
    const bytes = await (await get(where ?? "", signal, "*/*")).arrayBuffer();
    const values = numbersIn(bytes, tensor?.dtype ?? "") ?? new Float64Array();
    const finite = values.filter(Number.isFinite);
    return { values, rows, columns, least: finite.reduce((a, b) => Math.min(a, b), Infinity), most: finite.reduce((a, b) => Math.max(a, b), -Infinity) };
  });
  return { ...found, slice };
}

/** A small picture, a moment after it is asked for. */
export function Preview({ store, tensor }: { store: string; tensor: Pictured }) {
  const [wanted, want] = useState(false);
  useEffect(() => { const wait = setTimeout(() => want(true), 150); return () => clearTimeout(wait); }, []);
  const { value, slice } = usePicture(store, wanted ? tensor : null, [], 40);
  return <div class="preview">{value && <Painted picture={value} slice={slice} />}</div>;
}

export function Heatmap({ store, tensor }: { store: string; tensor: Tensor }) {
  const shape = tensor.shape ?? [];
  const [place, setPlace] = useState<number[]>([]);
  const { slice, ...picture } = usePicture(store, tensor, place, MOST);
  const step = (axis: number, value: number) => setPlace(shape.map((_, n) => (n === axis ? value : place[n] ?? 0)));
  return (
    <div class="heat">
      {shape.map((length, axis) => length > 1 && !axesOf(shape).includes(axis) && (
        <label key={axis} class="soft">
          dimension {axis}: {place[axis] ?? 0}
          <input type="range" min={0} max={length - 1} value={place[axis] ?? 0}
            onInput={(event) => step(axis, Number(event.currentTarget.value))} />
        </label>
      ))}
      <Await of={picture}>{(value) => <Painted picture={value} slice={slice} />}</Await>
    </div>
  );
}

interface Side { store: string; address: string }

/** A tensor before and after, and the difference of both, of the same elements. */
export function Pictures({ before, after, dtype, shape }: { before: Side; after: Side; dtype: string; shape: number[] }) {
  const one = usePicture(before.store, { address: before.address, dtype, shape }, [], EDGE);
  const other = usePicture(after.store, { address: after.address, dtype, shape }, [], EDGE);
  const difference = useMemo(() => one.value && other.value && minus(other.value, one.value), [one.value, other.value]);
  return (
    <div class="pictures">
      {([["Before", one.value], ["After", other.value], ["Difference", difference]] as const).map(([title, picture]) => (
        <div key={title}><h3>{title}</h3>{picture && <Painted picture={picture} slice={one.slice} />}</div>
      ))}
    </div>
  );
}

const EDGE = 64;

function minus(one: Picture, other: Picture): Picture {
  const values = one.values.map((value, n) => value - (other.values[n] ?? NaN));
  const most = values.reduce((found, value) => (Number.isFinite(value) ? Math.max(found, Math.abs(value)) : found), 0);
  return { ...one, values, least: -most, most };
}

function Painted({ picture, slice }: { picture: Picture; slice: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { values, rows, columns, least, most } = picture;
  useEffect(() => {
    const surface = canvas.current!;
    [surface.width, surface.height] = [columns, rows];
    const pen = surface.getContext("2d")!;
    const image = pen.createImageData(columns, rows);
    const far = Math.max(Math.abs(least), Math.abs(most)) || 1;
    values.forEach((value, n) => image.data.set(colour(value, least < 0 ? far : most, least < 0 ? -far : least), 4 * n));
    pen.putImageData(image, 0, 0);
  }, [picture]);
  return (
    <figure>
      <canvas ref={canvas} role="img" aria-label={`Elements [${slice}] from ${figure(least)} to ${figure(most)}`} />
      <figcaption class="soft"><code>[{slice}]</code><span>{figure(least)} … {figure(most)}</span></figcaption>
    </figure>
  );
}

/** From blue over near-white to orange, evenly in lightness; grey for what is no number. */
function colour(value: number, most: number, least: number): [number, number, number, number] {
  if (!Number.isFinite(value)) return [128, 128, 128, 255];
  const at = most > least ? (value - least) / (most - least) : 0.5;
  const [from, to, share] = at < 0.5 ? [LOW, MIDDLE, at * 2] : [MIDDLE, HIGH, at * 2 - 1];
  const mix = (n: 0 | 1 | 2) => Math.round(from[n] + (to[n] - from[n]) * share);
  return [mix(0), mix(1), mix(2), 255];
}

type Rgb = readonly [number, number, number];
const [LOW, MIDDLE, HIGH]: readonly [Rgb, Rgb, Rgb] = [[28, 79, 176], [240, 242, 246], [201, 84, 14]];
