"""Chunked protos that TensorFlow wrote: opened, merged, split again, and found with few reads.

The files are shared with the tests of `protoslice.merging`, where PROVENANCE.md says where they come from.
"""

import hashlib
import json
import struct
from typing import Any

import pytest
from tests.support.golden import CHUNKED
from tests.support.protos import canonical

import protoslice
from protoslice import _core
from protoslice.riegeli import RecordReader
from protoslice.schema import bundled

CASES = json.loads((CHUNKED / "expected.json").read_text())
TYPES = {"graphdef": "tensorflow.GraphDef", "savedmodel": "tensorflow.SavedModel"}
METADATA: Any = bundled().message_class("tensorflow.proto_splitter.ChunkMetadata")

each_case = pytest.mark.parametrize("case", CASES, ids=[case["file"] for case in CASES])


class CountingSource:
    """Bytes that count how they are read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)
        self.reads: list[tuple[int, int]] = []

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the bytes asked for."""
        self.reads.append((offset, length))
        assert 0 <= offset <= offset + length <= self.size
        return self.data[offset : offset + length]


class Side:
    """Takes what had to be decoded."""

    def write(self, data: bytes, /) -> object:
        """Takes `data`."""
        return len(data)


def message(case: dict[str, Any], data: bytes) -> Any:
    return bundled().message_class(TYPES[case["kind"]]).FromString(data)


def due(case: dict[str, Any]) -> Any:
    """The original, with exactly the differences that the manifest notes."""
    whole = message(case, (CHUNKED / case["original"]).read_bytes())
    note = case["merge_note"] or ""
    if "empty GraphDef.library" in note:
        whole.library.SetInParent()
    if "float_val constants come back as tensor_content" in note:
        tensors = [node.attr["value"].tensor for node in whole.node if node.op == "Const"]
        for tensor in tensors:
            if len(tensor.float_val) > 100:
                tensor.tensor_content = struct.pack(f"<{len(tensor.float_val)}f", *tensor.float_val)
                del tensor.float_val[:]
    return whole


def test_the_golden_files_are_there() -> None:
    assert len(CASES) == 8
    for case in CASES:
        assert hashlib.sha256((CHUNKED / case["file"]).read_bytes()).hexdigest() == case["sha256"]


@each_case
def test_it_opens_as_what_it_is_and_merges_to_its_original(case: dict[str, Any]) -> None:
    with protoslice.open(CHUNKED / case["file"]) as proto:
        assert (proto.form, proto.type) == ("chunked", TYPES[case["kind"]])
        merged = proto.rope.read()
        assert len(merged) == proto.size
    assert canonical(message(case, merged)) == canonical(due(case))


@each_case
def test_the_records_are_the_chunks(case: dict[str, Any]) -> None:
    *records, metadata = case["records"]
    with protoslice.open(CHUNKED / case["file"]) as proto:
        found = [chunk.rope.read() for chunk in proto.chunks]
        assert [len(data) for data in found] == [record["size"] for record in records]
        assert [hashlib.sha256(data).hexdigest() for data in found] == [record["sha256"] for record in records]
        assert hashlib.sha256(proto.metadata).hexdigest() == metadata["sha256"]


@each_case
def test_every_view_works_as_on_the_merged_proto(case: dict[str, Any]) -> None:
    with protoslice.open(CHUNKED / case["file"]) as proto:
        merged = proto.rope.read()
        plain = protoslice.open(merged, TYPES[case["kind"]])
        assert proto.tree() == plain.tree()
        for node in proto.tree():
            if node.count is None:
                assert proto.merge(node.path).read() == plain.merge(node.path).read()
        assert proto.merge(omit_larger_than=1000).read() == plain.merge(omit_larger_than=1000).read()
        for least in (500, 1 << 20):
            splits = [each.split(min_chunk=least, max_chunk=40 * least) for each in (proto, plain)]
            assert splits[0].cpb().read() == splits[1].cpb().read()


@each_case
@pytest.mark.parametrize("least", [1, 400, 5000])
def test_what_is_split_here_is_stable_and_reads_back(case: dict[str, Any], least: int) -> None:
    original = (CHUNKED / case["original"]).read_bytes()
    limits = _core.Limits(chunks=1 << 20)  # a policy of single bytes asks for more chunks than a plan has by default
    files = []
    for _ in range(2):
        proto = protoslice.open(original, TYPES[case["kind"]], limits=limits)
        split = proto.split(min_chunk=least, max_chunk=4 * least)
        files.append(split.cpb().read())
    assert files[0] == files[1]
    chunks = [chunk.rope.read() for chunk in split]
    with RecordReader(files[0]) as reader:
        assert reader.check_file_format()
        records = list(reader.read_records())
    assert records == [*chunks, split.metadata]
    with RecordReader(files[0]) as reader:
        infos = METADATA.FromString(split.metadata).chunks
        for info, chunk in list(zip(infos, chunks, strict=True))[:: 1 + len(chunks) // 50]:
            reader.seek_numeric(info.offset)
            assert reader.read_record() == chunk
    with protoslice.open(files[0], TYPES[case["kind"]]) as again:
        assert canonical(message(case, again.rope.read())) == canonical(message(case, original))


@each_case
def test_the_metadata_is_found_with_a_handful_of_small_reads(case: dict[str, Any]) -> None:
    source = CountingSource((CHUNKED / case["file"]).read_bytes())
    _core.Chunked(source, Side())
    assert len(source.reads) <= 8 + 3 * len(case["metadata"]["chunks"]), source.reads
    # Compressed bytes are read a riegeli chunk at a time: those of TensorFlow hold 1 MiB before compression.
    assert max(length for _, length in source.reads) <= 1 << 20


def test_a_large_uncompressed_file_is_opened_by_its_heads_alone() -> None:
    big = bundled().message_class("tensorflow.TensorProto")(tensor_content=bytes(3 << 20), dtype=1)
    file = protoslice.open(big.SerializeToString(), "tensorflow.TensorProto").chunks.cpb().read()
    source = CountingSource(file)
    _core.Chunked(source, Side())
    assert sum(length for _, length in source.reads) < 100 << 10, source.reads
    assert len(source.reads) < 20, source.reads
    with protoslice.open(source, "tensorflow.TensorProto") as proto:
        assert proto.merge("tensor_content")[2 << 20 : (2 << 20) + 10].read() == bytes(10)
