"""Checker of prose: every breach that the rule names is found, and the allowance only falls."""

from __future__ import annotations

import pytest
from tests.house.prose import Breach, excess, fault, lowered, python_texts, rust_texts


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


def test_a_block_of_doc_comments_is_one_text() -> None:
    source = "//! A crate.\n//! More.\n\n/// A function.\n///\n/// More.\nfn f() {}\n// A comment.\n//// A rule.\n"
    assert list(rust_texts(source)) == [(1, "A crate."), (4, "A function.")]


def _found(*paths: str) -> list[Breach]:
    return [Breach(path, 1, "opens with 'What'") for path in paths]


def test_a_room_may_have_no_more_breaches_than_it_had() -> None:
    found = _found("service/protoslice/cli/verbs/a.py", "service/protoslice/cli/b.py", "tests/cli/c.py")
    assert excess(found, {"service/protoslice/cli": 2, "tests/cli": 1}) == {}
    assert excess(found, {"service/protoslice/cli": 1}) == {"service/protoslice/cli": 2, "tests/cli": 1}


def test_an_allowance_only_falls() -> None:
    found = _found("tests/cli/a.py", "tests/cli/b.py", "bench/c.py")
    assert lowered(found, {"tests/cli": 5, "bench": 0, "docker": 3}) == {"tests/cli": 2}
