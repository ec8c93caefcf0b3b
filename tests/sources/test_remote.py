"""Objects and folders of objects as sources, by few range reads.

Protos, models, records and chunks by URI give the same as by path, with range reads only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.bundles import Variable, bundle
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.s3 import RawBucket, emulator
from tests.support.web import web_server

import protoslice
from protoslice import open_model, schema
from protoslice.errors import Conflict, CorruptModel, InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.merging import Merger
from protoslice.riegeli import RecordReader
from protoslice.sources import opening as folders
from protoslice.sources.files import FileSource
from protoslice.sources.opening import ObjectSource, as_source, open_folder, open_object
from protoslice.storage import ObjectKey, open_storage
from protoslice.uris import is_uri

BLOCK = 64 << 10
DATA = os.urandom(48 << 20)
MODEL = {"m/saved_model.pb": b"root", "m/variables/variables.index": b"index", "other": b"x"}


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"folder/a": DATA, "empty": b"", "a": b"content"} | MODEL)
        yield found


@pytest.fixture
def source(bucket: CountedBucket) -> Iterator[ObjectSource]:
    with open_object(f"{bucket.uri}/folder/a") as opened:
        bucket.requests.clear()
        yield opened


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (5, 9 << 20), (len(DATA) - 1, 1), (len(DATA), 0), (0, len(DATA))],
)
def test_reads_are_exact(source: ObjectSource, offset: int, length: int) -> None:
    for _ in range(2):
        assert source.read(offset, length) == DATA[offset : offset + length]


def test_a_range_beyond_the_end_is_refused(source: ObjectSource) -> None:
    with pytest.raises(CorruptModel, match=r"folder/a has only \d+ bytes"):
        source.read(len(DATA), 1)
    with pytest.raises(InvalidInput):
        source.read(-1, 1)


def test_opening_costs_one_request_and_no_bytes(bucket: CountedBucket) -> None:
    with open_object(f"{bucket.uri}/folder/a") as opened:
        assert opened.size == len(DATA)
    assert bucket.requests == [("stat", 0)]
    assert bucket.closed == 1


def test_a_small_read_costs_two_blocks_once(source: ObjectSource, bucket: CountedBucket) -> None:
    for offset in (3 * BLOCK, 3 * BLOCK + 5000, 5 * BLOCK - 10):
        source.read(offset, 10)
    assert bucket.requests == [("get", 2 * BLOCK)]


def test_scattered_reads_ask_for_their_blocks_and_one_more(source: ObjectSource, bucket: CountedBucket) -> None:
    for offset in range(0, len(DATA), 4 << 20):
        source.read(offset, 100)
    assert bucket.requests == [("get", 2 * BLOCK)] * 12


def test_sequential_reads_ask_for_ever_more_and_at_most_twice_what_was_read(
    source: ObjectSource, bucket: CountedBucket
) -> None:
    for offset in range(0, 2 << 20, 1000):
        source.read(offset, 1000)
    assert len(bucket.requests) <= 6
    assert bucket.bytes_read <= 4 << 20


def test_a_long_read_goes_in_bounded_requests(source: ObjectSource, bucket: CountedBucket) -> None:
    source.read(0, (40 << 20) - BLOCK)
    assert len(bucket.requests) == 10
    assert max(size for _, size in bucket.requests) == 4 << 20


def test_threads_share_a_source(source: ObjectSource) -> None:
    places = [(at * 77_777, 10_000) for at in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: source.read(*place), places))
    assert found == [DATA[at : at + length] for at, length in places]


async def test_a_replaced_object_is_noticed(source: ObjectSource, bucket: CountedBucket) -> None:
    source.read(0, 10)
    await bucket.objects.put(ObjectKey("folder/a"), DATA[::-1])
    with pytest.raises(Conflict):
        source.read(10 << 20, 10)


def test_an_empty_object(bucket: CountedBucket) -> None:
    with open_object(f"{bucket.uri}/empty") as opened:
        assert (opened.size, opened.read(0, 0)) == (0, b"")


def test_a_closed_source_says_so(bucket: CountedBucket) -> None:
    opened = open_object(f"{bucket.uri}/folder/a")
    opened.close()
    opened.close()
    assert bucket.closed == 1
    with pytest.raises(InvalidInput, match="closed"):
        opened.read(0, 1)


def test_nothing_there(bucket: CountedBucket) -> None:
    with pytest.raises(NotFound, match=f"There is no object {bucket.uri}/folder/b"):
        open_object(f"{bucket.uri}/folder/b")
    assert bucket.closed == 1


def test_a_child_process_is_told_to_open_anew(source: ObjectSource) -> None:
    source.read(0, 1)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            source.read(20 << 20, 1)
        except InvalidInput as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert "before a fork" in told.read()


# Folders of objects: the costs of paths, and the existing paths.


def test_a_file_brings_those_beside_it(bucket: CountedBucket) -> None:
    files, named = open_folder(f"{bucket.uri}/m/saved_model.pb")
    assert named == "saved_model.pb"
    assert files["variables/variables.index"].read(0, 5) == b"index"
    assert "../other" not in files
    assert "nothing" not in files
    assert "nothing" not in files
    assert bucket.requests == [("stat", 0), ("stat", 0), ("get", 5), ("stat", 0)]
    files.close()
    assert bucket.closed == 1


@pytest.mark.parametrize(("end", "requests"), [("", ["stat", "list", "list"]), ("/", ["list"])])
def test_a_folder_is_listed_once(bucket: CountedBucket, end: str, requests: list[str]) -> None:
    files, named = open_folder(f"{bucket.uri}/m{end}")
    assert named is None
    assert list(files) == ["saved_model.pb", "variables/variables.index"]
    assert len(files) == 2
    assert files.size_of("saved_model.pb") == 4
    assert "nothing" not in files
    assert [name for name, _ in bucket.requests] == requests


def test_a_whole_bucket_is_a_folder(bucket: CountedBucket) -> None:
    files, _ = open_folder(bucket.uri)
    assert list(files) == ["a", "empty", "folder/a", *MODEL]


def test_neither_file_nor_folder(bucket: CountedBucket) -> None:
    with pytest.raises(NotFound, match=f"There is no object {bucket.uri}/oth"):
        open_folder(f"{bucket.uri}/oth")
    assert bucket.closed == 1


def test_a_folder_of_too_many_is_refused_by_a_few_requests(
    bucket: CountedBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "MOST_FILES", 1500)
    bucket.fill({f"many/{number}": b"" for number in range(5000)})
    files, _ = open_folder(f"{bucket.uri}/many/")
    with pytest.raises(LimitExceeded, match="more than 1500 objects"):
        list(files)
    assert len(bucket.requests) == 2


# URIs of every scheme: options, and the messages for wrong ones.


@pytest.mark.parametrize("name", ["s3://b/k", "S3://b/k", "fsspec+sftp://h/k", "nosuch://x", "file:///a"])
def test_uris(name: str) -> None:
    assert is_uri(name)


@pytest.mark.parametrize("name", ["C:\\model.onnx", "C://model.onnx", "a:b", "model.onnx", "://x", "", b"s3://b/k"])
def test_paths(name: object) -> None:
    assert not is_uri(name)


def test_a_file_that_looks_like_a_uri_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "b").mkdir(parents=True)
    (tmp_path / "s3:" / "b" / "k").write_bytes(b"here")
    assert as_source("s3://b/k").read(0, 4) == b"here"
    assert is_uri("s3://b/other")
    assert not is_uri(Path("s3://b/other"))


def test_a_file_uri_is_read_as_the_path_is(tmp_path: Path) -> None:
    (tmp_path / "a b%").write_bytes(b"here")
    source = as_source(f"file://{tmp_path}/a%20b%25")
    assert isinstance(source, FileSource)
    assert source.read(0, 4) == b"here"


def test_an_unknown_scheme_is_answered_with_those_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'nosuch'; available: .*az, .*file, .*gs, .*https, .*memory, .*s3"):
        as_source("nosuch://host/x")


def test_a_web_source_without_the_extra_is_answered_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "protoslice.storage.web", None)
    with pytest.raises(Unsupported, match=r"web sources: install the extra 'cloud'"):
        as_source("https://host/path")


async def test_memory_is_shared_by_name() -> None:
    await open_storage("memory://some-name/folder").put(ObjectKey("a"), b"content")
    assert as_source("memory://some-name/folder/a").read(0, 7) == b"content"
    with pytest.raises(NotFound):
        as_source("memory://another/folder/a")


def test_options_are_given_or_of_the_environment(bucket: CountedBucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_STORAGE_OPTIONS", '{"region": "x"}')
    open_object(f"{bucket.uri}/a").close()
    open_object(f"{bucket.uri}/a", {"region": "y"}).close()
    assert bucket.options == [{"region": "x"}, {"region": "y"}]
    with pytest.raises(NotFound):
        open_object("memory://no-options-there/a")


@pytest.mark.parametrize("text", ["nothing", "[]", '{"a": 1}'])
def test_options_that_do_not_parse(bucket: CountedBucket, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_STORAGE_OPTIONS", text)
    with pytest.raises(InvalidInput, match="Invalid PROTOSLICE_STORAGE_OPTIONS"):
        open_object(f"{bucket.uri}/a")


def test_a_folder_is_no_object(bucket: CountedBucket) -> None:
    with pytest.raises(InvalidInput, match="is a folder"):
        open_object(f"{bucket.uri}/")


def test_a_web_server_of_the_caller_s_own_network() -> None:
    with web_server() as web:
        web.objects["a b.onnx"] = b"content"
        root = f"http://127.0.0.1:{web.port}/files"
        with open_object(f"{root}/a%20b.onnx") as source:
            assert source.read(3, 4) == b"tent"
        files, named = open_folder(f"{root}/a%20b.onnx")
        assert named == "a b.onnx"
        assert "other" not in files
        files.close()
        with pytest.raises(NotFound):
            open_folder(f"{root}/nothing")
        with pytest.raises(InvalidInput, match="no options"):
            open_object(f"{root}/a", {"region": "x"})
        files, _ = open_folder(f"{root}/")
        with pytest.raises(Unsupported, match="cannot list"):
            list(files)


async def test_a_bucket() -> None:
    with emulator() as options:
        raw = RawBucket.make(options)
        await raw.set(ObjectKey("m/root"), b"content")
        with open_object(f"{raw.uri}/m/root", options) as source:
            assert source.read(3, 4) == b"tent"
        files, named = open_folder(f"{raw.uri}/m", options)
        assert (list(files), named) == (["root"], None)
        files.close()


BIG = 2 << 20


def onnx(count: int) -> bytes:
    """Return a model of this many tensors of 2 MiB."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")(ir_version=8)
    model.graph.name = "g"
    model.graph.node.add(op_type="Add", name="n")
    for number in range(count):
        model.graph.initializer.add(name=f"w{number}", dims=[BIG // 4], data_type=1, raw_data=bytes([number]) * BIG)
    return bytes(model.SerializeToString())


ONNX = onnx(8)


@pytest.fixture
def model_bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"d/model.onnx": ONNX})
        yield found


