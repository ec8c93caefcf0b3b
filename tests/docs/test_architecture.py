"""The map of the architecture: everything that it names exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/how-to/contribute/architecture.md").read_text()


def _rows(heading: str) -> list[list[str]]:
    """Return the names in the first column of the table after `heading`, row by row."""
    section = PAGE.split(heading, 1)[1]
    rows = re.findall(r"^\| (`.+?) \|", section.split("\n\n|", 1)[1].split("\n\n", 1)[0], re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


def _table(heading: str) -> list[str]:
    return [name for row in _rows(heading) for name in row]


def _exists(folder: Path, name: str, ending: str) -> bool:
    return (folder / name.rstrip("/")).is_dir() or (folder / f"{name}{ending}").is_file()


def test_every_room_is_there() -> None:
    names = _table("## The packages")
    assert len(names) >= 5
    assert [name for name in names if not (ROOT / name).is_dir()] == []


def test_every_module_of_the_engine_is_there() -> None:
    names = _table("Inside the engine")
    folder = ROOT / "core/wire/src"
    assert [name for name in names if not _exists(folder, name, ".rs")] == []
    named = {name.rstrip("/") for name in names}
    found = {path.stem for path in folder.iterdir()} - {"lib"}
    assert found - named == set(), "a module that the map does not show"


def test_no_module_of_the_engine_knows_one_above_it() -> None:
    rows = _rows("Inside the engine")
    level = {name.rstrip("/"): number for number, row in enumerate(rows) for name in row}
    folder = ROOT / "core/wire/src"
    known = 0
    for path in folder.rglob("*.rs"):
        module = path.relative_to(folder).parts[0].removesuffix(".rs")
        for other in re.findall(r"\bcrate::([a-z]\w*)", path.read_text().split("#[cfg(test)]")[0]):
            known += 1
            assert module == "lib" or level[other] <= level[module], f"{path.name} knows {other}"
    assert known > 100


def test_every_module_of_the_package_is_there() -> None:
    names = _table("And in the package")
    folder = ROOT / "service/protoslice"
    assert [name for name in names if not _exists(folder, name, ".py")] == []
    found = {path.stem for path in folder.iterdir() if path.suffix in {"", ".py"} and not path.name.startswith("_")}
    assert found - set(names) - {"py"} == set(), "a module that the map does not show"


def test_modules_of_the_package_are_in_the_order_that_the_linter_checks() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["name"] == "layers point down")
    level = {name: number for number, row in enumerate(layers) for name in re.findall(r"protoslice\.(\w+)", row)}
    names = _table("And in the package")
    assert level.keys() == set(names)
    assert names == sorted(names, key=lambda name: level[name])


def test_packages_inside_packages_are_those_of_the_table() -> None:
    rows = re.findall(
        r"^\| `(\w+)/` \| (.+) \|$", PAGE.split("Packages inside these")[1].split("\n## ")[0], re.MULTILINE
    )
    folder = ROOT / "service/protoslice"
    found = {str(path.parent.relative_to(folder)) for path in folder.glob("*/*/__init__.py")}
    named = {f"{package}/{name}" for package, text in rows for name in re.findall(r"`(\w+)`", text)}
    assert named == found


def test_every_page_is_in_the_navigation() -> None:
    site = (ROOT / "zensical.toml").read_text()
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages if f'"{page}"' not in site} == set()
