"""The flat table of a descriptor's closure."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import Descriptor

from protoslice._core import Schema
from protoslice.errors import InvalidInput
from protoslice.schema import bundled
from protoslice.schema.table import flatten

F = descriptor_pb2.FieldDescriptorProto


def test_the_root_comes_first_and_the_rest_breadth_first() -> None:
    table = bundled().table("tensorflow.SavedModel")
    names = [name for name, _, _ in table.messages]
    assert names[:3] == ["tensorflow.SavedModel", "tensorflow.MetaGraphDef", "tensorflow.MetaGraphDef.MetaInfoDef"]
    assert len(names) == len(set(names))
    assert table.schema().message_names == names
    assert flatten(bundled().descriptor("tensorflow.SavedModel")) == table


def test_maps_enums_and_oneofs() -> None:
    table = bundled().table("tensorflow.NodeDef")
    messages = {name: (entry, {row[1]: row for row in rows}) for name, entry, rows in table.messages}
    _, node = messages["tensorflow.NodeDef"]
    number, _, kind, repeated, oneof, target = node["attr"]
    assert (number, kind, repeated, oneof) == (5, F.TYPE_MESSAGE, True, 0)
    assert table.messages[target][0] == "tensorflow.NodeDef.AttrEntry"
    assert messages["tensorflow.NodeDef.AttrEntry"][0]
    _, value = messages["tensorflow.AttrValue"]
    assert {row[4] for row in value.values()} == {1}
    assert table.enums[value["type"][5]]["DT_FLOAT"] == 1


def test_an_optional_of_proto3_is_no_oneof() -> None:
    table = bundled().table("tensorflow.proto_splitter.ChunkMetadata")
    rows = {name: rows for name, _, rows in table.messages}
    assert rows["tensorflow.proto_splitter.ChunkedMessage"][0][:5] == (1, "chunk_index", F.TYPE_UINT64, False, 0)
    assert [row[4] for row in rows["tensorflow.proto_splitter.FieldIndex"]] == [1, 1, 1]


def test_a_real_oneof_of_one_member_counts() -> None:
    rows = dict((row[1], row) for row in bundled().table("tensorflow.TensorSliceProto").messages[1][2])
    assert rows["length"][4] == 1


def test_groups_and_extensions_are_fields() -> None:
    table = flatten(_proto2())
    rows = table.messages[0][2]
    assert [row[:4] for row in rows] == [
        (1, "pair", F.TYPE_GROUP, True),
        (1000, "[x.note]", F.TYPE_STRING, False),
        (1001, "[x.also]", F.TYPE_MESSAGE, False),
    ]
    assert table.messages[rows[2][5]][0] == "x.Root"


def _proto2() -> Descriptor:
    file = descriptor_pb2.FileDescriptorProto(name="x.proto", package="x")
    root = file.message_type.add(name="Root")
    root.nested_type.add(name="Pair").field.add(name="a", number=1, type=F.TYPE_INT32, label=F.LABEL_OPTIONAL)
    root.field.add(name="pair", number=1, type=F.TYPE_GROUP, label=F.LABEL_REPEATED, type_name=".x.Root.Pair")
    root.extension_range.add(start=1000, end=2000)
    file.extension.add(name="also", number=1001, type=F.TYPE_MESSAGE, type_name=".x.Root", extendee=".x.Root", label=1)
    file.extension.add(name="note", number=1000, type=F.TYPE_STRING, extendee=".x.Root", label=F.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName("x.Root")


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ((1, "a", 99, False, 0, 0), "type number 99"),
        ((1, "a", F.TYPE_MESSAGE, False, 0, 7), "not well formed"),
        ((1, "a", F.TYPE_ENUM, False, 0, 0), "not well formed"),
        ((0, "a", F.TYPE_INT32, False, 0, 0), "not well formed"),
        ((1 << 29, "a", F.TYPE_INT32, False, 0, 0), "not well formed"),
    ],
)
def test_a_table_that_does_not_hold_together_is_refused(row: tuple[int, str, int, bool, int, int], why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        Schema([("x.Root", False, [row])], [])
    assert len(Schema([("x.Root", False, [])], [])) == 1
