"""Selection of tensors by name: `*` against regular expressions, on names too short to be slow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.tensors import tensor

from protoslice.concurrency import finish
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.tensors.listing import Tensors, chosen_job, single, wanted


class Counted(Tensors):
    """Counts how often a name is asked for."""

    asked = 0

    def key(self, number: int) -> tuple[str, str]:
        self.asked += 1
        return super().key(number)


def picked(found: Tensors, names: Sequence[str]) -> list[int]:
    """The numbers chosen, in order."""
    return [*finish(chosen_job(found, names))]


def matches(pattern: str, name: str) -> bool:
    """True if the pattern means a tensor of that name."""
    try:
        return bool(picked(Tensors.of([tensor(b"\0", "U8", [1], name=name)]), [pattern]))
    except NotFound:
        return False


@given(st.text("ab*.", max_size=8).filter(lambda text: "*" in text), st.text("ab.", max_size=10))
def test_a_star_stands_for_anything(pattern: str, name: str) -> None:
    expression = ".*".join(re.escape(part) for part in pattern.split("*"))
    assert matches(pattern, name) is (re.fullmatch(expression, name) is not None)


def test_what_else_means_something_in_patterns_is_itself() -> None:
    assert matches("a[?]*", "a[?]b")
    assert not matches("a[?]*", "a?b")
    assert matches("*\n*", "a\nb")


def test_many_stars_cost_no_more_than_few() -> None:
    """To a regular expression these are more tries than anybody can wait for."""
    assert not matches("*" + "a*" * 40 + "b", "a" * 400)
    assert matches("*" + "a*" * 40 + "b", "a" * 400 + "b")


def test_types_that_there_are() -> None:
    of_bytes = wanted(None, "U8")
    assert of_bytes(tensor(b"\0", "U8", [1]))
    assert not of_bytes(tensor(b"\0", "I8", [1]))
    with pytest.raises(InvalidInput, match="Unknown dtype 'X8'"):
        wanted(None, "X8")


def test_which_of_many_are_chosen() -> None:
    found = Tensors.of([tensor(b"\0", "U8", [1], name=f"{kind}{number}") for kind in "ab" for number in range(4)])
    assert picked(found, ["b*", "a2", "path:a0", "*2"]) == [0, 2, 4, 5, 6, 7]
    for missing in (["a*", "c"], ["a1", "c*"]):
        with pytest.raises(NotFound, match="No tensor 'c"):
            picked(found, missing)


def test_errors_quote_names_in_part() -> None:
    name = "a\n\x1b" * 100_000
    found = Tensors.of([tensor(b"\0", "U8", [1], name=name)] * 2)
    errors = list[str]()
    for call in (
        lambda: single(found, "b" + name),
        lambda: single(found, name),
        lambda: picked(found, ["b" + name]),
        lambda: picked(found, [f"b{name}*"]),
    ):
        with pytest.raises((NotFound, Conflict)) as caught:
            call()
        errors.append(caught.value.message)
    for error in errors:
        assert len(error) < 3000
        assert error.isprintable()


def test_names_with_stars_are_bounded_and_others_are_not() -> None:
    found = Tensors.of([tensor(b"\0", "U8", [1], name=f"w{number}") for number in range(400)])
    assert len(picked(found, [f"w{number}" for number in range(400)])) == 400
    assert len(picked(found, [f"w{number}*" for number in range(64)])) == 400
    with pytest.raises(InvalidInput, match="At most 64"):
        picked(found, [f"w{number}*" for number in range(65)])


def test_each_name_is_told_once_and_looked_at_in_slices() -> None:
    made = [tensor(b"\0", "U8", [1], name=f"w{number}") for number in range(3000)]
    found = Counted(len(made), made.__getitem__)
    asked = [found.asked for _ in chosen_job(found, [f"*{number}*" for number in range(64)])]
    assert found.asked == 3000
    assert max(after - before for before, after in pairwise([*asked, 3000])) <= 1024
