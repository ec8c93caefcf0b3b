"""Detection of foreign files: a table of kinds of files, and the answer for each.

A mistake shows as a changed row. No file here is a proto to serve, so its name must not make it one.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from tests.support.golden import MANIFEST, stored
from tests.support.stores import opened, upload

from protoslice._core import crc32c
from protoslice.detection import detect
from protoslice.detection.magic import masked
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, Unsupported
from protoslice.formats.registry import formats_of
from protoslice.library.opening import open_proto
from protoslice.library.proto import Proto
from protoslice.riegeli import RecordWriter
from protoslice.schema import bundled
from protoslice.sources.files import BytesSource
from protoslice.storage import MemoryStorage
from protoslice.tensors.model import Model

_WORDS: Final = (
    "the", "of", "model", "weight", "and", "layer", "input", "a", "to", "file", "bytes", "value", "in", "is", "shape\n",
)  # fmt: skip
NAMES: Final = (
    "model.onnx", "saved_model.pb", "fingerprint.pb", "x.index", "__model__", "__model__.json", "checkpoint", "x.meta",
    "x.pdmodel", "x.mlmodel", "x.caffemodel", "x.prototxt", "x.binaryproto", "x.solverstate", "x.hlo", "x.hlo.pb",
    "x.dnn", "x.desc", "x.binpb", "x.cpb", "saved_model.pbtxt", "saved_model.cpb", "tf_serving_warmup_requests",
    "keras_metadata.pb", "saved_model_debug_info.pb",
)  # fmt: skip
"""Names that suggest a type; content that contradicts a name is never taken for a message because of it."""


def records_of(*contents: bytes, options: str = "") -> bytes:
    """Return a riegeli file of `contents`."""
    out = io.BytesIO()
    with RecordWriter(out, options=options) as writer:
        for content in contents:
            writer.write_record(content)
    return out.getvalue()


def tfrecords_of(*contents: bytes) -> bytes:
    """Return a TFRecord file of `contents`."""
    return b"".join(map(_tfrecord, contents))


def _tfrecord(content: bytes) -> bytes:
    length = struct.pack("<Q", len(content))
    checks = [struct.pack("<I", masked(crc32c(each))) for each in (length, content)]
    return length + checks[0] + content + checks[1]


def foreign_files() -> dict[str, bytes]:
    """Return files that are no proto to serve, by their kind."""
    return {**dict(_records()), **dict(_texts()), **dict(_binaries()), **dict(_archives()), **dict(_media())}


def _node(number: int) -> bytes:
    node: Any = bundled().message_class("tensorflow.NodeDef")(name=f"node_{number}", op="MatMul", input=["a", "b"])
    return bytes(node.SerializeToString())


def _records() -> Iterator[tuple[str, bytes]]:
    nodes = [_node(number) for number in range(300)]
    yield "riegeli: nodes", records_of(*nodes)
    yield "riegeli: nodes, transposed", records_of(*nodes, options="transpose")
    yield "riegeli: empty records", records_of(*[b""] * 300)
    yield "riegeli: texts", records_of(*(word.encode() for word in _WORDS))
    yield "riegeli: names of hosts", records_of(*(b"\x0a\x0bexample.com" for _ in range(9)))
    yield "riegeli: no records", records_of()
    yield "tfrecord: nodes", tfrecords_of(*nodes)
    yield "tfrecord: empty records", tfrecords_of(b"", b"", b"")
    lengths = b"".join(struct.pack(">I", len(node)) + node for node in nodes)
    yield "nodes behind lengths", lengths


def _prose(count: int, seed: int) -> str:
    random = Random(seed)
    return " ".join(random.choice(_WORDS) for _ in range(count))


def _texts() -> Iterator[tuple[str, bytes]]:
    yield "prose", _prose(900, 1).encode()
    yield "prose, short", b"just a text"
    yield "prose, accented", ("Überraschung: ça marche, 模型 " * 40).encode()
    yield "prose in UTF-16", _prose(400, 2).encode("utf-16")
    yield "prose in Latin-1", ("Überraschung, ça marche " * 60).encode("latin-1")
    yield "digits", b"0123456789\n" * 300
    yield "zeros in ASCII", b"0" * 4096
    yield "blanks", b"  " * 2000
    yield "line feeds", b"\n" * 1200
    yield "a short line", b"\n"
    yield "passwd", b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n" * 9
    yield "csv", "".join(f"{n},{n * n},name {n}\n" for n in range(400)).encode()
    yield "tsv", "".join(f"{n}\t{n * n}\n" for n in range(400)).encode()
    yield "json", json.dumps({"hidden_size": 768, "name": "base", "layers": [1, 2, 3]}).encode()
    yield "json, a list", json.dumps(list(range(400))).encode()
    yield "json lines", b"".join(json.dumps({"n": n}).encode() + b"\n" for n in range(99))
    yield "yaml", b"name: base\nversion: 2\nlayers:\n  - conv\n  - dense\nsize: 12\n"
    yield "toml", b'[project]\nname = "base"\nversion = "2"\n'
    yield "markdown", b"# A model\n\n- one\n- two\n\n```python\nx = {1: 2}\n```\n" * 9
    yield "python", b"import os\n\n\nclass A:\n    def f(self) -> dict[str, int]:\n        return {'a': 1}\n" * 9
    yield "c", b'#include <stdio.h>\nint main(void) { printf("%d", 1); return 0; }\n' * 9
    yield "html", b"<!DOCTYPE html>\n<html><body><p>words</p></body></html>\n" * 9
    yield "xml", b'<?xml version="1.0"?>\n<net name="a"><layers/></net>\n'
    yield "proto source", b'syntax = "proto3";\npackage a;\nmessage M { string name = 1; }\n'
    yield "git lfs pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 12\n"
    yield "base64", (b"QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVo" * 2 + b"\n") * 90
    yield "merges.txt", "".join(f"t{n} h{n}\n" for n in range(400)).encode()


def _binaries() -> Iterator[tuple[str, bytes]]:
    random = Random(5)
    yield "empty", b""
    yield "zeros", bytes(5000)
    yield "ones", b"\xff" * 5000
    for size in (3, 64, 5000, 100_000):
        yield f"random, {size} bytes", random.randbytes(size)
    yield "floats", struct.pack("<4000f", *(random.gauss(0, 1) for _ in range(4000)))
    yield "small integers", struct.pack("<4000i", *(random.randrange(100) for _ in range(4000)))
    yield "int64 indices", struct.pack("<999q", *range(999))
    yield "bytes in order", bytes(range(256)) * 20
    yield "pickle", b"\x80\x04\x95" + struct.pack("<Q", 40) + b"}\x94(\x8c\x01a\x94K\x01u."
    yield (
        "npy",
        b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }".ljust(128) + bytes(16),
    )
    yield "hdf5", b"\x89HDF\r\n\x1a\n" + bytes(900)
    yield "tflite", b"\x1c\0\0\0TFL3" + random.randbytes(900)
    yield "elf", b"\x7fELF\x02\x01\x01" + bytes(9) + random.randbytes(900)
    yield "wasm", b"\0asm\1\0\0\0" + random.randbytes(900)
    yield "pyc", b"\xa7\r\r\n" + bytes(12) + random.randbytes(900)
    yield "java class", b"\xca\xfe\xba\xbe\0\0\0\x41" + random.randbytes(900)
    yield (
        "windows program",
        b"MZ\x90\0\3\0\0\0\4\0\0\0\xff\xff\0\0\xb8" + bytes(43) + b"\x80\0\0\0" + random.randbytes(900),
    )
    yield "sqlite", _database()
    yield "parquet", b"PAR1" + random.randbytes(900) + b"PAR1"
    yield "arrow", b"ARROW1\0\0" + random.randbytes(900) + b"ARROW1"
    yield "leveldb table", random.randbytes(900) + bytes(40) + bytes.fromhex("57fb808b247547db")


def _database() -> bytes:
    with sqlite3.connect(":memory:") as database:
        database.execute("create table words (word text)")
        database.executemany("insert into words values (?)", [(word,) for word in _WORDS])
        database.commit()
        return bytes(database.serialize())


def _archives() -> Iterator[tuple[str, bytes]]:
    content = _prose(300, 3).encode()
    zipped, tarred = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", content)
    with tarfile.open(fileobj=tarred, mode="w") as tar:
        member = tarfile.TarInfo("words")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    yield "zip", zipped.getvalue()
    yield "tar", tarred.getvalue()
    yield "gzip", gzip.compress(content, mtime=0)
    yield "bzip2", bz2.compress(content)
    yield "xz", lzma.compress(content)
    yield "zlib", zlib.compress(content)
    yield "zstd", b"\x28\xb5\x2f\xfd\x24" + Random(8).randbytes(900)
    yield "lz4", b"\x04\x22\x4d\x18\x64\x40\xa7" + Random(9).randbytes(900)
    yield "7z", b"7z\xbc\xaf\x27\x1c\0\4" + Random(9).randbytes(900)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _media() -> Iterator[tuple[str, bytes]]:
    random = Random(6)
    rows = b"".join(b"\0" + random.randbytes(48) for _ in range(16))
    png = _chunk(b"IHDR", struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)) + _chunk(b"IDAT", zlib.compress(rows))
    yield "png", b"\x89PNG\r\n\x1a\n" + png + _chunk(b"IEND", b"")
    yield "png, cut after its signature", b"\x89PNG\r\n\x1a\n\0\0"
    yield "jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\1\1\0\0\1\0\1\0\0" + random.randbytes(900) + b"\xff\xd9"
    yield "gif", b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
    yield "bmp", b"BM" + struct.pack("<IHHIIiiHH", 822, 0, 0, 54, 40, 16, 16, 1, 24) + bytes(24) + random.randbytes(768)
    yield "tiff", b"II*\0\x08\0\0\0" + random.randbytes(400)
    yield "webp", b"RIFF" + struct.pack("<I", 900) + b"WEBPVP8 " + random.randbytes(892)
    yield "wav", b"RIFF" + struct.pack("<I", 936) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 8000, 1, 8)
    yield "mp3", b"ID3\x04\0\0\0\0\0\x23" + random.randbytes(900)
    yield "mp4", b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + random.randbytes(900)
    yield "pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" * 9
    yield "font", b"\0\1\0\0\0\x0c\0\x80\0\3\0\x40" + random.randbytes(900)


PLAIN, BLANK, NONE = "this is plain text", "this is blank text", "unknown type: pass its type if it is a protobuf"
RECORDS, TFRECORDS = "the file starts with the riegeli signature", "the file starts with a valid TFRecord length"
LIKE_TEXT = "this may be a message in text format: pass its type"
IMAGE, SOUND = "image, not a protobuf", "recording, not a protobuf"

TABLE = {
    # file: kind, and the end of the reason
    "riegeli: nodes": ("riegeli", RECORDS),
    "riegeli: nodes, transposed": ("riegeli", RECORDS),
    "riegeli: empty records": ("riegeli", RECORDS),
    "riegeli: texts": ("riegeli", RECORDS),
    "riegeli: names of hosts": ("riegeli", RECORDS),
    "riegeli: no records": ("riegeli", RECORDS),
    "tfrecord: nodes": ("tfrecord", TFRECORDS),
    "tfrecord: empty records": ("tfrecord", TFRECORDS),
    "nodes behind lengths": ("unknown", NONE),
    "prose": ("refused", PLAIN),
    "prose, short": ("refused", PLAIN),
    "prose, accented": ("refused", PLAIN),
    "prose in UTF-16": ("unknown", NONE),
    "prose in Latin-1": ("unknown", NONE),
    "digits": ("refused", PLAIN),
    "zeros in ASCII": ("refused", PLAIN),
    "blanks": ("refused", BLANK),
    "line feeds": ("refused", BLANK),
    "a short line": ("refused", BLANK),
    "passwd": ("text", LIKE_TEXT),
    "csv": ("refused", PLAIN),
    "tsv": ("refused", PLAIN),
    "json": ("json", "this is JSON"),
    "json, a list": ("json", "this is JSON"),
    "json lines": ("json", "this is JSON"),
    "yaml": ("text", LIKE_TEXT),
    "toml": ("refused", PLAIN),
    "markdown": ("refused", PLAIN),
    "python": ("refused", PLAIN),
    "c": ("refused", PLAIN),
    "html": ("refused", PLAIN),
    "xml": ("refused", "XML (such as an OpenVINO IR), not a protobuf"),
    "proto source": ("refused", PLAIN),
    "git lfs pointer": ("refused", "run git lfs pull"),
    "base64": ("refused", PLAIN),
    "merges.txt": ("refused", PLAIN),
    "empty": ("unknown", "the file is empty"),
    "zeros": ("unknown", NONE),
    "ones": ("unknown", NONE),
    "random, 3 bytes": ("unknown", NONE),
    "random, 64 bytes": ("unknown", NONE),
    "random, 5000 bytes": ("unknown", NONE),
    "random, 100000 bytes": ("unknown", NONE),
    "floats": ("unknown", NONE),
    "small integers": ("unknown", NONE),
    "int64 indices": ("unknown", NONE),
    "bytes in order": ("unknown", NONE),
    "pickle": ("refused", "save the weights as safetensors"),
    "npy": ("refused", "a NumPy array, not a protobuf"),
    "hdf5": ("refused", "save it as a SavedModel or as ONNX"),
    "tflite": ("refused", "a TFLite flatbuffer, not a protobuf"),
    "elf": ("refused", "a program, not a model"),
    "wasm": ("refused", "a WebAssembly module, not a protobuf"),
    "pyc": ("refused", "compiled Python, not a protobuf"),
    "java class": ("refused", "a Java class or a program, not a protobuf"),
    "windows program": ("unknown", NONE),
    "sqlite": ("refused", "an SQLite database, not a protobuf"),
    "parquet": ("refused", "a Parquet file, not a protobuf"),
    "arrow": ("refused", "an Arrow file, not a protobuf"),
    "leveldb table": ("unknown", NONE),
    "zip": ("refused", "unpack it and give the files inside"),
    "tar": ("refused", "or send it as application/x-tar"),
    "gzip": ("refused", "gzip: decompress it first"),
    "bzip2": ("refused", "bzip2: decompress it first"),
    "xz": ("refused", "xz: decompress it first"),
    "zlib": ("unknown", NONE),
    "zstd": ("refused", "zstd: decompress it first"),
    "lz4": ("refused", "lz4: decompress it first"),
    "7z": ("refused", "unpack it and give the files inside"),
    "png": ("refused", IMAGE),
    "png, cut after its signature": ("refused", IMAGE),
    "jpeg": ("refused", IMAGE),
    "gif": ("refused", IMAGE),
    "bmp": ("unknown", NONE),
    "tiff": ("refused", IMAGE),
    "webp": ("refused", IMAGE),
    "wav": ("refused", SOUND),
    "mp3": ("refused", SOUND),
    "mp4": ("refused", "MP4 video or recording, not a protobuf"),
    "pdf": ("refused", "a PDF document, not a protobuf"),
    "font": ("unknown", NONE),
}
BY_NAME_ALONE = {"empty", "tfrecord: empty records"}
"""The files that contradict no name: an empty file is a message of every type."""


each_file = pytest.mark.parametrize("file", TABLE)


@cache
def files() -> dict[str, bytes]:
    return foreign_files()


def test_every_file_has_a_row() -> None:
    assert list(files()) == list(TABLE)


@each_file
def test_a_file_is_told_for_what_it_is(file: str) -> None:
    found = detect(files()[file], None, len(files()[file]))
    kind, ending = TABLE[file]
    assert (found.kind, found.type_name) == (kind, None), found
    assert found.why.endswith(ending), found


@pytest.mark.parametrize("file", [name for name in TABLE if name not in BY_NAME_ALONE])
def test_no_name_makes_a_message_of_it(file: str) -> None:
    data = files()[file]
    taken = {name: detect(data, name, len(data)) for name in NAMES}
    assert {name: found for name, found in taken.items() if found.kind == "proto" or found.type_name} == {}


def test_a_file_that_ends_early_is_told_for_what_its_beginning_is() -> None:
    """A prefix of any length is never taken for a message of a type, for any name."""
    for file, data in files().items():
        for end in (1, 2, 3, 5, 8, 13, 40, 100, 300):
            found = detect(data[:end], None, end)
            assert found.kind != "proto", (file, end, found)


@each_file
def test_no_format_claims_it(file: str) -> None:
    data = files()[file]
    for name in ("x", *NAMES):
        type_name = detect(data, None, len(data)).type_name
        found = formats_of(Model(name, type_name, {name: BytesSource(data)}, None))
        assert [each.name for each in found] == [], name


@each_file
def test_the_library_does_not_open_it(file: str) -> None:
    def opens() -> Proto:
        return open_proto(files()[file])

    if file == "empty":  # the library's caller has declared it a proto
        assert opens().size == 0
        return
    with pytest.raises((Unsupported, CorruptModel, InconsistentChunks, LimitExceeded)):
        opens()


async def test_a_store_of_it_has_no_root() -> None:
    async with opened(MemoryStorage()) as stores:
        for file, data in files().items():
            store = (await upload(stores, {"file": data})).store
            assert (store.root, store.type) == (None, None), file
            assert store.why is not None, file
        everything = (await upload(stores, {str(n): data for n, data in enumerate(files().values())})).store
        assert everything.root is None


def _golden() -> list[tuple[str, bytes]]:
    """Return the files that other programs wrote, each once."""
    return [(name, stored(name).read_bytes()) for name, facts in MANIFEST.items() if "same" not in facts]


def test_no_name_makes_another_thing_of_what_other_programs_wrote() -> None:
    checked = 0
    for path, data in _golden():
        own = detect(data, path, len(data))
        for name in NAMES:
            found = detect(data, name, len(data))
            assert found.type_name in {own.type_name, None}, (path, name, found)
            by_name = {"json"} if path.endswith("index.json") else set[str]()  # an index is also recognized by its name
            assert found.kind in {own.kind, "unknown", *by_name}, (path, name, found)
            checked += 1
    assert checked > 4000


def test_files_of_weights_are_no_messages() -> None:
    """Files of weights are next to protos; without the proto, only weight files with headers are roots."""
    weights = (".bin", "-of-00001", "-of-00003", ".pdiparams")
    paths = [(path, data) for path, data in _golden() if path.endswith(weights) or "paddle_separate/fc" in path]
    assert len(paths) > 20
    for path, data in paths:
        headless = "paddle" not in path or path.endswith(("_desc_size/m.pdiparams", "_version/m.pdiparams"))
        assert detect(data, path, len(data)).kind == ("unknown" if headless else "paddle"), path
        with pytest.raises((CorruptModel, LimitExceeded, Unsupported)):
            open_proto(data)
