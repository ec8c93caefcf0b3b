"""Benchmarks of the engine: indexes, chunked protos, merged ropes, riegeli records and pages of tensors."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from bench.timing import RUNS, Row, pair, seconds
from tests.support.bundles import Layout, Variable, bundle

import protoslice
from bench import models
from protoslice import _core, schema
from protoslice.formats.bundle import BundleTensors
from protoslice.riegeli import RecordReader, RecordWriter
from protoslice.server.api.encoding import encode_items
from protoslice.sources.files import FileSource
from protoslice.tensors.listing import entry_of

PIECE = 64 << 10
MIB = 1 << 20
PAGE = 1000
PAGE_SECONDS = 0.015


def indexing(folder: Path, scale: float) -> Iterator[Row]:
    """Compare indexing with parsing by the protobuf runtime, and the index's size with the file's."""
    for what, path, target, largest in (
        ("index 1 GiB in 8 constants, against parsing it", _big(folder, scale), 100, 0.001),
        ("index 200 000 small nodes, against parsing them", _small(folder, scale), 10, 0.05),
    ):
        flat = schema.bundled().flat(models.GRAPH)
        graph = schema.bundled().message_class(models.GRAPH)
        data = path.read_bytes()
        with FileSource(path) as source:

            def ours(source: FileSource = source, flat: _core.Schema = flat) -> bytes:
                return _core.index_source([source], None, flat, models.GRAPH)

            times = pair(ours, partial(graph.FromString, data))
            yield Row(what, seconds(times[0]), seconds(times[1]), times[1] / times[0], target)
            index = len(ours())
            ratio = index / len(data)
            yield Row("  size of that index, of the file", f"{index} B", f"{len(data)} B", ratio, largest, False)


def feeding(folder: Path, scale: float) -> Iterator[Row]:
    """Compare feeding a stream to the scanner with hashing it by SHA-256."""
    data = _big(folder, scale).read_bytes()
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    flat = schema.bundled().flat(models.GRAPH)

    def ours() -> None:
        scanner = _core.Scanner(flat, models.GRAPH)
        for piece in pieces:
            scanner.feed(piece)
        scanner.finish(len(data))

    def peer() -> None:
        sha = hashlib.sha256()
        for piece in pieces:
            sha.update(piece)

    times = pair(ours, peer)
    what = "feed 1 GiB in pieces of 64 KiB, share of a SHA-256"
    yield Row(what, seconds(times[0]), seconds(times[1]), times[0] / times[1], 0.05, False)


def opening(folder: Path, scale: float) -> Iterator[Row]:
    """Compare opening a saved index and resolving a path with 5 ms."""
    flat = schema.bundled().flat(models.GRAPH)
    for what, path, floor in (
        ("open an index of 200 000 nodes, resolve a path", _small(folder, scale), 16 << 10),
        ("open an index with a node for each, resolve a path", _small(folder, scale), 1),
    ):
        with FileSource(path) as source:
            index = _core.index_source([source], None, flat, models.GRAPH, floor=floor)

            def ours(index: bytes = index, source: FileSource = source) -> None:
                document = _core.Document(_core.Index(index), flat, [source])
                document.view('node[99].attr["T"].type')

            times = pair(ours, partial(bytes, 1))
            yield Row(what, seconds(times[0]), "5 ms", times[0] / 0.005, 1, False)


def splitting(folder: Path, scale: float) -> Iterator[Row]:
    """Compare writing a `.cpb` with copying the file; both end with an fsync."""
    path, out = _big(folder, scale), folder / "out"

    def ours() -> None:
        out.unlink(missing_ok=True)
        with protoslice.open(path) as proto, out.open("wb", buffering=0) as file:
            proto.split().cpb().write_to(file)
            os.fsync(file.fileno())

    def peer() -> None:
        out.unlink(missing_ok=True)
        shutil.copyfile(path, out)
        with out.open("rb") as copied:
            os.fsync(copied.fileno())

    times = pair(ours, peer)
    out.unlink()
    what = "split 1 GiB into a .cpb on disk, speed against a copy"
    yield Row(what, seconds(times[0]), seconds(times[1]), times[1] / times[0], 0.5)


def ropes(folder: Path, scale: float) -> Iterator[Row]:
    """Compare reading the merged rope of a `.cpb` by 1 MiB with reading the same bytes from the page cache."""
    path = folder / "big.cpb"
    with protoslice.open(_big(folder, scale)) as proto, path.open("wb") as file:
        proto.split().cpb().write_to(file)
    buffer = bytearray(MIB)
    size = path.stat().st_size
    with protoslice.open(path) as proto, path.open("rb") as cached:
        rope = proto.rope

        def ours() -> None:
            for at in range(0, rope.size, MIB):
                rope.read(at, min(MIB, rope.size - at))

        def by_read() -> None:
            for at in range(0, size, MIB):
                os.preadv(cached.fileno(), [buffer], at)

        with mmap.mmap(cached.fileno(), 0, prot=mmap.PROT_READ) as mapped, memoryview(mapped) as view:

            def by_map() -> None:
                for at in range(0, size, MIB):
                    part = view[at : at + MIB]
                    buffer[: len(part)] = part

            for name, peer in (("pread", by_read), ("memcpy from a mapping", by_map)):
                times = pair(ours, peer)
                what = f"read the merged rope of a 1 GiB .cpb, speed against {name}"
                yield Row(what, seconds(times[0]), seconds(times[1]), times[1] / times[0], 0.7)


def memory(folder: Path, scale: float) -> Iterator[Row]:
    """Measure how much memory a process grows by while it indexes a stream of 6 GiB."""
    count = max(1, round(6 * scale))
    grown = subprocess.run(
        [sys.executable, "-m", "bench.engine", str(count)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    mib = int(grown.stdout) / 1024
    yield Row("growth while a stream of 6 GiB is indexed", f"{mib:.1f} MiB", "64 MiB", mib / 64, 1, False)


def _grow(count: int) -> int:
    """Return the peak growth in KiB while a stream of `count` GiB is indexed.

    A small stream is indexed before, and does not count.
    """
    flat = schema.bundled().flat(models.GRAPH)
    _index(flat, 1, 1 << 20)
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = _status("VmRSS")
    _index(flat, count, 1 << 30)
    return _status("VmHWM") - before


def _index(flat: _core.Schema, count: int, each: int) -> None:
    scanner = _core.Scanner(flat, models.GRAPH)
    size = 0
    for piece in models.stream_of_constants(count, each):
        scanner.feed(piece)
        size += len(piece)
    scanner.finish(size)


def _status(name: str) -> int:
    """Return a memory figure of this process in kilobytes, such as `VmRSS`."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0


