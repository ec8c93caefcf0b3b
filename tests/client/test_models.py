"""Models on a service, opened by every name that the command line accepts.

Stores as an fsspec file system, which is found by its protocol.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fsspec
import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from tests.support.serve import LiveServer
from tests.support.wire import FaultyProxy

import protoslice
from protoslice.client import Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import Conflict, InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.references import address_of, is_address

LARGE = (5000, 5000)
"""The shape of a tensor of 100 MB."""


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    """Return tensors by name; two of the names have a meaning in search patterns and paths."""
    return {
        "large": np.arange(LARGE[0] * LARGE[1], dtype="<f4").reshape(LARGE),
        "block.0/w*": np.arange(24).reshape(2, 3, 4),
        "block.1/w*": np.float32(7).reshape(()),
        "words": np.array([[b"a", b""], [b"\x00\xff", b"four"]], object),
        "none": np.zeros((0, 3), "i1"),
    }


@pytest.fixture(scope="module")
def model(arrays: dict[str, Any]) -> bytes:
    """Return an ONNX model of the tensors, and of two tensors with one name."""
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    twice = [onnx.numpy_helper.from_array(np.zeros(1, np.float32), "twice")] * 2
    made = onnx.helper.make_graph([], "g", [], [], [*tensors, *twice])
    return bytes(onnx.helper.make_model(made).SerializeToString())


@pytest.fixture(scope="module")
def ref(client: Client, model: bytes) -> str:
    return client.push(model, filename="bert.onnx", tags=["bert:1", "ann.bert~1"]).store.id


NAMES = [
    "@bert:1", "@{id}", "@{short}", "@ann.bert~1", "{url}/v1/stores/bert:1", "{url}/v1/stores/bert:1/",
    "{url}/m/bert:1", "{url}/m/{id}/", "{url}/m/{quoted}", "{url}/m/bert:1/tensors?tensor=path%3Agraph#map",
    "{url}/spaces/default/v1/stores/bert:1", "{url}/spaces/default/m/bert:1",
]  # fmt: skip


@pytest.mark.parametrize("form", NAMES)
def test_every_name_of_the_command_line_opens_the_store(
    form: str, client: Client, ref: str, arrays: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = form.format(url=client.url, id=ref, short=ref[:12], quoted=quote("bert:1", safe=""))
    monkeypatch.setenv("PROTOSLICE_URL", client.url)
    with protoslice.open_model(name) as opened:
        assert isinstance(opened, protoslice.RemoteModel)
        assert opened.store.id == ref
        assert_array_equal(opened["block.0/w*"], arrays["block.0/w*"])
        assert repr(opened).endswith(f"/v1/stores/{ref}: onnx.ModelProto>")
    assert is_address(name)
    assert client.store(address_of(name).ref).id == ref, "the command line asks for the same"


def test_what_cannot_be_opened_says_why(client: Client, ref: str) -> None:
    with pytest.raises(NotFound, match="No tag 'bert:9'; did you mean 'bert:1'"):
        protoslice.open_model(f"{client.url}/v1/stores/bert:9")
    with pytest.raises(Unsupported, match="only for files"):
        protoslice.open_model(f"{client.url}/m/bert:1", type="onnx.ModelProto")
    with pytest.raises(InvalidInput, match="credentials"):
        protoslice.open_model("http://ann:secret@127.0.0.1:9/m/bert:1")
    with pytest.raises(InvalidInput, match="No model given"):
        protoslice.open_model("")
    store = f"{client.url}/v1/stores/bert:1"
    for view in ("tensors", "chunks/9999"):
        with pytest.raises(ProtosliceError, match=f"for a store of a service, use {store}[)]"):
            protoslice.open_model(f"{store}/{view}")


def test_a_model_on_a_service_is_what_its_file_is(
    client: Client, ref: str, model: bytes, arrays: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "bert.onnx").write_bytes(model)
    with (
        protoslice.open_model(tmp_path / "bert.onnx") as local,
        protoslice.open_model(f"{client.url}/m/bert:1") as remote,
    ):
        assert isinstance(remote, Mapping)
        assert list(remote) == list(local)
        assert (len(remote), remote.keys()) == (7, local.keys())
        assert remote._repr_html_().partition("<table>")[2] == local._repr_html_().partition("<table>")[2]
        assert list(remote.signatures()) == list(local.signatures())
        for name, array in arrays.items():
            one, other = remote[name], local[name]
            assert one.facts == other.facts
            assert repr(one) == repr(other)
            assert (one.shape, one.dtype, one.nbytes) == (other.shape, other.dtype, array.nbytes)
            assert_array_equal(one[..., None], array[..., None])
        assert_array_equal(remote["large"][::-999, 17:3:-2], arrays["large"][::-999, 17:3:-2])
        assert remote["words"][1, ::-1].tolist() == local["words"][1, ::-1].tolist() == [b"four", b"\x00\xff"]


def test_membership_and_missing_names_are_those_of_mappings(client: Client, ref: str) -> None:
    for listed in (False, True):  # a cached listing answers without requests
        with protoslice.open_model(f"{client.url}/m/bert:1") as opened:
            if listed:
                list(opened)
            names = ["large", "block.0/w*", "path:graph.initializer[1]", "block*", "*", "twice", "larg", 3]
            assert [name in opened for name in names] == [True, True, True, False, False, False, False, False]
            assert opened.get("larg") is None
            with pytest.raises(KeyError, match="did you mean 'large'"):
                opened["larg"]
            with pytest.raises(Conflict, match="2 tensors are named 'twice'"):
                opened["twice"]


def test_a_slice_of_a_large_tensor_costs_a_request_or_two_and_little_of_it(
    proxy: FaultyProxy, ref: str, arrays: dict[str, Any]
) -> None:
    with protoslice.open_model(f"{proxy.url}/m/{ref}") as opened:
        for index in ((17, slice(None, 5)), (-1, -1), (slice(4990, None, 3), 2), (0, slice(None, None, -1))):
            before, sent = len(proxy.done), proxy.sent_down
            found = opened["large"][index]
            assert_array_equal(found, arrays["large"][index])
            assert len(proxy.done) - before <= 2, proxy.done[before:]
            assert proxy.sent_down - sent <= 64 << 10
        listed, before = list(opened), len(proxy.done)
        assert opened["large"][17, :5].tolist() == arrays["large"][17, :5].tolist()
        assert (len(listed), len(proxy.done) - before) == (7, 1), "a listing spares the look at the name"


def test_models_and_tensors_of_a_service_are_pickled(client: Client, ref: str, arrays: dict[str, Any]) -> None:
    with protoslice.open_model(f"{client.url}/m/bert:1") as opened:
        model, tensor = pickle.loads(pickle.dumps((opened, opened["block.0/w*"])))
    assert list(model)[:2] == ["large", "block.0/w*"]
    assert_array_equal(tensor[1], arrays["block.0/w*"][1])


def test_a_model_stays_the_store_that_a_tag_pointed_at(client: Client, ref: str, model: bytes) -> None:
    other = client.push(model + b"\x12\x01x", filename="bert.onnx", type="onnx.ModelProto").store.id
    client.tag("moving:1", ref)
    with protoslice.open_model(f"{client.url}/m/moving:1") as opened:
        client.tag("moving:1", other)
        assert isinstance(opened, protoslice.RemoteModel)
        assert (opened.store.id, opened["large"][0, 1]) == (ref, 1)


@pytest.fixture(scope="module")
def given() -> dict[str, bytes]:
    return {"saved_model.pb": b"\x0a\x01a", "variables/v.data": bytes(range(256)) * 20_000, "variables/more/x": b"x"}


@pytest.fixture(scope="module")
def root(service: LiveServer, client: Client, given: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a store of three files."""
    folder = tmp_path_factory.mktemp("model")
    for name, data in given.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    client.push(folder, root="saved_model.pb", tags=["fs:1"])
    return f"protoslice://{service.host}:{service.port}/fs:1"


