/** Builds the page into the package: names with hashes, each file also as br and gzip, and a list of them all. */

import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const OUT = join(import.meta.dirname, "../service/protoslice/server/pages/built");

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT, { recursive: true });
const files = { outdir: OUT, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]", assetNames: "[name]-[hash]" };
const packed = { bundle: true, target: ["es2022"], minify: true, metafile: true, legalComments: "none", charset: "utf8" };
// A worker is a separate script: the page has to know its name.
const worker = await build({ ...files, ...packed, entryPoints: [join(import.meta.dirname, "src/strip/worker.ts")], format: "iife" });
const { metafile } = await build({
  ...files, ...packed, entryPoints: [join(import.meta.dirname, "src/main.tsx"), join(import.meta.dirname, "src/style.css")],
  splitting: true, format: "esm", jsx: "automatic", jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"', WORKER: JSON.stringify(basename(Object.keys(worker.metafile.outputs)[0])) },
});

const first = {};
for (const [path, { entryPoint }] of Object.entries(metafile.outputs)) {
  if (entryPoint?.endsWith("src/main.tsx")) first.script = basename(path);
  if (entryPoint?.endsWith("src/style.css")) first.style = basename(path);
}
let total = 0;
for (const name of await readdir(OUT)) {
  const data = await readFile(join(OUT, name));
  const best = { params: { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: data.length } };
  const small = brotliCompressSync(data, best);
  total += small.length;
  await writeFile(join(OUT, `${name}.br`), small);
  await writeFile(join(OUT, `${name}.gz`), gzipSync(data, { level: 9 }));
  console.log(`${String(small.length).padStart(7)}  ${name}`);
}
await writeFile(join(OUT, "first.json"), JSON.stringify(first));
console.log(`${String(total).padStart(7)}  in all, as br`);
