/** Versions: stores whose tags begin with one name, such as `bert:1` and `bert:2`. */

import { change, getJson, registryNames, url, type Page, type Store } from "./api";

/** The tag that names a store: one with a version before others; its id where it has none. */
export const nameOf = ({ id, tags }: Pick<Store, "id" | "tags">): string => tags.find((tag) => tag.includes(":")) ?? tags[0] ?? id;
export const familyOf = (name: string): string => name.split(":")[0]!;
export const versionOf = (name: string): string => name.slice(familyOf(name).length + 1);

/** A name as it is shown: ids of stores and commits by their first digits. */
export const shortened = (name: string): string => (/^[0-9a-f]{40,64}$/.test(name) ? name.slice(0, 12) : name);

/** The name of a store for people: what it is opened as unless that is its id, else its tag, its name in a registry, its file. */
export function titleOf(store: Store, ref = ""): string {
  if (ref && !store.id.startsWith(ref)) return shortened(ref);
  const file = (store.root ?? store.files[0]?.path)?.split("/").pop();
  return store.tags.length ? nameOf(store) : registryNames(store)[0] ?? file ?? shortened(store.id);
}

/** A tag that is free: words of a file's or folder's name, and the number after that of the latest version. */
export async function freeTag(base: string): Promise<string> {
  const family = base.normalize("NFKD").replace(/\p{M}/gu, "").replace(/[^\w.+-]+/g, "-").replace(/^[^A-Za-z0-9]+|[^A-Za-z0-9]+$/g, "").slice(0, 100);
  if (!family) return "";
  const { items } = await getJson<Page<Store>>(url(["v1", "stores"], { name: `${family}:`, sort: "-created", limit: 50 }));
  const numbers = items.flatMap(({ tags }) => tags).filter((tag) => familyOf(tag) === family).map((tag) => Number(versionOf(tag)));
  return `${family}:${Math.max(0, ...numbers.filter(Number.isSafeInteger)) + 1}`;
}

/** Give a store a tag that nothing has yet. */
export const addTag = (tag: string, store: string): Promise<Response> => change("PUT", url(["v1", "tags", tag]), { store }, { "if-none-match": "*" });

export const NUMBERS = new Intl.Collator("en", { numeric: true });

/** The newest first; of those of one second the one with the later name. */
export const byAge = (a: Store, b: Store): number =>
  Date.parse(b.created) - Date.parse(a.created) || NUMBERS.compare(nameOf(b), nameOf(a));

/** Stores with tags of a family, the newest first: at least `most`, or all. */
export async function storesOf(family: string, most: number, signal?: AbortSignal): Promise<Store[]> {
  const known = new Map<string, Store>();
  for (let cursor: string | null = ""; cursor !== null && known.size < most;) {
    const page: Page<Store> = await getJson(url(["v1", "stores"], { name: `${family}:`, sort: "-created", names: "false", limit: 50, cursor }), signal);
    for (const store of page.items.sort(byAge)) if (store.tags.some((tag) => familyOf(tag) === family)) known.set(store.id, store);
    cursor = page.next;
  }
  return [...known.values()];
}

/** A branch or tag of a repository. */
export interface Version { name: string; kind: "branch" | "tag"; ref: string; store: string; updated: string }

/** The name of the repository in a reference such as `ann/bert@main`; empty for any other. */
export const repositoryOf = (ref: string): string =>
  !ref.includes("/") || ref.startsWith("mlflow-artifacts:") ? "" : ref.split(/[@:]/)[0]!;

/** Versions of a repository, the newest first. */
export async function versionsOf(repository: string, signal?: AbortSignal): Promise<Version[]> {
  const found: Version[] = [];
  for (let cursor: string | null = ""; cursor !== null && found.length < 200;) {
    const page: Page<Version> = await getJson(url(["v1", "repositories", ...repository.split("/")], { limit: 100, cursor }), signal);
    found.push(...page.items);
    cursor = page.next;
  }
  return found.sort((a, b) => Date.parse(b.updated) - Date.parse(a.updated) || NUMBERS.compare(b.name, a.name));
}

/** A commit of a repository of the hub. */
export interface Commit { id: string; title: string; date: string; authors: { user: string }[] }

/** Commits that led to a branch or tag of the hub, the newest first. */
export function commitsOf(repository: string, ref: string, signal?: AbortSignal): Promise<Commit[]> {
  const steps = repository.split("/");
  const kind = steps[0] === "datasets" ? [] : ["models"];
  if (!ref.startsWith(`${repository}@`) || steps.length + kind.length !== 3) return Promise.resolve([]);
  return getJson(url(["api", ...kind, ...steps, "commits", ref.slice(repository.length + 1)]), signal);
}

/** What came before a version: the commit that its branch had, else the newest version that is older; empty for none. */
export async function beforeVersion(ref: string, repository: string, signal?: AbortSignal): Promise<string> {
  const [versions, history] = await Promise.all([versionsOf(repository, signal), commitsOf(repository, ref, signal)]);
  const at = versions.findIndex((each) => each.ref === ref);
  const older = at < 0 ? undefined : versions.slice(at + 1).find((each) => each.store !== versions[at]!.store);
  return history[1]?.id ?? older?.ref ?? "";
}
