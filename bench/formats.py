"""Formats: a page of the tensors of a bundle."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

from bench.timing import RUNS, Row, seconds
from tests.support.bundles import Layout, Variable, bundle

from protoslice.formats.bundle import BundleTensors
from protoslice.server.api.encoding import encode_items
from protoslice.sources.files import FileSource
from protoslice.tensors.listing import entry_of

PAGE = 1000
MOST = 0.015


def formats(folder: Path, scale: float) -> Iterator[Row]:
    """The JSON of the largest page of tensors, in seconds of the processor."""
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
    yield Row(f"a page of {PAGE} tensors of a bundle", seconds(page), seconds(MOST), page / MOST, 1.0, False)