@pytest.fixture
def fs() -> Any:
    return StoreFileSystem(skip_instance_cache=True)


def test_it_is_found_by_its_protocol() -> None:
    """The entry point that `make dev` installs leads fsspec to it."""
    assert isinstance(fsspec.filesystem("protoslice"), StoreFileSystem)
    secure = fsspec.core.url_to_fs("protoslices://host/ref/files/a")
    assert secure[1] == "host/ref/files/a"
    assert secure[0]._client("host").url == "https://host"


def test_misspelled_options_are_refused(root: str) -> None:
    for options, said in (
        ({"token": "x"}, "options"),
        ({"options": {"tokn": "x"}}, "'token'"),
        ({"tsl": True}, "'tls'"),
    ):
        with pytest.raises(TypeError, match=f"has no option .*{said}"):
            fsspec.filesystem("protoslice", **options)


def test_files_are_opened_by_url(fs: Any, root: str, given: dict[str, bytes]) -> None:
    with fs.open(f"{root}/files/variables/v.data", block_size=70_000) as file:
        assert file.size == len(given["variables/v.data"])
        file.seek(1_000_000)
        assert file.read(1000) == given["variables/v.data"][1_000_000:1_001_000]
        file.seek(0)
        assert file.read() == given["variables/v.data"]


def test_ranges(fs: Any, root: str, given: dict[str, bytes]) -> None:
    url, data = f"{root}/files/variables/v.data", given["variables/v.data"]
    for start, end in ((None, None), (5, 10), (-7, None), (None, -5_000_000), (10, 5), (5_000_000, 9_000_000)):
        assert fs.cat_file(url, start=start, end=end) == data[start:end]
    assert fs.cat_ranges([url, url], [0, 100], [3, 103]) == [data[:3], data[100:103]]
    assert sorted(fs.cat([url, f"{root}/files/variables/more/x"]).values()) == sorted([data, b"x"])


