/** Elements of tensors as numbers, of the types that a picture can be made of. */

type Reader = (data: DataView, at: number) => number;

const READERS: Record<string, [width: number, read: Reader]> = {
  F64: [8, (data, at) => data.getFloat64(at, true)],
  F32: [4, (data, at) => data.getFloat32(at, true)],
  F16: [2, (data, at) => half(data.getUint16(at, true))],
  BF16: [2, (data, at) => single(data.getUint16(at, true) << 16)],
  I64: [8, (data, at) => Number(data.getBigInt64(at, true))],
  I32: [4, (data, at) => data.getInt32(at, true)],
  I16: [2, (data, at) => data.getInt16(at, true)],
  U64: [8, (data, at) => Number(data.getBigUint64(at, true))],
  U32: [4, (data, at) => data.getUint32(at, true)],
  U16: [2, (data, at) => data.getUint16(at, true)],
  ...Object.fromEntries(["I8", "I4", "I2", "I1"].map((name) => [name, [1, (data: DataView, at: number) => data.getInt8(at)]])),
  ...Object.fromEntries(["U8", "U6", "U4", "U3", "U2", "U1", "BOOL"].map((name) => [name, [1, (data: DataView, at: number) => data.getUint8(at)]])),
};

/** The elements in `bytes`; null for types without a picture. */
export function numbersIn(bytes: ArrayBuffer, dtype: string): Float64Array | null {
  const [width, read] = READERS[dtype] ?? [0, null];
  if (!read) return null;
  const data = new DataView(bytes);
  return Float64Array.from({ length: Math.floor(bytes.byteLength / width) }, (_, n) => read(data, n * width));
}

export const drawable = (dtype: string | null): boolean => dtype !== null && dtype in READERS;

const WORD = new DataView(new ArrayBuffer(4));

function single(bits: number): number {
  WORD.setInt32(0, bits);
  return WORD.getFloat32(0);
}

function half(bits: number): number {
  const [sign, exponent, mantissa] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return mantissa ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 25) * (1024 + mantissa) : 2 ** -24 * mantissa);
}

/** The two longest dimensions, which a picture shows: of a kernel those of its channels. */
export function axesOf(shape: readonly number[]): number[] {
  const longest = shape.map((_, axis) => axis).sort((a, b) => shape[b]! - shape[a]! || a - b);
  return longest.slice(0, 2).sort((a, b) => a - b);
}

/** A slice of at most `most` by `most` elements over the two longest dimensions; the other ones at `place`. */
export function pictureOf(shape: readonly number[], place: readonly number[], most: number): { slice: string; rows: number; columns: number } {
  const axes = axesOf(shape);
  const stride = (length: number) => Math.max(1, Math.ceil(length / most));
  const slice = shape.map((length, axis) => (axes.includes(axis) ? `::${stride(length)}` : String(Math.min(place[axis] ?? 0, Math.max(length - 1, 0))))).join(",");
  const [rows = 1, columns = 1] = axes.length > 1 ? axes.map((axis) => shape[axis]!) : [1, shape[0]];
  return { slice, rows: Math.ceil(rows / stride(rows)), columns: Math.ceil(columns / stride(columns)) };
}
