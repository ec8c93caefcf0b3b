/** Builds the page into the package: names with hashes, each file also as br and gzip, and a list of them all. */

import { build } from "esbuild";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";

const OUT = join(import.meta.dirname, "../service/protoslice/server/pages/built");

await rm(OUT, { recursive: true, force: true });
await mkdir(OUT, { recursive: true });
const { metafile } = await build({
  entryPoints: [join(import.meta.dirname, "src/main.tsx"), join(import.meta.dirname, "src/style.css")],
  outdir: OUT, entryNames: "[name]-[hash]", chunkNames: "[name]-[hash]", assetNames: "[name]-[hash]",
  bundle: true, splitting: true, format: "esm", target: ["es2022"], minify: true, metafile: true, legalComments: "none",
  jsx: "automatic", jsxImportSource: "preact", charset: "utf8", define: { "process.env.NODE_ENV": '"production"' },
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
  const packed = brotliCompressSync(data, best);
  total += packed.length;
  await writeFile(join(OUT, `${name}.br`), packed);
  await writeFile(join(OUT, `${name}.gz`), gzipSync(data, { level: 9 }));
  console.log(`${String(packed.length).padStart(7)}  ${name}`);
}
await writeFile(join(OUT, "first.json"), JSON.stringify(first));
console.log(`${String(total).padStart(7)}  in all, as br`);
