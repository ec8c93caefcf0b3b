// Calls of a Protoslice service with openapi-fetch and types that openapi-typescript generated; see README.md.
import { createHash } from "node:crypto";
import { createReadStream, statSync } from "node:fs";
import { basename } from "node:path";
import { Readable } from "node:stream";
import createClient from "openapi-fetch";
import type { operations, paths } from "./protoslice.js";

type BodyTypes<Name extends keyof operations> = operations[Name] extends { requestBody?: infer Body }
  ? keyof NonNullable<Body extends { content: infer Content } ? Content : never>
  : never;

// Media types of bytes; the compiler compares them with the document.
const BYTES: BodyTypes<"create_store"> = "application/octet-stream";
const TUS: BodyTypes<"append_to_upload"> = "application/offset+octet-stream";
const RETRIES = 100;
const PIECE = 1 << 20; // the longest range that is answered with a digest

const [url = "", model = ""] = process.argv.slice(2);
const token = process.env.PROTOSLICE_TOKEN; // an open service needs none
const client = createClient<paths>({
  baseUrl: url,
  headers: token ? { Authorization: `Bearer ${token}` } : {},
});

/** How to send a stream as it is, with the options that fetch wants for it. */
const stream = (file: string, type: string, start = 0) => ({
  body: Readable.toWeb(createReadStream(file, { start })) as unknown as string,
  bodySerializer: (body: unknown) => body as ReadableStream,
  headers: { "Content-Type": type },
  duplex: "half" as const,
});

/** The data of an answer, or its problem as an exception. */
function data<T>({ data, error, response }: { data?: T; error?: unknown; response: Response }): T {
  if (error !== undefined || data === undefined) throw new Error(`${response.status}: ${JSON.stringify(error)}`);
  return data;
}

/** Upload a stream whose length is unknown, such as the output of a program; return the id of the store. */
async function uploadStream(tag: string): Promise<string> {
  const query = { filename: "model.onnx", tag: [tag] };
  return data(await client.POST("/v1/stores", { params: { query }, ...stream(model, BYTES) })).id;
}

/** Upload a file by tus, and continue where the service is when the connection breaks; return the store's id. */
async function uploadFile(tag: string): Promise<string> {
  const size = statSync(model).size;
  const tus = { "Tus-Resumable": "1.0.0" };
  const begun = await client.POST("/v1/uploads", {
    params: { query: { filename: basename(model), tag: [tag] }, header: { ...tus, "Upload-Length": size } },
  });
  const path = { upload: basename(begun.response.headers.get("Location")!) };
  let offset = 0;
  for (let attempt = 0; attempt < RETRIES; attempt++) {
    try {
      const header = { ...tus, "Upload-Offset": offset };
      const sent = await client.PATCH("/v1/uploads/{upload}", { params: { path, header }, ...stream(model, TUS, offset) });
      if (sent.error) throw sent.error;
      return sent.response.headers.get("Protoslice-Store")!;
    } catch (error) {
      if (!(error instanceof TypeError)) throw error; // fetch has no other exception for a broken connection
      const { response } = await client.HEAD("/v1/uploads/{upload}", { params: { path, header: tus } });
      offset = Number(response.headers.get("Upload-Offset"));
      console.log(`  ${error.message}: continue at ${offset} of ${size} bytes`);
      if (offset === size) return response.headers.get("Protoslice-Store")!;
    }
  }
  throw new Error("The connection breaks too often");
}

/** All items of a list, page by page. */
async function all<Item>(get: (cursor?: string) => Promise<{ items: Item[]; next: string | null }>): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | undefined;
  do {
    const page = await get(cursor);
    items.push(...page.items);
    cursor = page.next ?? undefined;
  } while (cursor !== undefined);
  return items;
}

/** A chunk by ranges, four at a time, each compared with its digest, all of one version by If-Range. */
async function chunkInParts(ref: string, n: number): Promise<Buffer> {
  const place = "/v1/stores/{ref}/chunks/{n}" as const;
  const part = async (start: number, etag?: string) => {
    const header = {
      Range: `bytes=${start}-${start + PIECE - 1}`,
      "If-Range": etag,
      "Want-Content-Digest": "sha-256=1",
    };
    const answer = await client.GET(place, { params: { path: { ref, n }, header }, parseAs: "arrayBuffer" });
    const bytes = Buffer.from(data(answer));
    if (answer.response.status !== 206) throw new Error("The chunk has changed: start again");
    const { headers } = answer.response;
    return { headers, bytes: check(bytes, headers.get("Content-Digest")) };
  };
  const { headers, bytes } = await part(0);
  const [size, etag] = [Number(headers.get("Content-Range")!.split("/")[1]), headers.get("ETag")!];
  const parts = [bytes];
  let next = PIECE;
  const worker = async () => {
    while (next < size) {
      const start = next;
      next += PIECE;
      parts[start / PIECE] = (await part(start, etag)).bytes;
    }
  };
  await Promise.all([worker(), worker(), worker(), worker()]);
  return check(Buffer.concat(parts), headers.get("Repr-Digest"));
}

/** Compare bytes with a digest of the service. */
function check(bytes: Buffer, digest: string | null): Buffer {
  if (digest === null) throw new Error("There is no digest in the answer");
  if (`sha-256=:${createHash("sha256").update(bytes).digest("base64")}:` !== digest)
    throw new Error("The bytes differ from their digest");
  return bytes;
}

/** Create a tag only if there is none, then move it only if it is unchanged; a stale condition gives 412. */
async function moveTag(tag: string, store: string): Promise<number[]> {
  const put = async (header: { "If-Match"?: string; "If-None-Match"?: string }) =>
    (await client.PUT("/v1/tags/{tag}", { params: { path: { tag }, header }, body: { store } })).response.status;
  const created = await put({ "If-None-Match": "*" });
  const { headers } = (await client.GET("/v1/tags/{tag}", { params: { path: { tag } } })).response;
  return [created, await put({ "If-Match": headers.get("ETag")! }), await put({ "If-Match": '"stale"' })];
}

const ref = await uploadStream("typescript-stream");
console.log(`stream of unknown length: store ${ref.slice(0, 12)}`);
console.log(`resumable upload: store ${(await uploadFile("typescript-file")).slice(0, 12)}`);

const chunks = await all(async (cursor) =>
  data(await client.GET("/v1/stores/{ref}/chunks", { params: { path: { ref }, query: { limit: 2, cursor } } })),
);
const largest = chunks.reduce((one, other) => (other.size > one.size ? other : one));
const bytes = await chunkInParts(ref, largest.index);
console.log(`${chunks.length} chunks; number ${largest.index} by ranges: ${bytes.length}`);

const graph = await client.GET("/v1/stores/{ref}/merge", {
  params: { path: { ref }, query: { path: "graph", omit_larger_than: "1KiB" } },
  parseAs: "arrayBuffer",
});
console.log(`the graph without weights: ${data(graph).byteLength} bytes`);

const tensors = await all(async (cursor) =>
  data(await client.GET("/v1/stores/{ref}/tensors", { params: { path: { ref }, query: { limit: 2, cursor } } })),
);
const name = tensors[0]!.name;
const slice = await client.GET("/v1/stores/{ref}/tensors/{name}", {
  params: { path: { ref, name }, query: { slice: "0:4" } },
  parseAs: "arrayBuffer",
});
console.log(`${tensors.length} tensors; the first bytes of ${name}: ${Buffer.from(data(slice)).toString("hex")}`);
console.log(`tag created, moved, refused: ${await moveTag("typescript-tag", ref)}`);
