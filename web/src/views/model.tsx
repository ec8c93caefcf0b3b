/** A model: its head, and one of the ways to look at it. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { getJson, hasGraph, hasRecords, isStream, type Page, registryNames, type Signature, type Store, type Summary, uploaderOf, url, view } from "../api";
import { ago, bytes, count, fileName, many, percent, python, quoted, shell } from "../format";
import { dtypeColour, useDark } from "../colours";
import { Copy } from "../focus";
import { Await, lazily, useJson, useLoaded } from "../loading";
import { firstWords, Markdown } from "../parts/markdown";
import { diffPlace, go, modelPlace, ofRepository, SPACE, useParameter } from "../place";
import { type Text, textAt } from "../texts";
import { familyOf, NUMBERS, repositoryOf, shortened, storesOf, titleOf, versionOf, versionsOf } from "../versions";

const Weights = lazily(async () => (await import("./weights")).Weights);
const Bytes = lazily(async () => (await import("./bytes")).Bytes);
const Tensors = lazily(async () => (await import("./tensors")).Tensors);
const Message = lazily(async () => (await import("./message")).Message);
const Graph = lazily(async () => (await import("./graph")).Graph);
const Manage = lazily(async () => (await import("./manage")).Manage);
const History = lazily(async () => (await import("./history")).History);
const Records = lazily(async () => (await import("./records")).Records);

const TABS = { weights: "Weights", tensors: "Tensors", graph: "Graph", bytes: "Proto", message: "Message", records: "Records", files: "Files" } as const;
type Tab = keyof typeof TABS;

const LOADED: Record<string, { load(): Promise<unknown> }> = { weights: Weights, bytes: Bytes, tensors: Tensors, graph: Graph, message: Message, records: Records };

export function Model({ store: ref, tab }: { store: string; tab: string }) {
  // The part that will be shown comes while the service is asked about the model.
  useState(() => { void (tab === "files" ? null : (LOADED[tab] ?? Weights).load().catch(() => null)); });
  const [changes, setChanges] = useState(0);
  const place = url(["v1", "stores", ref]);
  const found = useLoaded<Store>(`${place} ${changes}`, (signal) => getJson(place, signal));
  return <Await of={found} whole>{(store) => <Shown store={store} name={ref} tab={tab} onChange={() => setChanges((n) => n + 1)} />}</Await>;
}

function Shown({ store, name, tab, onChange }: { store: Store; name: string; tab: string; onChange: () => void }) {
  const tabs = (Object.keys(TABS) as Tab[]).filter((each) =>
    each === "files" || (each === "records" ? hasRecords(store) || tab === "records" : store.root !== null && (each !== "graph" || hasGraph(store))));
  const chosen = tabs.find((each) => each === tab) ?? (store.root !== null ? "weights" : "files");
  // Summing up all tensors takes the service longer than the picture or the first rows, and would hold them up.
  const [pictured, setPictured] = useState(false);
  const isNext = pictured || !["weights", "bytes", "tensors"].includes(chosen);
  const summary = useJson<Summary>(store.root === null || !isNext ? null : view(store.id, ["summary"])).value;
  const [repository] = useParameter("repository");
  const place = (each: Tab) => modelPlace(name, each) + ofRepository(repository);
  const key = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(tabs.indexOf(chosen) + step + tabs.length) % tabs.length]!;
    go(place(next), true);
    requestAnimationFrame(() => document.getElementById(`tab-${next}`)?.focus());
  };
  return (
    <>
      <Head store={store} name={name} repository={repository} onChange={onChange} isNext={isNext} summary={summary} />
      <div class="tabs" role="tablist" aria-label="Views" onKeyDown={key}>
        {tabs.map((each) => (
          <a key={each} id={`tab-${each}`} role="tab" href={place(each)} aria-selected={each === chosen}
            aria-controls="panel" tabIndex={each === chosen ? 0 : -1}>{TABS[each]}</a>
        ))}
      </div>
      <section id="panel" role="tabpanel" aria-labelledby={`tab-${chosen}`}>
        {chosen === "weights" && <Weights store={store} name={name} incomplete={!!summary?.missing.length} onPictured={() => setPictured(true)} />}
        {chosen === "bytes" && <Bytes store={store} onPictured={() => setPictured(true)} />}
        {chosen === "tensors" && <Tensors store={store} name={name} onPictured={() => setPictured(true)} />}
        {chosen === "graph" && <Graph store={store} name={name} />}
        {chosen === "message" && <Message store={store} />}
        {chosen === "records" && <Records store={store} />}
        {chosen === "files" && <Files store={store} />}
      </section>
    </>
  );
}

interface Headed { store: Store; name: string; repository: string; isNext: boolean; summary: Summary | null; onChange: () => void }

const ACTIONS = { use: "Use this model", history: "History", edit: "Edit", readme: "README" } as const;
type Action = keyof typeof ACTIONS;

function Head({ store, name, repository, isNext, summary, onChange }: Headed) {
  const readme = store.files.find(({ path, size }) => /^readme(\.md)?$/i.test(path) && size)?.path;
  const title = repository || titleOf(store, name);
  useEffect(() => { document.title = `${title} — Protoslice`; }, [title]);
  const [action, setAction] = useState<Action | null>(null);
  // What was opened keeps what was typed into it.
  const [opened, setOpened] = useState<Action[]>([]);
  const toggle = (each: Action) => {
    setAction(each === action ? null : each);
    setOpened((before) => (before.includes(each) ? before : [...before, each]));
  };
  const panels: Record<Action, () => ComponentChildren> = {
    use: () => <Ways store={store} name={name} />,
    history: () => <History family={familyFor(store, name)} repository={repositoryOf(name) || repository} name={name} title={title} />,
    edit: () => <Manage store={store} name={name} title={title} onChange={onChange} />,
    readme: () => <Readme store={store} path={readme!} />,
  };
  return (
    <header class="model">
      <div class="title">
        <h1 dir="auto">{title}</h1>
        <Versions store={store} name={name} named={repository} />
        <span class="actions">
          {(Object.keys(ACTIONS) as Action[]).filter((each) => each !== "readme" || readme).map((each) => (
            <button key={each} type="button" aria-expanded={each === action} aria-controls={`action-${each}`} onClick={() => toggle(each)}>{ACTIONS[each]}</button>
          ))}
        </span>
      </div>
      {opened.map((each) => <section key={each} id={`action-${each}`} class="action" aria-label={ACTIONS[each]} hidden={each !== action}>{panels[each]()}</section>)}
      <div class="about">
        <span class="soft" dir="auto">
          {store.type ?? store.why} · <b>{bytes(store.size)}</b> in {many(store.files.length, "file")} · {store.uploader && `by ${uploaderOf(store)} · `}{ago(store.created)} ·{" "}
          <code title={store.id}>{store.id.slice(0, 12)}</code>
        </span>
        {summary?.tensors ? <Totals summary={summary} /> : null}
        {HAS_SIGNATURES.test(store.type ?? "") && isNext && <Signatures store={store} />}
      </div>
      {registryNames(store).length > 0 && <p class="soft" dir="auto">Names: {registryNames(store).slice(0, 10).join(", ")}</p>}
      {store.description && <Description text={store.description} />}
    </header>
  );
}

/** Markdown, of which a long one is folded to its first words. */
function Description({ text }: { text: string }) {
  if (text.length <= MOST_DESCRIPTION && !text.includes("\n")) return <div class="description"><Markdown text={text} /></div>;
  return <details class="description"><summary dir="auto">{firstWords(text) || "Description"}</summary><Markdown text={text} /></details>;
}

