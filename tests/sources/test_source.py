"""Objects that the end of a `with` block closes."""

from __future__ import annotations

import pytest

from protoslice.sources.source import Closable, ClosedAtEnd


class Held(ClosedAtEnd):
    closed = 0

    def close(self) -> None:
        self.closed += 1


def test_the_end_of_a_block_closes() -> None:
    with Held() as held:
        assert held.closed == 0
    assert held.closed == 1


def test_an_error_closes_too_and_goes_on() -> None:
    held = Held()
    with pytest.raises(ZeroDivisionError), held:
        raise ZeroDivisionError
    assert held.closed == 1


def test_a_class_without_close_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="close"):
        type("Open", (ClosedAtEnd,), {})()


def test_whatever_has_a_close_is_closable() -> None:
    assert isinstance(Held(), Closable)
    assert not isinstance(object(), Closable)
