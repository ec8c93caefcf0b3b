"""Uploaded descriptor sets and texts: faulty ones get clear errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from protoslice import schema
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, Unsupported
from protoslice.schema import bundled, find, from_descriptor_set
from protoslice.schema.parsing import MAX_TEXT
from protoslice.schema.text_worker import serialized_apart
from protoslice.schema.types import MAX_PARTS, bundled_bytes

F = descriptor_pb2.FieldDescriptorProto
Set = descriptor_pb2.FileDescriptorSet
BUNDLED = Set.FromString(bundled_bytes())


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
    assert [name for name, *_ in types.flat("c.M").messages] == ["c.M", "b.M", "a.M"]
    assert from_descriptor_set(Set(file=files).SerializeToString()).names() == types.names()


def test_well_known_imports_may_be_left_out() -> None:
    file = _file("x.proto", "x", "google/protobuf/any.proto", field_type=".google.protobuf.Any")
    types = from_descriptor_set(Set(file=[file]))
    assert types.names() == ["x.M"]
    assert [name for name, *_ in types.flat("x.M").messages] == ["x.M", "google.protobuf.Any"]


def test_each_set_has_a_pool_of_its_own() -> None:
    """The name of a bundled type, or of another set's type, means the type in this set."""
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
    types = from_descriptor_set(Set(file=reversed(BUNDLED.file)))
    assert types.names() == bundled().names()
    assert types.canonical("tensorflow.SavedModel") == bundled().canonical("tensorflow.SavedModel")


A, B = _file("a.proto", "a", "b.proto"), _file("b.proto", "b", "a.proto", field_type=".a.M")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "contains no files"),
        (b"\x08\x01", "contains no files"),
        (b"\x0a\xff", "not a serialized google.protobuf.FileDescriptorSet"),
        (b"syntax = 'proto3';", "not a serialized google.protobuf.FileDescriptorSet"),
        (Set(file=[A]), "'a.proto' imports 'b.proto', which is not in the descriptor set; create the set with protoc"),
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


def test_files_that_import_each_other_harm_nobody() -> None:
    found = from_descriptor_set(Set(file=[A, B])).flat("b.M").messages
    assert [name for name, *_ in found] == ["b.M", "a.M"]


def _many(kind: str, count: int) -> Set:
    """Return a set with `count` things of a kind: a few bytes each, for which a parser takes hundreds."""
    file = descriptor_pb2.FileDescriptorProto(name="x", syntax="proto3")
    if kind == "imports":
        file.dependency.extend(["x"] * count)
    elif kind == "messages":
        file.message_type.extend(descriptor_pb2.DescriptorProto(name=f"M{number}") for number in range(count))
    elif kind == "fields":
        fields = (
            F(name=f"f{number}", number=number + 1, type=F.TYPE_BOOL, label=F.LABEL_OPTIONAL)
            for number in range(count - 1)
        )
        file.message_type.add(name="M").field.extend(fields)
    elif kind == "values":
        values = (descriptor_pb2.EnumValueDescriptorProto(name=f"V{number}", number=number) for number in range(count))
        file.enum_type.add(name="E").value.extend(values)
    else:
        file.package = ".".join(["p"] * count)
    return Set(file=[file])


@pytest.mark.parametrize("kind", ["imports", "messages", "fields", "values", "packages"])
def test_parts_are_limited_however_small_they_are(kind: str) -> None:
    with pytest.raises(LimitExceeded, match="declares more than 250000"):
        from_descriptor_set(_many(kind, MAX_PARTS + 1))


def test_as_many_parts_as_are_allowed_are_taken() -> None:
    assert len(from_descriptor_set(_many("fields", MAX_PARTS)).flat("M").messages[0][2]) == MAX_PARTS - 1


def _nested(depth: int, name: str = "M") -> Set:
    file = descriptor_pb2.FileDescriptorProto(name="x", package="p")
    message = file.message_type.add(name=name)
    for _ in range(depth - 2):
        message = message.nested_type.add(name=name)
    return Set(file=[file])


def test_names_are_limited() -> None:
    """Full names repeat those of all enclosing types, so a short set with deep nesting would take gigabytes."""
    deep = from_descriptor_set(_nested(64)).names()[-1]
    assert from_descriptor_set(_nested(64)).descriptor(deep).full_name == deep, "the protobuf runtime takes it too"
    for wrong in (_nested(65), _nested(3, "M" * 1000)):
        with pytest.raises(LimitExceeded, match="full name"):
            from_descriptor_set(wrong)


def test_what_a_type_reaches_is_limited() -> None:
    """Short names in a set become full names where the set is stored alone."""
    file = descriptor_pb2.FileDescriptorProto(name="x", package="p" * 900)
    file.message_type.add(name="M").field.extend(
        F(name=f"f{number}", number=number + 1, type_name="M", label=F.LABEL_OPTIONAL) for number in range(50_000)
    )
    types = from_descriptor_set(Set(file=[file]))
    with pytest.raises(LimitExceeded, match="1048576 bytes"):
        types.canonical(f"{file.package}.M")


def test_a_chain_of_imports_of_any_length_is_followed() -> None:
    files = [_file(f"{i}.proto", f"p{i}", *([f"{i + 1}.proto"] if i < 3000 else [])) for i in range(3001)]
    assert len(from_descriptor_set(Set(file=files))) == 3001


GOOD = Set(file=BUNDLED.file[:6]).SerializeToString()


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 255), st.integers(0, len(GOOD)))
def test_a_damaged_set_is_taken_or_refused(at: int, byte: int, length: int) -> None:
    damaged = bytearray(GOOD)
    damaged[at] = byte
    try:
        types = from_descriptor_set(bytes(damaged[: max(length, 1)]))
    except (InvalidInput, LimitExceeded):
        return
    for name in types.names():
        assert from_descriptor_set(types.canonical(name)).canonical(name) == types.canonical(name)


# Another process parses texts; its errors equal this process's errors.

READ_BY = schema.bundled().kept("onnx.ModelProto")


def test_the_message_comes_back() -> None:
    assert serialized_apart(b"ir_version: 8", READ_BY) == b"\x08\x08"


def test_a_text_that_does_not_parse_is_corrupt() -> None:
    with pytest.raises(CorruptModel, match="line 2") as caught:
        serialized_apart(b"ir_version: 8\nnothing: 1", READ_BY)
    assert caught.value.offset == 14


def test_a_type_that_the_runtime_refuses_is_invalid() -> None:
    file = FileDescriptorProto(name="a.proto", package="onnx")
    for _ in range(2):
        file.message_type.add(name="ModelProto")
    twice = replace(READ_BY, canonical=FileDescriptorSet(file=[file]).SerializeToString())
    with pytest.raises(InvalidInput, match="does not accept this type"):
        serialized_apart(b"ir_version: 8", twice)


def test_a_text_beyond_the_limit_is_not_parsed() -> None:
    with pytest.raises(LimitExceeded):
        serialized_apart(b" " * (MAX_TEXT + 1), READ_BY)
