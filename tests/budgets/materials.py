"""The content for the worst requests: stores, schemas and bodies; each kind was once expensive."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Callable
from typing import Any, Final

import httpx
from tests.support.bundles import masked, table
from tests.support.chunked import METADATA
from tests.support.protos.writer import varint
from tests.support.stores import field, onnx
from tests.support.tus import metadata

from protoslice._core import crc32c
from protoslice.recipes import Copy, RecipeWriter
from protoslice.riegeli import RecordWriter

Make = Callable[[httpx.Client], Any]

FAR: Final = 600
_APART: Final = 200_000
EMPTY: Final = 20_000
SHARDS: Final = 200
_FIELDS: Final = 10_000
_EACH: Final = 5000
PATHS: Final = 1000
TUS: Final = {"tus_resumable": "1.0.0"}


def stored(http: httpx.Client, body: bytes, kind: str = "application/octet-stream", **query: str) -> str:
    """Upload a body; return the store's id."""
    given = {"filename": "model.onnx"} | query
    answer = http.post("/v1/stores", params=given, content=body, headers={"content-type": kind})
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def small(http: httpx.Client) -> str:
    """A store of two small tensors."""
    return stored(http, onnx(1000, 2000))


def medium(http: httpx.Client) -> str:
    """A store of one tensor of 16 MiB."""
    return stored(http, _zeros(16 << 20))


def large(http: httpx.Client) -> str:
    """A store of 96 MiB in three tensors."""
    return stored(http, _zeros(*[32 << 20] * 3))


def far(http: httpx.Client) -> str:
    """A store of many tensors, each so large that the next tensor's name is in another block."""
    head, content = b"\x08" + varint(_APART) + b"\x10\x03", b"\x4a" + varint(_APART) + bytes(_APART)
    graph = b"".join(field(5, head + field(8, b"weight-%08d" % n) + content) for n in range(FAR))
    return stored(http, b"\x08\x08" + field(7, graph))


def stream(http: httpx.Client) -> str:
    """A store of a hundred thousand records of varying length, some of them empty."""
    return stored(http, b"\x02\x08\x01" + b"".join(b"\0\x02\x08\x01\x04\x0a\x02ab" for _ in range(33_333)))


def shards(http: httpx.Client) -> str:
    """A store of two hundred shards of one record each."""
    files = {f"train-{n:05}-of-{SHARDS:05}": b"\x02\x08\x01" for n in range(SHARDS)}
    answer = http.post("/v1/stores", files=[("file", (name, data)) for name, data in files.items()])
    assert answer.is_success, answer.text
    return str(answer.json()["id"])


def _zeros(*sizes: int) -> bytes:
    tensors = (
        field(
            5, b"\x08" + varint(size) + b"\x10\x03" + field(8, b"weight-%d" % n) + b"\x4a" + varint(size) + bytes(size)
        )
        for n, size in enumerate(sizes)
    )
    return b"\x08\x08" + field(7, b"".join(tensors))


def empty_tensors(mark: int, count: int = EMPTY) -> Make:
    """A store of `count` empty tensors, two bytes each; each `mark` makes another store."""

    def make(http: httpx.Client) -> str:
        return stored(http, nothings(count, mark))

    return make


def nothings(count: int, mark: int) -> bytes:
    """A model of `count` empty tensors, two bytes each; each `mark` makes another model."""
    return b"\x08" + varint(mark) + field(7, b"\x2a\x00" * count)


def nodes(http: httpx.Client) -> str:
    """A store of 120 kB: nodes with short names."""
    return stored(http, named_nodes(b"n"))


def versions(*models: bytes) -> Make:
    """The stores of two models; requests compare the second model with the first."""

    def make(http: httpx.Client) -> tuple[str, ...]:
        return tuple(stored(http, model) for model in models)

    return make


