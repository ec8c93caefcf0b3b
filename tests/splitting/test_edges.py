"""Edges of splits: the exact sizes at which a message is too large, and a key too far."""

from __future__ import annotations

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
