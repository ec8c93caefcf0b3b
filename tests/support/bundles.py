"""Writers of tensor bundles, independent of our code, and of SavedModels with several meta graphs.

The bundles follow the description of the format, so that they can test readers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.support.protos.writer import varint

from protoslice import schema

Box = tuple[tuple[int, int | None], ...]
"""The start and length in each dimension; a length of None means the whole dimension."""

_MAGIC = 0xDB4775248B80FB57


@dataclass(frozen=True, slots=True)
class Variable:
    """One tensor; `data` is its content in the shard, and slices have content too."""

    name: str
    dtype: int
    shape: Sequence[int]
    data: bytes = b""
    shard: int = 0
    strings: Sequence[bytes] | None = None
    slices: Sequence[tuple[Box, Sequence[int], bytes, int]] = ()
    """For each slice: its box, its shape, its bytes and its shard."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a table."""

    block: int = 4096
    """The approximate size, in bytes, at which a block of entries ends."""
    restart: int = 16
    """The number of entries after which a key is written in full."""
    snappy: bool = False
    shards: int = 1
    big_endian: bool = False
    gap: int = 0
    """The number of unused bytes in front of each tensor."""
    overlap: bool = False
    """True if all tensors of a shard begin at its first byte; equal tensors share their bytes."""
    version: dict[str, Any] = field(default_factory=lambda: {"producer": 1})


def bundle(prefix: str, variables: Iterable[Variable], layout: Layout = Layout()) -> dict[str, bytes]:
    """Return the files of a bundle of `variables` by name."""
    shards = [bytearray() for _ in range(layout.shards)]
    header = _message("BundleHeaderProto")
    header.num_shards = layout.shards
    header.endianness = int(layout.big_endian)
    header.version.CopyFrom(_message("VersionDef", **layout.version))
    entries = {b"": header.SerializeToString()}
    for variable in variables:
        entry = _entry(variable.dtype, variable.shape)
        for box, shape, data, shard in variable.slices:
            part = entry.slices.add()
            for start, length in box:
                part.extent.add(start=start, **({} if length is None else {"length": length}))
            kept = _entry(variable.dtype, shape)
            _put(kept, data, crc32c(data), shards, shard, layout)
            entries[slice_key(variable.name, box)] = kept.SerializeToString()
        if not variable.slices:
            data, crc = variable.data, crc32c(variable.data)
            if variable.strings is not None:
                data, crc = string_data(variable.strings)
            _put(entry, data, crc, shards, variable.shard, layout)
        entries[variable.name.encode()] = entry.SerializeToString()
    files = {f"{prefix}.data-{number:05d}-of-{layout.shards:05d}": bytes(data) for number, data in enumerate(shards)}
    return files | {f"{prefix}.index": table(sorted(entries.items()), layout)}


def _entry(dtype: int, shape: Sequence[int]) -> Any:
    entry = _message("BundleEntryProto", dtype=dtype)
    entry.shape.SetInParent()
    for length in shape:
        entry.shape.dim.add(size=length)
    return entry


def _put(entry: Any, data: bytes, crc: int, shards: list[bytearray], shard: int, layout: Layout) -> None:
    shards[shard] += b"\0" * layout.gap
    offset = 0 if layout.overlap else len(shards[shard])
    entry.shard_id, entry.offset, entry.size, entry.crc32c = shard, offset, len(data), masked(crc)
    shards[shard][offset:] = data


def _message(name: str, **fields: Any) -> Any:
    return schema.bundled().message_class(f"tensorflow.{name}")(**fields)


def string_data(strings: Sequence[bytes]) -> tuple[bytes, int]:
    """Return strings as a shard stores them, and their checksum, which is not the checksum of the stored bytes."""
    lengths = b"".join(struct.pack("<I", len(each)) for each in strings)
    check = struct.pack("<I", masked(crc32c(lengths)))
    content = b"".join(strings)
    stored = b"".join(varint(len(each)) for each in strings) + check + content
    return stored, crc32c(lengths + check + content)