def test_listing(fs: Any, root: str, given: dict[str, bytes]) -> None:
    top = fs._strip_protocol(root)
    assert fs.ls(root, detail=False) == [f"{top}/{kind}" for kind in ("chunks", "files", "tensors")]
    assert fs.ls(f"{root}/files", detail=False) == [f"{top}/files/saved_model.pb", f"{top}/files/variables"]
    assert fs.ls(f"{root}/files/variables/v.data") == [fs.info(f"{root}/files/variables/v.data")]
    assert fs.find(f"{root}/files") == sorted(f"{top}/files/{name}" for name in given)
    assert fs.glob(f"{root}/files/**/*.data") == [f"{top}/files/variables/v.data"]
    assert fs.info(f"{root}/files/variables")["type"] == "directory"
    assert fs.info(f"{root}/files/variables/v.data") == {
        "name": f"{top}/files/variables/v.data", "size": len(given["variables/v.data"]), "type": "file",
    }  # fmt: skip
    assert fs.isdir(root)
    assert fs.exists(f"{root}/files/saved_model.pb")
    assert not fs.exists(f"{root}/files/nothing")
    assert root.rpartition("/")[0].removeprefix("protoslice://") + "/fs:1" in fs.ls(
        root.rpartition("/")[0], detail=False
    )
    assert fs.created(root) == fs.modified(root)


def test_chunks(fs: Any, root: str, given: dict[str, bytes]) -> None:
    top = fs._strip_protocol(root)
    assert fs.ls(f"{root}/chunks") == [{"name": f"{top}/chunks/0", "size": 3, "type": "file"}]
    assert fs.cat_file(f"{root}/chunks/0") == given["saved_model.pb"]
    assert fs.info(f"{root}/chunks/0")["size"] == 3
    fresh = StoreFileSystem(skip_instance_cache=True)
    assert fresh.info(f"{root}/chunks/0")["size"] == 3


def test_a_chunk_that_is_missing_from_the_list_is_no_folder(fs: Any, root: str) -> None:
    for _ in ("before the list is known", "and after"):
        for path in (f"{root}/chunks/9", f"{root}/chunks/0/x"):
            with pytest.raises(FileNotFoundError):
                fs.info(path)
            with pytest.raises(FileNotFoundError):
                fs.ls(path)
        assert fs.ls(f"{root}/chunks/0") == fs.ls(f"{root}/chunks")


def test_copies_go_to_local_files(fs: Any, root: str, given: dict[str, bytes], tmp_path: Path) -> None:
    fs.get(f"{root}/files", str(tmp_path / "copy"), recursive=True)
    assert {
        p.relative_to(tmp_path / "copy").as_posix(): p.read_bytes()
        for p in (tmp_path / "copy").rglob("*")
        if p.is_file()
    } == given


def test_what_is_not_there(fs: Any, root: str) -> None:
    for path in (f"{root}/files/none", f"{root}/other/x", f"{root}/chunks/9", f"{root}/files", f"{root}x/files/a"):
        with pytest.raises(FileNotFoundError):
            fs.cat_file(path)
    with pytest.raises(FileNotFoundError):
        fs.ls(f"{root}/files/none")
    for path in (f"{root}x", f"{root}x/chunks", f"{root}x/chunks/0", f"{root}x/files/a"):
        for call in (fs.info, fs.ls):
            with pytest.raises(FileNotFoundError):
                call(path)
    with pytest.raises(InvalidInput, match="host"):
        fs.ls("protoslice://")


def test_it_is_read_only(fs: Any, root: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    new, old, given = f"{root}/files/new", f"{root}/files/saved_model.pb", str(tmp_path / "a")
    calls = [
        *((call, (new,)) for call in (fs.mkdir, fs.makedirs, fs.touch, fs.makedir, fs.mkdirs)),
        *((call, (old,)) for call in (fs.rm, fs.rm_file, fs.rmdir, fs.delete)),
        *((call, (old, new)) for call in (fs.mv, fs.move, fs.rename, fs.cp_file, fs.copy, fs.cp)),
        *((call, (given, new)) for call in (fs.put, fs.put_file, fs.upload)),
        *((fs.open, (new, mode)) for mode in ("wb", "ab", "r+b", "w")),
        (fs.pipe, (new, b"")),
    ]
    for call, arguments in calls:
        with pytest.raises(InvalidInput, match=r"read-only: create one by Client\.push"):
            call(*arguments)
    assert fs.exists(old)


def test_a_store_without_a_root_has_files_alone(fs: Any, service: LiveServer, client: Client) -> None:
    store = client.push(b"just words", filename="notes.txt").store
    top = f"{service.host}:{service.port}/{store.id}"
    assert store.root is None
    assert fs.find(f"protoslice://{top}") == [f"{top}/files/notes.txt"]
    assert fs.cat_file(f"protoslice://{top}/files/notes.txt") == b"just words"
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"protoslice://{top}/chunks/0")
