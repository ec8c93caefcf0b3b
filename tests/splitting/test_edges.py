"""Edges of splits: the exact sizes at which a message is too large, and a key too far."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from protoslice import schema
from protoslice.errors import InvalidInput
from protoslice.splitting import AutoSplitter, ComposableSplitter, SplitPolicy

F = descriptor_pb2.FieldDescriptorProto
KEYS: dict[str, tuple[Any, int, int]] = {
    "int32": (F.TYPE_INT32, -(1 << 31), (1 << 31) - 1),
    "sint64": (F.TYPE_SINT64, -(1 << 63), (1 << 63) - 1),
    "fixed32": (F.TYPE_FIXED32, 0, (1 << 32) - 1),
    "uint64": (F.TYPE_UINT64, 0, (1 << 64) - 1),
}


def _graph() -> Any:
    graph: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number in range(10):
        graph.node.add(name=f"node {number}", op="Const")
    return graph


def _chunks(max_chunk: int) -> int:
    policy = SplitPolicy(min_chunk=min(1000, max_chunk), max_chunk=max_chunk)
    return len(AutoSplitter(_graph(), policy=policy).split()[0])


def test_what_has_just_the_size_allowed_stays_whole() -> None:
    size = _graph().ByteSize()
    assert _chunks(size) == 1
    assert _chunks(size - 1) > 1


class Failing(ComposableSplitter):
    """Adds a chunk, and fails the first time."""

    fails = True

    def build_chunks(self) -> None:
        self.add_chunk(b"x", ["node", 0, "op"])
        if self.fails:
            self.fails = False
            raise OSError("away")


def test_chunks_are_not_added_twice_after_an_error(tmp_path: Path) -> None:
    splitter = Failing(_graph())
    with pytest.raises(OSError, match="away"):
        splitter.split()
    for again in (splitter.split, lambda: splitter.write(tmp_path / "graph")):
        with pytest.raises(InvalidInput, match="with a new splitter"):
            again()
    assert not list(tmp_path.iterdir())
    splitter = Failing(_graph())
    splitter.fails = False
    assert len(splitter.split()[0]) == len(splitter.split()[0]) == 2


class Meeting(ComposableSplitter):
    """Adds a chunk when another thread is just as far."""

    barrier = threading.Barrier(2)

    def build_chunks(self) -> None:
        self.add_chunk(bytes(1 << 20), ["node", 0, "op"])
        self.barrier.wait(60)


def test_threads_that_write_one_prefix_do_not_share_a_file(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: Meeting(_graph()).write(tmp_path / "graph"), range(2)))
    assert [each.name for each in tmp_path.iterdir()] == ["graph.cpb"]


def _mapped(kind: Any) -> Any:
    """A new message with a map `m` from keys of that kind to strings."""
    file = descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=F.LABEL_OPTIONAL, type=kind)
    entry.field.add(name="value", number=2, label=F.LABEL_OPTIONAL, type=F.TYPE_STRING)
    message.field.add(name="m", number=1, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".k.M.MEntry")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("k.M"))()


@pytest.mark.parametrize("name", KEYS)
def test_keys_have_the_range_of_their_type(name: str) -> None:
    kind, least, most = KEYS[name]
    for key in (least, most):
        ComposableSplitter(_mapped(kind)).add_chunk(b"", ["m", key])
    for key in (least - 1, most + 1):
        with pytest.raises(InvalidInput, match="not a key of this map"):
            ComposableSplitter(_mapped(kind)).add_chunk(b"", ["m", key])