def table(entries: Iterable[tuple[bytes, bytes]], layout: Layout = Layout()) -> bytes:
    """Return a table of `entries`, which must be sorted."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    waiting: list[tuple[bytes, bytes]] = []
    size = 0

    def flush() -> None:
        if waiting:
            index.append((waiting[-1][0] + b"\0", _append(out, _block(waiting, layout.restart), layout.snappy)))
            waiting.clear()

    for key, value in entries:
        if size >= layout.block:
            flush()
            size = 0
        waiting.append((key, value))
        size += len(key) + len(value)
    flush()
    meta = _append(out, _block([], 1), snappy=False)
    place = _append(out, _block(index, 1), layout.snappy)
    return bytes(out) + (meta + place).ljust(40, b"\0") + struct.pack("<Q", _MAGIC)


def _append(out: bytearray, block: bytes, snappy: bool) -> bytes:
    """Append a block to the others, and return its handle."""
    content = (_snappy(block) if snappy else block) + bytes([snappy])
    handle = varint(len(out)) + varint(len(content) - 1)
    out += content + struct.pack("<I", masked(crc32c(content)))
    return handle


def _block(entries: Sequence[tuple[bytes, bytes]], restart: int) -> bytes:
    out, restarts, last = bytearray(), [], b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % restart:
            while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                shared += 1
        else:
            restarts.append(len(out))
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        last = key
    restarts = restarts or [0]
    return bytes(out) + b"".join(struct.pack("<I", each) for each in [*restarts, len(restarts)])


def _snappy(data: bytes) -> bytes:
    """Compress data with Snappy: literals, and copies where four bytes repeat the four bytes before them."""
    out, at = bytearray(varint(len(data))), 0
    while at < len(data):
        if at >= 4 and len(data) - at >= 4 and data[at : at + 4] == data[at - 4 : at]:
            out += bytes([(4 - 1) << 2 | 2, 4, 0])
            at += 4
            continue
        piece = data[at : at + 16]
        out += bytes([(len(piece) - 1) << 2]) + piece
        at += len(piece)
    return bytes(out)


def slice_key(name: str, box: Box) -> bytes:
    """Return the key of a slice; numbers and strings are encoded so that keys sort like them."""
    escaped = name.encode().replace(b"\xff", b"\xff\x01").replace(b"\0", b"\0\xff").replace(b"\xff\x01", b"\xff\0")
    key = b"\0" + escaped + b"\0\x01" + (bytes([1, len(box)]) if box else b"\0")
    return key + b"".join(_signed(start) + _signed(-1 if length is None else length) for start, length in box)


def _signed(value: int) -> bytes:
    size = 1
    while not -(1 << (7 * size - 1)) <= value < 1 << (7 * size - 1):
        size += 1
    marker = ((1 << size) - 1) << (7 * size)
    return ((value & ((1 << 8 * size) - 1)) ^ marker).to_bytes(size, "big")


def _rows() -> list[int]:
    rows = []
    for row in range(256):
        for _ in range(8):
            row = row >> 1 ^ (0x82F63B78 if row & 1 else 0)
        rows.append(row)
    return rows


_ROWS = _rows()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of `data`, computed slowly."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _ROWS[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """Return a checksum's masked form, which tables and record files store."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


GRAPHS = (("serve",), ("serve", "gpu"), ())
"""The tags of each meta graph."""
VALUES = tuple(np.arange(4, dtype="<f4") + 10 * number for number in range(len(GRAPHS)))
"""The value of each meta graph's constants."""


def write_meta_graphs(folder: Path) -> Path:
    """Write a SavedModel into `folder`. Each meta graph has the constant `w` and another one; all share a variable."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    for number, tags in enumerate(GRAPHS):
        graph = model.meta_graphs.add()
        graph.meta_info_def.tags.extend(tags)
        for name in ("w", f"own{number}"):
            tensor = graph.graph_def.node.add(name=name, op="Const").attr["value"].tensor
            tensor.dtype = 1
            tensor.tensor_shape.dim.add(size=4)
            tensor.tensor_content = VALUES[number].tobytes()
    (folder / "saved_model.pb").write_bytes(model.SerializeToString())
    (folder / "variables").mkdir()
    for name, data in bundle("variables", [Variable("v", 1, (100,), bytes(400))]).items():
        (folder / "variables" / name).write_bytes(data)
    return folder
