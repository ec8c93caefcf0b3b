"""Benchmark of the room that 20 versions of a model take, one of 64 tensors changed in each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import httpx
from bench.service import running_service
from bench.timing import Row
from tests.support.protos.writer import varint

from protoslice.catalog import open_database
from protoslice.catalog.spaces import DEFAULT_SPACE, SpaceTable
from protoslice.client import Client

_TENSORS: Final = 64
_VERSIONS: Final = 20


def versions(folder: Path, scale: float) -> Iterator[Row]:
    """Stored bytes of the versions of a model of 1 GiB over those of the first, by four ways in."""
    size = max(70_000, int(scale * (1 << 30)) // _TENSORS)
    for way, sent in (("pushed by tags", _tagged), ("pushed without a base", _alone), ("PUT by one tag", _put),
                      ("PUT by tags", _put_tagged)):  # fmt: skip
        yield _row(way, folder / f"versions-{way.replace(' ', '-')}", size, sent)


def _row(way: str, folder: Path, size: int, send: Callable[[str, Client, Path, int], None]) -> Row:
    model, random_bytes = folder.with_suffix(".onnx"), random.Random(1)
    tensors = [random_bytes.randbytes(size) for _ in range(_TENSORS)]
    with running_service(folder) as url, Client(url) as client:
        for number in range(_VERSIONS):
            tensors[3 * number % _TENSORS] = random_bytes.randbytes(size)
            _write(model, tensors)
            send(url, client, model, number)
    model.unlink()
    stored = asyncio.run(_stored(folder))
    told = f"{stored / 1e6:.0f} MB"
    return Row(f"20 versions {way}: stored bytes over one", told, f"{size * _TENSORS / 1e6:.0f} MB",
               stored / (size * _TENSORS), 1.35, False)  # fmt: skip


def _tagged(_: str, client: Client, model: Path, number: int) -> None:
    client.push(model, tags=[f"model:{number}"])


def _alone(_: str, client: Client, model: Path, number: int) -> None:
    store = client.push(model).store
    for _piece in client.pieces(store.id):  # somebody asks for the pieces once
        break


def _put(url: str, _: Client, model: Path, number: int) -> None:
    _send(url, model, "tag=model")


def _put_tagged(url: str, _: Client, model: Path, number: int) -> None:
    _send(url, model, f"tag=model:{number}")


def _send(url: str, model: Path, query: str) -> None:
    with model.open("rb") as body:
        httpx.put(f"{url}/v1/stores?filename=model.onnx&{query}", content=body, timeout=600).raise_for_status()


async def _stored(folder: Path) -> int:
    uri = f"file://{folder}"
    async with open_database(None, uri) as database:
        row = await SpaceTable(database).get(DEFAULT_SPACE)
        return 0 if row is None else row.held.stored_bytes


def _write(path: Path, tensors: Sequence[bytes]) -> None:
    """Write an `onnx.ModelProto` of these initializers."""
    heads = [b"\x08" + varint(len(one)) + b"\x10\x03" + b"\x42\x04w%03d" % number + b"\x4a" + varint(len(one))
             for number, one in enumerate(tensors)]  # fmt: skip
    fields = [b"\x2a" + varint(len(head) + len(one)) + head for head, one in zip(heads, tensors, strict=True)]
    length = sum(map(len, fields)) + sum(map(len, tensors))
    with path.open("wb") as file:
        file.write(b"\x08\x08\x3a" + varint(length))
        for field, one in zip(fields, tensors, strict=True):
            file.write(field)
            file.write(one)