def test_a_proto_is_opened_and_read_in_part(model_bucket: CountedBucket) -> None:
    with protoslice.open(f"{model_bucket.uri}/d/model.onnx") as proto:
        assert proto.type == "onnx.ModelProto"
        # One request for the facts, and at most one for the bytes after each of the large tensors.
        assert len(model_bucket.requests) <= 2 + 8
        assert model_bucket.bytes_read < len(ONNX) / 10
        model_bucket.requests.clear()
        part = proto.merge('graph.initializer[name="w5"].raw_data')
        assert part[100:200].read() == b"\x05" * 100
        assert len(model_bucket.requests) <= 2
        assert model_bucket.bytes_read <= 3 * (64 << 10)
    assert model_bucket.closed == 1


def test_a_slice_of_a_tensor_reads_no_other(model_bucket: CountedBucket) -> None:
    with open_model(f"{model_bucket.uri}/d/model.onnx") as model:
        assert list(model) == [f"w{number}" for number in range(8)]
        assert model["w3"][0:10].tobytes() == b"\x03" * 40
        assert len(model_bucket.requests) <= 2 + 8 + 1
        assert model_bucket.bytes_read < len(ONNX) / 10
    assert model_bucket.closed == 1


def test_a_saved_model_in_a_bucket(model_bucket: CountedBucket) -> None:
    values = np.arange(1 << 20, dtype=np.float32)
    saved: Any = schema.bundled().message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    saved.meta_graphs.add().meta_info_def.tags.append("serve")
    variables = bundle("saved/variables/variables", [Variable("w", 1, (1 << 20,), values.tobytes())])
    model_bucket.fill({"saved/saved_model.pb": saved.SerializeToString(), **variables})
    with open_model(f"{model_bucket.uri}/saved") as model:
        assert model["w"][1000:1002].tolist() == values[1000:1002].tolist()
    assert model_bucket.bytes_read < (4 << 20) / 4
    assert len(model_bucket.requests) <= 12


