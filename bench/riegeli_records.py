"""Writing and reading riegeli records against copying the same bytes: medians of five, ratios to one memcpy."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from protoslice.riegeli import RecordReader, RecordWriter

RECORD = bytes(range(256)) * 4096  # 1 MiB
COUNT = 256


class Row(NamedTuple):
    """One measurement: bytes per second, and that as a share of what copying in memory gives."""

    name: str
    speed: float
    ratio: float

    def __str__(self) -> str:
        return f"{self.name:<36} {self.speed / 1e9:6.2f} GB/s  {self.ratio:5.2f} of memcpy"


def copy() -> None:
    """Every record copied once into fresh memory."""
    for _ in range(COUNT):
        bytearray(RECORD)


def write(path: Path) -> None:
    """Every record written uncompressed, alone in its chunk."""
    with RecordWriter(path, options="uncompressed") as writer:
        for _ in range(COUNT):
            writer.write_record(RECORD)


def read(path: Path) -> None:
    """Every record read, its hash checked."""
    with RecordReader(path) as reader:
        for record in reader.read_records():
            assert len(record) == len(RECORD)


def median(work: Callable[[], None]) -> float:
    """The median of five times, in seconds, after one run that does not count."""
    times = []
    for _ in range(6):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def run() -> list[Row]:
    """Rows for writing and reading 1 MiB records, on a file in the page cache."""
    total = COUNT * len(RECORD)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.riegeli"
        plain = Path(folder) / "plain"
        data = RECORD * COUNT
        seconds = {
            "memcpy": median(copy),
            "plain file write": median(lambda: _write_plain(plain, data)),
            "plain file read, 1 MiB at a time": median(lambda: _read_plain(plain)),
            "riegeli write, 1 MiB uncompressed": median(lambda: write(path)),
            "riegeli read, 1 MiB uncompressed": median(lambda: read(path)),
        }
    return [Row(name, total / time, seconds["memcpy"] / time) for name, time in seconds.items()]


def _write_plain(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(data)


def _read_plain(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


if __name__ == "__main__":
    print("\n".join(map(str, run())))
