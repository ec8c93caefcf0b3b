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

const outputs = new Map(Object.entries(metafile.outputs).map(([path, output]) => [basename(path), output]));
/** A script with all that it imports, itself first. */
function withImports(name, found = new Set()) {
  found.add(name);
  for (const { path, kind } of outputs.get(name).imports) if (kind === "import-statement" && !found.has(basename(path))) withImports(basename(path), found);
  return [...found];
}

// `parts`: the scripts of each part of the page that is loaded when it is shown.
const first = { parts: {} };
for (const [name, { entryPoint = "" }] of outputs) {
  if (entryPoint.endsWith("src/main.tsx")) first.script = name;
  else if (entryPoint.endsWith("src/style.css")) first.style = name;
  else if (name.endsWith(".js") && entryPoint) first.parts[name.replace(/-[^-]*$/, "")] = withImports(name);
}
const common = withImports(first.script);
first.parts.main = common.slice(1);
// All scripts of a part are fetched at once. One that cannot be fetched is not imported: Firefox would never try it again.
for (const name of outputs.keys()) {
  if (!name.endsWith(".js")) continue;
  const code = await readFile(join(OUT, name), "utf8");
  await writeFile(join(OUT, name), code.replace(/import\("\.\/([^"]+)"\)/g, (whole, part) => {
    const parts = withImports(part).filter((each) => !common.includes(each)).map((each) => `./${each}`);
    return `Promise.all(${JSON.stringify(parts)}.map(e=>fetch(new URL(e,import.meta.url)))).then(()=>${whole})`;
  }));
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

// The bill of materials: each package of which something is in the page, with its licence. The wheel carries it.
const locked = JSON.parse(await readFile(join(import.meta.dirname, "package-lock.json"), "utf8")).packages;
const inputs = [...Object.keys(metafile.inputs), ...Object.keys(worker.metafile.inputs)];
const folders = inputs.flatMap((path) => path.match(/^.*node_modules\/(@[^/]+\/)?[^/]+/)?.[0] ?? []);
const components = await Promise.all([...new Set(folders)].sort().map(async (folder) => {
  const { version, license, integrity } = locked[folder];
  const name = folder.split("node_modules/").at(-1);
  const purl = `pkg:npm/${name.replace("@", "%40")}@${version}`;
  const text = (await readdir(folder)).find((file) => /^licen[cs]e/i.test(file));
  const content = text && { text: { content: await readFile(join(folder, text), "utf8") } };
  const [algorithm, digest] = integrity.split("-");
  const hashes = [{ alg: algorithm.replace("sha", "SHA-"), content: Buffer.from(digest, "base64").toString("hex") }];
  return { type: "library", name, version, purl, "bom-ref": purl, hashes, licenses: [{ license: { id: license, ...content } }] };
}));
const bill = { bomFormat: "CycloneDX", specVersion: "1.5", version: 1, metadata: { component: { type: "application", name: "protoslice-page" } }, components };
await writeFile(join(import.meta.dirname, "../service/page.cyclonedx.json"), JSON.stringify(bill, null, 1));