/** Characters of a description that are shown at once. */
const MOST_DESCRIPTION = 200;

/** What the tags of other versions of this one begin with. */
const familyFor = (store: Store, name: string): string => familyOf(store.tags.includes(name) ? name : store.tags[0] ?? "");

/** A version by its name as a store, and a short name for it. */
interface Named { ref: string; short: string }

/** Other versions: of a repository its branches and tags, else tags that begin with the same name. */
function Versions({ store, name, named }: { store: Store; name: string; named: string }) {
  const repository = repositoryOf(name) || named;
  const family = repository || familyFor(store, name);
  const others = useLoaded<Named[]>(family, async (signal) => {
    if (repository) return (await versionsOf(repository, signal)).map((each) => ({ ref: each.ref, short: each.name }));
    if (!family) return [];
    const tags = new Set([store, ...await storesOf(family, 50, signal)].flatMap((each) => each.tags).filter((tag) => familyOf(tag) === family));
    return [...tags].sort((a, b) => NUMBERS.compare(b, a)).map((tag) => ({ ref: tag, short: versionOf(tag) || tag }));
  });
  const versions = others.value ?? [];
  const at = versions.findIndex((each) => each.ref === name);
  const comparable = versions.filter((each) => each.ref !== name);
  const before = repository ? { ref: "", short: "" } : versions[at + 1];
  return (
    <span class="versions">
      {comparable.length > 0 && (
        <>
          <select aria-label="Version" value={name} onChange={(event) => go(modelPlace(event.currentTarget.value) + ofRepository(named))}>
            {at < 0 && <option value={name}>{shortened(name)}</option>}
            {versions.map(({ ref, short }) => <option key={short + ref} value={ref}>{short}</option>)}
          </select>
          <select aria-label="Compare with" value="" onChange={(event) => go(diffPlace(event.currentTarget.value, name))}>
            <option value="">Compare with …</option>
            {comparable.map(({ ref, short }) => <option key={ref} value={ref}>{short}</option>)}
          </select>
        </>
      )}
      {at >= 0 && before && <a class="tag" href={diffPlace(before.ref, name) + ofRepository(named)}>{before.ref ? `changes since ${before.short}` : "latest changes"}</a>}
    </span>
  );
}

