"""Files of the reference implementation: records, positions, seeks, damage, identical rewriting."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.golden import RIEGELI

from protoslice.errors import CorruptModel, IntegrityError, NotFound, ProtosliceError
from protoslice.riegeli import RecordPosition, RecordReader, RecordWriter, SkippedRegion
from protoslice.sources.files import FileObjectSource

EXPECTED: dict[str, Any] = json.loads((RIEGELI / "expected.json").read_text())
FILES: dict[str, dict[str, Any]] = {file["file"]: file for file in EXPECTED["files"]}
DAMAGE: dict[str, dict[str, Any]] = {damage["name"]: damage for damage in EXPECTED["corrupt"]}


def records_of(file: str) -> list[bytes]:
    """Return the records of a file, from the manifest."""
    with RecordReader(RIEGELI / file) as reader:
        return list(reader.read_records())


def known(records: list[bytes]) -> list[dict[str, Any]]:
    return [{"size": len(record), "sha256": hashlib.sha256(record).hexdigest()} for record in records]


def test_the_corpus_is_present() -> None:
    assert len(FILES) >= 25
    assert len(DAMAGE) >= 18
    for name, file in FILES.items():
        assert hashlib.sha256((RIEGELI / name).read_bytes()).hexdigest() == file["sha256"]


@pytest.mark.parametrize("name", FILES)
def test_records_and_positions(name: str) -> None:
    expected = FILES[name]
    records, positions = [], []
    with RecordReader(RIEGELI / name) as reader:
        assert reader.check_file_format()
        assert reader.size() == expected["size"]
        for record in reader.read_records():
            records.append(record)
            last = reader.last_pos
            positions.append([last.numeric, last.chunk_begin, last.record_index])
        assert reader.pos == RecordPosition(expected["end"])
    wanted = EXPECTED["record_sets"][expected["record_set"]]
    assert known(records) == wanted * (expected["n_records"] // max(len(wanted), 1))
    assert positions == expected["positions"]


@pytest.mark.parametrize("name", FILES)
def test_seeks(name: str) -> None:
    expected = FILES[name]
    records = records_of(name)
    with RecordReader(RIEGELI / name) as reader:
        for numeric, index, ok, *_ in ([*seek, True][:4] for seek in expected["seek_to_record"]):
            if not ok:
                with pytest.raises(NotFound, match=f"Position {numeric} exceeds file size: {expected['size']}"):
                    reader.seek_numeric(numeric)
                continue
            reader.seek_numeric(numeric)
            assert reader.read_record() == (None if index is None else records[index])
            if index is not None:
                assert reader.last_pos.numeric == expected["positions"][index][0]


@pytest.mark.parametrize("name", FILES)
def test_seeking_back_and_to_positions(name: str) -> None:
    expected = FILES[name]["positions"][-40:]
    records = records_of(name)[-40:]
    with RecordReader(RIEGELI / name) as reader:
        reader.seek_numeric(reader.size())
        for (_, begin, index), record in zip(reversed(expected), reversed(records), strict=True):
            assert reader.seek_back()
            assert reader.pos == RecordPosition(begin, index)
            assert reader.read_record() == record
            assert reader.seek_back()
        if len(FILES[name]["positions"]) <= 40:
            assert not reader.seek_back()
        for (_, begin, index), record in zip(expected, records, strict=True):
            reader.seek(RecordPosition(begin, index))
            assert reader.pos == RecordPosition(begin, index)
            assert reader.read_record() == record


def test_metadata() -> None:
    with RecordReader(RIEGELI / "with_metadata.riegeli") as reader:
        metadata: Any = reader.read_metadata()
        assert metadata.file_comment == "golden file comment"
        assert metadata.num_records == 405
        assert reader.read_record() == b""
    with RecordReader(RIEGELI / "zstd.riegeli") as reader:
        assert reader.read_serialized_metadata() == b""


def damaged(damage: dict[str, Any]) -> bytes:
    data = bytearray((RIEGELI / damage["source"]).read_bytes())
    match damage["op"]:
        case ["xor", offset, mask]:
            data[offset] ^= mask
        case ["cut", size]:
            del data[size:]
        case ["zero", begin, end]:
            data[begin:end] = bytes(end - begin)
        case ["append", text]:
            data += bytes.fromhex(text)
    assert hashlib.sha256(data).hexdigest() == damage["sha256"]
    return bytes(data)


def facts(status: str) -> tuple[str, int]:
    """Return a fault, with chunk positions and hashes, and its byte offset."""
    what, _, rest = status.removeprefix("INVALID_ARGUMENT: ").partition("; reading FILE; at byte ")
    return what, int(rest.split(";")[0])


def same(error: ProtosliceError, status: str) -> None:
    assert (error.message, error.offset) == facts(status)


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_an_error(name: str) -> None:
    damage, strict = DAMAGE[name], DAMAGE[name]["strict"]
    expected = records_of(damage["source"])
    reader = RecordReader(damaged(damage))
    assert reader.check_file_format() == strict["check_file_format"]["check_file_format"]
    records: list[bytes] = []
    if strict["end"]["read_ok"]:
        records = list(reader.read_records())
    else:
        for _ in range(2):
            with pytest.raises(CorruptModel) as caught:
                records.extend(reader.read_records())
            same(caught.value, strict["end"]["status"])
            assert not isinstance(caught.value, IntegrityError), "it is the file that is damaged, not what we keep"
    assert records == expected[: strict["records_read"]]
    assert reader.pos == RecordPosition(strict["end"]["end_pos"])
    if strict["close"]["status"].startswith("INVALID_ARGUMENT: Truncated"):
        with pytest.raises(CorruptModel) as caught:
            reader.close()
        same(caught.value, strict["close"]["status"])
    else:
        reader.close()


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_got_over(name: str) -> None:
    damage, wanted = DAMAGE[name], DAMAGE[name]["recovery"]
    expected = records_of(damage["source"])
    regions: list[SkippedRegion] = []
    reader = RecordReader(damaged(damage), recovery=regions.append)
    records = list(reader.read_records())
    ends = [event["end_pos"] for event in wanted["events"] if "end_pos" in event]
    assert [reader.pos] == [RecordPosition(end) for end in ends]
    reader.close()
    assert records == [record for begin, end in wanted["record_ranges_read"] for record in expected[begin:end]]
    skipped = [(event["skipped"], facts(event["message"])) for event in wanted["events"] if "skipped" in event]
    found = [([r.begin, r.end], tuple(r.message.split("; at byte "))) for r in regions]
    assert [(region, (what, str(byte))) for region, (what, byte) in skipped] == found


def test_stored_damage_is_the_damage_described() -> None:
    stored = [damage for damage in DAMAGE.values() if damage["file"]]
    assert len(stored) == 3
    for damage in stored:
        assert damaged(damage) == (RIEGELI / damage["file"]).read_bytes()


@pytest.mark.parametrize("name", [name for name, file in FILES.items() if file["options"].startswith("uncompressed")])
def test_uncompressed_files_are_written_byte_for_byte(name: str, tmp_path: Path) -> None:
    file = FILES[name]
    path, memory = tmp_path / name, io.BytesIO()
    for dest in (path, memory):
        with RecordWriter(dest, options=file["options"]) as writer:
            for record, (numeric, begin, index) in zip(records_of(name), file["positions"], strict=True):
                writer.write_record(record)
                assert writer.last_pos == RecordPosition(begin, index)
                assert writer.last_pos.numeric == numeric
    golden = (RIEGELI / name).read_bytes()
    assert path.read_bytes() == golden
    assert memory.getvalue() == golden


@pytest.mark.parametrize("name", [name for name, file in FILES.items() if "then" not in file["options"]])
def test_every_option_cuts_the_same_chunks(name: str) -> None:
    file = FILES[name]
    written = io.BytesIO()
    flushes = {0, 2, 3, 4, 10, 11, 100} if name == "flush_every.riegeli" else set()
    with RecordReader(RIEGELI / name) as reader, RecordWriter(written, options=file["options"]) as writer:
        for i, record in enumerate(reader.read_records()):
            writer.write_record(record)
            if i in flushes:
                writer.flush()
    with RecordReader(written) as reader:
        records, indices = [], []
        for record in reader.read_records():
            records.append(record)
            indices.append(reader.last_pos.record_index)
    assert known(records) == EXPECTED["record_sets"][file["record_set"]]
    assert indices == [index for _, _, index in file["positions"]]


def test_appending_goes_on_where_the_file_ends(tmp_path: Path) -> None:
    lite = records_of("zstd_neg.riegeli")
    path = tmp_path / "appended.riegeli"
    first = (RIEGELI / "appended.riegeli").read_bytes()[:17333]
    path.write_bytes(first)
    with RecordWriter(path, options="uncompressed", append=True) as writer:
        writer.write_records(lite)
    assert path.read_bytes() == (RIEGELI / "appended.riegeli").read_bytes()
    path.write_bytes(first)
    with path.open("ab") as file, RecordWriter(file, options="uncompressed") as writer:
        writer.write_records(lite)
    assert path.read_bytes() == (RIEGELI / "appended.riegeli").read_bytes()


def test_any_kind_of_source_reads_alike() -> None:
    data = (RIEGELI / "uncompressed.riegeli").read_bytes()
    expected = records_of("uncompressed.riegeli")
    for source in (data, io.BytesIO(data), FileObjectSource(io.BytesIO(data)), str(RIEGELI / "uncompressed.riegeli")):
        with RecordReader(source) as reader:
            assert list(reader.read_records()) == expected
