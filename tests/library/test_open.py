"""Opening protos from all kinds of sources, and releasing the resources.

Models in local files are found by their content, and each file is examined once. Documents of files that are no protos
have every entry of a bundle's index, or every record of a stream.
"""

from __future__ import annotations

import io
import json
import re
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from tests.support.bundles import Box, Layout, Variable, bundle, table
from tests.support.golden import stored
from tests.support.stores import onnx
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import Rope, _core, detection, open_model, schema
from protoslice.detection import detect
from protoslice.errors import CorruptModel, IntegrityError, InvalidInput, NotFound, StorageError, Unsupported
from protoslice.library.documents import FileDocument, StreamDocument, bundle_document, header_of, stream_document
from protoslice.schema import bundled, from_descriptor_set
from protoslice.sources.files import BytesSource, FileSource
from protoslice.streams import open_records

KIND = "tensorflow.TensorProto"
DATA = bundled().message_class(KIND)(dtype=1, tensor_content=b"x" * 100_000).SerializeToString()


class Ranges:
    """A source with only the required methods."""

    size = len(DATA)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return the requested bytes."""
        return DATA[offset : offset + length]


class Lying(Ranges):
    """A source that returns fewer bytes than it has."""

    def read(self, offset: int, length: int, /) -> bytes:
        """Return fewer bytes than requested."""
        return DATA[offset : offset + length - 1]


def content(proto: protoslice.Proto) -> bytes:
    return proto.merge("tensor_content").read()


def test_a_path(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pb"
    path.write_bytes(DATA)
    for source in (path, str(path)):
        with protoslice.open(source, KIND) as proto:
            assert content(proto) == b"x" * 100_000
        with pytest.raises(InvalidInput, match="closed"):
            proto.rope.read()


@pytest.mark.parametrize("source", [DATA, bytearray(DATA), memoryview(DATA)], ids=["bytes", "bytearray", "memoryview"])
def test_bytes(source: bytes | bytearray | memoryview) -> None:
    assert content(protoslice.open(source, KIND)) == b"x" * 100_000


def test_a_file_object_stays_open() -> None:
    file = io.BytesIO(DATA)
    with protoslice.open(file, KIND) as proto:
        assert content(proto) == b"x" * 100_000
    assert not file.closed


def test_an_object_with_range_reads() -> None:
    assert content(protoslice.open(Ranges(), KIND)) == b"x" * 100_000


def test_a_source_that_gives_less_than_asked_is_an_error() -> None:
    with pytest.raises(StorageError, match="instead of"):
        protoslice.open(Lying(), KIND)


def test_what_is_no_source_is_refused_with_what_would_do() -> None:
    with pytest.raises(InvalidInput, match="pass a path, a URI, bytes"):
        protoslice.open(5, KIND)  # type: ignore[arg-type]


def test_a_path_where_nothing_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"Cannot open .*no\.pb"):
        protoslice.open(tmp_path / "no.pb")
    with pytest.raises(StorageError):
        protoslice.open(tmp_path)


def test_an_index_spares_the_scan_and_must_fit() -> None:
    index = protoslice.open(DATA, KIND).index_bytes
    assert content(protoslice.open(DATA, KIND, index=index)) == b"x" * 100_000
    with pytest.raises(CorruptModel, match="the source has"):
        protoslice.open(DATA + b"\x08\x01", KIND, index=index).rope.read()
    with pytest.raises(CorruptModel):
        protoslice.open(DATA, KIND, index=index[:-1])
    damaged = bytearray(index)
    damaged[-1] ^= 1
    with pytest.raises(IntegrityError, match="checksum"):
        protoslice.open(DATA, KIND, index=bytes(damaged)).rope.read()


def test_a_type_nobody_knows_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="did you mean"):
        protoslice.open(DATA, "tensorflow.TensorProtos")


def test_a_type_of_ones_own() -> None:
    file = FileDescriptorProto(name="own.proto", package="own")
    file.message_type.add(name="Own").field.add(name="a", number=1, type=12, label=1)
    types = from_descriptor_set(FileDescriptorSet(file=[file]))
    proto = protoslice.open(b"\x0a\x02hi", "own.Own", types=types)
    assert (proto.type, proto.merge("a").read()) == ("own.Own", b"hi")


def test_a_proto_of_unknown_type_is_known_by_numbers() -> None:
    proto = protoslice.open(bytes.fromhex("9a060208019a06020802a00605"))
    assert proto.type is None
    assert [(node.number, node.name, node.count) for node in proto.tree()] == [(99, None, 2), (100, None, None)]
    assert proto.merge("99[1].1").read() == b"2"
    assert proto.merge("100").read() == b"5"
    with pytest.raises(NotFound, match="use field numbers"):
        proto.merge("name")


def test_what_is_broken_leaves_no_file_open(tmp_path: Path) -> None:
    """With warnings as errors, a file left open would fail this test."""
    path = tmp_path / "broken.pb"
    path.write_bytes(b"\x0a\x7f")
    with pytest.raises(CorruptModel):
        protoslice.open(path, KIND)


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    path = tmp_path / "tensor.pb"
    path.write_bytes(DATA)
    proto = protoslice.open(path, KIND)
    proto.close()
    proto.close()
    assert "TensorProto" in repr(proto)


def test_policies_are_checked() -> None:
    proto = protoslice.open(DATA, KIND)
    for least, most in ((0, 5), (-1, 5), (10, 9)):
        with pytest.raises(InvalidInput, match="min_chunk"):
            proto.split(min_chunk=least, max_chunk=most)


@pytest.mark.parametrize("size", [-1, 1 << 63, 1 << 64])
def test_sizes_that_are_none_are_refused(size: int) -> None:
    proto = protoslice.open(DATA, KIND)
    with pytest.raises(InvalidInput, match=f"Invalid omit_larger_than {size}"):
        proto.merge(omit_larger_than=size)
    with pytest.raises(InvalidInput, match=f"Invalid limit {size}"):
        proto.largest(size)
    with pytest.raises(InvalidInput, match=f"Invalid start {size}"):
        proto.tree(start=size)
    with pytest.raises(InvalidInput):
        proto.split(max_chunk=size)


@pytest.mark.parametrize("size", [1 << 20, (1 << 20) + 1])
def test_a_floor_that_makes_an_index_larger_than_its_proto_is_for_small_protos(size: int) -> None:
    node = b"\x0a\x08" + b"\x1a\x00" * 4  # a node with four inputs
    data = node * (size // len(node)) + b"\x32\x00" * (size % len(node) // 2 + size % 2)
    assert (len(data) > 1 << 20) == (size > 1 << 20)
    for floor in (0, -1, 1 << 63) if size <= 1 << 20 else (0, 1, 63):
        with pytest.raises(InvalidInput, match=f"Invalid floor {floor}: .* for a proto of {len(data)} bytes"):
            protoslice.open(data, "tensorflow.GraphDef", floor=floor)
    least = 1 if size <= 1 << 20 else 64
    assert protoslice.open(data, "tensorflow.GraphDef", floor=least).count() > 0


def test_chunks_are_a_sequence() -> None:
    chunks = protoslice.open(DATA, KIND).split(min_chunk=1000, max_chunk=1 << 30)
    assert (len(chunks), chunks[-1].path, chunks[1].size) == (2, "tensor_content", 100_000)
    with pytest.raises(IndexError, match="there are 2 chunks"):
        chunks[2]


def test_a_chunked_file_is_opened_like_a_plain_one() -> None:
    file = protoslice.open(DATA, KIND).split(min_chunk=1000, max_chunk=1 << 30).cpb()
    with tempfile.TemporaryFile() as out:
        assert file.write_to(out) == file.size
        with protoslice.open(out, KIND) as proto:
            assert (proto.form, content(proto)) == ("chunked", b"x" * 100_000)


def test_a_text_is_no_chunked_file_and_has_no_checksums_that_could_fail() -> None:
    with protoslice.open(b'dtype: DT_STRING string_val: "abc"', KIND) as proto:
        assert (proto.form, proto.why) == ("text", "type given by the caller")
        proto.verify()
    with protoslice.open(b'node { name: "a" op: "Const" }') as proto:
        assert (proto.form, proto.type) == ("text", "tensorflow.GraphDef")
        assert "text format" in (proto.why or "")
        proto.verify()
    assert protoslice.open(DATA, KIND).form == "serialized"


class Slow:
    """A source that is slow."""

    data = bundled().message_class(KIND)(dtype=1, string_val=[b"x" * 100_000] * 5).SerializeToString()
    size = len(data)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return the requested bytes, later."""
        time.sleep(0.12)
        return self.data[offset : offset + length]


