"""A chunked proto keeps the plan it came with: its own chunks, in its order, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.chunked import METADATA, TYPES, M, at, chunked, file_of, fill
from tests.support.golden import CHUNKED

import protoslice
from protoslice import _core
from protoslice.errors import LimitExceeded
from protoslice.library.opening import open_proto
from protoslice.riegeli import RecordReader

FILES = sorted(CHUNKED.glob("*.cpb"))


def records_of(path: Path) -> list[bytes]:
    """The records of a file, in the order of the file."""
    with path.open("rb") as file:
        return list(RecordReader(file).read_records())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_chunks_metadata_and_file_are_those_that_came(path: Path) -> None:
    """The files are TensorFlow's, compressed and not; a plan by sizes would make one chunk of each."""
    *records, last = records_of(path)
    with protoslice.open(path) as proto:
        assert len(records) == len(METADATA.FromString(last).chunks) > 1
        assert [chunk.rope.read() for chunk in proto.chunks] == records
        assert proto.metadata == proto.chunks.metadata == last
        assert proto.chunks.cpb().read() == path.read_bytes()
        assert len(proto.split()) == 1, "an explicit split is by sizes"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_chunk_says_where_it_belongs(path: Path) -> None:
    with protoslice.open(path) as proto:
        base, *others = proto.chunks
        assert (base.kind, base.type, base.path) == ("message", proto.type, "")
        for chunk in others:
            kind = proto.merge(chunk.path).kind
            assert (chunk.kind == "bytes") == (kind in {"bytes", "string"}), chunk.path
            if chunk.kind == "bytes":
                assert chunk.type is None
                assert chunk.rope.read() == proto.merge(chunk.path).read()
            else:
                assert chunk.type == proto.merge(chunk.path).type


@given(st.permutations(range(6)), st.sampled_from(["", "uncompressed", "transpose"]))
def test_the_order_of_the_file_is_kept(order: list[int], options: str) -> None:
    """Chunks have the numbers of their records; the first place of a chunk is its path."""
    places = [[], ["sub"], ["bytes"], ["subs", at(0)], ["by_s", ("s", 'a"b')], ["subs", at(0), "str"]]
    paths = ["", "sub", "bytes", "subs[0]", 'by_s["a\\"b"]', "subs[0].str"]
    data = [M(i32=7), M(i64=8), b"bytes", M(str="here"), M(i32=9), b"there"]
    message: Any = METADATA()
    number = {which: position for position, which in enumerate(order)}
    fields = [(places[which], number[which]) for which in range(1, 6)]
    fill(message.message, number[0], [*fields, (["left"], number[1])])
    file = file_of([data[which] for which in order], message, options)
    with open_proto(file, "t.M", types=TYPES) as proto:
        assert [chunk.path for chunk in proto.chunks] == [paths[which] for which in order]
        assert [chunk.kind for chunk in proto.chunks] == ["bytes" if which in {2, 5} else "message" for which in order]
        assert proto.chunks.cpb().read() == file


def test_a_plan_is_the_same_after_it_was_written_and_read() -> None:
    with protoslice.open(FILES[0]) as proto:
        plan = proto.chunks.plan
        again = _core.Plan.decode(plan.encode())
        assert (plan.kept, again.kept, proto.split().plan.kept) == (True, True, False)
        assert again.encode() == plan.encode()
        assert (again.metadata(), again.cpb([]).size) == (plan.metadata(), FILES[0].stat().st_size)


def test_a_split_proto_of_xla_has_no_metadata_and_is_planned_by_sizes() -> None:
    from tests.cpb.test_split import GPU, split_of  # the same files

    file = split_of([(None, GPU(binary=b"x" * 4000).SerializeToString())])
    with protoslice.open(file) as proto:
        assert proto.chunks.plan.kept is False


@pytest.mark.parametrize(
    ("key", "count", "said"),
    [(5000, 1, "path of more than 4096"), (3000, 9000, "paths to its chunks that are too long")],
)
def test_the_paths_of_a_plan_are_bounded(key: int, count: int, said: str) -> None:
    """One key in the file stands in the path of every chunk below it: three kilobytes may mean megabytes."""
    below = [(["subs", at(number)], number) for number in range(count)]
    file = chunked([b""] * count, None, (["by_s", ("s", "k" * key)], None, below))
    with open_proto(file, "t.M", types=TYPES) as proto:
        with pytest.raises(LimitExceeded, match=said):
            _ = proto.chunks
        assert len(proto.split()) == 1


def test_a_chunk_that_is_named_often_costs_its_path_once() -> None:
    below = [(["subs", at(number)], 0) for number in range(20_000)]
    with open_proto(chunked([b""], None, (["by_s", ("s", "k" * 3000)], None, below)), "t.M", types=TYPES) as proto:
        assert [chunk.path for chunk in proto.chunks] == [f'by_s["{"k" * 3000}"].subs[0]']


def test_the_chunks_of_a_plan_are_bounded() -> None:
    """Each costs about a kilobyte of memory, and a few bytes in a file."""
    count = 20_000
    file = chunked([b""] * count, None, *[(["subs", at(number)], number) for number in range(count)])
    with open_proto(file, "t.M", types=TYPES) as proto:
        with pytest.raises(LimitExceeded, match="20000 chunks"):
            _ = proto.chunks
        assert len(proto.split()) == 1
