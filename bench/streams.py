"""Benchmark of streams of records: indexed as their bytes come in, read in order and at random."""

from __future__ import annotations

import os
import random
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.timing import Row, pair, seconds

import protoslice
from protoslice import _core

PIECE: Final = 1 << 20
LOOKS: Final = 1000


def streams(folder: Path, scale: float) -> Iterator[Row]:
    """Small records by feeding, larger ones by number; processor time, since the machine may be busy."""
    small, large = folder / "small.delimited", folder / "large.u32le"
    count = max(1000, int(1e7 * scale))
    _write(small, count, lambda _: b"\x64" + bytes(100))
    yield _indexing(small, count)
    lengths = random.Random(1)
    _write(large, max(100, int((1 << 18) * scale)), lambda _: _fixed(lengths.randrange(3000, 5000)))
    with protoslice.records(large, "my.Record", framing="u32le") as records:
        yield _in_order(large, records)
        yield _at_random(records)


def _indexing(path: Path, count: int) -> Row:
    def index() -> None:
        scanner = _core.RecordScanner("delimited")
        for piece in _pieces(path):
            scanner.feed(piece)
        assert _core.Records(scanner.finish(path.stat().st_size)).count == count

    ours, peer = pair(index, lambda: [None for _ in _pieces(path)], clock=time.process_time)
    what = "index records of 100 bytes while the file is read, against reading it"
    return Row(what, _speed(path, ours), _speed(path, peer), peer / ours, 0.5)


def _in_order(path: Path, records: protoslice.Records) -> Row:
    def read() -> None:
        for _ in records:
            pass

    ours, peer = pair(read, lambda: [None for _ in _pieces(path)], clock=time.process_time)
    return Row(
        "read records of 4 kB in order, against reading the file",
        _speed(path, ours),
        _speed(path, peer),
        peer / ours,
        0.7,
    )


def _at_random(records: protoslice.Records) -> Row:
    numbers = [random.Random(2).randrange(len(records)) for _ in range(LOOKS)]
    ours, _ = pair(lambda: [records[number] for number in numbers], lambda: None)
    return Row(
        "one record at random of a GiB, against 1 ms", seconds(ours / LOOKS), "1 ms", ours / LOOKS / 1e-3, 1, False
    )


def _write(path: Path, count: int, record: Callable[[int], bytes]) -> None:
    with path.open("wb", buffering=PIECE) as file:
        for number in range(count):
            file.write(record(number))


def _fixed(length: int) -> bytes:
    return struct.pack("<I", length) + bytes(length)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            yield piece


def _speed(path: Path, taken: float) -> str:
    return f"{os.path.getsize(path) / taken / 1e9:.2f} GB/s"
