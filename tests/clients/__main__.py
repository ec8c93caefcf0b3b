"""Programs of others against the service: `python -m tests.clients NAME…`, all by default.

Each runs unmodified, in the versions that the table at the end shows. A group runs by its name.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.clients import (
    buckets,
    dex,
    engines,
    git,
    hub,
    hub_npm,
    hub_python,
    hub_rust,
    kserve,
    links,
    logins,
    merger,
    mlflow,
    ollama,
    openapi,
    oras,
    readme,
    s3,
    s3_differential,
    transformers_js,
)

GROUPS: Final[Mapping[str, Mapping[str, Callable[[Path], str]]]] = {
    "registries": {
        "hub": hub.run,
        "hf": hub_python.run,
        "hub-npm": hub_npm.run,
        "hub-rust": hub_rust.run,
        "transformers.js": transformers_js.run,
        "mlflow": mlflow.run,
        "mlflow-gc": mlflow.run_gc,
        "kserve": kserve.run,
        "oras": oras.run,
        "oci-conformance": oras.run_conformance,
        "ollama": ollama.run,
        "readme": readme.run,
    },
    "tools": {
        "git": git.run,
        "git-lfs": git.run_lfs,
        "links": links.run,
        "logins": logins.run,
        "dex": dex.run,
        "openapi": openapi.run,
        "merger": merger.run,
    },
    "engines": {name: partial(engines.run, name) for name in engines.ENGINES},
    "s3": {
        "aws": s3.run_aws,
        "rclone": s3.run_rclone,
        "dvc": s3.run_dvc,
        **{f"s3-{name}": partial(s3.run_python, name) for name in s3.PYTHON_CLIENTS},
    },
    "buckets": {
        **{name: partial(buckets.run, name) for name in ("versitygw", "minio", "azurite")},
        "s3-differential": s3_differential.run,
    },
}
CLIENTS: Final = {name: run for group in GROUPS.values() for name, run in group.items()}
"""Calls of each client, which return its version and raise when something does not hold."""


def main(words: list[str]) -> int:
    """Run clients, print a table of them, and return the number of those that fail."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    groups = "; ".join(f"{group}: {', '.join(clients)}" for group, clients in GROUPS.items())
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"clients, or groups of them: {groups}")
    given = parser.parse_args(words).names or list(GROUPS)
    if unknown := set(given) - {*GROUPS, *CLIENTS}:
        parser.error(f"unknown client {', '.join(sorted(unknown))}: use {', '.join(CLIENTS)} or {', '.join(GROUPS)}")
    names = list(dict.fromkeys(name for each in given for name in GROUPS.get(each, (each,))))
    results = []
    for name in names:
        print(f"{name}:", flush=True)
        with TemporaryDirectory() as folder:
            try:
                results.append((name, "passed", CLIENTS[name](Path(folder))))
            except Exception:
                traceback.print_exc()
                results.append((name, "FAILED", ""))
    print()
    for name, ended, versions in results:
        print(f"{name:16} {ended}  {versions}")
    return sum(ended == "FAILED" for _, ended, _ in results)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
