/** The files of a store, as they were uploaded. */

import { isStream, view, type Store } from "../api";
import { bytes } from "../format";
import { modelPlace } from "../place";

export function Files({ store }: { store: Store }) {
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
