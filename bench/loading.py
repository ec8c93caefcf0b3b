"""Benchmark of data loading: records over HTTP, against TensorFlow and ArrayRecord on local files."""

from __future__ import annotations

import statistics
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.service import running_service
from bench.timing import Row
from tests.support.environments import is_made, python_of

from protoslice._core import crc32c
from protoslice.client import Client

PEERS: Final = ("tensorflow-cpu==2.21.0", "array_record==0.8.6", "numpy<3")
RECORDS: Final = 10_000_000
BODY: Final = 100
FRAME: Final = 16
BATCH: Final = 256
WINDOW: Final = 64 << 20
ROUNDS: Final = 3

OURS: Final = """
import resource, sys, time
from protoslice.client import Client
url, count, shuffle = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "shuffled"
with Client(url) as client:
    records, taken, start = client.records("loading"), 0, time.perf_counter()
    for batch in records.batches(256, shuffle=shuffle, seed=1):
        taken += len(batch)
        if taken >= count:
            break
    print(taken / (time.perf_counter() - start), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
TENSORFLOW: Final = """
import os, resource, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf
path, count, window = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
records, taken, start = tf.data.TFRecordDataset(path), 0, time.perf_counter()
records = records.shuffle(window) if window else records
for batch in records.batch(256).as_numpy_iterator():
    taken += len(batch)
    if taken >= count:
        break
print(taken / (time.perf_counter() - start), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
ARRAY_RECORD: Final = """
import random, resource, sys, time
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
path, total, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
writer = ArrayRecordWriter(path, "group_size:1")
for number in range(total):
    writer.write(number.to_bytes(8, "little") + bytes(92))
writer.close()
reader, numbers = ArrayRecordReader(path), list(range(total))
random.Random(1).shuffle(numbers)
start = time.perf_counter()
taken = sum(len(reader.read(numbers[at : at + 256])) for at in range(0, count, 256))
print(taken / (time.perf_counter() - start), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def loading(folder: Path, scale: float) -> Iterator[Row]:
    """Records a second of each in turns, and the memory of its process; all shuffle in one window."""
    if not is_made(*PEERS):
        raise SystemExit("make the peers' environment first: python -m bench.loading")
    path, count = folder / "loading.tfrecord", max(10_000, int(RECORDS * scale))
    _write(path, count)
    peer, taken = python_of(*PEERS), count // 5
    window = WINDOW // (BODY + FRAME)
    with running_service(folder / "loading-stores") as url:
        with Client(url) as client:
            client.push(path, tags=["loading"])
        ours, theirs = _turns(
            [[sys.executable, OURS, url, taken, "shuffled"], [peer, TENSORFLOW, path, taken, window]],
        )
        yield _row("shuffled batches through the service, against tf.data on the file", ours, theirs, 3)
        ours, theirs = _turns([[sys.executable, OURS, url, count, "in order"], [peer, TENSORFLOW, path, count, 0]])
        yield _row("batches in order through the service, against tf.data on the file", ours, theirs, 0.7)
        few = min(taken, 50_000)
        ours, theirs = _turns(
            [
                [sys.executable, OURS, url, taken, "shuffled"],
                [peer, ARRAY_RECORD, folder / "loading.array_record", count, few],
            ],
            1,
        )
        yield _row("shuffled batches through the service, against array_record on its file", ours, theirs, 1)


def _turns(calls: list[list[object]], rounds: int = ROUNDS) -> list[tuple[float, int]]:
    """Median of the records a second of each call, and the most memory of its process in MB."""
    found: list[list[tuple[float, int]]] = [[] for _ in calls]
    for _ in range(rounds):
        for (python, program, *given), kept in zip(calls, found, strict=True):
            done = subprocess.run(
                [str(python), "-c", str(program), *map(str, given)], check=True, capture_output=True, text=True
            )
            rate, memory = done.stdout.split()
            kept.append((float(rate), int(memory) // 1000))
    return [(statistics.median(rate for rate, _ in kept), max(memory for _, memory in kept)) for kept in found]


def _row(what: str, ours: tuple[float, int], theirs: tuple[float, int], bar: float) -> Row:
    told = [f"{rate / 1e3:.0f} k/s ({memory} MB)" for rate, memory in (ours, theirs)]
    return Row(what, told[0], told[1], ours[0] / theirs[0], bar)


def _write(path: Path, count: int) -> None:
    head = struct.pack("<Q", BODY)
    head += _masked(head)
    with path.open("wb", buffering=1 << 20) as file:
        for number in range(count):
            record = number.to_bytes(8, "little") + bytes(BODY - 8)
            file.write(head + record + _masked(record))


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF)


if __name__ == "__main__":
    python_of(*PEERS)
