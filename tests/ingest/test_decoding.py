"""Files that decode to many more bytes than they have: bounded before they are decoded."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.chunked import METADATA, chunked
from tests.support.stores import in_memory, onnx, read, upload

from protoslice.errors import LimitExceeded, Unsupported
from protoslice.ingest.root import DecodedBytes
from protoslice.library.opening import open_proto
from protoslice.riegeli import RecordWriter
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.views import documents

MIB = 1 << 20
CODECS = ["brotli", "zstd", "snappy", "transpose"]
DOC_STRING = 6


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of the pieces that were decoded and written."""
    lengths: list[int] = []
    inner = DecodedBytes.write

    def write(self: DecodedBytes, data: bytes) -> None:
        lengths.append(len(data))
        inner(self, data)

    monkeypatch.setattr(DecodedBytes, "write", write)
    return lengths


def doc(model: bytes, size: int, options: str) -> bytes:
    """A chunked model with a string of `size` zeros in a chunk of its own."""
    return chunked([model, bytes(size)], 0, ([DOC_STRING], 1), options=options)


def refuses(file: bytes, options: StoreOptions | None = None) -> str:
    """The message with which `file` is refused."""

    async def work(stores: Stores, _: MemoryStorage) -> str:
        with pytest.raises(LimitExceeded) as refused:
            await upload(stores, {"model.cpb": file})
        return refused.value.message

    return in_memory(work, options)


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_file_decodes_to_counts_against_the_upload(codec: str, written: list[int]) -> None:
    file = doc(onnx(1000), 4 * MIB, codec)
    assert len(file) < MIB // 2
    message = refuses(file, StoreOptions(max_upload_bytes=MIB))
    assert str(len(file)) in message, message
    assert str(MIB - len(file)) in message, message
    assert sum(written) <= MIB - len(file)


@pytest.mark.parametrize("codec", CODECS)
def test_what_a_byte_may_stand_for(codec: str, written: list[int]) -> None:
    """A short file does not fill a disk, whatever the limit of uploads is."""
    message = refuses(doc(onnx(1000), 200 * MIB, codec))
    assert re.search(r"decodes? to 2097\d{5}\b", message), message
    assert re.search("send it without compression|raise the limit", message), message
    assert sum(written) <= 64 * MIB


@pytest.mark.parametrize("codec", ["brotli", "zstd"])
def test_a_long_record_comes_in_pieces(codec: str, written: list[int]) -> None:
    model = onnx(MIB)

    async def work(stores: Stores, _: MemoryStorage) -> None:
        made = (await upload(stores, {"model.cpb": doc(model, 100 * MIB, codec)})).store
        shown = await documents.merge((await stores.view(made.id)), "doc_string", None, None)
        assert await read(shown) == bytes(100 * MIB)

    in_memory(work)
    assert sum(written) > 100 * MIB
    assert max(written) <= MIB


def written_by_hand(records: list[bytes], metadata: Callable[[list[int]], Any], options: str) -> bytes:
    """A chunked file whose `metadata` are made of the places of the records."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        places = []
        for record in records:
            writer.write_record(record)
            places.append(writer.last_pos.numeric)
        writer.write_message(metadata(places))
    return out.getvalue()


def test_a_chunk_named_again_and_again() -> None:
    """Each naming is a copy in the merged proto, which takes time and memory to index."""

    def in_chunks(places: list[int]) -> Any:
        chunks = [{"offset": places[0], "type": 1}, *([{"offset": places[1], "type": 1}] * 40)]
        return METADATA(chunks=chunks, message={"chunk_index": 0})

    def in_fields(places: list[int]) -> Any:
        field = {"field_tag": [{"field": DOC_STRING}], "message": {"chunk_index": 1}}
        chunks = [{"offset": place, "type": 1} for place in places]
        return METADATA(chunks=chunks, message={"chunk_index": 0, "chunked_fields": [field] * 40})

    for metadata in (in_chunks, in_fields):
        assert "too often" in refuses(written_by_hand([onnx(1000), bytes(MIB)], metadata, "uncompressed"))


@pytest.mark.parametrize("codec", CODECS)
def test_metadata_that_are_longer_than_the_file(codec: str) -> None:
    """Two bytes of metadata take 24 of memory."""
    metadata = METADATA(chunks=[{}] * (2 * MIB), message={"chunk_index": 0})
    file = written_by_hand([onnx(1000)], lambda places: metadata, codec)
    assert len(file) < 200_000
    with pytest.raises(Unsupported, match="too many for the metadata"):
        open_proto(file)


@pytest.mark.parametrize("codec", CODECS)
def test_records_that_nothing_names(codec: str) -> None:
    """An empty record takes a byte of the file, and eight of memory."""
    records = [onnx(1000), *[b""] * 100_000]
    metadata = METADATA(chunks=[{"type": 1}], message={"chunk_index": 0})

    def placed(places: list[int]) -> Any:
        metadata.chunks[0].offset = places[0]
        return metadata

    file = written_by_hand(records, placed, f"{codec},chunk_size:10000000")
    assert "but the metadata lists fewer" in refuses(file)


def test_a_text_that_stands_for_more_than_the_upload_may_have() -> None:
    """A packed number of eight bytes takes three in a text."""
    text = b"double_data: [" + b"1," * 100_000 + b"1]"
    options = StoreOptions(max_upload_bytes=len(text) + 50_000)

    async def work(stores: Stores, _: MemoryStorage) -> None:
        with pytest.raises(LimitExceeded, match="room for 50000"):
            await upload(stores, {"tensor.pbtxt": text}, IngestRequest(type="onnx.TensorProto"))

    in_memory(work, options)