def test_who_waits_is_told_how_far_it_is() -> None:
    told: list[tuple[int, int]] = []
    protoslice.open(Slow(), KIND, progress=lambda done, total: told.append((done, total)))
    assert told
    assert told == sorted(told)
    assert {total for _, total in told} == {Slow.size}


def test_what_progress_raises_ends_the_opening() -> None:
    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        protoslice.open(Slow(), KIND, progress=stop)


def test_what_told_the_type_is_kept() -> None:
    graph: Any = bundled().message_class("tensorflow.GraphDef")()
    for number in range(9):
        graph.node.add(name=f"n{number}", op="NoOp", input=["n0", "n1"])
    with protoslice.open(graph.SerializeToString()) as proto:
        assert proto.why == "detected by fields"
        chunked = proto.split().cpb().read()
    with protoslice.open(chunked) as proto:
        assert proto.why == "detected by fields"
    assert protoslice.open(DATA, KIND).why == "type given by the caller"
    assert protoslice.open(b"").why == "the file is empty"


def test_bytes_that_look_like_text_are_what_they_are_named_as() -> None:
    data = b'\n\x0btext: "a" \n'
    named = "onnx.StringStringEntryProto"
    assert detect(b'key: "a" value: "b"').kind == "text"
    with protoslice.open(b'key: "a" value: "b"', named) as proto:
        assert proto.merge("value").read() == b"b"
    for length in range(32, 127):  # printable lengths make printable protos
        data = b"\n" + bytes([length]) + b'key: "' + b"x" * (length - 7) + b'"'
        with protoslice.open(data, named) as proto:
            assert len(proto.merge("key")) == length


