"""Detection of foreign files: a table of kinds of files, and the answer for each.

A mistake shows as a row that changes. No file here is a proto to be served, so none may become one by its name.
"""

from __future__ import annotations

from functools import cache

import pytest
from tests.support.foreign import NAMES, foreign_files
from tests.support.golden import MANIFEST, stored
from tests.support.stores import opened, upload

from protoslice.detection import detect
from protoslice.errors import CorruptModel, InconsistentChunks, LimitExceeded, Unsupported
from protoslice.formats.registry import formats_of
from protoslice.library.opening import open_proto
from protoslice.library.proto import Proto
from protoslice.sources.files import BytesSource
from protoslice.storage import MemoryStorage
from protoslice.tensors.model import Model

PLAIN, BLANK, NONE = "this is plain text", "this is blank text", "unknown type: pass its type if it is a protobuf"
RECORDS, TFRECORDS = "starts with the riegeli signature", "starts with a valid TFRecord length"
LIKE_TEXT = "this may be a message in text format: pass its type"
IMAGE, SOUND = "image, not a protobuf", "recording, not a protobuf"

TABLE = {
    # file: kind, and how the reason ends
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
"""Files in which nothing speaks against any name: no bytes are a message of every type."""


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
    """A prefix of any length is never taken for a message of a type, whatever its name is."""
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

    if file == "empty":  # the library's caller has said that it is a proto
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
    """The files that other programs wrote, each once."""
    return [(name, stored(name).read_bytes()) for name, facts in MANIFEST.items() if "same" not in facts]


def test_no_name_makes_another_thing_of_what_other_programs_wrote() -> None:
    checked = 0
    for path, data in _golden():
        own = detect(data, path, len(data))
        for name in NAMES:
            found = detect(data, name, len(data))
            assert found.type_name in {own.type_name, None}, (path, name, found)
            by_name = {"json"} if path.endswith("index.json") else set[str]()  # an index is known by its name too
            assert found.kind in {own.kind, "unknown", *by_name}, (path, name, found)
            checked += 1
    assert checked > 4000


def test_files_of_weights_are_no_messages() -> None:
    """Weights lie beside protos; without the proto, only files of weights with heads are roots."""
    weights = (".bin", "-of-00001", "-of-00003", ".pdiparams")
    paths = [(path, data) for path, data in _golden() if path.endswith(weights) or "paddle_separate/fc" in path]
    assert len(paths) > 20
    for path, data in paths:
        headless = "paddle" not in path or path.endswith(("_desc_size/m.pdiparams", "_version/m.pdiparams"))
        assert detect(data, path, len(data)).kind == ("unknown" if headless else "paddle"), path
        with pytest.raises((CorruptModel, LimitExceeded, Unsupported)):
            open_proto(data)
