"""Benchmark of streams of records: indexing, reading in order, at random and by key, and waiting for records."""

from __future__ import annotations

import os
import random
import socket
import statistics
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
from bench.service import running_service
from bench.timing import Row, pair, seconds

import protoslice
from protoslice import _core
from protoslice.riegeli import RecordWriter
from protoslice.sources.files import BytesSource
from protoslice.streams.records import JoinedRecords, Shard
from protoslice.streams.selection import KeyIndex, RecordType

PIECE: Final = 1 << 20
LOOKS: Final = 1000
CORE: Final = Path(__file__).parent.parent / "core"


def streams(folder: Path, scale: float) -> Iterator[Row]:
    """Measure streams of small and of larger records; most rows are processor time, since the machine may be busy."""
    path, lengths = folder / "small.delimited", random.Random(1)
    count = max(1000, int(1e7 * scale))
    _write(path, count, lambda _: b"\x64" + bytes(100))
    yield _indexing(path, count, "of 100 bytes")
    _write(path, count, lambda _: _short(lengths.randrange(75, 125)))
    yield _indexing(path, count, "of 75 to 124 bytes")
    path.unlink()
    yield _empty(max(1 << 20, int(1e9 * scale)))
    yield _keys(max(1000, int(1e6 * scale)))
    large = folder / "large.u32le"
    _write(large, max(100, int((1 << 18) * scale)), lambda _: _fixed(lengths.randrange(3000, 5000)))
    with protoslice.records(large, "my.Record", framing="u32le") as records:
        yield _in_order(large, records)
        yield _at_random(records)
    large.unlink()


def waiting(folder: Path, scale: float) -> Iterator[Row]:
    """Measure the service's memory for each reader that waits for an open upload's records."""
    count = max(10, int(1000 * scale))
    limits = {"PROTOSLICE_MAX_WAITING_READERS_PER_CLIENT": "0", "PROTOSLICE_MAX_REQUESTS_PER_CLIENT": "0"}
    with running_service(folder / "waiting-stores", limits) as url, ExitStack() as held:
        head = {"tus-resumable": "1.0.0", "upload-defer-length": "1"}
        reading = httpx.post(f"{url}/v1/uploads", headers=head).headers["location"] + "/records?framing=delimited"
        asked = f"GET {reading}&wait=30 HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
        process = int(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()[-1])
        before, place = _resident_of(process), urlsplit(url)
        for _ in range(count):
            connection = held.enter_context(socket.create_connection((place.hostname, place.port)))
            connection.sendall(asked)
        time.sleep(10 * min(1, scale) + 1)  # the service has read all requests by now, and the readers wait
        each = (_resident_of(process) - before) / count
        answered = httpx.get(f"{url}{reading}").status_code
        assert answered == 200
    what = f"{count} readers that wait: memory of the service for each, against 64 KiB"
    yield Row(what, f"{each / 1024:.1f} KiB", "64 KiB", each / 65536, 1, False)


def _indexing(path: Path, count: int, what: str) -> Row:
    def index() -> None:
        scanner = _core.RecordScanner("delimited")
        for piece in _pieces(path):
            scanner.feed(piece)
        assert _core.Records(scanner.finish(path.stat().st_size)).count == count

    ours, peer = pair(index, lambda: [None for _ in _pieces(path)], clock=time.process_time)
    told = f"index records {what} while the file is read, against reading it"
    return Row(told, _speed(path, ours), _speed(path, peer), peer / ours, 0.5)


def _empty(count: int) -> Row:
    """Measure the index of empty records: a stream of zeros, of one GB at full size."""
    zeros, start = bytes(1 << 20), time.process_time()
    scanner = _core.RecordScanner("delimited")
    for _ in range(count >> 20):
        scanner.feed(zeros)
    saved = scanner.finish(count >> 20 << 20)
    taken = time.process_time() - start
    told = f"{len(saved)} B, {seconds(taken)}"
    what = f"index {count >> 20 << 20} empty records: its bytes, against 1 KiB"
    return Row(what, told, "1 KiB", len(saved) / 1024, 1, False)


