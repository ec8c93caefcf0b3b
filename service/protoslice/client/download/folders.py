"""Download of a store's files: small ones concurrently, then large ones in turn, in parts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from protoslice.client.download.files import Progress
from protoslice.client.download.remote import DIGESTED
from protoslice.client.threads import DaemonPool
from protoslice.facts import File, Piece

SMALL_FILE: Final = DIGESTED
"""A file up to this size comes in one response; latency is its main cost."""

T = TypeVar("T")
Fetch = Callable[[File, Progress | None], T]


def each_file(files: Sequence[File], fetch: Fetch[T], parallel: int, progress: Progress | None) -> list[T]:
    """Results of `fetch` for the files, in their order; `progress` receives the sum over all files."""
    total = _Total(sum(file.size for file in files), progress)
    done: dict[str, T] = {}

    def one(file: File) -> None:
        done[file.path] = fetch(file, total.part())

    with DaemonPool(parallel, "protoslice-file") as pool:
        for waiting in [pool.submit(partial(one, file)) for file in files if file.size <= SMALL_FILE]:
            waiting.result()
    for file in files:
        if file.size > SMALL_FILE:
            one(file)
    return [done[file.path] for file in files]


class PiecesByFile:
    """Pieces of a store by file, requested once on first use."""

    def __init__(self, ask: Callable[[], Iterable[Piece]]) -> None:
        self._ask = ask
        self._lock = threading.Lock()
        self._found: dict[str, list[Piece]] | None = None

    def of(self, path: str) -> list[Piece]:
        """Pieces of a file, in order."""
        with self._lock:
            if self._found is None:
                found: dict[str, list[Piece]] = {}
                for piece in self._ask():
                    found.setdefault(piece.file, []).append(piece)
                self._found = found
            return self._found.get(path, [])


class _Total:
    """Progress of several files, summed over threads."""

    def __init__(self, size: int, progress: Progress | None) -> None:
        self._size = size
        self._progress = progress
        self._done = 0
        self._lock = threading.Lock()

    def part(self) -> Progress | None:
        """Progress callback for one of the files; None without a caller's callback."""
        if self._progress is None:
            return None
        before = 0

        def told(done: int, _: int | None) -> None:
            nonlocal before
            with self._lock:
                self._done += done - before
                before = done
                if self._progress is not None:
                    self._progress(self._done, self._size)

        return told
