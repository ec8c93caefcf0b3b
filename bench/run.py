"""Measures everything, or what is named: `python -m bench.run [NAME…] [--scale S] [--keep NAME]`.

Ratios from one run, medians of five. Results go to `bench/results/`.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.timing import Row

from bench import (
    access,
    bucket,
    catalogue,
    client,
    distance,
    endurance,
    engine,
    files,
    formats,
    lists,
    loading,
    oras,
    page,
    records,
    registries,
    service,
    snapshot,
    streams,
    tensors,
    versions,
    workers,
)

RESULTS = Path(__file__).parent / "results"
SUBJECTS: dict[str, Callable[[Path, float], Iterator[Row]]] = {
    "indexing": engine.indexing,
    "feeding": engine.feeding,
    "opening": engine.opening,
    "splitting": engine.splitting,
    "ropes": engine.ropes,
    "memory": engine.memory,
    "records": records.records,
    "streams": streams.streams,
    "packed": streams.packed,
    "waiting": streams.waiting,
    "loading": loading.loading,
    "formats": formats.formats,
    "tensors": tensors.tensors,
    "files": files.files,
    "service": service.service,
    "client": client.client,
    "versions": versions.versions,
    "bucket": bucket.bucket,
    "distance": distance.distance,
    "catalogue": catalogue.catalogue,
    "lists": lists.lists,
    "endurance": endurance.endurance,
    "workers": workers.workers,
    "access": access.access,
    "mlflow": registries.mlflow,
    "oras": oras.oras,
    "snapshot": snapshot.snapshot,
    "page": page.page,
    "differences": page.differences,
}
APART = (
    "packed",
    "catalogue",
    "lists",
    "waiting",
    "loading",
    "tensors",
    "service",
    "client",
    "versions",
    "bucket",
    "distance",
    "endurance",
    "workers",
    "access",
    "mlflow",
    "oras",
    "snapshot",
    "page",
    "differences",
)
ENGINE = [name for name in SUBJECTS if name not in APART]


def main() -> None:
    """Run what is asked for, show it, and keep it when it was measured at full size."""
    parser = argparse.ArgumentParser(description="Ratios against peers, from one run.")
    parser.add_argument(
        "names",
        nargs="*",
        help=f"what to measure: {', '.join(SUBJECTS)}; all that needs no service when none is named",
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="shrink the data; results of a shrunk run are not kept"
    )
    parser.add_argument("--keep", default="engine", help="the name to keep the results under")
    options = parser.parse_args()
    unknown = set(options.names) - set(SUBJECTS)
    if unknown:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="protoslice-bench-") as folder:
        for name in options.names or ENGINE:
            for row in SUBJECTS[name](Path(folder), options.scale):
                rows.append(row)
                print(_line(row), flush=True)
    if options.scale == 1 and (not options.names or options.names in ([name] for name in (*APART, "streams"))):
        _keep(options.names[0] if options.names else options.keep, rows)


def _line(row: Row) -> str:
    sign = "≥" if row.higher_is_better else "≤"
    verdict = "met" if row.met else "MISSED"
    return f"{row.what:<66} {row.ours:>10}  {row.peer:>12}  {row.ratio:>9.4g} {sign} {row.bar:<6g} {verdict}"


def _keep(name: str, rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    kept = {"load": os.getloadavg()[0], "cores": os.cpu_count(), "rows": [row.as_dict() for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    table = ["| what | ours | peer | ratio | bar | |", "|---|---|---|---|---|---|"]
    for row in rows:
        bar = f"{'≥' if row.higher_is_better else '≤'} {row.bar:g}"
        cells = (row.what.strip(), row.ours, row.peer, f"{row.ratio:.4g}", bar, "met" if row.met else "missed")
        table.append(f"| {' | '.join(cells)} |")
    (RESULTS / f"{name}.md").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