def _big(folder: Path, scale: float) -> Path:
    path = folder / "big.pb"
    if not path.exists():
        models.big_constants(path, int(scale * (1 << 30)))
    return path


def _small(folder: Path, scale: float) -> Path:
    path = folder / "small.pb"
    if not path.exists():
        models.small_nodes(path, int(scale * 200_000))
    return path


if __name__ == "__main__":
    print(_grow(int(sys.argv[1])))


class Nowhere:
    """A file object that drops all data, so that only the writer's work is measured."""

    def write(self, data: bytes) -> int:
        """Drop `data`, and return its length."""
        return len(data)


def records(folder: Path, scale: float) -> Iterator[Row]:
    """Measure speeds as shares of memcpy's: the targets are 2 and 4 GB/s where memcpy reaches 8."""
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

    def row(what: str, times: tuple[float, float], target: float) -> Row:
        ours, peer = (f"{count * MIB / time / 1e9:.2f} GB/s" for time in times)
        return Row(what, ours, peer, times[1] / times[0], target)

    yield row("write records into memory, speed against memcpy", pair(lambda: write(Nowhere()), copy), 0.25)
    write(path)
    yield row("read records from a file, speed against memcpy", pair(read, copy), 0.5)
    yield row("write records to a file, speed against plain writes", pair(lambda: write(path), write_plainly), 0.5)


def formats(folder: Path, scale: float) -> Iterator[Row]:
    """Measure the processor seconds for the JSON of the largest page of tensors."""
    names = [f"layer_{number:04d}/kernel" for number in range(PAGE * (RUNS + 1))]
    variables = [Variable(name, 1, [2, 3], bytes(24)) for name in names]
    for name, data in bundle("many", variables, Layout(block=1 << 18)).items():
        (folder / name).write_bytes(data)
    shard, times = "many.data-00000-of-00001", list[float]()
    with FileSource(folder / "many.index") as source, FileSource(folder / shard) as kept:
        tensors = BundleTensors({shard: kept}, "many", source)
        for first in range(0, len(tensors), PAGE):
            start = time.thread_time()
            encode_items(entry_of(tensors[number]) for number in range(first, first + PAGE))
            times.append(time.thread_time() - start)
    page = statistics.median(times[1:])
    yield Row(
        f"a page of {PAGE} tensors of a bundle", seconds(page), seconds(PAGE_SECONDS), page / PAGE_SECONDS, 1.0, False
    )