def named_nodes(name: bytes, count: int = 12_000) -> bytes:
    """A graph of nodes whose names begin with `name`."""
    return b"\x08\x08" + field(7, b"".join(field(1, field(3, b"%b%05d" % (name, n))) for n in range(count)))


def meta_graphs(http: httpx.Client) -> str:
    """A store of 20 000 meta graphs without a signature, and one meta graph with the tag `last`."""
    graphs = field(2, field(1, field(4, b"serve"))) * 20_000 + field(2, field(1, field(4, b"last")))
    answer = http.put("/v1/stores?filename=saved_model.pb&type=tensorflow.SavedModel", content=graphs)
    id: str = answer.json()["id"]
    return id


def deep(http: httpx.Client) -> str:
    """A store of graphs in attributes of nodes, nested thirty times, each with a few more nodes."""
    graph = b""
    for _ in range(30):
        graph = field(1, field(5, field(1, b"body") + field(6, graph))) + field(1, field(3, b"n")) * 20
    return stored(http, b"\x08\x08" + field(7, graph))


def descriptors(package: bytes, fields: int = _FIELDS) -> bytes:
    """A descriptor set of message types `<package>.M0` and so on, which have 10 000 fields together."""
    declared = b"".join(
        field(2, field(1, b"f%d" % n) + b"\x18" + varint(n) + b"\x20\x01\x28\x05") for n in range(1, _EACH + 1)
    )
    types = b"".join(field(4, field(1, b"M%d" % n) + declared) for n in range(fields // _EACH))
    file = field(1, package + b".proto") + field(2, package) + types
    return field(1, file + field(12, b"proto3"))


def big_schema(http: httpx.Client) -> str:
    """A schema with the largest usual number of fields."""
    answer = http.put("/v1/schemas/cost0", content=descriptors(b"cost0"))
    assert answer.is_success, answer.text
    return "cost0"


def wide_schema(http: httpx.Client) -> None:
    """A schema whose one type is as large as a store's type may be."""
    declared = b"".join(
        field(2, field(1, b"f%d" % n) + b"\x18" + varint(n) + b"\x20\x01\x28\x05") for n in range(1, 38_001)
    )
    file = field(1, b"wide.proto") + field(2, b"wide") + field(4, field(1, b"M") + declared) + field(12, b"proto3")
    answer = http.put("/v1/schemas/wide", content=field(1, file))
    assert answer.is_success, answer.text


def schemas(http: httpx.Client) -> None:
    """Three schemas like `big_schema`."""
    for number in range(3):
        answer = http.put(f"/v1/schemas/cost{number}", content=descriptors(b"cost%d" % number))
        assert answer.is_success, answer.text


def of_schema(http: httpx.Client) -> str:
    """A store of two bytes whose type is declared in the schema of `big_schema`."""
    big_schema(http)
    return stored(http, b"\x08\x01", filename="m.pb", type="cost0.M0")


def long_paths(http: httpx.Client) -> str:
    """Four stores of many empty files, each with a path of 900 characters."""
    for number in range(4):
        files = {f"{number}/{'p' * 200}/{'q' * 200}/{'r' * 200}/{'s' * 200}/{n:090}": b"" for n in range(PATHS)}
        made = stored(http, tar(files | {"model.onnx": onnx(10, seed=number)}), "application/x-tar")
    return made


def tags(count: int) -> Make:
    """A store with many tags."""

    def make(http: httpx.Client) -> str:
        store = stored(http, onnx(11))
        for number in range(count if http.get(f"/v1/tags/many:{count - 1}").is_error else 0):
            answer = http.put(f"/v1/tags/many:{number}", json={"store": store})
            assert answer.is_success, answer.text
        return store

    return make


def tar(files: dict[str, bytes]) -> bytes:
    """A tar of these files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            head = tarfile.TarInfo(path)
            head.size = len(content)
            archive.addfile(head, io.BytesIO(content))
    return out.getvalue()


def form(parts: int, *, named: bytes) -> bytes:
    """A form of many parts; `named` is the disposition of each part, with `%d` for its number."""
    heads = [b"--b\r\ncontent-disposition: form-data; " + named % n + b"\r\n\r\nx\r\n" for n in range(parts)]
    return b"".join(heads) + b"--b--\r\n"


def missing_files(count: int) -> bytes:
    """A model of `count` tensors, each in a separate file that is missing."""

    def tensor(n: int) -> bytes:
        place = field(1, b"location") + field(2, b"%d.bin" % n)
        return field(5, b"\x08\x01\x10\x03" + field(8, b"%d" % n) + field(13, place) + b"\x70\x01")

    return b"\x08\x08" + field(7, b"".join(map(tensor, range(count))))


def one_over_another(count: int, size: int) -> bytes:
    """A tar of a bundle of `count` valid tensors, of up to `size` bytes, which all begin at the same byte."""
    entries = [(b"", b"\x08\x01" + field(3, b"\x08\x01"))]
    for n in range(count):
        length = varint(size - n)
        crc = masked(crc32c(bytes(size - n))).to_bytes(4, "little")
        entry = b"\x08\x04" + field(2, field(2, b"\x08" + length)) + b"\x28" + length + b"\x35" + crc
        entries.append((b"%06d" % n, entry))
    return tar({"v.index": table(entries), "v.data-00000-of-00001": bytes(size)})


def bomb(mebibytes: int, compression: str = "brotli") -> bytes:
    """A chunked proto of one chunk of zeros, whose record expands to thousands of times its size."""
    out, told, chunk = io.BytesIO(), METADATA(), _zeros(mebibytes << 20)
    with RecordWriter(out, options=compression) as writer:
        writer.write_record(chunk)
        told.chunks.add(size=len(chunk), offset=writer.last_pos.numeric, type=1)
        told.message.chunk_index = 0
        writer.write_message(told)
    return out.getvalue()


def kept(http: httpx.Client) -> str:
    """A store of a chunked proto of thousands of chunks; its chunk sizes would make every field a chunk."""
    out, told, count = io.BytesIO(), METADATA(), 5000
    chunks = [b"\x08\x08", *(field(3, b"n%05d" % n) for n in range(count))]
    with RecordWriter(out, options="uncompressed") as writer:
        for number, chunk in enumerate(chunks):
            writer.write_record(chunk)
            told.chunks.add(size=len(chunk), offset=writer.last_pos.numeric, type=1)
            if number:
                place = told.message.chunked_fields.add()
                for tag in ({"field": 7}, {"field": 1}, {"index": number - 1}):
                    place.field_tag.add(**tag)
                place.message.chunk_index = number
        told.message.chunk_index = 0
        writer.write_message(told)
    return stored(http, out.getvalue(), type="onnx.ModelProto", min_chunk="1", max_chunk="1")


def recipe_of_copies(store: str, size: int, copies: int) -> bytes:
    """A recipe that copies a file of a store `copies` times, and ends with a wrong digest."""
    writer = RecipeWriter()
    copy = Copy(store, "model.onnx", 0, size)
    lines = [writer.file("again.onnx"), *(writer.copy(copy) for _ in range(copies))]
    return b"".join([*lines, writer.end(copies * size, hashlib.sha256(b"").hexdigest()), writer.done()])


def uploads(count: int, content: bytes = b"x" * 1000) -> Make:
    """The ids of many partial uploads, all complete."""

    def make(http: httpx.Client) -> list[str]:
        return [_upload(http, content) for _ in range(count)]

    return make


def _upload(http: httpx.Client, content: bytes) -> str:
    headers = {
        "tus-resumable": "1.0.0",
        "upload-length": str(len(content)),
        "upload-concat": "partial",
        "upload-metadata": metadata(filename="part"),
        "content-type": "application/offset+octet-stream",
    }
    answer = http.post("/v1/uploads", content=content, headers=headers)
    assert answer.is_success, answer.text
    return str(answer.headers["location"].rpartition("/")[2])
