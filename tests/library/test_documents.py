"""Documents of files that are no protos: every entry of a bundle's index, every record of a stream."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.bundles import Box, Layout, Variable, bundle, table
from tests.support.streams import FRAMED, example

from protoslice import Rope, _core, schema
from protoslice.errors import CorruptModel, InvalidInput, NotFound
from protoslice.library.documents import FileDocument, StreamDocument, bundle_document, header_of, stream_document
from protoslice.sources.files import BytesSource
from protoslice.streams import open_records

BOX: Box = ((0, 2), (0, None))
VARIABLES = [
    Variable("dense/kernel", 1, (100,), bytes(400)),
    Variable("parted", 3, (2, 3), slices=[(BOX, [2, 3], bytes(24), 1)]),
]


def indexed(**layout: Any) -> tuple[FileDocument, Any]:
    """A bundle's index as a document, and as the runtime parses the document's message."""
    files = bundle("b", VARIABLES, Layout(shards=2, **layout))
    document = bundle_document(BytesSource(files["b.index"]))
    whole = schema.bundled().message_class("protoslice.TensorBundle").FromString(content(document, ""))
    return document, whole


def content(document: FileDocument, path: str) -> bytes:
    return Rope(document.document.view(path)[2], document.sources).read()


@pytest.mark.parametrize("layout", [{}, {"snappy": True, "block": 32}, {"big_endian": True}])
def test_the_index_of_a_bundle_is_a_message(layout: dict[str, Any]) -> None:
    document, whole = indexed(**layout)
    assert sorted(whole.entries) == ["dense/kernel", "parted"]
    kernel = whole.entries["dense/kernel"]
    assert (kernel.dtype, [dim.size for dim in kernel.shape.dim], kernel.size) == (1, [100], 400)
    assert content(document, 'entries["dense/kernel"]') == kernel.SerializeToString()
    assert content(document, 'entries["parted"].slices[0].extent[0].length') == b"2"
    assert len(whole.keyed) == 1
    assert (whole.keyed[0].value.shard_id, whole.keyed[0].value.size) == (1, 24)
    endianness = "big" if layout.get("big_endian") else "little"
    assert header_of(document) == {"shards": 2, "endianness": endianness, "version": 1}


def test_a_key_that_is_no_text_is_no_name() -> None:
    index = table([(b"", b"\x08\x01"), (b"dense\xff", b"\x08\x01"), (b"kernel", b"\x08\x03")])
    whole = schema.bundled().message_class("protoslice.TensorBundle")
    found: Any = whole.FromString(content(bundle_document(BytesSource(index)), ""))
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
    assert content(document, "records[7]") == example(7)
    assert content(document, 'records[7].features.feature["label"].int64_list.value[0]') == b"7"
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
                content(document, 'records[0].features.feature["label"].int64_list.value[0]')


def test_paths_that_lead_to_no_record_are_told() -> None:
    source = BytesSource(FRAMED["tfrecord"]([example(1)]))
    document: StreamDocument = stream_document(open_records(source), [source]).document  # type: ignore[assignment]
    for path in ("features", "records[1]", "records[0]x", "records[-1]", "records[*]"):
        with pytest.raises(NotFound):
            document.view(path)
    with pytest.raises(InvalidInput, match=r"records\[1000\]"):
        document.view("")
