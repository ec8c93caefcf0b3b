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
export type Comparing = Schemas["Comparing"];
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

/** Make a call; where the service asks who calls, the person signs in first. */
async function call(place: string, init: RequestInit): Promise<Response> {
  const answer = await fetch(place, init).catch((error: unknown) => {
    throw error instanceof TypeError ? new Failure(0, "Cannot reach the service: check your connection and try again.") : error;
  });
  if (answer.ok) return answer;
  if (answer.status !== 401) throw await failure(answer);
  await signIn();
  return call(place, init);
}

export const get = (place: string, signal?: AbortSignal, accept = "application/json", more: Record<string, string> = {}): Promise<Response> =>
  call(place, { headers: { accept, ...more }, signal: signal ?? null });

export async function getJson<T>(place: string, signal?: AbortSignal): Promise<T> {
  return (await get(place, signal)).json() as Promise<T>;
}

/** Change something: `body` is sent as JSON. */
export async function change(method: "PUT" | "POST" | "PATCH" | "DELETE", place: string, body?: unknown, more: Record<string, string> = {}): Promise<Response> {
  const headers = body === undefined ? more : { ...more, "content-type": "application/json" };
  return call(place, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
}

/** Dispatched when the person has to sign in. */
export const UNKNOWN = "unknowncaller";
let asking: Promise<void> | null = null;
let settle: (done: boolean) => void = () => undefined;
let declined = false;

/** Ask the person to sign in; all calls wait for it. They fail if the person declines, who is asked again after the next click. */
export function signIn(): Promise<void> {
  const refused = () => new Failure(401, "You are signed out: sign in and try again.");
  if (declined) return Promise.reject(refused());
  asking ??= new Promise((take, fail) => {
    settle = (done) => {
      asking = null;
      if (done) return take();
      declined = true;
      addEventListener("click", () => { declined = false; }, { once: true, capture: true });
      fail(refused());
    };
    dispatchEvent(new Event(UNKNOWN));
  });
  return asking;
}

/** Say that the person has signed in, or has declined to. */
export const signedIn = (done: boolean): void => settle(done);

/** Resolves at once, unless the person is being asked to sign in. */
export const whenSignedIn = (): Promise<void> => asking ?? Promise.resolve();

export async function failure(answer: Response): Promise<Failure> {
  const problem = await answer.json().catch(() => ({})) as { detail?: string; title?: string; type?: string };
  const slug = problem.type?.split("/").pop() ?? "";
  return new Failure(answer.status, problem.detail ?? problem.title ?? `The service responded with status ${answer.status}`, slug);
}
