/** Files of people: dropped or chosen, one by one or as a folder, with handles where the browser gives them. */

export interface Dropped { path: string; file: File }

/** Files that make one store, and what they can be asked for again with after the page was closed; `count` of them are in an archive. `base` is what a tag for them begins with. */
export interface Chosen { name: string; base: string; files: Dropped[]; handles: Handle[]; count?: number }

/** A file or folder that outlives the page (File System Access; lib.dom has no names for its newer parts). */
export type Handle = (FileSystemFileHandle | FileSystemDirectoryHandle) & {
  queryPermission?(): Promise<PermissionState>; requestPermission?(): Promise<PermissionState>;
  values?(): AsyncIterable<Handle>;
};

/** Everything that was dropped; a browser forgets it once the event is over, so all is asked for at once. */
export async function dropped(data: DataTransfer | null): Promise<Chosen> {
  const items = [...(data?.items ?? [])].filter(({ kind }) => kind === "file") as (DataTransferItem & { getAsFileSystemHandle?(): Promise<Handle | null> })[];
  const handles = items.map((item) => item.getAsFileSystemHandle?.().catch(() => null));
  const entries = items.map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  const files = (await Promise.all(entries.map((entry) => below(entry, "")))).flat();
  const kept = (await Promise.all(handles)).filter((handle): handle is Handle => Boolean(handle));
  return together(files, kept.length === items.length ? kept : []);
}

/** Files of an input, those of a folder with their paths. */
export const picked = (list: FileList | null): Chosen =>
  together([...(list ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file })), []);

/** The files behind handles, which asks the person where it has to. */
export async function again(handles: readonly Handle[]): Promise<Chosen> {
  for (const handle of handles) {
    if ((await handle.queryPermission?.()) !== "granted" && (await handle.requestPermission?.()) !== "granted") throw new Error("The browser can no longer read the file: drop it here again");
  }
  return together((await Promise.all(handles.map((handle) => behind(handle, "")))).flat(), [...handles]);
}

/** A folder that holds everything is the name of the whole, not a part of each path: as `protoslice push` has it. */
function together(files: Dropped[], handles: Handle[]): Chosen {
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  const folder = files[0]?.path.split("/", 1)[0] ?? "";
  if (files.length && files.every(({ path }) => path.startsWith(`${folder}/`))) {
    return { name: folder, base: folder, files: files.map(({ path, file }) => ({ path: path.slice(folder.length + 1), file })), handles };
  }
  const largest = files.reduce((most, { path, file: { size } }) => (size > most.size ? { path, size } : most), { path: folder, size: 0 }).path;
  const base = largest.split("/").pop()!.replace(/(\.tar)?\.[a-z]\w{0,11}$/i, "");
  return { name: files.length > 1 ? `${folder} and ${files.length - 1} more` : folder, base, files, handles };
}

async function below(entry: FileSystemEntry, above: string): Promise<Dropped[]> {
  if (entry.isFile) {
    const file = await new Promise<File>((take, fail) => (entry as FileSystemFileEntry).file(take, fail));
    return [{ path: above + entry.name, file }];
  }
  const reader = (entry as FileSystemDirectoryEntry).createReader();
  const found: Dropped[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((take, fail) => reader.readEntries(take, fail));
    if (!some.length) return found;
    found.push(...(await Promise.all(some.map((each) => below(each, `${above}${entry.name}/`)))).flat());
  }
}

async function behind(handle: Handle, above: string): Promise<Dropped[]> {
  if (handle.kind === "file") return [{ path: above + handle.name, file: await handle.getFile() }];
  const found: Dropped[] = [];
  for await (const each of handle.values?.() ?? []) found.push(...(await behind(each, `${above}${handle.name}/`)));
  return found;
}
