"""Fallback format: large fields of bytes and numbers of any typed message, by their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.text_format import Parse
from tests.support.tensors import elements

import protoslice
from protoslice.errors import LimitExceeded
from protoslice.formats import generic
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.schema import from_descriptor_set
from protoslice.sources.files import BytesSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model, RootProto

KINDS = {
    "double": "F64", "float": "F32", "fixed32": "U32", "fixed64": "U64", "sfixed32": "I32", "sfixed64": "I64",
    "int32": "I32", "int64": "I64", "uint32": "U32", "uint64": "U64", "sint32": "I32", "sint64": "I64", "bool": "BOOL",
}  # fmt: skip
_NUMBERS = "".join(
    f'field {{ name: "{kind}s" number: {at} type: TYPE_{kind.upper()} label: LABEL_REPEATED }}'
    for at, kind in enumerate(KINDS, 20)
)
_FILE = f"""
name: "t.proto" package: "t" syntax: "proto3"
message_type {{
  name: "M"
  field {{ name: "name" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }}
  field {{ name: "data" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  field {{ name: "list" number: 3 type: TYPE_BYTES label: LABEL_REPEATED }}
  field {{ name: "below" number: 4 type: TYPE_MESSAGE type_name: ".t.M" label: LABEL_REPEATED }}
  field {{ name: "blobs" number: 5 type: TYPE_MESSAGE type_name: ".t.M.BlobsEntry" label: LABEL_REPEATED }}
  field {{ name: "left" number: 6 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }}
  field {{ name: "right" number: 7 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }}
  {_NUMBERS}
  oneof_decl {{ name: "either" }}
  nested_type {{
    name: "BlobsEntry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }}
    field {{ name: "value" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }}
  }}
}}
"""
TYPES = from_descriptor_set(FileDescriptorSet(file=[Parse(_FILE, FileDescriptorProto())]))
M: Any = TYPES.message_class("t.M")
LARGE = bytes(range(256)) * 256
SMALL = LARGE[:-1]


class Unread:
    """Bytes that nobody may read, after the index has been made."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.sealed = False
        self._data = data

    def read(self, offset: int, length: int) -> bytes:
        assert not self.sealed
        return self._data[offset : offset + length]


def opened(data: bytes) -> Tensors:
    source = BytesSource(data)
    proto = protoslice.open(source, "t.M", types=TYPES)
    model = Model("m.pb", "t.M", {"m.pb": source}, RootProto(proto.document, proto.sources))
    assert [each.name for each in formats_of(model)] == ["fields"]
    return tensors_of(model)


def summary(found: Tensors) -> dict[str, tuple[str | None, tuple[int, ...] | None]]:
    all_ = (found[number] for number in range(len(found)))
    return {each.name: (each.dtype.name if each.dtype else None, each.shape) for each in all_}


def value(found: Tensors, name: str) -> bytes:
    (number,) = found.numbers(name)
    assert found.numbers(f"path:{name}") == [number]
    return elements(found[number])


def test_fields_of_bytes_wherever_they_stand() -> None:
    message = M(name="m", data=LARGE, list=[b"", LARGE, SMALL, LARGE[::-1]])
    message.blobs["a"] = LARGE
    message.blobs["b"] = SMALL
    message.below.add(data=SMALL)
    message.below.add().below.add(data=LARGE[::-1])
    found = opened(message.SerializeToString())
    due = {
        "data": LARGE,
        "list[1]": LARGE,
        "list[3]": LARGE[::-1],
        'blobs["a"]': LARGE,
        "below[1].below[0].data": LARGE[::-1],
    }
    assert summary(found) == {name: ("U8", (len(LARGE),)) for name in due}
    assert {name: value(found, name) for name in due} == due


@pytest.mark.parametrize("kind", KINDS)
def test_fields_of_numbers(kind: str) -> None:
    values = [(at * 7919) % (2 if kind == "bool" else 1 << 20) for at in range(70_000)]
    message = M()
    getattr(message, f"{kind}s").extend(values)
    getattr(message.below.add(), f"{kind}s").extend(values[:10])
    found = opened(message.SerializeToString())
    name = KINDS[kind]
    assert summary(found) == {f"{kind}s": (name, (70_000,))}
    dtype = {"F": "f", "I": "i", "U": "u", "B": "?"}[name[0]] + ("" if kind == "bool" else str(int(name[1:]) // 8))
    assert value(found, f"{kind}s") == np.array(values).astype(dtype).tobytes()


def test_numbers_in_pieces_and_one_by_one() -> None:
    whole = M(floats=range(20_000)).SerializeToString()
    loose = b"".join(b"\xad\x01" + np.array(at, "<f4").tobytes() for at in range(3))
    found = opened(whole + loose + whole)
    assert summary(found) == {"floats": ("F32", (40_003,))}
    assert value(found, "floats") == np.array([*range(20_000), 0, 1, 2, *range(20_000)], "<f4").tobytes()


def test_what_another_member_of_a_oneof_replaced_is_no_tensor() -> None:
    left, right = M(left=LARGE).SerializeToString(), M(right=LARGE).SerializeToString()
    assert set(summary(opened(left + right))) == {"right"}
    assert set(summary(opened(right + left))) == {"left"}
    assert set(summary(opened(M(data=LARGE).SerializeToString() + M(data=SMALL).SerializeToString()))) == set()


def test_a_listing_reads_nothing_that_need_not_be_counted() -> None:
    message = M(data=LARGE, list=[LARGE] * 3 + [b"x"] * 10_000, floats=range(30_000))
    source = Unread(message.SerializeToString())
    proto = protoslice.open(source, "t.M", types=TYPES)
    source.sealed = True
    found = tensors_of(Model("m.pb", "t.M", {}, RootProto(proto.document, proto.sources)))
    assert len(summary(found)) == 5


def test_what_would_take_too_long_to_count_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "_MOST_COUNTED", 1000)
    found = opened(M(int64s=range(70_000)).SerializeToString())
    with pytest.raises(LimitExceeded, match="but its numbers are only counted up to"):
        value(found, "int64s")


def test_other_formats_come_first(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    net: Any = protoslice.schema.bundled().message_class("caffe.NetParameter")(name="n")
    net.layer.add(name="l", type="T").blobs.add(data=[0.0] * 40_000)
    path.write_bytes(net.SerializeToString())
    with protoslice.open_model(path) as model:
        assert [each.name for each in model.matching()] == ["l.blobs[0]"]
