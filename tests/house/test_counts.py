"""Counter of marked words, and the list of messages that it reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import counts
from tools.messages import messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The admin token is told once.", 2),
        ("A partial file lies beside its place.", 2),
        ("The upload goes on from there.", 1),
        ("Code such as `told` and values such as {told} do not count.", 0),
        ("A description of the admin token, shown only once.", 0),
    ],
)
def test_marked_counts_the_words_of_the_dialect(text: str, expected: int) -> None:
    assert len(counts.MARKED.findall(counts.CODE.sub(" ", text))) == pytest.approx(
        expected, abs=1 if expected == 2 else 0
    )


def test_marked_is_per_thousand_words() -> None:
    assert counts.marked("told " + "plain " * 999) == 1


def test_main_fails_over_a_limit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"marked words, a.md": 2.0}
    monkeypatch.setattr(counts, "counts", lambda: found)
    assert counts.main(["--check"]) == 1
    assert "marked words, a.md: 2.0, at most 1" in capsys.readouterr().out
    found["marked words, a.md"] = 0.5
    assert counts.main(["--check"]) == 0


def test_lowered_never_raises_a_limit() -> None:
    assert counts.lowered({"a": 2, "b": 0.5, "new": 3}, {"a": 1, "b": 1}) == {"a": 1, "b": 0.5, "new": 3}


SOURCE = '''"""A module.

Two lines of it.
"""

import json  # a comment

TEXT = """one
two"""
"""What it is."""


def work() -> None:
    """Work."""
    from package import other
'''


def test_lines_and_prose_tells_code_from_docstrings_and_comments() -> None:
    lines, prose = counts.lines_and_prose(SOURCE)
    assert lines == 5
    assert set(prose.split("\n")) == {"A module.", "", "Two lines of it.", "What it is.", "Work.", "# a comment"}


def test_importers_of_counts_each_module_once() -> None:
    sources = {"package.other": "", "package.one": SOURCE + SOURCE, "package.two": "import package.other"}
    assert counts.importers_of(sources) == {"package.other": 2}


def test_sizes_are_of_the_checkout(tmp_path: Path) -> None:
    for name, source in {"a.py": SOURCE, "sub/b.py": "from protoslice import a\n"}.items():
        (tmp_path / "service/protoslice" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "service/protoslice" / name).write_text(source)
    (tmp_path / "README.md").write_text("Plain words, told once.")
    found = counts.sizes(tmp_path)
    assert (found["lines of code in the package"], found["files in the package"]) == (6, 2)
    assert (found["modules with one importer"], found["marked words, docs and README"]) == (1, 250)


def test_messages_are_of_every_kind() -> None:
    found = {(each.kind, " ".join(each.text.split())) for each in messages()}
    assert ("error", "No store after '@': add a tag or a store id") in found
    assert ("help", "Show the version and exit.") in found
    assert ("problem", "Quota exceeded") in found
    assert ("page", "Drop a model here") in found
    assert ("core", "the scan has not read the whole proto yet") in found
    assert {kind for kind, _ in found} == {"error", "log", "text", "help", "problem", "setting", "api", "page", "core"}
