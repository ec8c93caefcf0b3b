/** Calls of the service, and the shapes of its answers (`/openapi.json` has all of them). */

import { SPACE } from "./place";

export interface StoreFile { path: string; size: number; sha256: string | null }

export interface Store {
  id: string; type: string | null; root: string | null; size: number; chunks: number; created: string;
  tags: string[]; files: StoreFile[]; source: string; why: string | null; names: StoreName[];
}

/** A name that refers to a store; those of registries are references of it too. */
export interface StoreName { protocol: "tag" | "hub" | "oci" | "mlflow"; name: string }

/** Names of a store in registries. */
export const registryNames = ({ names }: Store): string[] => names.filter(({ protocol }) => protocol !== "tag").map(({ name }) => name);

/** A repository of a registry's clients, with its head; nulls for one without files. */
export interface Repository {
  name: string; protocol: "hub" | "oci" | "mlflow"; ref: string | null; store: string | null; type: string | null;
  size: number | null; files: number | null; updated: string;
}

export interface Node {
  path: string; field: number; name: string | null; kind: string | null; type: string | null; count: number | null;
  size: number; deeper: boolean; text: string | null; children?: Node[]; more?: number;
}

export interface Tensor {
  name: string; address: string; dtype: string | null; shape: number[] | null; size: number | null;
  file: string | null; kind: string; problem?: string;
}

/** Tensors whose names begin alike; a group of one is that tensor. */
export interface TensorGroup { prefix: string; tensors: number; size: number; tensor: Tensor | null }

export interface Histogram { start: number; width: number; counts: number[] }

export interface Statistics {
  name: string; address: string; dtype: string; shape: number[]; elements: number; looked_at: number; zeros: number;
  nans: number; infinities: number; min: number | null; max: number | null; mean: number | null;
  deviation: number | null; histogram: Histogram | null;
}

export interface DtypeTotal { dtype: string | null; tensors: number; elements: number; size: number }

export interface Summary {
  tensors: number | null; dtypes: DtypeTotal[]; missing: string[]; duplicates: string[];
  complete: boolean;
}

export interface GraphNode {
  name: string; op: string; path: string; hops: number; attributes: [string, string][]; weights: string[]; more: number;
}

export interface GraphEdge { source: string; target: string; value: string; input: number }

/** True for models whose type may have graphs. */
export const hasGraph = (store: Store): boolean => /^(onnx|tensorflow|paddle\.framework\.proto|xla)\./.test(store.type ?? "");

/** Names under which streams of records are known, shards of them too. */
const STREAM = /\.(tfrecords?|riegeli|array_?record|delimited)(\.gz|\.zlib)?(-\d+-of-\d+)?$/i;
export const isStream = (path: string): boolean => STREAM.test(path);

/** True for stores with a stream of records: found by its bytes, as `why` tells then, or known by its name. */
export const hasRecords = ({ why, files }: Store): boolean =>
  why?.includes(" can be read at /records") || files.some(({ path }) => isStream(path));

/** A part of a graph: the nodes around one, or some to begin with. */
export interface Neighbourhood {
  graphs: { path: string; name: string; nodes: number }[]; graph_count: number; graph: string; around: string | null;
  nodes: GraphNode[]; edges: GraphEdge[]; more: boolean;
}

/** A stream of records as a whole. */
export interface Records { file: string; framing: string; type: string | null; count: number; size: number; fault: string | null }

export interface Difference {
  what: "file" | "tensor" | "part"; path: string; change: "added" | "removed" | "changed" | "renamed" | "reordered";
  before: number | null; after: number | null; detail: string; address: string; was: string;
}

export interface Diff {
  before: string; after: string; equal: boolean; read: number; assumed: number; items: Difference[]; next: string | null;
  counts: { what: Difference["what"]; change: Difference["change"]; count: number }[];
}

export interface Delta {
  dtype: string; shape: number[]; elements: number; looked_at: number; changed: number; incomparable: number;
  max: number | null; mean: number | null; cosine: number | null;
}

export interface Page<T> { items: T[]; next: string | null }

/** An answer that is a problem (RFC 9457), or none at all. */
export class Failure extends Error {
  constructor(readonly status: number, message: string, readonly slug = "") { super(message); }
}

export type Query = Record<string, string | number | null | undefined>;

/** The URL of a call in the space of the page; members of `query` that are null or undefined are left out. */
export function url(steps: readonly string[], query: Query = {}): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const text = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `${SPACE}/${steps.map(encodeURIComponent).join("/")}${text && `?${text}`}`;
}

/** The URL of a view of a store. */
export const view = (ref: string, steps: readonly string[], query: Query = {}): string =>
  url(["v1", "stores", ref, ...steps], query);

export async function get(place: string, signal?: AbortSignal, accept = "application/json", more: Record<string, string> = {}): Promise<Response> {
  const answer = await fetch(place, { headers: { accept, ...more }, signal: signal ?? null }).catch((error: unknown) => {
    throw error instanceof TypeError ? new Failure(0, "Cannot reach the service: check your connection and try again.") : error;
  });
  if (answer.ok) return answer;
  throw await failure(answer);
}

export async function getJson<T>(place: string, signal?: AbortSignal): Promise<T> {
  return (await get(place, signal)).json() as Promise<T>;
}

/** Said when an answer wants to know who asks. */
export const UNKNOWN = "unknowncaller";

export async function failure(answer: Response): Promise<Failure> {
  const problem = await answer.json().catch(() => ({})) as { detail?: string; title?: string; type?: string };
  const slug = problem.type?.split("/").pop() ?? "";
  if (answer.status === 401) dispatchEvent(new Event(UNKNOWN));
  return new Failure(answer.status, problem.detail ?? problem.title ?? `The service responded with status ${answer.status}`, slug);
}