def test_the_root_alone_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(onnx(20_000))
    (tmp_path / "notes.txt").write_text("not a model")
    plainly, seen = detection.detect, Counter[str | None]()

    def noting(head: bytes, filename: str | None = None, size: int | None = None) -> Any:
        seen[filename] += 1
        return plainly(head, filename, size)

    monkeypatch.setattr(detection, "detect", noting)
    with open_model(tmp_path) as model:
        assert (model.model.root, model.model.type) == ("model.onnx", "onnx.ModelProto")
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(tmp_path / "model.onnx") as model:
        assert [tensor.name for tensor in model.matching()] == ["weight-0"]
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(tmp_path / "model.onnx", type="onnx.ModelProto") as model:
        assert len(list(model.matching())) == 1
    assert seen == {"model.onnx": 1}
    seen.clear()
    with open_model(stored("models/tf_ckpt_many/many.index")) as model:
        assert len(list(model.matching())) > 1
    assert seen == {"many.index": 1}


def test_sources_by_path_are_a_model_and_stay_open(tmp_path: Path) -> None:
    (tmp_path / "weights.onnx").write_bytes(onnx(20_000))
    (tmp_path / "notes.txt").write_text("not a model")
    with FileSource(tmp_path / "weights.onnx") as weights, FileSource(tmp_path / "notes.txt") as notes:
        files = {"notes.txt": notes, "weights.onnx": weights}
        with open_model(files) as model:
            assert (model.model.root, list(model)) == ("weights.onnx", ["weight-0"])
            assert model["weight-0"].nbytes == 20_000
        assert notes.read(0, 3) == b"not"
        assert weights.read(0, weights.size) == onnx(20_000)
        with open_model(files, "weights.onnx", "onnx.ModelProto") as model:
            assert list(model) == ["weight-0"]
        with pytest.raises(NotFound, match=re.escape("has no file 'other.onnx'")):
            open_model(files, "other.onnx")


