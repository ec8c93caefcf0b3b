/** Colours of data types and of kinds of layers, the same wherever they are shown, on light or dark as the system prefers. */

import { useEffect, useMemo, useState } from "preact/hooks";

/** Hues apart for eyes that see few colours; null is grey. */
export const HUES: readonly number[] = [48, 338, 268, 217, 95, 28, 8, 162, 192];
export const DTYPES = ["F16", "BF16", "I8", "F32", "I32", "U8", "F64", "I64", "I4"];
/** Kinds of layers, as the service tells them of tensors. */
export const KINDS = ["normalization", "quantization", "embedding", "attention", "recurrent", "convolution", "linear", "other"];

export const flat = (hue: number | null, dark: boolean): string => (hue === null ? `hsl(220 10% ${dark ? 34 : 78}%)` : `hsl(${hue} ${dark ? 38 : 62}% ${dark ? 36 : 76}%)`);

export const hueOf = (names: readonly string[], name: string): number | null => {
  const at = names.indexOf(name);
  return at < 0 || name === "other" ? null : HUES[at % HUES.length]!;
};

export const dtypeColour = (dtype: string | null, dark: boolean): string => flat(hueOf(DTYPES, dtype ?? ""), dark);

/** Lines across a box, for what is left out or missing. */
export function hatch(pen: CanvasRenderingContext2D, { x0, y0, x1, y1 }: { x0: number; y0: number; x1: number; y1: number }, colour: string): void {
  pen.save();
  pen.beginPath();
  pen.rect(x0, y0, x1 - x0, y1 - y0);
  pen.clip();
  pen.beginPath();
  for (let x = x0 - (y1 - y0); x < x1; x += 7) {
    pen.moveTo(x, y1);
    pen.lineTo(x + (y1 - y0), y0);
  }
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.stroke();
  pen.restore();
}

export function useDark(): boolean {
  const query = useMemo(() => matchMedia("(prefers-color-scheme: dark)"), []);
  const [dark, set] = useState(query.matches);
  useEffect(() => {
    const change = () => set(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, []);
  return dark;
}
