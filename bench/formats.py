"""Formats: listing the tensors of a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from bench.timing import Row, pair, seconds
from tests.support.bundles import Layout, Variable, bundle

from protoslice import schema
from protoslice.formats.tensorflow.bundle import BundleTensors
from protoslice.formats.tensorflow.types import TYPES
from protoslice.sources.files import FileSource

TENSORS = 9000


def formats(folder: Path, scale: float) -> Iterator[Row]:
    """From the files of a bundle to the JSON of all its tensors, against a plain loop over the entries."""
    names = [f"layer_{number:04d}/kernel" for number in range(max(20, int(TENSORS * scale)))]
    variables = [Variable(name, 1, [2, 3], bytes(24)) for name in names]
    for name, data in bundle("many", variables, Layout(block=1 << 18)).items():
        (folder / name).write_bytes(data)
    index, shard = folder / "many.index", "many.data-00000-of-00001"
    entry: Any = schema.bundled().message_class("tensorflow.BundleEntryProto")

    def ours() -> list[Any]:
        with FileSource(index) as source, FileSource(folder / shard) as data:
            tensors = BundleTensors({shard: data}, "many", source)
            return [b"[" + tensors.items(0, len(tensors))[0] + b"]"]

    def rows() -> list[Any]:
        return [_row(key, entry.FromString(value)) for key, value in _entries(index.read_bytes()) if key]

    def text() -> list[Any]:
        return [json.dumps(rows(), separators=(",", ":")).encode()]

    assert json.loads(ours()[0]) == rows()
    what = f"list {len(names)} tensors of a bundle as JSON, against a loop over its entries"
    for name, peer, bar in ((what, text, 20.0), ("  against that loop without the JSON", rows, 8.0)):
        times = pair(ours, peer, runs=15)
        yield Row(name, seconds(times[0]), seconds(times[1]), times[1] / times[0], bar)


def _row(key: bytes, entry: Any) -> dict[str, Any]:
    name, dtype = key.decode(), TYPES[entry.dtype]
    shape = [dim.size for dim in entry.shape.dim]
    return {
        "name": name,
        "address": f"bundle:{name}",
        "dtype": dtype.name,
        "shape": shape,
        "size": prod(shape) * dtype.width,
        "file": f"many.data-{entry.shard_id:05d}-of-00001",
        "kind": "variable",
    }


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a table, as anybody would read them; no checksum is looked at."""
    footer = data[-48:]
    _, at = _varint(footer, 0)
    _, at = _varint(footer, at)
    for _, handle in _block(data, footer, at):
        yield from _block(data, handle, 0)


def _block(data: bytes, handle: bytes, at: int) -> Iterator[tuple[bytes, bytes]]:
    start, at = _varint(handle, at)
    size, _ = _varint(handle, at)
    block = data[start : start + size]
    end = size - 4 - 4 * int.from_bytes(block[-4:], "little")
    place, key = 0, b""
    while place < end:
        shared, place = _varint(block, place)
        fresh, place = _varint(block, place)
        length, place = _varint(block, place)
        key = key[:shared] + block[place : place + fresh]
        place += fresh + length
        yield key, block[place - length : place]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
