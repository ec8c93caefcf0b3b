/** Calls of the service, and the types of its answers, which are those of the OpenAPI document. */

import type { components } from "./openapi";
import { SPACE } from "./place";

export type Schemas = components["schemas"];
export type StoreFile = Schemas["File"];
export type StoreName = Schemas["StoreName"];
export type Store = Schemas["Store"];
export type Tag = Schemas["Tag"];
export type Repository = Schemas["RepositorySummary"];
export type Node = Schemas["Node"];
export type Tensor = Schemas["TensorEntry"];
export type Branch = Schemas["TensorBranch"];
export type TensorGroup = Schemas["TensorGroup"];
export type Histogram = Schemas["Histogram"];
export type Statistics = Schemas["TensorStatistics"];
export type Signature = Schemas["Signature"];
export type DtypeTotal = Schemas["DtypeTotal"];
export type Summary = Schemas["ModelReport"];
export type GraphNode = Schemas["GraphNode"];
export type GraphEdge = Schemas["GraphEdge"];
export type Neighbourhood = Schemas["Neighbourhood"];
export type GraphValue = Schemas["GraphValue"];
export type GraphBlock = Schemas["GraphBlock"];
export type GraphLevel = Schemas["GraphLevel"];
export type GraphSection = Schemas["GraphSection"];
export type Records = Schemas["RecordsSummary"];
export type Difference = Schemas["Difference"];
export type Diff = Schemas["Diff"];
export type Delta = Schemas["TensorDelta"];
export type TensorMove = Schemas["TensorMove"];
export type EqualTensors = Schemas["EqualTensors"];
export type TensorMoves = Schemas["TensorMoves"];
export interface Page<T> { items: T[]; next: string | null }

/** The uploader of a store: a name that others may have too, and the id that only they have. */
export const uploaderOf = ({ uploader, uploader_id: id }: Store): string => uploader ? `${uploader}${id ? ` (${id})` : ""}` : "";

/** Names of a store in registries. */
export const registryNames = ({ names }: Store): string[] => names.filter(({ protocol }) => protocol !== "tag").map(({ name }) => name);

/** True for models whose type may have graphs. */
export const hasGraph = (store: Store): boolean => /^(onnx|tensorflow|paddle\.framework\.proto|xla|CoreML|caffe)\./.test(store.type ?? "");

/** Names under which streams of records are known, shards of them too. */
const STREAM = /\.(tfrecords?|riegeli|array_?record|delimited)(\.gz|\.zlib)?(-\d+-of-\d+)?$/i;
export const isStream = (path: string): boolean => STREAM.test(path);

/** True for stores with a stream of records: found by the bytes of a file, or known by its name. */
export const hasRecords = ({ records_file: found, files }: Store): boolean =>
  typeof found === "string" || files.some(({ path }) => isStream(path));

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

/** Change something: `body` is sent as JSON. */
export async function change(method: "PUT" | "POST" | "PATCH" | "DELETE", place: string, body?: unknown, more: Record<string, string> = {}): Promise<Response> {
  const headers = body === undefined ? more : { ...more, "content-type": "application/json" };
  const answer = await fetch(place, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
  if (answer.ok) return answer;
  throw await failure(answer);
}

/** Said when an answer wants to know who asks. */
export const UNKNOWN = "unknowncaller";

export async function failure(answer: Response): Promise<Failure> {
  const problem = await answer.json().catch(() => ({})) as { detail?: string; title?: string; type?: string };
  const slug = problem.type?.split("/").pop() ?? "";
  if (answer.status === 401) dispatchEvent(new Event(UNKNOWN));
  return new Failure(answer.status, problem.detail ?? problem.title ?? `The service responded with status ${answer.status}`, slug);
}
