"""Measures of the code, the counter of marked words, and the list of messages that it reads."""

from __future__ import annotations

import pytest
from tools import counts, measure
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


def test_sizes_are_those_of_the_files_given() -> None:
    files = {
        "service/protoslice/a.py": SOURCE,
        "service/protoslice/sub/b.py": "from protoslice import a\ncache = LruCache[str, int](most=1)\n",
        "service/protoslice/server/b.py": "cache = LruCache(most=1)\n",
        "tests/test_a.py": 'def test() -> None:\n    """Nothing."""\n',
        "docs/a.md": "Plain words.",
        "docs/how-to/contribute/modules.md": "Generated",
    }
    assert measure.sizes(files) == {
        "package: lines of code": 8,
        "package: files": 3,
        "package: median lines of code of a file": 2,
        "package: files above 500 lines of code": 0,
        "package: modules with one importer": 1,
        "package: names of modules used three times or more": 0,
        "caches with a bound, without server, client and cli": 1,
        "tests: lines of code": 1,
        "tests: files": 1,
        "docs: words, without pages that are not in git": 2,
    }


def test_messages_are_of_every_kind() -> None:
    found = {(each.kind, " ".join(each.text.split())) for each in messages()}
    assert ("error", "No store after '@': add a tag or a store id") in found
    assert ("help", "Show the version and exit.") in found
    assert ("problem", "Quota exceeded") in found
    assert ("page", "Drop a model here") in found
    assert ("core", "the scan has not read the whole proto yet") in found
    assert {kind for kind, _ in found} == {"error", "log", "text", "help", "problem", "setting", "api", "page", "core"}
