"""Failures of storage that may pass are never taken for faults of a model, its tensors or its type."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pytest
from tests.support.stores import onnx
from tests.support.tensors import content, tensor

import protoslice
from protoslice.errors import IntegrityError, ProtosliceError, StorageUnavailable
from protoslice.formats.onnx import Onnx
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Deferred, Model, Stored, Tensor
from protoslice.tensors.model import RootProto as Root
from protoslice.tensors.references import references
from protoslice.tensors.safetensors_file import safetensors

KIND = "onnx.ModelProto"


@dataclass
class Flaky:
    """A source whose read number `fail_at` fails, and no other."""

    data: bytes
    fail_at: int
    error: type[ProtosliceError] = StorageUnavailable
    reads: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int, /) -> bytes:
        self.reads += 1
        if self.reads == self.fail_at:
            raise self.error("not now")
        return self.data[offset : offset + length]


def looked_up(source: Flaky) -> Tensor:
    """A tensor of which something has to be read before it is known where it lies."""

    def look() -> Stored:
        source.read(0, 1)
        return Stored(Rope.of(source))

    return tensor(Deferred(look), "U8", (source.size,))


@pytest.mark.parametrize("error", [StorageUnavailable, IntegrityError])
def test_a_tensor_that_cannot_be_read_now_is_not_left_out(error: type[ProtosliceError]) -> None:
    source = Flaky(b"abc", 1, error)
    with pytest.raises(error):
        references([looked_up(source)], {}, file_url=str, tensor_url=str)
    source = Flaky(b"abc", 1, error)
    with pytest.raises(error):
        safetensors([looked_up(source)])
    assert content(safetensors([looked_up(source)])).endswith(b"abc")


def every_read(data: bytes, work: Callable[[Flaky], None]) -> None:
    """Do `work` with each of its reads failing once: it is to fail for that reason, or not at all."""
    whole = Flaky(data, 0)
    work(whole)
    assert whole.reads > 2
    for fail_at in range(1, whole.reads + 1):
        with suppress(StorageUnavailable):
            work(Flaky(data, fail_at))


def test_a_type_that_cannot_be_told_now_is_not_unknown() -> None:
    with protoslice.open(onnx(20_000, 30_000, 500)) as proto:
        file = proto.split(min_chunk=10, max_chunk=2000).cpb().read()

    def work(source: Flaky) -> None:
        with protoslice.open(source) as proto:
            assert (proto.type, proto.why) == (KIND, f"has the fields of {KIND} after merging")

    every_read(file, work)


def test_a_listing_that_cannot_be_read_now_has_no_faults() -> None:
    data = onnx(30_000, 30_000, 30_000)
    index = protoslice.open(data, KIND).index_bytes

    def work(source: Flaky) -> None:
        with protoslice.open(source, KIND, index=index) as proto:
            model = Model("m.onnx", proto.type, {"m.onnx": source}, Root(proto.document, proto.sources))
            found = Onnx().tensors(model)
            assert [found[number].shape for number in range(3)] == [(30_000,)] * 3

    every_read(data, work)
