"""Benchmark of the tensors of a 1 GiB ONNX model: listing, statistics, single rows, and all as one safetensors file."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import onnx
from bench.service import CURL, running_service
from bench.timing import Row, pair, seconds
from onnx import TensorProto, helper, numpy_helper

import protoslice
from protoslice.concurrency import finish
from protoslice.tensors.statistics import statistics_job

GIB = 1 << 30
COUNT = 256
COLUMNS = 1024


def tensors(folder: Path, scale: float) -> Iterator[Row]:
    """Measure all rows about tensors."""
    size = int(scale * GIB)
    many, one = folder / "many.onnx", folder / "one.onnx"
    _write(many, [size // COUNT // COLUMNS // 4] * COUNT)
    _write(one, [size // COLUMNS // 4])
    times = pair(partial(_list, many), partial(onnx.load, many), runs=3)
    what = f"index a model of {size >> 20} MiB and list its {COUNT} tensors, against onnx.load"
    yield Row(what, seconds(times[0]), seconds(times[1]), times[0] / times[1], 0.02, False)
    yield _statistics(folder / "normal.onnx", size // 4)
    with running_service(folder / "stores") as service:
        stores = [f"{service}/v1/stores/{_upload(service, path)}" for path in (many, one)]
        yield _whole(stores[0])
        yield _row(stores[1], size // COLUMNS // 4)


def _write(path: Path, rows: list[int]) -> None:
    """Write a model with one float tensor for each number of rows."""
    model = helper.make_model(helper.make_graph([], "g", [], []))
    for number, count in enumerate(rows):
        tensor = model.graph.initializer.add(name=f"w{number}", data_type=TensorProto.FLOAT, dims=[count, COLUMNS])
        tensor.raw_data = bytes(range(256)) * (count * COLUMNS * 4 // 256)
    path.write_bytes(model.SerializeToString())


def _list(path: Path) -> list[str]:
    with protoslice.open_model(path) as model:
        return [tensor.name for tensor in model.matching()]


def _upload(service: str, path: Path) -> str:
    done = subprocess.run(
        [*CURL, str(path), f"{service}/v1/stores?filename=m.onnx"], capture_output=True, check=True, text=True
    )
    return str(httpx.Response(200, text=done.stdout).json()["id"])


def _statistics(path: Path, size: int) -> Row:
    array = np.random.default_rng(0).standard_normal(size // 4, "f4")
    graph = helper.make_graph([], "normal", [], [], [numpy_helper.from_array(array, "w")])
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with protoslice.open_model(path) as model:
        tensor = model.tensor("w")

        def by_numpy() -> object:
            return array.mean(dtype="f8"), array.min(), array.max(), np.histogram(array, 64)

        ours, theirs = pair(lambda: finish(statistics_job(tensor, sample=0)), by_numpy)
    what = f"statistics of {size >> 20} MiB of F32, speed against NumPy's mean, min, max and histogram"
    return Row(what, seconds(ours), seconds(theirs), theirs / ours, 1)


def _whole(store: str) -> Row:
    def fetch(view: str) -> Callable[[], object]:
        command = ["curl", "-sS", "-f", "-o", "/dev/null", f"{store}/{view}"]
        return partial(subprocess.run, command, check=True)

    ours, files = pair(fetch("safetensors"), fetch("files/m.onnx"))
    return Row("all of it as safetensors, speed against the file", seconds(ours), seconds(files), files / ours, 0.9)


def _row(store: str, rows: int) -> Row:
    with httpx.Client() as client:

        def first_byte(row: int) -> float:
            start = time.perf_counter()
            with client.stream("GET", f"{store}/tensors/w0", params={"slice": f"{row}"}) as answer:
                assert answer.headers["content-length"] == str(COLUMNS * 4)
                next(answer.iter_raw())
                return time.perf_counter() - start

        found = statistics.median([first_byte(rows * n // 60) for n in range(60)][10:])
    return Row("first byte of one row of a tensor of 1 GiB", seconds(found), "10 ms", found / 0.01, 1, False)
