"""Build the packages of the last commit twice, and without each kind of pin: `make reproducible`.

Both builds, in different folders, with different homes, clocks and time zones, must give the same bytes. A build from
which the pin of one crate, Python package or npm package was removed must fail.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
LATER: Final = ("faketime", "+1 day")
"""The clock of the second build is one day ahead, except for Rust, which would hang; certificates stay valid."""
TRUE_CLOCK: Final = """#!/bin/sh
unset LD_PRELOAD
exec {program} "$@"
"""


def environment(home: Path, zone: str) -> dict[str, str]:
    """Return the variables of a build with a separate home."""
    home.mkdir(parents=True)
    for name in (".npmrc",):  # the registry of this machine
        if (Path.home() / name).exists():
            (home / name).symlink_to(Path.home() / name)
    toolchains = os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup"))
    programs = home / "bin"
    programs.mkdir()
    for name in ("cargo", "rustc"):
        (programs / name).write_text(TRUE_CLOCK.format(program=shutil.which(name)))
        (programs / name).chmod(0o755)
    return os.environ | {
        "HOME": str(home), "CARGO_HOME": str(home / "cargo"), "RUSTUP_HOME": toolchains, "TZ": zone,
        "PATH": f"{programs}:{os.environ['PATH']}",
    }  # fmt: skip


def build(folder: Path, commit: str, machine: str, given: Mapping[str, str], *clock: str) -> dict[str, str]:
    """Clone a commit into `folder` and build there; return the digests of the packages by their names."""
    subprocess.run(["git", "clone", "--quiet", ROOT, folder], check=True)
    subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
    command = [*clock, sys.executable, "-m", "tools.package_build", "dist", machine]
    subprocess.run(command, cwd=folder, env=given, check=True)
    return {each.name: sha256(each.read_bytes()).hexdigest() for each in (folder / "dist").iterdir()}


def check_pins(folder: Path, given: Mapping[str, str]) -> None:
    """Raise AssertionError unless a build of each kind fails without the pin of one package, and names the package."""
    crates = folder / "core" / "crates.txt"
    *kept, (crate, *_) = (line.split() for line in crates.read_text().splitlines())
    crates.write_text("".join(f"{' '.join(line)}\n" for line in kept))
    refused(crate, [sys.executable, "-m", "tools.package_build", "lock"], folder, given)

    packages = folder / "docker" / "requirements.txt"
    head, found, rest = packages.read_text().partition("\nstarlette==")
    assert found, "docker/requirements.txt does not pin starlette: check another package that others need"
    lines = rest.splitlines(keepends=True)
    end = next(index for index, line in enumerate(lines) if not line.startswith(" ") and index)
    packages.write_text(f"{head}\n{''.join(lines[end:])}")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--dry-run",
        "--ignore-installed",
        "--only-binary",
        ":all:",
    )
    refused("starlette", [*pip, "--require-hashes", "--requirement", str(packages)], folder, given)

    lock = folder / "web" / "package-lock.json"
    pinned = json.loads(lock.read_text())
    del pinned["packages"]["node_modules/esbuild"]
    lock.write_text(json.dumps(pinned))
    shutil.rmtree(folder / "web" / "node_modules")
    refused("esbuild", ["sh", "build.sh", sys.executable], folder / "web", given)


def refused(package: str, command: Sequence[str], folder: Path, given: Mapping[str, str]) -> None:
    """Raise AssertionError unless a command fails and names the package that is not pinned."""
    ended = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
    said = ended.stdout + ended.stderr
    assert ended.returncode != 0, f"{' '.join(command)} takes {package}, which is not pinned"
    assert package in said, f"{' '.join(command)} does not name {package}:\n{said}"
    print(f"without the pin of {package}: {[line for line in said.splitlines() if package in line][-1].strip()}")


def main(machine: str) -> None:
    """End with a message unless both builds are equal, and those without a pin fail."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        given = environment(Path(first) / "home", "UTC")
        one = build(Path(first) / "checkout", commit, machine, given)
        there = environment(Path(second) / "home", "Pacific/Auckland")
        two = build(Path(second) / "another" / "folder", commit, machine, there, *LATER)
        assert one == two, f"two builds differ:\n{one}\n{two}"
        check_pins(Path(first) / "checkout", given)
    print("\n".join(f"{digest}  {name}" for name, digest in one.items()))


if __name__ == "__main__":
    main(sys.argv[1])
