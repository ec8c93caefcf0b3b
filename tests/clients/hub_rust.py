"""The crate hf-hub, which sends 20 MiB, on an open and on a closed service."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.clients.running import HERE, MADE, good, serving


def run(folder: Path) -> str:
    """Build and run the program of `hub_rust/`."""
    home = MADE / "hub-rust"
    home.mkdir(parents=True, exist_ok=True)
    for name in ("Cargo.toml", "main.rs"):  # the lock file is not written into the sources
        shutil.copy(HERE / "hub_rust" / name, home)
    subprocess.run(["cargo", "build", "--quiet"], cwd=home, check=True, env=os.environ | {"CARGO_TARGET_DIR": "target"})
    for closed in (False, True):
        with serving(folder, closed=closed) as service:
            asked = {"HF_ENDPOINT": service.url, "HF_HOME": str(folder / f"home-{closed}")}
            if closed:
                asked["HF_TOKEN"] = service.token
            good(home / "target/debug/hub-rust", folder=folder, env=asked)
    locked = (home / "Cargo.lock").read_text().partition('name = "hf-hub"\nversion = "')[2]
    return f"hf-hub {locked.partition(chr(34))[0]} (Rust)"
