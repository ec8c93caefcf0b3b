"""@huggingface/hub from npm on an open and on a closed service."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.clients.running import HERE, MADE, good, serving

VERSION: Final = "2.17.5"
_CALLS: Final = "hub_npm.mjs"


def installed_by_npm(package: str, version: str) -> Path:
    """Return the folder of a package; install the package if it is missing, without running its scripts."""
    home = MADE / f"npm-{package.rpartition('/')[2]}-{version}"
    if not (home / "node_modules").exists():
        home.mkdir(parents=True, exist_ok=True)
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"]
        subprocess.run(["npm", "install", "--prefix", home, *options, f"{package}@{version}"], check=True)
    return home


def run(folder: Path) -> str:
    """Make the calls of `hub_npm.mjs`."""
    home = installed_by_npm("@huggingface/hub", VERSION)
    shutil.copy(HERE / _CALLS, home)  # modules are looked up next to the script
    for closed in (False, True):
        with serving(folder, closed=closed) as service:
            asked = {"HUB_URL": service.url, "TOKEN": service.token, "TMPDIR": str(folder)}
            good("node", home / _CALLS, folder=folder, env=asked)
    found = json.loads((home / "node_modules/@huggingface/hub/package.json").read_text())["version"]
    return f"@huggingface/hub {found} under Node {good('node', '--version', folder=folder).strip()}"
