// Calls of @huggingface/hub, unmodified. HUB_URL names the service; TOKEN is a token of it, or nothing for an open one.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as hub from "@huggingface/hub";

const hubUrl = process.env.HUB_URL;
const accessToken = process.env.TOKEN ? `hf_${process.env.TOKEN}` : undefined;
const name = "team/npm";
const files = {
  "config.json": Buffer.from('{"a": 1}'),
  "sub/a b.txt": Buffer.from("text"),
  "empty.txt": Buffer.alloc(0),
  "by-lfs.bin": randomBytes(11 << 20),
  "in-parts.bin": randomBytes(65 << 20),
  "by-xet.bin": randomBytes(12 << 20),
};

for (const type of ["model", "dataset"]) {
  const at = { repo: { type, name }, hubUrl, accessToken };
  const requests = [];
  const watched = async (url, init) => {
    requests.push(`${init?.method ?? "GET"} ${url}`);
    return fetch(url, init);
  };
  const upload = (paths, more) => hub.uploadFiles({
    ...at, ...more, fetch: watched,
    files: paths.map((path) => ({ path, content: new Blob([files[path]]) })),
  });

  await hub.createRepo(at);
  assert.equal(await hub.repoExists(at), true);
  await upload(["config.json", "sub/a b.txt", "empty.txt"]);
  await upload(["by-lfs.bin"], { useXet: false });
  assert(requests.some((each) => each.includes("/api/lfs-uploads/")), "sent by LFS");
  await upload(["in-parts.bin"], { useXet: false });
  assert(requests.some((each) => each.includes("/api/lfs-parts/")), "sent in parts");
  const made = await upload(["by-xet.bin"], { useXet: true });
  assert(requests.some((each) => each.includes("/v1/xorbs/default/")), "sent by Xet");
  assert(made.commit.url.endsWith(made.commit.oid));
  assert.equal(await hub.countCommits({ ...at, revision: "main" }), 4);

  for (const path of Object.keys(files)) assert.equal(await hub.fileExists({ ...at, path }), true, path);
  assert.equal(await hub.fileExists({ ...at, path: "none" }), false);
  const infos = await hub.pathsInfo({ ...at, paths: ["config.json", "sub", "by-xet.bin", "none"] });
  assert.deepEqual(infos.map(({ path, type }) => [path, type]), [
    ["config.json", "file"], ["sub", "directory"], ["by-xet.bin", "file"],
  ]);
  assert.equal(infos[2].size, files["by-xet.bin"].length);

  const info = type === "model" ? hub.modelInfo : hub.datasetInfo;
  const known = await info({ name, hubUrl, accessToken, additionalFields: ["sha"] });
  assert.equal(known.sha, made.commit.oid);
  const blob = await hub.downloadFile({ ...at, path: "by-lfs.bin" });
  assert(files["by-lfs.bin"].equals(Buffer.from(await blob.arrayBuffer())));

  const cacheDir = await mkdtemp(join(tmpdir(), "npm-"));
  const folder = await hub.snapshotDownload({ ...at, cacheDir });
  for (const [path, data] of Object.entries(files)) assert(data.equals(await readFile(join(folder, path))), path);

  await assert.rejects(
    upload(["config.json"], { isPullRequest: true }),
    (error) => error.statusCode === 422 && error.data.message.includes("Pull requests are not supported"),
  );
  assert.equal((await info({ name, hubUrl, accessToken, additionalFields: ["sha"] })).sha, known.sha);
  if (accessToken) {
    await assert.rejects(hub.modelInfo({ name, hubUrl }), (error) => error.statusCode === 401);
  }
  const list = type === "model" ? hub.listModels : hub.listDatasets;
  const found = [];
  for await (const each of list({ search: { owner: "team", query: "np" }, hubUrl, accessToken, limit: 5, sort: "lastModified" })) {
    found.push(each.name);
  }
  assert.deepEqual(found, [name]);
  for await (const each of hub.listFiles({ ...at, expand: true })) {
    if (each.type === "file") assert(each.lastCommit.id, each.path);
  }
  await hub.deleteFiles({ ...at, paths: ["config.json"] });
  assert.equal(await hub.fileExists({ ...at, path: "config.json" }), false);
  await hub.deleteRepo(at);
}
