"""Writing and reading riegeli records against copying the same bytes: medians of five, ratios to memcpy."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from protoslice.riegeli import RecordReader, RecordWriter

MIB = 1 << 20
COUNT = 256
SMALL = 100


class Row(NamedTuple):
    """One measurement: bytes per second, and that as a share of what copying in memory gives."""

    name: str
    speed: float
    ratio: float

    def __str__(self) -> str:
        return f"{self.name:<44} {self.speed / 1e9:6.2f} GB/s  {self.ratio:5.2f} of memcpy"


class Nowhere:
    """A file object that keeps nothing: what is left is the work of the writer."""

    def write(self, data: bytes) -> int:
        """Takes all of `data`."""
        return len(data)


def write(dest: object, records: list[bytes], options: str) -> None:
    """Every record written."""
    with RecordWriter(dest, options=options) as writer:  # type: ignore[arg-type]
        writer.write_records(records)


def read(path: Path) -> None:
    """Every record read, its hash checked."""
    with RecordReader(path) as reader:
        for _ in reader.read_records():
            pass


def median(work: Callable[[], object]) -> float:
    """The median of five times, in seconds, after one run that does not count."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def run() -> list[Row]:
    """Rows for writing and reading 256 MiB of records, on a file in the page cache."""
    with tempfile.TemporaryDirectory() as folder:
        seconds = dict(_measure(Path(folder)))
    whole = COUNT * MIB
    return [Row(name, whole / time, seconds["memcpy"] / time) for name, time in seconds.items()]


def _measure(folder: Path) -> Iterator[tuple[str, float]]:
    data = os.urandom(MIB) * COUNT
    records = [data[i * MIB : (i + 1) * MIB] for i in range(COUNT)]
    path, plain = folder / "records.riegeli", folder / "plain"
    yield "memcpy", median(_copy_all(data))
    yield "1 MiB records into memory", median(lambda: write(Nowhere(), records, "uncompressed"))
    yield "1 MiB records into a file", median(lambda: write(path, records, "uncompressed"))
    yield "1 MiB records from a file", median(lambda: read(path))
    yield "the same bytes into a file, plainly", median(lambda: _write_plain(plain, records))
    yield "the same bytes from a file, plainly", median(lambda: _read_plain(plain))
    small = [data[i : i + SMALL] for i in range(0, len(data), SMALL)]
    yield "100-byte records into a file, uncompressed", median(lambda: write(path, small, "uncompressed,chunk_size:1M"))
    yield "100-byte records from a file, uncompressed", median(lambda: read(path))


def _copy_all(data: bytes) -> Callable[[], None]:
    source, room = memoryview(data), memoryview(bytearray(len(data)))

    def copy() -> None:
        for begin in range(0, len(data), MIB):
            room[begin : begin + MIB] = source[begin : begin + MIB]

    return copy


def _write_plain(path: Path, records: list[bytes]) -> None:
    with path.open("wb", buffering=0) as file:
        for record in records:
            file.write(record)


def _read_plain(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(MIB):
            pass


if __name__ == "__main__":
    print("\n".join(map(str, run())))
