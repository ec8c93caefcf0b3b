"""Omissions: bounded, and the same after their way through a header."""

from __future__ import annotations

import pytest

from protoslice.errors import Unsupported
from protoslice.tensors.omitted import Omitted, refuse


@pytest.mark.parametrize(
    "names",
    [
        ["w"],
        ['a"b', "a b", "a\\b", "a,b)", "%", "é\N{SNOWMAN}", "", "\n\r", "a/b:c"],
        [str(number) for number in range(1000)],
        ["\x00" * 5000],
    ],
)
def test_omitted_survives_its_header(names: list[str]) -> None:
    omitted = Omitted.of(len(names), names)
    assert omitted is not None
    header = omitted.header()
    assert header.isascii()
    assert header.isprintable()
    assert len(header) < 8000
    assert Omitted.parse(header) == omitted
    assert omitted.count == len(names)
    assert len(omitted.names) <= 10


def test_omitted_header_takes_names_that_are_no_utf8() -> None:
    omitted = Omitted(1, ("\udcff",))
    assert Omitted.parse(omitted.header()) == Omitted(1, ("\\udcff",))


@pytest.mark.parametrize(
    "header", [None, "", "count=x", "count=1", 'count=1, names=("a', "count=0, names=()", "\udcff"]
)
def test_omitted_of_a_foreign_header_is_none(header: str | None) -> None:
    assert Omitted.parse(header) is None


def test_refuse_names_what_is_left_out() -> None:
    refuse(None, strict=True)
    refuse(Omitted(2, ("a", "b")), strict=False)
    with pytest.raises(Unsupported, match="12 tensors left out: 'a', 'b' and 10 more"):
        refuse(Omitted(12, ("a", "b")), strict=True)
