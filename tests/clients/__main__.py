"""Third-party clients, unmodified, for `make clients`; arguments select some by name."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.clients import (
    git_clone,
    git_lfs,
    hub_npm,
    hub_python,
    hub_rust,
    links,
    mlflow_gc,
    ollama,
    oras,
    transformers_js,
)

CLIENTS: Final[Mapping[str, Callable[[Path], str]]] = {
    "npm": hub_npm.run,
    "rust": hub_rust.run,
    "python": hub_python.run,
    "mlflow": mlflow_gc.run,
    "oras": oras.run,
    "git": git_clone.run,
    "git-lfs": git_lfs.run,
    "links": links.run,
    "ollama": ollama.run,
    "transformers.js": transformers_js.run,
}
"""Calls of each client, which return its version and raise when something does not hold."""


def main(names: list[str]) -> int:
    """Run the clients; the number of those that fail."""
    failed = 0
    for name in names or CLIENTS:
        with TemporaryDirectory() as folder:
            try:
                print(f"ok: {CLIENTS[name](Path(folder))}", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"FAILED: {name}", flush=True)
                failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
