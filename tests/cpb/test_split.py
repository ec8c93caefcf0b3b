"""Split protos of XLA, and record files that hold no chunked proto."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chunked import METADATA, TYPES, M, chunked, file_of, fill

import protoslice
from protoslice import _core
from protoslice.errors import InconsistentChunks, NotFound, ProtosliceError, Unsupported
from protoslice.merging import Merger
from protoslice.riegeli import RecordReader, RecordWriter
from protoslice.schema import bundled

MANIFEST: Any = bundled().message_class("xla.SplitProtoManifest")
GPU: Any = bundled().message_class("xla.gpu.GpuExecutableProto")
HLO: Any = bundled().message_class("xla.HloProto")
NAME = "xla.gpu.GpuExecutableProto"

Record = tuple[int | None, bytes]
"""A record: its bytes, and the field that it sets; None for a record that is merged."""


def manifest_of(records: Sequence[Record], name: str = NAME) -> Any:
    manifest = MANIFEST(result_proto_type=name)
    for field, _ in records:
        entry = manifest.records.add()
        if field is None:
            entry.proto_merge_record.SetInParent()
        else:
            entry.field_override_record.field_path.add(field_number=field)
            entry.field_override_record.field_type = 1
    return manifest


def split_file(manifest: Any, records: Sequence[bytes], options: str = "uncompressed") -> bytes:
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for record in [manifest.SerializeToString(), *records]:
            writer.write_record(record)
    return out.getvalue()


def split_of(records: Sequence[Record], name: str = NAME, options: str = "uncompressed") -> bytes:
    return split_file(manifest_of(records, name), [data for _, data in records], options)


def merged(data: bytes, message_class: Any = GPU) -> Any:
    with protoslice.open(data) as proto:
        assert proto.type == message_class.DESCRIPTOR.full_name
        assert proto.form == "chunked"
        return message_class.FromString(proto.rope.read())


def by_xla(records: Sequence[Record], message_class: Any) -> Any:
    """Return the message that XLA's reader makes of the records."""
    result = message_class()
    for field, data in records:
        if field is None:
            result.MergeFromString(data)
        else:
            known = result.DESCRIPTOR.fields_by_number[field]
            setattr(result, known.name, data if known.type == known.TYPE_BYTES else data.decode())
    return result


def executable(rng: Random) -> list[Record]:
    """Return an executable in XLA's form: text and binary, graphs, constants one by one, the rest."""
    graphs, rest = GPU(), GPU(module_name="m")
    graphs.dnn_compiled_graphs["a"] = rng.randbytes(rng.choice([0, 10, 5000]))
    rest.hlo_module_with_config.hlo_module.name = "m"
    constants = [GPU() for _ in range(rng.randint(0, 5))]
    for number, part in enumerate(constants):
        part.constants.add(symbol_name=f"c{number}").content.data = rng.randbytes(rng.choice([0, 3, 100_000]))
    records: list[Record] = [(3, b"asm" * rng.randint(0, 2000)), (4, rng.randbytes(rng.choice([0, 70_000])))]
    return [*records, *((None, each.SerializeToString()) for each in [graphs, *constants, rest])]


OPTIONS = ["uncompressed", "brotli:1", "zstd:1", "snappy", "transpose,brotli:1", "chunk_size:100"]


@pytest.mark.parametrize("options", OPTIONS)
def test_an_executable(options: str) -> None:
    for seed in range(5):
        records = executable(Random(seed))
        assert merged(split_of(records, options=options)) == by_xla(records, GPU)


@given(st.data())
@settings(max_examples=40)
def test_records_in_any_order(data: st.DataObject) -> None:
    records: list[Record] = []
    for _ in range(data.draw(st.integers(0, 8))):
        part = GPU(module_name=data.draw(st.sampled_from(["", "a", "b"])))
        if data.draw(st.booleans()):
            part.binary = data.draw(st.binary(max_size=5))
            part.asm_text = data.draw(st.sampled_from(["", "x"]))
        for symbol in data.draw(st.lists(st.sampled_from("cd"), max_size=3)):
            part.constants.add(symbol_name=symbol)
        choices: list[Record] = [(None, part.SerializeToString()), (3, b"text"), (4, b"\xff\x00"), (8, b"name")]
        records.append(data.draw(st.sampled_from(choices)))
    assert merged(split_of(records)) == by_xla(records, GPU)


def test_computations_one_by_one() -> None:
    """A singular message that comes in many records is merged field by field."""
    base = HLO()
    base.hlo_module.name = "m"
    parts = [HLO() for _ in range(300)]
    for number, part in enumerate(parts):
        part.hlo_module.computations.add(name=f"c{number}").instructions.add(name="i", opcode="constant")
    records: list[Record] = [(None, each.SerializeToString()) for each in [base, *parts]]
    data = split_of(records, "xla.HloProto", "snappy")
    assert merged(data, HLO) == by_xla(records, HLO)
    with protoslice.open(data) as proto:
        assert proto.count("hlo_module.computations") == 300
        computation: Any = bundled().message_class("xla.HloComputationProto")
        assert computation.FromString(proto.merge("hlo_module.computations[299]").read()).name == "c299"


