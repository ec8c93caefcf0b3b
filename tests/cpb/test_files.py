"""Chunked files, however they are written, and what is none or damaged."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import pytest
from tests.support.chunked import METADATA, TYPES, M, at, chunked, fill, merged

import protoslice
from protoslice.errors import CorruptModel, InconsistentChunks
from protoslice.riegeli import RecordWriter


@pytest.mark.parametrize("options", ["", "uncompressed", "zstd", "snappy", "transpose", "uncompressed,chunk_size:1"])
def test_however_it_is_written(options: str) -> None:
    base = M(i32=1, subs=[M(str="a"), M()])
    got = merged([base, b"x" * 5000, M(i64=5)], 0, (["sub", "bytes"], 1), (["subs", at(1)], 2), options=options)
    assert got == M(i32=1, subs=[M(str="a"), M(i64=5)], sub=M(bytes=b"x" * 5000))


def test_neither_version_nor_size_nor_type_is_checked() -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0)
    metadata.version.join_version = 99
    metadata.version.bad_consumers.extend([0, 1, 2])
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_message(M(i32=1))
        metadata.chunks.add(size=12345, offset=writer.last_pos.numeric, type=2)
        writer.write_message(metadata)
    with protoslice.open(out.getvalue(), "t.M", types=TYPES) as proto:
        assert M.FromString(proto.rope.read()) == M(i32=1)


def test_a_chunk_may_have_more_fields_than_are_looked_up_at_once() -> None:
    many = b"\xb0\x01\x00" * 10 + b"\xa2\x01\x00" * 4_300_000
    file = chunked([M(i32=1), many], 0, ([], 1), options="uncompressed")
    with protoslice.open(file, "t.M", types=TYPES) as proto:
        assert proto.count("subs") == 4_300_000


@pytest.mark.parametrize("offset", [0, 63, 1 << 20, (1 << 64) - 1])
def test_a_chunk_where_no_record_is_is_an_error_that_names_it(offset: int) -> None:
    metadata: Any = METADATA()
    fill(metadata.message, 0)
    out = io.BytesIO()
    with RecordWriter(out) as writer:
        writer.write_message(M(i32=1))
        metadata.chunks.add(size=2, offset=offset)
        writer.write_message(metadata)
    with pytest.raises(InconsistentChunks, match="no record starts") as caught:
        protoslice.open(out.getvalue(), "t.M", types=TYPES)
    assert caught.value.path == "chunk 0"


@pytest.mark.parametrize("options", ["zstd,chunk_size:1", "brotli,chunk_size:1", "snappy,chunk_size:1"])
def test_damage_in_a_record_is_told_with_its_place(options: str) -> None:
    file = bytearray(chunked([M(), Random(1).randbytes(5000)], 0, (["bytes"], 1), options=options))
    file[3000] ^= 1
    with pytest.raises(CorruptModel) as caught:
        protoslice.open(bytes(file), "t.M", types=TYPES)
    assert caught.value.offset is not None
    assert 0 < caught.value.offset < len(file)


def test_padding_after_the_metadata_does_no_harm() -> None:
    got = merged([M(i32=1), M(i64=2)], 0, ([], 1), options="final_padding:64K")
    assert got == M(i32=1, i64=2)


@pytest.mark.parametrize("options", ["uncompressed", "uncompressed,chunk_size:1", "zstd"])
def test_damage_to_a_record_is_found_by_verifying(options: str) -> None:
    data = bytearray(chunked([M(i32=1), bytes(5000)], 0, (["sub", "bytes"], 1), options=options))
    with protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()
    at = data.index(bytes(1000)) + 500 if options != "zstd" else len(data) // 3
    data[at] ^= 1
    with pytest.raises(CorruptModel, match="hash"), protoslice.open(bytes(data), "t.M", types=TYPES) as proto:
        proto.verify()
