"""Tensors made of bytes in memory, and the bytes that readings of them give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from protoslice.concurrency import Job
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Data, Encoding, Stored, Tensor

T = TypeVar("T")


def stored(data: bytes, encoding: Encoding = Encoding.PLAIN) -> Stored:
    """`data` as the elements of a tensor."""
    return Stored(Rope.of(BytesSource(data)), encoding)


def tensor(data: Data | bytes, dtype: str, shape: Sequence[int], *, name: str = "x", file: str | None = None) -> Tensor:
    """A tensor of `data`."""
    data = stored(data) if isinstance(data, bytes) else data
    return Tensor(name, f"path:{name}", DTYPES[dtype], tuple(shape), "initializer", file, data)


def content(found: Rope) -> bytes:
    """The bytes themselves."""
    return bytes(found)


def in_slices(job: Job[T]) -> tuple[int, T]:
    """The number of times that `job` gave way to others, and its result."""
    slices = 0
    while True:
        try:
            next(job)
        except StopIteration as end:
            return slices, end.value
        slices += 1
