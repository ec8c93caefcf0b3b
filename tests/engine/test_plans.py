"""Chunks and their metadata make the proto up again, as TensorFlow's Merger would put them together."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.protos import ROOT, Case, canonical, cases, merge_chunks
from tests.support.stores import field as delimited

import protoslice
from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.schema import bundled, from_descriptor_set

METADATA = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")
_MESSAGE, _BYTES = 1, 2


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    """A random policy, most often a tiny one."""
    least = draw(st.sampled_from([1, 2, 8, 30, 64, 200, 1000, 1 << 20]))
    return {"min_chunk": least, "max_chunk": least * draw(st.sampled_from([1, 2, 10, 1000]))}


LIMITS = _core.Limits(chunks=1 << 20)
"""A chunk for every byte of a case is more than the engine makes unasked."""


def opened(case: Case, floor: int | None = None) -> protoslice.Proto:
    return protoslice.open(
        case.data, ROOT, types=from_descriptor_set(case.schema), floor=floor or case.floor, limits=LIMITS
    )


def metadata_of(split: protoslice.Split) -> Any:
    return METADATA.FromString(split.metadata)


@given(cases(), policies())
def test_chunks_merge_back(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    chunks = [chunk.rope.read() for chunk in split]
    merged = merge_chunks(chunks, metadata_of(split).message, case.root())
    assert canonical(merged) == canonical(case.message())


@given(cases(), policies())
def test_the_chunked_file_opens_as_the_same_proto(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    file = split.cpb().read()
    with protoslice.open(file, ROOT, types=from_descriptor_set(case.schema), floor=case.floor) as again:
        assert again.form == "chunked"
        assert canonical(case.root.FromString(again.rope.read())) == canonical(case.message())


@given(cases(), policies())
def test_metadata_says_what_the_chunks_are(case: Case, policy: dict[str, Any]) -> None:
    split = opened(case).split(**policy)
    metadata = metadata_of(split)
    assert [info.size for info in metadata.chunks] == [chunk.size for chunk in split]
    assert [info.type for info in metadata.chunks] == [_BYTES if chunk.kind == "bytes" else _MESSAGE for chunk in split]
    assert (metadata.version.splitter_version, metadata.version.join_version) == (1, 0)
    used = [chunked.chunk_index for chunked in _all(metadata.message) if chunked.HasField("chunk_index")]
    assert sorted(used) == list(range(len(split))), "each chunk is used once"
    for number, chunk in enumerate(split):
        assert chunk.index == number
        assert (chunk.type is None) == (chunk.kind == "bytes")


def _all(chunked: Any) -> Iterator[Any]:
    yield chunked
    for field in chunked.chunked_fields:
        yield from _all(field.message)


@given(cases(), policies())
def test_a_chunk_that_is_text_or_bytes_is_what_stands_at_its_path(case: Case, policy: dict[str, Any]) -> None:
    proto = opened(case)
    for chunk in proto.split(**policy):
        if chunk.kind == "bytes":
            assert chunk.rope.read() == proto.merge(chunk.path).read()
            assert chunk.size >= policy["min_chunk"]


@given(cases(), policies(), st.sampled_from([1, 7, 300, 1 << 20]))
def test_neither_the_run_nor_the_floor_of_the_index_changes_the_plan(
    case: Case, policy: dict[str, Any], floor: int
) -> None:
    first, second = (opened(case, each).split(**policy) for each in (case.floor, floor))
    assert first.metadata == second.metadata
    assert [(chunk.kind, chunk.path, chunk.rope.read()) for chunk in first] == [
        (chunk.kind, chunk.path, chunk.rope.read()) for chunk in second
    ]
    assert first.cpb().read() == second.cpb().read()


@given(cases(), policies())
def test_large_singular_bytes_are_chunks(case: Case, policy: dict[str, Any]) -> None:
    """Each large singular bytes or string field of a root without oddities is a chunk of its own."""
    message = case.message()
    data = canonical(message)
    proto = protoslice.open(data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor)
    out = {chunk.path for chunk in proto.split(**policy) if chunk.kind == "bytes"}
    for field, value in message.ListFields():
        text = field.type in (field.TYPE_BYTES, field.TYPE_STRING)
        if text and not field.is_repeated and proto.merge(field.name).size >= policy["min_chunk"]:
            assert field.name in out, value


def test_a_proto_has_chunks_by_its_size() -> None:
    """Each costs a kilobyte, however small: a short proto cannot ask for hundreds of thousands."""
    data = delimited(7, b"\x2a\x02\x42\x00" * 20_000)
    with protoslice.open(data, "onnx.ModelProto") as proto:
        with pytest.raises(LimitExceeded, match="more than 16403: raise min_chunk, max_chunk"):
            proto.split(min_chunk=1, max_chunk=1)
        assert len(proto.split(min_chunk=8, max_chunk=8)) == 10_001, "the rest, and the runs"
    with protoslice.open(data, "onnx.ModelProto", limits=_core.Limits(chunks=50_000)) as proto:
        assert len(proto.split(min_chunk=1, max_chunk=1)) > 20_000
