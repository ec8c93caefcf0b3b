"""Work that takes long ends when a signal says so."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from protoslice import _core
from protoslice.sources.files import FileSource


class Stop(Exception):
    """Raised by the handler of the signal, as Ctrl-C's raises KeyboardInterrupt."""


@pytest.fixture
def stopping() -> Iterator[None]:
    """A signal that comes stops what goes on."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def soon_stopped(work: Callable[[], object]) -> None:
    """Does `work`, while the signal comes in a moment."""
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    work()


@pytest.mark.usefixtures("stopping")
def test_a_scan_that_would_take_for_ever_ends_at_a_signal(tmp_path: Path) -> None:
    """A file of a mebibyte, given a quarter of a million times by a rope."""
    path = tmp_path / "numbers.pb"
    path.write_bytes(b"\x08\x01" * (1 << 19))
    with FileSource(path) as source:
        rope = _core.Rope([(0, 0, source.size)] * 1024)
        for _ in range(2):
            rope = _core.Rope([rope] * 16)
        with pytest.raises(Stop):
            soon_stopped(lambda: _core.index_source([source], rope))
