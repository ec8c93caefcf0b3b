"""Benchmark of the files for inference engines that the service makes from an ONNX store.

It loads safetensors into NumPy from the service and from nginx, and measures the time to the first byte of `/onnx`.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
from bench.service import CURL, nginx_over, running_service
from bench.timing import Row, pair, seconds
from safetensors import safe_open
from tests.support.protos.writer import varint
from tests.support.stores import field

GIB: Final = 1 << 30
COUNT: Final = 256
COLUMNS: Final = 1024
CURL_HEAD: Final = ("curl", "-sfo", "/dev/null", "-r", "0-4095", "-w", "%{time_starttransfer}")
_RANGE: Final = 8 << 20
_THREADS: Final = 4


def files(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about files for engines."""
    size = int(2 * scale * GIB) // COUNT // COLUMNS // 4 * COUNT * COLUMNS * 4
    model, plain = folder / "large.onnx", folder / "large.safetensors"
    _write(model, size // COUNT)
    with running_service(folder / "stores") as service:
        done = subprocess.run(
            [*CURL, str(model), f"{service}/v1/stores?filename=m.onnx"], capture_output=True, check=True, text=True
        )
        store = f"{service}/v1/stores/{httpx.Response(200, text=done.stdout).json()['id']}"
        model.unlink()
        yield _first_byte(store)
        url = f"{store}/safetensors"
        subprocess.run(["curl", "-sfo", str(plain), url], check=True)
        with nginx_over(folder, plain) as nginx:
            peer = f"{nginx}/{plain.name}"
            for what, load in (("curl and safe_open", _pulled), ("four threads of ranges", _ranged)):
                ours, theirs = pair(partial(load, url, folder), partial(load, peer, folder), runs=3)
                said = f"{size >> 20} MiB of safetensors of an ONNX store into NumPy by {what}, speed against nginx"
                yield Row(said, seconds(ours), seconds(theirs), theirs / ours, 0.9)


def _write(path: Path, size: int) -> None:
    """Write a model of `COUNT` tensors of `size` bytes each, which is too large for the protobuf runtime."""
    random = np.random.default_rng(0)
    heads = []
    for number in range(COUNT):
        facts = b"\x08" + varint(size // 4 // COLUMNS) + b"\x08" + varint(COLUMNS) + b"\x10\x01"
        facts += field(8, b"w%d" % number) + varint(9 << 3 | 2) + varint(size)
        heads.append(varint(5 << 3 | 2) + varint(len(facts) + size) + facts)
    block = random.standard_normal(size // 4, "f4").tobytes()
    with path.open("wb") as file:
        file.write(b"\x08\x0a" + field(8, b"\x10\x15") + varint(7 << 3 | 2))
        file.write(varint(sum(map(len, heads)) + COUNT * size))
        for head in heads:
            file.write(head)
            file.write(block)


def _first_byte(store: str) -> Row:
    """Compare a first answer, which composes the model, with a later one, for which the model is composed already."""

    def first(align: int) -> float:
        done = subprocess.run(
            [*CURL_HEAD, f"{store}/onnx/weights.bin?align={align}"],
            check=True,
            capture_output=True,
            text=True,
        )
        return float(done.stdout)

    new = statistics.median(first(1 << power) for power in range(5))
    again = statistics.median(first(1) for _ in range(5))
    return Row(
        f"first byte of /onnx of {COUNT} tensors, at most 0.05 s", seconds(new), seconds(again), new, 0.05, False
    )


def _pulled(url: str, folder: Path) -> int:
    """Fetch the file, and load all its tensors."""
    target = folder / "pulled.safetensors"
    subprocess.run(["curl", "-sfo", str(target), url], check=True)
    with safe_open(target, "np") as file:
        return sum(file.get_tensor(name).nbytes for name in file.keys())  # noqa: SIM118 - no mapping


def _ranged(url: str, folder: Path) -> Any:
    """Read the elements by ranges into one array."""
    with httpx.Client(limits=httpx.Limits(max_connections=_THREADS)) as client:
        head = int.from_bytes(client.get(url, headers={"range": "bytes=0-7"}).content, "little") + 8
        size = int(client.head(url).headers["content-length"]) - head
        out = np.empty(size, np.uint8)

        def read(at: int) -> None:
            end = min(at + _RANGE, size)
            with client.stream("GET", url, headers={"range": f"bytes={head + at}-{head + end - 1}"}) as answer:
                for piece in answer.iter_raw():
                    out[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
                    at += len(piece)

        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(read, range(0, size, _RANGE)))
        return out
