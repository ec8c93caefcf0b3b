"""Every link of the pages has an existing target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.measure import MADE
from typer.main import get_command

from protoslice.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
TOPS = (ROOT, ROOT / "service" / "protoslice")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted({*(ROOT / "docs").rglob("*.md")} - {ROOT / page for page in MADE}),
]


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of `page`: their words in lower case, joined by hyphens."""
    headings = re.findall(r"^#+ (.+)$", _prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)]+)\)", _prose(page)):
        name, _, anchor = target.partition("#")
        there = page.parent / name if name else page
        if there.resolve().relative_to(ROOT).as_posix() in MADE:
            continue
        assert there.is_file(), target
        assert not anchor or anchor in _anchors(there), target


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    names = re.findall(r"`([\w./-]*/[\w./-]+\.(?:py|rs|sh|md|conf))`", page.read_text())
    tops = (*TOPS, ROOT / "service", ROOT / "service" / "protoslice" / "server")
    ours = [name for name in names if not name.startswith("tensorflow/")]
    assert [name for name in ours if not any((top / name).is_file() for top in tops)] == []


def test_no_text_names_a_package_on_an_index() -> None:
    """A stranger may take a name that is not registered."""
    sources = [*PAGES, *(ROOT / "service").rglob("*.py"), *(ROOT / "web" / "src").rglob("*.ts*")]
    named = re.compile(r"pip install (?:--?\S+ )*['\"]?protoslice\b")
    assert [str(path.relative_to(ROOT)) for path in sources if named.search(path.read_text())] == []


def test_every_picture_is_linked() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [
        each.name for each in (ROOT / "docs/screenshots").iterdir() if f"screenshots/{each.name})" not in text
    ] == []


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/how-to/contribute/architecture.md"])
def test_names_beside_files_stand_in_them(page: str) -> None:
    text, file, name = (ROOT / page).read_text(), r"`([\w./-]*/[\w./-]+\.(?:py|rs))`", r"`([A-Za-z_][\w.:]*)`"
    pairs = re.findall(rf"{file}\s+{name}", text) + [pair[::-1] for pair in re.findall(rf"{name} in\s+{file}", text)]
    assert pairs
    for path, dotted in pairs:
        source = next((top / path).read_text() for top in TOPS if (top / path).is_file())
        assert all(re.search(rf"\b{each}\b", source) for each in re.findall(r"\w+", dotted)), f"{dotted} in {path}"


def test_common_tasks_are_commands() -> None:
    table = (ROOT / "docs/reference/command-line.md").read_text().split("## Common tasks")[1].split("\n## ")[0]
    commands = [words.split() for words in re.findall(r"protoslice ([a-z][^`]*)`", table)]
    assert len(commands) >= 10
    for verb, *words in commands:
        command = get_command(app).commands[verb]  # type: ignore[attr-defined]
        known = {option for each in command.params for option in each.opts}
        assert {word for word in words if word.startswith("-")} <= known, verb