def test_options_reach_the_storage(model_bucket: CountedBucket) -> None:
    protoslice.open(f"{model_bucket.uri}/d/model.onnx", storage_options={"a": "b"}).close()
    open_model(f"{model_bucket.uri}/d/model.onnx", storage_options={"c": "d"}).close()
    assert model_bucket.options == [{"a": "b"}, {"c": "d"}]


def test_what_is_not_there(model_bucket: CountedBucket) -> None:
    for opening in (protoslice.open, open_model, RecordReader):
        with pytest.raises(NotFound, match="There is no object counted"):
            opening(f"{model_bucket.uri}/d/nothing")
    assert model_bucket.closed == 3


def test_a_chunked_proto_is_merged_from_a_bucket(model_bucket: CountedBucket, tmp_path: Path) -> None:
    with protoslice.open(ONNX) as proto, (tmp_path / "m.cpb").open("wb") as file:
        proto.chunks.cpb().write_to(file)
    model_bucket.fill({"m.cpb": (tmp_path / "m.cpb").read_bytes(), "whole.pb": ONNX})
    for name in ("m", "whole"):
        into = schema.bundled().message_class("onnx.ModelProto")()
        Merger.read(f"{model_bucket.uri}/{name}", into, storage_options={})
        assert into.SerializeToString(deterministic=True) == ONNX
    with pytest.raises(NotFound, match=r"There is no file .*/none.cpb or .*/none.pb"):
        Merger.read(f"{model_bucket.uri}/none", schema.bundled().message_class("onnx.ModelProto")())
    with RecordReader(f"{model_bucket.uri}/m.cpb", storage_options={}) as reader:
        assert sum(1 for _ in reader.read_records()) == 10