def test_what_stands_uncompressed_is_not_copied() -> None:
    data = split_of([(4, bytes(1 << 20)), (None, b"")])
    with protoslice.open(data) as proto:
        pieces = proto.merge("binary").core.pieces()
        assert all(not isinstance(piece, bytes) and piece[0] == 0 for piece in pieces)
        assert proto.merge("binary").read() == bytes(1 << 20)


def test_later_records_win() -> None:
    other = GPU(binary=b"merged").SerializeToString()
    assert merged(split_of([(4, b"set"), (None, other)])).binary == b"merged"
    assert merged(split_of([(None, other), (4, b"set")])).binary == b"set"
    assert merged(split_of([(4, b"one"), (4, b"two")])).binary == b"two"


def test_entries_of_unknown_kind_and_further_records_are_stepped_over() -> None:
    manifest = manifest_of([(4, b"x"), (None, b""), (None, b"")])
    manifest.records[1].Clear()
    name = GPU(module_name="m").SerializeToString()
    assert merged(split_file(manifest, [b"x", b"\xff not looked at", name, b"\xff more"])) == GPU(
        binary=b"x", module_name="m"
    )


def _refused(change: Any) -> bytes:
    manifest = manifest_of([(4, b"")])
    change(manifest.records[0].field_override_record)
    return split_file(manifest, [b"x"])


