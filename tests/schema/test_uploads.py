"""Descriptor sets from elsewhere: fresh pools, and clear words for what is wrong."""

from __future__ import annotations

from contextlib import suppress

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput, LimitExceeded, Unsupported
from protoslice.schema import bundled, counting, find, from_descriptor_set
from protoslice.schema.registry import bundled_files

F = descriptor_pb2.FieldDescriptorProto
Set = descriptor_pb2.FileDescriptorSet


def _file(name: str, package: str, *imports: str, field_type: str = "") -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=imports)
    message = file.message_type.add(name="M")
    message.field.add(name="id", number=1, type=F.TYPE_INT64, label=F.LABEL_OPTIONAL)
    if field_type:
        kind = F.TYPE_MESSAGE
        message.field.add(name="other", number=2, type=kind, type_name=field_type, label=F.LABEL_OPTIONAL)
    return file


def test_files_may_stand_in_any_order() -> None:
    files = [_file("c.proto", "c", "b.proto", field_type=".b.M"), _file("a.proto", "a")]
    files.insert(1, _file("b.proto", "b", "a.proto", field_type=".a.M"))
    types = from_descriptor_set(Set(file=files))
    assert types.names() == ["a.M", "b.M", "c.M"]
    assert types.flat("c.M").message_names == ["c.M", "b.M", "a.M"]
    assert from_descriptor_set(Set(file=files).SerializeToString()).names() == types.names()


def test_well_known_imports_may_be_left_out() -> None:
    file = _file("x.proto", "x", "google/protobuf/any.proto", field_type=".google.protobuf.Any")
    types = from_descriptor_set(Set(file=[file]))
    assert types.names() == ["x.M"]
    assert types.flat("x.M").message_names == ["x.M", "google.protobuf.Any"]


def test_each_set_has_a_pool_of_its_own() -> None:
    """The name of a bundled type, or of another set's, means what this set says."""
    first = from_descriptor_set(Set(file=[_file("onnx.proto", "onnx")]))
    second = from_descriptor_set(Set(file=[_file("onnx.proto", "onnx", field_type=".onnx.M")]))
    assert [len(types.descriptor("onnx.M").fields) for types in (first, second)] == [1, 2]
    assert "onnx.M" not in bundled()
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName("onnx.M")


def test_find_prefers_the_sets_given() -> None:
    mine = from_descriptor_set(Set(file=[_file("onnx.proto", "onnx")]))
    assert find("onnx.M", [mine]) is mine
    assert find("onnx.ModelProto", [mine]) is bundled()
    with pytest.raises(Unsupported, match=r"did you mean onnx\.M\?"):
        find("M", [mine])


def test_the_bundled_set_can_be_uploaded() -> None:
    types = from_descriptor_set(Set(file=reversed(bundled_files())))
    assert types.names() == bundled().names()
    assert types.table("tensorflow.SavedModel") == bundled().table("tensorflow.SavedModel")


A, B = _file("a.proto", "a", "b.proto"), _file("b.proto", "b", "a.proto")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no files"),
        (b"\x08\x01", "holds no files"),
        (b"\x0a\xff", "no serialized google.protobuf.FileDescriptorSet"),
        (b"syntax = 'proto3';", "no serialized google.protobuf.FileDescriptorSet"),
        (Set(file=[A]), "'a.proto' imports 'b.proto', which is not in the descriptor set; make the set with protoc"),
        (Set(file=[A, B]), "'b.proto' and 'a.proto' import each other"),
        (Set(file=[_file("a.proto", "a", "a.proto")]), "'a.proto' and 'a.proto' import each other"),
        (Set(file=[_file("a.proto", "a"), _file("a.proto", "b")]), "two different files named 'a.proto'"),
        (Set(file=[_file("a.proto", "a"), _file("b.proto", "a")]), "the file 'b.proto' is not valid: .*a.M"),
        (Set(file=[_file("a.proto", "a", field_type=".gone.M")]), "the file 'a.proto' is not valid: .*gone.M"),
        (Set(file=[_file("a.proto", "not a name")]), "the file 'a.proto' is not valid"),
        (Set(file=[_file("a.proto", "a", "x" * 5000)]), "…"),
    ],
)
def test_what_is_wrong_is_said(data: bytes | Set, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as caught:
        from_descriptor_set(data)
    assert len(str(caught.value)) < 500


def test_the_same_file_twice_is_no_harm() -> None:
    assert from_descriptor_set(Set(file=[_file("a.proto", "a"), _file("a.proto", "a")])).names() == ["a.M"]


def test_size_is_limited() -> None:
    data = Set(file=[_file("a.proto", "a")]).SerializeToString()
    assert from_descriptor_set(data, max_bytes=len(data)).names() == ["a.M"]
    with pytest.raises(LimitExceeded, match=f"{len(data)} bytes"):
        from_descriptor_set(data, max_bytes=len(data) - 1)
    with pytest.raises(LimitExceeded, match="10001 files"):
        from_descriptor_set(b"\x0a\x00" * 10_001)


def _framed(tag: int, content: bytes) -> bytes:
    length = bytearray()
    size = len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([tag, *length, size]) + content


@pytest.mark.parametrize(
    "part",
    [
        b"\x1a\x00",  # an import
        b"\x22\x00",  # a message
        b"\x22\x02\x12\x00",  # a field in a message
        b"\x2a\x02\x12\x00",  # a value in an enum
        b"\x4a\x02\x0a\x00",  # a place in the source
        b"\x0b\x22\x00\x0c",  # a message in a group that nobody knows
    ],
)
def test_parts_are_limited_however_small_they_are(part: bytes) -> None:
    """Each of them takes two bytes here, and hundreds when it is parsed."""
    many = part * counting.MAX_PARTS
    for file in (many, many + b"\xff" * 20):
        with pytest.raises(LimitExceeded, match="declares more than 250000"):
            from_descriptor_set(_framed(0x0A, file))
    with suppress(InvalidInput):
        from_descriptor_set(_framed(0x0A, part * 1000))


def test_parts_are_counted_as_a_parser_meets_them() -> None:
    def count(message: Message) -> int:
        """Messages below, and strings that repeat."""
        found = 0
        for field, value in message.ListFields():
            values = value if field.is_repeated else [value]
            if field.message_type is not None:
                found += sum(1 + count(each) for each in values)
            elif field.is_repeated and field.type in (F.TYPE_STRING, F.TYPE_BYTES):
                found += len(values)
        return found

    whole = Set(file=bundled_files())
    assert len(list(counting._parts(whole.SerializeToString()))) == count(whole) > 4000


def test_a_chain_of_imports_of_any_length_is_followed() -> None:
    files = [_file(f"{i}.proto", f"p{i}", *([f"{i + 1}.proto"] if i < 3000 else [])) for i in range(3001)]
    assert len(from_descriptor_set(Set(file=files))) == 3001


GOOD = Set(file=bundled_files()[:6]).SerializeToString()


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, len(GOOD)))
def test_a_damaged_set_is_taken_or_refused(at: int, byte: int, length: int) -> None:
    damaged = bytearray(GOOD)
    damaged[at] = byte
    try:
        types = from_descriptor_set(bytes(damaged[: max(length, 1)]))
    except InvalidInput:
        return
    for name in types.names():
        types.flat(name)