def _keys(count: int) -> Row:
    """Measure how much memory a process grows by for the key table of a stream whose keys all differ."""
    record = b"\x0d\x12\x0bk%010d"
    source = BytesSource(b"".join(record % number for number in range(count)))
    index = _core.index_records(_core.Sources([source]), "delimited")
    records = JoinedRecords([Shard("", _core.Records(index), source)])
    before, start = _resident_of(os.getpid()), time.process_time()
    keys = KeyIndex(records, RecordType(None, None), "2", 1 << 30, 1 << 18)
    for _ in keys.steps():
        pass
    grown = _resident_of(os.getpid()) - before
    told = f"{grown / (1 << 20):.1f} MiB, {seconds(time.process_time() - start)}"
    counted = f"{keys.weight / (1 << 20):.1f} MiB"
    what = f"keys of {count} records: memory of the process, against what is counted"
    return Row(what, told, counted, grown / keys.weight, 2, False)


def _in_order(path: Path, records: protoslice.Records) -> Row:
    def read() -> None:
        for _ in records:
            pass

    ours, peer = pair(read, lambda: [None for _ in _pieces(path)], clock=time.process_time)
    what = "read records of 4 kB in order, against reading the file"
    return Row(what, _speed(path, ours), _speed(path, peer), peer / ours, 0.7)


def _at_random(records: protoslice.Records) -> Row:
    numbers = [random.Random(2).randrange(len(records)) for _ in range(LOOKS)]
    ours, _ = pair(lambda: [records[number] for number in numbers], lambda: None)
    what = "one record at random of a GiB, against 1 ms"
    return Row(what, seconds(ours / LOOKS), "1 ms", ours / LOOKS / 1e-3, 1, False)


def packed(folder: Path, scale: float) -> Iterator[Row]:
    """Compare records of about a kilobyte, packed by brotli in a riegeli file, with the crate's own seek and read."""
    path, count, made = folder / "packed.riegeli", max(2000, int(1e5 * scale)), random.Random(3)
    words = [made.randbytes(made.randrange(20, 90)) for _ in range(1000)]
    with RecordWriter(path, options="brotli:5") as writer:
        for _ in range(count):
            writer.write_record(b"".join(made.choices(words, k=20)))
    numbers = made.sample(range(count), min(count // 50, 200))
    crate = [_built("riegeli_seek", scale), str(path), ",".join(map(str, numbers))]
    with protoslice.records(path, "my.Record") as records:
        first, again, theirs = [], [], []
        for _ in range(3):
            theirs.append(float(subprocess.run(crate, check=True, capture_output=True, text=True).stdout))
            firsts, agains = _looks(records, numbers)
            first.append(firsts)
            again.append(agains)
    ours, peer, second = min(first), min(theirs), min(again)
    what = "a record at random of a brotli riegeli file, against the crate's"
    yield Row(what, seconds(ours), seconds(peer), ours / peer, 1.2, False)
    yield Row("the same record again, against 100 µs", seconds(second), "100 µs", second / 1e-4, 1, False)


def _built(example: str, scale: float) -> str:
    """Build an example of the core, and return its path: for release at full size, else by the tests' debug build."""
    release = ["build", "--release", "-p", "protoslice-wire", "--example", example]
    build, folder = (release, "release") if scale >= 0.1 else (["test", "--workspace", "--no-run"], "debug")
    subprocess.run(["cargo", *build, "--quiet"], cwd=CORE, check=True)
    return str(CORE / "target" / folder / "examples" / example)


def _looks(records: protoslice.Records, numbers: list[int]) -> tuple[float, float]:
    """Return the median seconds for the first read of a record and for the second one."""
    first, again = [], []
    for number in numbers:
        start = time.perf_counter()
        records[number]
        middle = time.perf_counter()
        records[number]
        first.append(middle - start)
        again.append(time.perf_counter() - middle)
    return statistics.median(first), statistics.median(again)


def _write(path: Path, count: int, record: Callable[[int], bytes]) -> None:
    with path.open("wb", buffering=PIECE) as file:
        for number in range(count):
            file.write(record(number))


def _fixed(length: int) -> bytes:
    return struct.pack("<I", length) + bytes(length)


def _short(length: int) -> bytes:
    return bytes([length]) + bytes(length)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as file:
        while piece := file.read(PIECE):
            yield piece


def _speed(path: Path, taken: float) -> str:
    return f"{os.path.getsize(path) / taken / 1e9:.2f} GB/s"


def _resident_of(process: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
