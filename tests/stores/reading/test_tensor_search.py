"""Searches and groups of tensors, compared with slow and obvious ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import CorruptModel, InvalidInput
from protoslice.facts import TensorGroup
from protoslice.formats.model import Fault, Listed, Tensor
from protoslice.formats.outputs.listing import entry_text
from protoslice.formats.tensors.dtypes import DTYPES
from protoslice.stores.paging import PageBudget, ResultPage
from protoslice.stores.reading.tensors import searching
from protoslice.stores.reading.tensors.groups import steps_of_groups
from protoslice.stores.reading.tensors.searching import NameSearch, steps_of_page

T = TypeVar("T")
NAMES = st.lists(st.text("ab./", min_size=1, max_size=8), max_size=25)
STEP = re.compile(r"(?<=[^./:])[./:]")


def tensors(names: Sequence[str]) -> Listed:
    """Tensors of one byte, two bytes …, with these names."""
    found = [
        Tensor(name, f"path:t[{n}]", DTYPES["U8"], (n + 1,), "t", None, Fault(CorruptModel("nothing is read")))
        for n, name in enumerate(names)
    ]
    return Listed(found)


def last(steps: Any) -> ResultPage[Any]:
    """The page that comes last."""
    *_, page = steps
    assert isinstance(page, ResultPage)
    return page


def page_of(found: Listed, order: Sequence[int], search: NameSearch, limit: int, first: int = 0) -> ResultPage[bytes]:
    """The page of the tensors that `search` finds."""
    return last(steps_of_page(found, order, first, search, lambda tensor: True, PageBudget(limit), entry_text))


def groups(names: Sequence[str], prefix: str, limit: int = 1000) -> list[TensorGroup]:
    """All groups below `prefix`, in pages of `limit`."""
    found = tensors(names)
    order = sorted(range(len(names)), key=names.__getitem__)
    sizes = [0, *accumulate(number + 1 for number in order)]
    listed, cursor = list[TensorGroup](), 0
    while True:
        page = last(steps_of_groups(found, order, sizes, prefix, limit, cursor))
        listed += page.items
        if page.next is None:
            return listed
        cursor = int(page.next)


def steps_in(name: str) -> list[str]:
    """Beginnings of a name up to the end of each step."""
    return [name[: found.end()] for found in STEP.finditer(name)]


@given(NAMES, st.sampled_from(["", "a", "a.", "b/", "ab."]), st.integers(1, 4))
def test_groups_hold_all_tensors_once_and_share_their_steps(names: list[str], prefix: str, limit: int) -> None:
    found = groups(names, prefix)
    assert groups(names, prefix, limit) == found
    below = sorted(name for name in names if name.startswith(prefix))
    at = 0
    for group in found:
        members = below[at : at + group.tensors]
        at += group.tensors
        assert all(name.startswith(group.prefix) for name in members)
        assert group.size == sum(n + 1 for n, name in enumerate(names) if name in members)
        assert (group.tensor is not None) == (group.tensors == 1)
        shared = [each for each in steps_in(members[0]) if all(name.startswith(each) for name in members)]
        assert group.prefix == (members[0] if len(set(members)) == 1 else shared[-1])
    assert at == len(below)
    assert len({group.prefix for group in found}) == len(found)


def test_a_name_that_begins_others_stands_beside_them() -> None:
    found = groups(["w", "w.a", "w.b", "w", "/x/y", "encoder.layer.1.k", "encoder.layer.2.k"], "")
    assert [(each.prefix, each.tensors) for each in found] == [
        ("/x/y", 1),
        ("encoder.layer.", 2),
        ("w", 2),
        ("w.", 2),
    ]
    assert [each.prefix for each in groups(["a.b", "a.b.c", "a.b.d"], "a.")] == ["a.b", "a.b."]


@given(NAMES, st.sampled_from(["a", "^a", "a$", "[.]b", "(a|b)+$", "x"]), st.sampled_from(["", "a", "b."]))
def test_expressions_and_beginnings_choose_as_they_do_elsewhere(names: list[str], regex: str, prefix: str) -> None:
    search = NameSearch(regex=regex, prefix=prefix)
    wanted = [bool(re.search(regex, name)) and name.startswith(prefix) for name in names]
    assert list(search.fits(names)) == wanted
    page = page_of(tensors(names), range(len(names)), search, 1000)
    assert len(page.items) == sum(wanted)


def test_a_page_looks_at_so_many_names_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_WORK", 20_000)
    found, order = tensors([f"tensor.{n}" for n in range(2000)]), range(2000)
    search = NameSearch(regex="1999$")
    page = page_of(found, order, search, 10)
    pages, shown = 1, len(page.items)
    while page.next is not None:
        page = page_of(found, order, search, 10, int(page.next))
        pages, shown = pages + 1, shown + len(page.items)
    assert (shown, pages) == (1, 4)
    costly = NameSearch(regex=r"\w{3}").work
    assert costly < search.work / 4


@pytest.mark.parametrize("regex", ["(", r"(a)\1", "(?=a)", "a" * 257, r"\w{900}", "a{1000}{1000}"])
def test_an_expression_that_is_none_or_too_large_is_refused(regex: str) -> None:
    with pytest.raises(InvalidInput):
        NameSearch(regex=regex)


def test_names_that_are_no_text_are_searched() -> None:
    assert list(NameSearch(regex="b$").fits(["a\udcffb", "b\udcff"])) == [True, False]
