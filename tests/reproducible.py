"""Build the packages of the last commit twice, in different folders and with different homes: `make reproducible`.

Both builds must give the same bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]


def build(folder: Path, home: Path, machine: str) -> dict[str, str]:
    """Clone into `folder` and build there; return the digests of the packages by their names."""
    home.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    toolchains = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    environment = os.environ | {"HOME": str(home), "CARGO_HOME": str(home / "cargo"), "RUSTUP_HOME": toolchains}
    for name in (".npmrc",):  # the registry of this machine
        if (Path.home() / name).exists():
            (home / name).symlink_to(Path.home() / name)
    subprocess.run(
        [sys.executable, "-m", "tools.package_build", "dist", machine], cwd=folder, env=environment, check=True
    )
    return {each.name: sha256(each.read_bytes()).hexdigest() for each in (folder / "dist").iterdir()}


def main(machine: str) -> None:
    """End with a message unless both builds are equal."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        one = build(Path(first) / "checkout", Path(first) / "home", machine)
        two = build(Path(second) / "another" / "folder", Path(second) / "home", machine)
    assert one == two, f"two builds differ:\n{one}\n{two}"
    print("\n".join(f"{digest}  {name}" for name, digest in one.items()))


if __name__ == "__main__":
    main(sys.argv[1])
