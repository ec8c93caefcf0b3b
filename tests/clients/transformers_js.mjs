// A pipeline of transformers.js, unmodified. HUB_URL names the service, HF_TOKEN a token of it, or nothing.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { env, pipeline } from "@huggingface/transformers";

env.remoteHost = process.env.HUB_URL;
env.cacheDir = process.env.CACHE;
env.allowLocalModels = false;
if (process.env.HF_TOKEN) { // sent to huggingface.co alone by itself
  env.fetch = (url, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("Authorization", `Bearer ${process.env.HF_TOKEN}`);
    return fetch(url, { ...init, headers });
  };
}

const extract = await pipeline("feature-extraction", "ann/tiny", { dtype: "fp32" });
const found = await extract("hello world");
assert.deepEqual(found.tolist()[0], JSON.parse(process.env.EXPECTED));
await assert.rejects(pipeline("feature-extraction", "ann/none", { dtype: "fp32" }));
const runtime = JSON.parse(await readFile(new URL("node_modules/onnxruntime-node/package.json", import.meta.url)));
console.log(`onnxruntime-node ${runtime.version}`);
