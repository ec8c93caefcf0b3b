"""Write the image's bill of materials, and check all licences of a release; `make bills` runs this.

    python -m tools.bills dist

A wheel carries two CycloneDX files: maturin writes one for the crates, and the page's build writes one for the page.
The image has these parts and the Python packages of `docker/requirements.txt`, and its bill lists all three. The
Debian packages in the image come from its base image, and are not listed. The program fails if a licence is neither in
`PERMISSIVE` nor accepted for its package in `ACCEPTED`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
PERMISSIVE: Final = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "LLVM-exception", "MIT", "MIT-0", "PSF-2.0",
    "Unicode-3.0", "Unlicense", "Zlib",
}  # fmt: skip
ACCEPTED: Final = {
    "certifi": ["MPL-2.0"],  # separate packages, with unchanged files
    "orjson": ["MPL-2.0 AND (Apache-2.0 OR MIT)"],
    "psycopg": ["LGPL-3.0-only"],  # only in the extra `postgres`; imported, neither changed nor linked
    "psycopg-binary": ["LGPL-3.0-only"],
    "protobuf": [],  # BSD-3-Clause by its LICENSE file; its metadata has no identifier
}
"""Packages that we accept with exactly these licences, though they are not permissive or not stated."""

Component = dict[str, Any]


def main(dist: Path) -> None:
    """Write the image's bill into `dist`; exit with a message if a licence is unknown or copyleft."""
    (wheel, *_) = sorted(dist.glob("*.whl")) or sys.exit(f"{dist} has no wheel: run `make wheels`")
    bill = image_bill(wheel)
    name = "-".join(wheel.name.split("-")[:2])
    (dist / f"{name}-image.cyclonedx.json").write_text(json.dumps(bill, indent=1))
    if found := problems(bill["components"]):
        sys.exit("\n".join(found))
    print(f"{len(bill['components'])} components, all with a licence that is permissive or accepted by name")


def image_bill(wheel: Path) -> Component:
    """Return the image's bill of materials: Python packages, crates and the page's packages."""
    bill = python_bill()
    with zipfile.ZipFile(wheel) as packed:
        names = [name for name in packed.namelist() if re.search(r"\.dist-info/sboms/.*\.json$", name)]
        parts = [json.loads(packed.read(name)) for name in names]
    if len(parts) != 2:
        sys.exit(f"{wheel.name} has {len(parts)} bills of materials instead of 2: crates and page")
    for part in parts:
        bill["components"] += part["components"]
        bill["dependencies"] += part.get("dependencies", [])
    return bill


def python_bill() -> Component:
    """Return the bill of the packages in `docker/requirements.txt`, which it installs into a new environment."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin/python")
        run(sys.executable, "-m", "venv", "--without-pip", folder)
        run(
            sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check",
            "--only-binary", ":all:", "--require-hashes", "--requirement", ROOT / "docker/requirements.txt",
        )  # fmt: skip
        program = Path(sys.executable).parent / "cyclonedx-py"
        bill: Component = json.loads(run(program, "environment", "--output-reproducible", "--sv", "1.6", python))
    return bill


def problems(components: list[Component]) -> list[str]:
    """Return a line for each component whose licence is neither permissive nor accepted for this component."""
    found = []
    for component in components:
        licences = stated(component)
        named = {word for licence in licences for word in re.findall(r"[\w.+-]+", licence)} - {"AND", "OR", "WITH"}
        if ACCEPTED.get(component["name"]) == licences or (named and named <= PERMISSIVE):
            continue
        found.append(
            f"{component['name']} {component['version']}: licence {', '.join(licences) or 'not stated'}; "
            "remove it, or accept it by name in tools/bills.py"
        )
    return found


def stated(component: Component) -> list[str]:
    """Return the SPDX expressions of a component's licences, or their names if there are no expressions."""
    each = [entry.get("expression") or entry["license"].get("id") for entry in component.get("licenses", [])]
    names = [entry["license"]["name"] for entry in component.get("licenses", []) if "name" in entry.get("license", {})]
    return [licence for licence in each if licence] or names


def run(*command: object) -> str:
    """Run a program and return its output."""
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