/** What is said of the elements that are no parameters. */
const BESIDES = { optimizer: "of optimizer state", constant: "constants", other: "other" };

/** Missing files that are listed. */
const MOST_MISSING = 5;

function Totals({ summary }: { summary: Summary }) {
  const stored = summary.dtypes.filter((total) => total.size);
  const all = stored.reduce((size, total) => size + total.size, 0);
  const dark = useDark();
  const elements = (role: string) => summary.totals.find((total) => total.role === role)?.elements ?? 0;
  return (
    <>
      <span><b>{count(elements("weight"))}</b> parameters{Object.entries(BESIDES).map(([role, words]) => elements(role) > 0 && ` · ${count(elements(role))} ${words}`)} in <b>{count(summary.tensors ?? 0)}</b> tensors</span>
      <span class="types">
        <span class="scale" aria-hidden="true">{stored.map(({ dtype, size }) => <i key={dtype} style={{ flexGrow: size / all, background: dtypeColour(dtype, dark) }} />)}</span>
        <ul class="legend" aria-label="Bytes by data type">
          {stored.map(({ dtype, size }) => <li key={dtype}><i style={{ background: dtypeColour(dtype, dark) }} />{dtype ?? "unknown"} {percent(size / all)}</li>)}
        </ul>
      </span>
      {summary.missing.length > 0 && <span class="warn" dir="auto">Missing {summary.missing.length === 1 ? "file" : "files"}: {summary.missing.slice(0, MOST_MISSING).join(", ")}{summary.missing.length > MOST_MISSING && ` and ${summary.missing.length - MOST_MISSING} more`}. Hatched tensors cannot be read. <a href={`${SPACE}/`}>Upload the whole folder</a> to add them.</span>}
      {summary.duplicates.length > 0 && <span class="warn">{many(summary.duplicates.length, "duplicate tensor name")}</span>}
    </>
  );
}

const HAS_SIGNATURES = /^(onnx\.ModelProto|tensorflow\.(SavedModel|MetaGraphDef)|CoreML\.Specification\.Model|paddle\.framework\.proto\.ProgramDesc)$/;
const MOST_VALUES = 4;

/** What the model takes and returns. */
function Signatures({ store }: { store: Store }) {
  const found = useJson<Page<Signature>>(view(store.id, ["signatures"], { limit: 8 }));
  const listed = (values: Signature["inputs"]) => values.slice(0, MOST_VALUES).map((each) =>
    `${each.name} ${each.dtype ?? ""} [${each.shape ? each.shape.map((length) => length ?? "?").join(", ") : "…"}]`).join(", ") + (values.length > MOST_VALUES ? `, ${values.length - MOST_VALUES} more` : "");
  const told = found.value?.items.filter(({ inputs, outputs }) => inputs.length || outputs.length) ?? [];
  if (!told.length) return null;
  return (
    <ul class="signatures" aria-label="Inputs and outputs">
      {told.map((each, n) => (
        <li key={n} dir="auto">{each.method && <b>{each.name}: </b>}<code>{listed(each.inputs) || "no inputs"}</code> → <code>{listed(each.outputs) || "no outputs"}</code></li>
      ))}
    </ul>
  );
}

/** Bytes of a README that are shown. */
const MOST_README = 1 << 16;

function Readme({ store, path }: { store: Store; path: string }) {
  const found = useLoaded<Text>(view(store.id, ["files", path]), (signal) => textAt(view(store.id, ["files", path]), MOST_README, signal, "*/*"));
  return (
    <Await of={found}>
      {({ text, whole }) => <>
        <Markdown text={text} />
        {!whole && <p class="soft">Only the first {bytes(MOST_README)} are shown.</p>}
      </>}
    </Await>
  );
}

interface Way { what: string; line: string }

/** A commit's id, which a client may not take for a branch or tag. */
const COMMIT = /^[0-9a-f]{40}$/;

