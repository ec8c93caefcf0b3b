"""Programs of other authors against the service: `python -m tests.clients NAME…`, all by default.

Each program runs unmodified; the table at the end shows its version. The name of a group runs all its programs.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.clients.engines import ENGINES
from tests.clients.s3 import PYTHON_CLIENTS


@dataclass(frozen=True, slots=True)
class Client:
    """A call of a module; the module is imported when it runs, so it needs no other client's packages."""

    module: str
    function: str = "run"
    given: tuple[str, ...] = ()

    def __call__(self, folder: Path) -> str:
        """Return the versions of the client; raise an error when a check fails."""
        versions: str = getattr(import_module(f"tests.clients.{self.module}"), self.function)(*self.given, folder)
        return versions


GROUPS: Final[Mapping[str, Mapping[str, Client]]] = {
    "registries": {
        "hub": Client("hub"),
        "hf": Client("hub_python"),
        "hub-npm": Client("hub_npm"),
        "hub-rust": Client("hub_rust"),
        "transformers.js": Client("transformers_js"),
        "mlflow": Client("mlflow"),
        "mlflow-gc": Client("mlflow", "run_gc"),
        "kserve": Client("kserve"),
        "oras": Client("oras"),
        "oci-conformance": Client("oras", "run_conformance"),
        "ollama": Client("ollama"),
        "readme": Client("readme"),
    },
    "tools": {
        "git": Client("git"),
        "git-lfs": Client("git", "run_lfs"),
        "links": Client("links"),
        "logins": Client("logins"),
        "dex": Client("dex"),
        "openapi": Client("openapi"),
        "merger": Client("merger"),
    },
    "engines": {name: Client("engines", given=(name,)) for name in ENGINES},
    "s3": {
        "aws": Client("s3", "run_aws"),
        "rclone": Client("s3", "run_rclone"),
        "dvc": Client("s3", "run_dvc"),
        "mc": Client("s3", "run_mc"),
        "s3-kserve": Client("s3", "run_kserve"),
        **{f"s3-{name}": Client("s3", "run_python", (name,)) for name in PYTHON_CLIENTS},
    },
    "buckets": {
        **{name: Client("buckets", given=(name,)) for name in ("versitygw", "minio", "azurite")},
        "s3-differential": Client("s3_differential"),
    },
}
CLIENTS: Final = {name: run for group in GROUPS.values() for name, run in group.items()}
"""The call of each client, which returns its version and raises an error when a check fails."""


def main(words: list[str]) -> int:
    """Run clients, print a table of them, and return the number of failed clients."""
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
