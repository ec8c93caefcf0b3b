"""Descriptor sets from elsewhere: fresh pools, and clear words for what is wrong."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from hypothesis import given
from hypothesis import strategies as st

from protoslice.errors import InvalidInput, LimitExceeded, Unsupported
from protoslice.schema import bundled, find, from_descriptor_set
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
