"""A progress bar, which appears on a terminal when work takes longer than a second."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from protoslice.sizes import format_size

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PATIENCE_SECONDS = 1.0


class Progress:
    """A counter of completed work in bytes, or in items of another `unit`.

    On a terminal, a progress bar with the rate and the remaining time appears after a second.
    """

    def __init__(self, what: str, total: int | None = None, *, unit: str | None = None) -> None:
        self._what = what
        self._unit = unit
        self._total = total
        self._done = 0
        self._first: tuple[float, int] | None = None
        self._began = time.monotonic()
        self._watched = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._task: TaskID | None = None

    def advance(self, count: int) -> None:
        """Add `count` to the number of bytes or items that are done."""
        self._done += count
        self._update()

    def expect(self, count: int) -> None:
        """Add `count` bytes to the total."""
        self._total = count + (self._total or 0)

    def up_to(self, done: int, total: int | None) -> None:
        """Set the number of bytes or items that are done, and the total number. A `total` of None means unknown."""
        self._done, self._total = done, total
        self._update()

    def _update(self) -> None:
        if self._first is None:
            self._first = time.monotonic(), self._done  # earlier bytes, as of a resumed pull, do not count
        if self._bar is None and self._watched and time.monotonic() - self._began > PATIENCE_SECONDS:
            self._show()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=self._done, total=self._total, pace=self._pace())

    def _pace(self) -> str:
        """Return the rate and the remaining time as text, or an empty text while the rate is below 1."""
        began, first = self._first or (0.0, 0)
        rate = (self._done - first) / max(time.monotonic() - began, 1e-3)
        if rate < 1:
            return ""
        left = "" if self._total is None else f" {timedelta(seconds=round((self._total - self._done) / rate))}"
        return f"{f'{rate:.0f}' if self._unit else format_size(round(rate))}/s{left}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn

        sizes: ProgressColumn = MofNCompleteColumn() if self._unit else DownloadColumn(binary_units=True)
        pace = TextColumn("{task.fields[pace]}")
        columns = (TextColumn("{task.description}"), BarColumn(), sizes, pace)
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(self._what, total=self._total, completed=self._done, pace=self._pace())
        self._bar.start()
