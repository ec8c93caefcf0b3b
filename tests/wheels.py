"""Check the packages in a folder, and use the wheel for this machine where there is no Rust, Node or compiler.

    python -m tests.wheels dist

The wheel is installed into a new environment with a PATH that has only Python. Then a service serves the page, and the
command line pushes a model, pulls it, and reads a tensor.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Final

import httpx

ROOT: Final = Path(__file__).resolve().parents[1]
EXTRAS: Final = "server,client,numpy"
SYSTEMS: Final = {"x86_64": {"manylinux2014", "manylinux_2_17"}, "aarch64": {"manylinux_2_28"}}
NAME: Final = re.compile(r"protoslice-[^-]+-cp311-abi3-(?P<systems>.+)\.whl")
PACKED: Final = {
    "wheel": {f"protoslice/{name}" for name in ("server/pages/built/first.json", "build.txt", "_core.abi3.so")},
    "sdist": {"constraints.txt", "core/crates.txt", "core/Cargo.lock", "tools/package_build.py", "LICENSE"}
    | {"service/page.cyclonedx.json"}
    | {f"service/protoslice/{name}" for name in ("server/pages/built/first.json", "build.txt")},
}  # fmt: skip


def main(folder: Path) -> None:
    """Check all packages, then try the wheel; end with a message at the first fault."""
    wheels, sdists = sorted(folder.glob("*.whl")), sorted(folder.glob("*.tar.gz"))
    assert wheels, f"{folder} has no wheel"
    assert len(sdists) == 1, f"{folder} has {len(sdists)} sdists"
    for wheel in wheels:
        machine = check_tags(wheel.name)
        with zipfile.ZipFile(wheel) as packed:
            check_content("wheel", set(packed.namelist()))
        run("auditwheel", "show", wheel)
        run("abi3audit", "--strict", wheel)
        run("check-wheel-contents", "--ignore", "W002", wheel)
        if machine == platform.machine():
            with tempfile.TemporaryDirectory() as clean:
                use(wheel.resolve(), Path(clean))
    with tarfile.open(sdists[0]) as packed:
        check_content("sdist", {name.partition("/")[2] for name in packed.getnames()})
    run("twine", "check", "--strict", *wheels, *sdists)
    print("\n".join(f"{each.name}  {each.stat().st_size / 2**20:.1f} MiB" for each in (*wheels, *sdists)))


def check_tags(name: str) -> str:
    """Return the machine of a wheel's name; AssertionError unless it runs on CPython 3.11 and later of old systems."""
    found = NAME.fullmatch(name)
    assert found, f"{name}: not a wheel for the stable ABI of CPython 3.11"
    systems = [re.fullmatch(r"(manylinux[0-9_]+?)_(x86_64|aarch64)", each) for each in found["systems"].split(".")]
    assert all(systems), f"{name}: for {found['systems']}, which no package index takes"
    (machine,) = {each[2] for each in systems if each}
    assert {each[1] for each in systems if each} & SYSTEMS[machine], (
        f"{name}: needs a newer system than {SYSTEMS[machine]}"
    )
    return machine


def check_content(kind: str, names: set[str]) -> None:
    """Raise AssertionError unless a package contains all required files."""
    missing = PACKED[kind] - names
    assert not missing, f"the {kind} lacks {sorted(missing)}"


def run(program: str, *arguments: object) -> None:
    """Run a checker of this environment."""
    print(f"$ {program} {' '.join(str(each) for each in arguments)}", flush=True)
    subprocess.run([Path(sys.executable).parent / program, *map(str, arguments)], check=True)


def use(wheel: Path, clean: Path) -> None:
    """Install the wheel into `clean`, serve, and do what the first section of the README does."""
    (clean / "bin").mkdir()
    for tool in ("sh", "uname", "ldd", "ld.so"):
        if found := shutil.which(tool):
            (clean / "bin" / tool).symlink_to(found)
    environment = {"PATH": f"{clean}/venv/bin:{clean}/bin", "HOME": str(clean), "PROTOSLICE_LOG_LEVEL": "error"}
    environment |= {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or "proxy" in name.lower()
    }

    def command(*arguments: object, cwd: Path = clean) -> str:
        ended = subprocess.run(
            list(map(str, arguments)), cwd=cwd, env=environment, check=True, text=True, stdout=subprocess.PIPE
        )
        return ended.stdout

    command(getattr(sys, "_base_executable", sys.executable), "-m", "venv", clean / "venv")
    command(
        clean / "venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:",
        "--constraint", ROOT / "constraints.txt", f"{wheel}[{EXTRAS}]",
    )  # fmt: skip
    program = clean / "venv/bin/protoslice"
    serving = subprocess.Popen(
        [program, "serve", "--port", "0", "--storage", clean / "storage"],
        env=environment, cwd=clean, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        environment["PROTOSLICE_URL"] = url = serving.stdout.readline().strip()
        page = httpx.get(url, headers={"accept": "text/html"}).text
        (script,) = re.findall(r'<script[^>]+src="([^"]+)"', page)[:1]
        assert httpx.get(f"{url}{script}").raise_for_status().content
        command("python", ROOT / "docs/make_model.py", "model.onnx")
        command(program, "push", "model.onnx", "--tag", "demo:1")
        assert "head.weight" in command(program, "tensor", "@demo:1")
        command(program, "pull", "@demo:1", "back")
        assert (clean / "back").read_bytes() == (clean / "model.onnx").read_bytes()
        command(program, "tensor", "@demo:1", "head.weight", "--slice", "0:1000", "-o", "head.npy")
        assert command("python", "-c", "import numpy; print(numpy.load('head.npy').shape)").strip() == "(1000,)"
    finally:
        serving.terminate()
        serving.wait(60)
    print(f"{wheel.name}: installed, served, pushed, pulled, read a tensor")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
