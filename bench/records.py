"""Benchmark of riegeli records of 1 MiB, uncompressed: written and read, against copies in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.timing import Row, pair

from protoslice.riegeli import RecordReader, RecordWriter

MIB = 1 << 20


class Nowhere:
    """A file object that keeps nothing: what is left is the work of the writer."""

    def write(self, data: bytes) -> int:
        """Takes all of `data`."""
        return len(data)


def records(folder: Path, scale: float) -> Iterator[Row]:
    """Speeds as shares of memcpy's: 2 and 4 GB/s where memcpy gives 8."""
    count = max(2, int(256 * scale))
    given = [bytes([number % 251]) * MIB for number in range(count)]
    path = folder / "records"
    buffer = bytearray(MIB)

    def copy() -> None:
        for record in given:
            buffer[:] = record

    def write(dest: object) -> None:
        with RecordWriter(dest, options="uncompressed") as writer:  # type: ignore[arg-type]
            writer.write_records(given)

    def write_plainly() -> None:
        with (folder / "plain").open("wb", buffering=0) as file:
            for record in given:
                file.write(record)

    def read() -> None:
        with RecordReader(path) as reader:
            for _ in reader.read_records():
                pass

    def row(what: str, times: tuple[float, float], bar: float) -> Row:
        ours, peer = (f"{count * MIB / time / 1e9:.2f} GB/s" for time in times)
        return Row(what, ours, peer, times[1] / times[0], bar)

    yield row("write records into memory, speed against memcpy", pair(lambda: write(Nowhere()), copy), 0.25)
    write(path)
    yield row("read records from a file, speed against memcpy", pair(read, copy), 0.5)
    yield row("write records to a file, speed against plain writes", pair(lambda: write(path), write_plainly), 0.5)
