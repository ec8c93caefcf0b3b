"""Checker of prose: every breach that the rule names is found, and fails the check."""

from __future__ import annotations

import pytest
from tests.house import prose
from tests.house.prose import Breach, fault, judged, python_comments, python_texts, rust_texts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("What is being made, by key.", "opens with 'What'"),
        ("Its tensors, in order of their names.", "opens with 'Its'"),
        ("It's the last of all parts.", "opens with"),
        ("None when nothing is known of the part.", "opens with 'None'"),
        ("`None` for a part that nobody asked for.", "opens with"),
        ("Whether a part is near, by what is known.", "opens with 'Whether'"),
        ("", "says nothing"),
        ("...", "says nothing"),
        ("One tensor.", "says nothing"),
        ("Never.", "says nothing"),
        (f"Names of {'many ' * 20} parts.", "has 116 characters"),
    ],
)
def test_a_breach_is_named(text: str, reason: str) -> None:
    assert reason in (fault(text) or "")


@pytest.mark.parametrize(
    "text",
    [
        "Concurrent callers for a key share one task; results are not cached.",
        "See `Storage.put`.",
        "List stores.",
        "The part that whoever asks is given.\n\nWhat comes later is free.",
        "`(root draft, path)`, or None when the message is not part of the parent.",
    ],
)
def test_sound_prose_passes(text: str) -> None:
    assert fault(text) is None


def test_every_docstring_of_a_file_is_read() -> None:
    source = (
        '"""A module."""\n\nclass A:\n    """A class."""\n\n    async def b(self) -> None:\n        """A method."""\n'
    )
    assert sorted(python_texts(source)) == [(1, "A module."), (4, "A class."), (7, "A method.")]


def test_the_string_below_an_assignment_is_a_docstring() -> None:
    source = """
LIMIT = 3
"Bytes at most."
print("no docstring")
"nor this"

class A:
    size: int | None
    "What it holds."
    def b(self):
        self.left = 1
        "Bytes left."
"""
    assert sorted(python_texts(source)) == [(3, "Bytes at most."), (9, "What it holds."), (12, "Bytes left.")]


def test_a_block_of_comments_is_one_text() -> None:
    source = "#!/usr/bin/env python\n# first\n# second\n\nx = 1  # what it is\n# third\ny = '# none'\n"
    assert list(python_comments(source)) == [(2, "first"), (5, "what it is"), (6, "third")]


def test_a_block_of_doc_comments_is_one_text() -> None:
    source = (
        "//! A crate.\n//! More.\n\n/// A function.\n///\n/// More.\nfn f() {}\n// A comment.\n// More.\n//// A rule.\n"
    )
    assert list(rust_texts(source)) == [(1, "A crate."), (4, "A function."), (8, "A comment.")]


def test_comments_are_judged_by_their_opening_alone() -> None:
    found = list(judged("a.py", f"x = 1  # what it is\ny = 2  # bytes\n# {'many ' * 20}parts\n"))
    assert found == [Breach("a.py", 1, "opens with 'what': 'what it is'")]


def test_a_breach_fails_the_check_and_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    breaches = {"service/a.py": [Breach("service/a.py", 3, "opens with 'What'")], "tests/b.py": []}
    monkeypatch.setattr(prose, "sources", lambda: list(breaches))
    monkeypatch.setattr(prose, "breaches", breaches.__getitem__)
    assert prose.main([]) == prose.main(["service"]) == 1
    assert "service/a.py:3: opens with 'What'" in capsys.readouterr().out
    assert prose.main(["tests"]) == 0
    assert capsys.readouterr().out == ""