def test_memory_for_a_tensor_is_allocated_once(tmp_path: Path) -> None:
    size = 32 << 20
    head = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    (tmp_path / "m.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"\1" * size)
    with open_model(tmp_path / "m.safetensors") as opened:
        opened["w"][:1]
        tracemalloc.start()
        try:
            array = opened["w"][...]
            assert size < tracemalloc.get_traced_memory()[1] < 1.2 * size
        finally:
            tracemalloc.stop()
    assert array.sum() == size
    assert array.flags.writeable


BOX: Box = ((0, 2), (0, None))
VARIABLES = [
    Variable("dense/kernel", 1, (100,), bytes(400)),
    Variable("parted", 3, (2, 3), slices=[(BOX, [2, 3], bytes(24), 1)]),
]


def indexed(**layout: Any) -> tuple[FileDocument, Any]:
    """Return a bundle's index as a document, and the message that the runtime parses from the document."""
    files = bundle("b", VARIABLES, Layout(shards=2, **layout))
    document = bundle_document(BytesSource(files["b.index"]))
    whole = schema.bundled().message_class("protoslice.TensorBundle").FromString(content_of(document, ""))
    return document, whole


def content_of(document: FileDocument, path: str) -> bytes:
    return Rope(document.document.view(path)[2], document.sources).read()


@pytest.mark.parametrize("layout", [{}, {"snappy": True, "block": 32}, {"big_endian": True}])
def test_the_index_of_a_bundle_is_a_message(layout: dict[str, Any]) -> None:
    document, whole = indexed(**layout)
    assert sorted(whole.entries) == ["dense/kernel", "parted"]
    kernel = whole.entries["dense/kernel"]
    assert (kernel.dtype, [dim.size for dim in kernel.shape.dim], kernel.size) == (1, [100], 400)
    assert content_of(document, 'entries["dense/kernel"]') == kernel.SerializeToString()
    assert content_of(document, 'entries["parted"].slices[0].extent[0].length') == b"2"
    assert len(whole.keyed) == 1
    assert (whole.keyed[0].value.shard_id, whole.keyed[0].value.size) == (1, 24)
    endianness = "big" if layout.get("big_endian") else "little"
    assert header_of(document) == {"shards": 2, "endianness": endianness, "version": 1}


def test_a_key_that_is_no_text_is_no_name() -> None:
    index = table([(b"", b"\x08\x01"), (b"dense\xff", b"\x08\x01"), (b"kernel", b"\x08\x03")])
    whole = schema.bundled().message_class("protoslice.TensorBundle")
    found: Any = whole.FromString(content_of(bundle_document(BytesSource(index)), ""))
    assert [(each.key, each.value.dtype) for each in found.keyed] == [(b"dense\xff", 1)]
    assert {name: entry.dtype for name, entry in found.entries.items()} == {"kernel": 3}


def test_a_damaged_index_is_told() -> None:
    files = bundle("b", VARIABLES[:1])
    with pytest.raises(CorruptModel, match="checksum"):
        bundle_document(BytesSource(files["b.index"].replace(b"dense", b"Dense")))


@pytest.mark.parametrize("framing", ["tfrecord", "delimited", "u64be"])
def test_paths_lead_into_records(framing: str) -> None:
    source = BytesSource(FRAMED[framing]([example(n) for n in range(30)]))
    document = stream_document(open_records(source), [source])
    assert content_of(document, "records[7]") == example(7)
    assert content_of(document, 'records[7].features.feature["label"].int64_list.value[0]') == b"7"
    rows, total = document.document.children("records", 28, 10)
    assert ([row[0] for row in rows], total) == (["[28]", "[29]"], 30)
    assert [row[0] for row in document.document.children("records[7]")[0]] == ["features"]
    kind, type_name, rope = document.document.view("records[7]", ["features.feature"], 1)
    assert (kind, type_name) == ("message", "tensorflow.Example")
    assert rope.size < len(example(7))


@pytest.mark.parametrize("shards", [False, True])
def test_the_limits_of_a_stream_are_those_of_its_records(shards: bool, tmp_path: Path) -> None:
    (tmp_path / "r@1").mkdir()
    path = tmp_path / "r@1" / "r-00000-of-00001"
    path.write_bytes(FRAMED["tfrecord"]([example(1), example(2)]))
    with open_records(path.parent if shards else path, limits=_core.Limits(path=20)) as records:
        for part in (records, records[:1]):
            document = stream_document(part, part.sources)
            with pytest.raises(InvalidInput, match="at most 20 are allowed"):
                content_of(document, 'records[0].features.feature["label"].int64_list.value[0]')


def test_paths_that_lead_to_no_record_are_told() -> None:
    source = BytesSource(FRAMED["tfrecord"]([example(1)]))
    document: StreamDocument = stream_document(open_records(source), [source]).document  # type: ignore[assignment]
    for path in ("features", "records[1]", "records[0]x", "records[-1]", "records[*]"):
        with pytest.raises(NotFound):
            document.view(path)
    with pytest.raises(InvalidInput, match=r"records\[1000\]"):
        document.view("")