/** Commands of the clients that know one of the store's names. */
function registryWays(store: Store, service: string): Way[] {
  const names = store.names.filter(({ protocol }) => protocol === "hub" || protocol === "oci")
    .map(({ protocol, name }) => ({ protocol, found: /^([\w.-]+\/[\w.-]+)[@:]([\w.-]+)$/.exec(name) })).filter(({ found }) => found);
  const named = names.find(({ found }) => !COMMIT.test(found![2]!)) ?? names[0];
  if (!named) return [];
  const [, repository = "", ref = ""] = named.found!;
  const plain = location.protocol === "http:";
  const ways = [{ what: "Hugging Face", line: `HF_ENDPOINT=${quoted(service)} ${shell("hf", "download", repository, "--revision", ref, "--local-dir", "here/")}` }];
  if (named.protocol === "hub" && !COMMIT.test(ref)) ways.push({ what: "git", line: `git lfs install && ${shell("git", "clone", "--branch", ref, `${service}/${repository}`, "here/")}` });
  // OCI clients look for repositories only at the root of a host.
  if (SPACE) return ways;
  ways.push({ what: "oras", line: shell("oras", "pull", ...(plain ? ["--plain-http"] : []), "--output", "here/", `${location.host}/${repository}:${ref}`) });
  // Ollama does not read split files.
  if (store.files.some(({ path }) => /\.gguf$/i.test(path) && !/-of-\d+\.gguf$/i.test(path))) {
    ways.push({ what: "Ollama", line: shell("ollama", "run", ...(plain ? ["--insecure"] : []), `${plain ? location.origin : location.host}/${repository}:${ref}`) });
  }
  return ways;
}

function Ways({ store, name }: { store: Store; name: string }) {
  const root = store.root ?? store.files[0]?.path ?? "";
  const service = `${location.origin}${SPACE}`;
  const base = `${service}/v1/stores/${encodeURIComponent(name)}`;
  const ways: Way[] = [
    { what: "CLI", line: shell("protoslice", "pull", base, "here/") },
    { what: "Python", line: `import protoslice; protoslice.Client(${python(service)}).download(${python(name)}, "here/")` },
    { what: "curl", line: shell("curl", "--fail", "--output", fileName(root), `${base}/files/${root.split("/").map(encodeURIComponent).join("/")}`) },
    ...registryWays(store, service),
  ];
  if (store.root !== null) ways.push({ what: "NumPy", line: `import protoslice; model = protoslice.open_model(${python(`${service}/m/${encodeURIComponent(name)}`)}); name = next(iter(model)); print(name, model[name][...])` });
  if (store.type === "onnx.ModelProto") ways.push({ what: "ONNX Runtime", line: `import onnxruntime, protoslice; protoslice.Client(${python(service)}).download(${python(name)}, "here/"); print([each.name for each in onnxruntime.InferenceSession(${python(`here/${root}`)}).get_inputs()])` });
  const downloads: [string, string][] = [["all files as tar", view(store.id, ["archive.tar"])]];
  if (store.root) downloads.push(["safetensors", view(store.id, ["safetensors"])], [".cpb", view(store.id, ["cpb"])], ["without large fields", view(store.id, ["merge"], { omit_larger_than: "1KiB" })]);
  return (
    <>
      <dl class="ways">
        {ways.map(({ what, line }) => <><dt>{what}</dt><dd><code>{line}</code><Copy text={line} what={`${what} command`}>copy</Copy></dd></>)}
      </dl>
      <p>{downloads.map(([what, place]) => <a key={what} class="tag" href={place} download>{what}</a>)}</p>
    </>
  );
}

function Files({ store }: { store: Store }) {
  const largest = Math.max(...store.files.map((file) => file.size), 1);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Files">
      <table>
        <thead><tr><th scope="col">File</th><th scope="col" class="n">Size</th><th scope="col">SHA-256</th></tr></thead>
        <tbody>
          {store.files.map((file) => (
            <tr key={file.path}>
              <td><a href={view(store.id, ["files", ...file.path.split("/")])} download dir="auto">{file.path}</a>{file.path === store.root && <span class="tag">root</span>}{isStream(file.path) && <a class="tag" href={`${modelPlace(store.id, "records")}?file=${encodeURIComponent(file.path)}`}>records</a>}</td>
              <td class="n">{bytes(file.size)}<meter class="share" min={0} max={largest} value={file.size} aria-hidden="true" /></td>
              <td><code title={file.sha256 ?? ""}>{file.sha256?.slice(0, 16) ?? "–"}</code></td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
