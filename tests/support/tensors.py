"""Tensors that are made of bytes in memory, and the expected bytes of their views."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from protoslice import open_model
from protoslice.concurrency import Job
from protoslice.errors import ProtosliceError
from protoslice.library.models import LocalModel
from protoslice.schema import bundled
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Data, Encoding, Stored, Tensor, Unreadable
from protoslice.tensors.reading import read

T = TypeVar("T")


def stored(data: bytes, encoding: Encoding = Encoding.PLAIN) -> Stored:
    """Return `data` as the elements of a tensor."""
    return Stored(Rope.of(BytesSource(data)), encoding)


def tensor(data: Data | bytes, dtype: str, shape: Sequence[int], *, name: str = "x", file: str | None = None) -> Tensor:
    """Return a tensor of `data`."""
    data = stored(data) if isinstance(data, bytes) else data
    return Tensor(name, f"path:{name}", DTYPES[dtype], tuple(shape), "initializer", file, data)


def content(found: Rope) -> bytes:
    """Return the bytes unchanged."""
    return bytes(found)


def elements(tensor: Tensor, slice_: str | None = None) -> bytes:
    """Return the elements of a tensor in plain order."""
    return read(tensor, slice_).bytes.read()


def strings(tensor: Tensor, slice_: str | None = None) -> list[bytes]:
    """Return the elements of a tensor of strings."""
    return [base64.b64decode(each) for each in json.loads(read(tensor, slice_, "json").bytes.read())["values"]]


def error_of(tensor: Tensor) -> ProtosliceError:
    """Return the error that reading a tensor raises."""
    assert isinstance(tensor.data, Unreadable)
    return tensor.data.error


def message(type_name: str) -> Any:
    """Return an empty message of a bundled type."""
    return bundled().message_class(type_name)()


def opened(folder: Path, message: Any, name: str = "model.pb") -> LocalModel:
    """Open a message as a model, from a file in a folder."""
    (folder / name).write_bytes(message.SerializeToString())
    return open_model(folder / name, type=message.DESCRIPTOR.full_name)


def in_slices(job: Job[T]) -> tuple[int, T]:
    """Run `job`; return how often it yielded to other work, and its result."""
    slices = 0
    while True:
        try:
            next(job)
        except StopIteration as end:
            return slices, end.value
        slices += 1