CASES: dict[str, tuple[bytes, type[ProtosliceError], str]] = {
    "few records": (split_file(manifest_of([(4, b""), (3, b"")]), [b"x"]), InconsistentChunks, "fewer records"),
    "a field below": (
        _refused(lambda each: each.field_path.add(field_number=1)), Unsupported, "unknown field of the result"
    ),
    "no field": (_refused(lambda each: each.ClearField("field_path")), Unsupported, "unknown field of the result"),
    "an element": (
        _refused(lambda each: setattr(each.field_path[0], "repeated_field_index", 0)),
        Unsupported,
        "element of a repeated field",
    ),
    "another type": (_refused(lambda each: setattr(each, "field_type", 0)), Unsupported, "with an unsupported tag"),
    "an unknown field": (split_of([(99, b"x")]), InconsistentChunks, "no field 99"),
    "field 0": (split_of([(0, b"x")]), InconsistentChunks, "no field 0"),
    "a message": (split_of([(1, b"x")]), Unsupported, "neither a string nor bytes"),
    "a repeated field": (split_of([(12, b"x")]), Unsupported, "neither a string nor bytes"),
    "cut off": (split_of([(None, b"\x22\x05ab"), (None, b"")]), InconsistentChunks, "chunk 0 is not a message"),
    "a type nobody knows": (split_of([(None, b"")], "a.b.C"), Unsupported, "a.b.C"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused(case: str) -> None:
    data, kind, says = CASES[case]
    with pytest.raises(kind, match=says), protoslice.open(data):
        pass


def test_a_record_never_takes_the_next_ones_bytes_for_its_own() -> None:
    first, second = b"\x22\x0a", GPU(module_name="12345678").SerializeToString()
    with pytest.raises(InconsistentChunks), protoslice.open(split_of([(None, first), (None, second)])):
        pass


def test_it_cannot_be_opened_as_another_type() -> None:
    with pytest.raises(InconsistentChunks, match=NAME), protoslice.open(split_of([(None, b"")]), "xla.HloProto"):
        pass


@pytest.mark.parametrize("name", ["", "NoPackage", "a b.c", "1.2", "a..b", ".a", "a."])
def test_a_first_record_that_names_no_type_is_no_manifest(name: str) -> None:
    data = split_of([(None, b"\xff")], name)
    with pytest.raises(Unsupported, match="not a ChunkMetadata"), protoslice.open(data):
        pass


# Record files that hold no chunked proto, although their records may parse as its metadata.

EXAMPLE = bundled().message_class("tensorflow.NodeDef")


def records(*contents: bytes, times: int = 1, options: str = "") -> bytes:
    """Return a riegeli file of `contents`, repeated `times` times."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for content in contents * times:
            writer.write_record(content)
    return out.getvalue()


def metadata(*chunks: dict[str, int], message: bytes = b"\x08\x00", version: bytes = b"") -> bytes:
    """A serialized `ChunkMetadata`, of which each part can be left out."""
    found: Any = METADATA()
    for chunk in chunks:
        found.chunks.add(**chunk)
    found.message.MergeFromString(message)
    found.version.MergeFromString(version)
    return bytes(found.SerializeToString())


PLAIN_RECORDS_CASES = {
    "empty records": b"",
    "a version alone": b"\x0a\x02\x08\x01",
    "unknown fields": b"\x22\x05hello\x28\x07",
    "a field of another wire type": b"\x08\x01\x10\x02\x18\x03",
    "a message": EXAMPLE(name="conv1", op="Const", input=["a", "b"]).SerializeToString(),
    "no chunks, but a place for them": metadata(),
    "chunks, but no place for them": metadata({"offset": 64, "size": 4}, message=b""),
    "a field that metadata does not have": metadata({"offset": 64, "size": 4}) + b"\x22\x00",
    "a field that a chunk does not have": metadata({"offset": 64, "size": 4}) + b"\x12\x02\x20\x01",
    "a field that a message does not have": metadata({"offset": 64, "size": 4}, message=b"\x08\x00\x18\x01"),
    "text": b"the quick brown fox",
    "Invalid depth": b"\xff\xff\xff\xff",
    "a dotted name, like a manifest of no records": b"\x0a\x0bexample.com",
    "a dotted name and a text, like a manifest": b"\x0a\x0bexample.com\x12\x05hello",
    "a dotted name and an empty text": b"\x0a\x0bexample.com\x12\x00",
}


@pytest.mark.parametrize("options", ["", "uncompressed", "transpose", "uncompressed,chunk_size:1"])
@pytest.mark.parametrize("record", PLAIN_RECORDS_CASES.values(), ids=PLAIN_RECORDS_CASES)
def test_a_plain_record_file_is_said_to_be_one(record: bytes, options: str) -> None:
    with pytest.raises(Unsupported, match="a riegeli file of 50 records, not a chunked proto") as caught:
        protoslice.open(records(record, times=50, options=options), "t.M", types=TYPES)
    assert "protoslice.riegeli" in caught.value.message


@pytest.mark.parametrize("record", PLAIN_RECORDS_CASES.values(), ids=PLAIN_RECORDS_CASES)
def test_the_merger_says_so_too(record: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.cpb").write_bytes(records(record, times=50))
    into = M(i32=3)
    with pytest.raises(Unsupported, match="not a chunked proto"):
        Merger.read(tmp_path / "x", into)
    assert into == M(i32=3)


def test_thousands_of_records_are_counted() -> None:
    with pytest.raises(Unsupported, match="of 5000 records"):
        protoslice.open(records(b"", times=5000))


def test_a_file_of_many_chunks_is_not_walked_through_for_a_message() -> None:
    with pytest.raises(Unsupported, match="of more than 256 records"):
        protoslice.open(records(b"x", times=1000, options="uncompressed,chunk_size:1"))


def test_a_file_without_records_says_that() -> None:
    with pytest.raises(Unsupported, match="a riegeli file of 0 records"):
        protoslice.open(records())


@pytest.mark.parametrize("proto", [M(), M(i32=1)], ids=["empty", "tiny"])
def test_what_is_written_here_is_read_however_small_it_is(proto: Any, tmp_path: Path) -> None:
    file = protoslice.open(proto.SerializeToString(), "t.M", types=TYPES).chunks.cpb().read()
    with protoslice.open(file, "t.M", types=TYPES) as again:
        assert again.rope.read() == proto.SerializeToString()
    (tmp_path / "x.cpb").write_bytes(file)
    into = M()
    Merger.read(tmp_path / "x", into)
    assert into == proto


def test_metadata_that_gives_neither_sizes_nor_kinds_is_metadata() -> None:
    """The metadata needs only the positions of chunks in the file and in the message."""
    file = records(b"\x18\x07", metadata({"offset": 64}), options="uncompressed")
    with protoslice.open(file, "t.M", types=TYPES) as proto:
        assert proto.rope.read() == b"\x18\x07"


def test_metadata_whose_chunks_are_elsewhere_is_broken_rather_than_plain_records() -> None:
    with pytest.raises(InconsistentChunks, match="no record starts"):
        protoslice.open(records(b"\x18\x07", metadata({"offset": 99, "size": 2})), "t.M", types=TYPES)
    found: Any = METADATA()
    fill(found.message, 7)
    with pytest.raises(InconsistentChunks, match="only 1 chunks"):
        protoslice.open(file_of([M()], found), "t.M", types=TYPES)


def test_a_last_record_too_large_for_metadata_is_not_read() -> None:
    file = records(bytes(100_000), options="zstd")
    with pytest.raises(Unsupported, match="the last chunk holds 100000 bytes, too many for metadata"):
        protoslice.open(file, "t.M", types=TYPES, limits=_core.Limits(metadata=99_999))


def test_a_record_after_the_metadata_hides_it() -> None:
    with RecordReader(chunked([M(i32=1)], 0)) as reader:
        contents = list(reader.read_records())
    with pytest.raises(Unsupported, match="not a chunked proto"):
        protoslice.open(records(*contents, b""), "t.M", types=TYPES)


def test_no_such_file_stays_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        Merger.read(tmp_path / "nothing", M())
