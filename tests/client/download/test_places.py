"""Paths of files on a disk, also on a disk that ignores case in names.

A download creates or changes no repository whose settings run commands, and follows no link in its folder. A store that
is requested by its id is verified against the id, so no intermediary can replace it.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import socketserver
import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fsspec
import pytest
from tests.support.wire import in_a_thread

from protoslice.client import Client, Store
from protoslice.client.download.stores import paths_in
from protoslice.client.http.digests import digest_of
from protoslice.errors import Conflict, IntegrityError, NotFound, StorageError


def folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the disk treat names as equal, as other systems do."""

    def folded(name: str) -> str:
        return unicodedata.normalize("NFD", name.casefold())

    def exists(self: Path) -> bool:
        return folded(self.name) in {folded(name) for name in os.listdir(self.parent)}

    monkeypatch.setattr(Path, "exists", exists)


@pytest.mark.parametrize(("one", "other"), [("A", "a"), ("B.bin", "b.bin"), ("\u00e9", "e\u0301")])
def test_no_file_overwrites_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: str, other: str) -> None:
    places = {path: tmp_path / "here" / path for path in ("x", one, other)}
    assert paths_in(tmp_path / "here", ["x", one, other]) == places, "this disk tells them apart"
    folds(monkeypatch)
    with pytest.raises(Conflict) as caught:
        paths_in(tmp_path / "here", ["x", one, other])
    assert repr(one) in caught.value.message
    assert repr(other) in caught.value.message
    assert paths_in(tmp_path / "here", ["x", one, "y"]).keys() == {"x", one, "y"}
    assert os.listdir(tmp_path / "here") == []


def test_a_pull_is_refused_before_anything_is_fetched(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for name in "Aa":
        (tmp_path / "model" / name).write_bytes(name.encode())
    store = client.push(tmp_path / "model").store
    client.download(store.id, tmp_path / "copy")
    assert {path.name: path.read_bytes() for path in (tmp_path / "copy").iterdir()} == {"A": b"A", "a": b"a"}
    folds(monkeypatch)
    with pytest.raises(Conflict, match="'A' and 'a'"):
        client.download(store.id, tmp_path / "other")
    assert os.listdir(tmp_path / "other") == []


def test_a_disk_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match="Cannot write "):
        paths_in(tmp_path / "file", ["A", "a"])


def stored(client: Client, tmp_path: Path, *paths: str) -> str:
    """Make a store of files as an older version of the service accepted them."""
    folder = tmp_path / "sent"
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("protoslice.file_names.is_version_control", lambda path: False)
        patch.setattr("protoslice.client.upload.bodies.is_version_control", lambda path: False, raising=False)
        return client.push(folder).store.id


def test_names_of_version_control_are_left_out_and_named(client: Client, tmp_path: Path) -> None:
    store = stored(client, tmp_path, "a", ".git/config", "b/.hg/hgrc")
    with pytest.warns(UserWarning, match=r"2 files left out: '\.git/config', 'b/\.hg/hgrc'"):
        client.download(store, tmp_path / "here")
    assert sorted(os.listdir(tmp_path / "here")) == ["a"]
    client.download(store, tmp_path / "alone", view="files/.git/config")
    assert (tmp_path / "alone").read_text() == ".git/config"
    files = fsspec.filesystem("protoslice")
    host = client.url.removeprefix("http://")
    assert [each.rpartition("/")[2] for each in files.find(f"{host}/{store}/files")] == ["a"]
    assert files.cat_file(f"{host}/{store}/files/.git/config") == b".git/config"


def test_a_clone_is_pushed_without_its_history(client: Client, tmp_path: Path) -> None:
    for path in ("model/.git/config", "model/.gitattributes", "model/weights"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    assert [file.path for file in client.push(tmp_path / "model").store.files] == [".gitattributes", "weights"]


@pytest.mark.parametrize("there", [(), ("HEAD", "config")])
@pytest.mark.parametrize("below", ["", "folder/"])
def test_no_folder_becomes_a_bare_repository(
    client: Client, tmp_path: Path, there: tuple[str, ...], below: str
) -> None:
    made = {"HEAD": "ref: refs/heads/x\n", "config": "[core]\nbare = true\n", "objects/x": "", "refs/x": ""}
    whole, here = tmp_path / "whole", tmp_path / "here"
    for path, content in made.items():
        for folder in (whole, *([here / below] if path in there else ())):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(content)
    said = subprocess.run(
        ["git", "rev-parse", "--is-bare-repository"], cwd=whole, capture_output=True, text=True, check=True
    )
    assert said.stdout == "true\n", "git takes this for no repository: the test has no point"
    store = stored(client, tmp_path, *(below + path for path in made if path not in there))
    before = sorted(path for path in here.rglob("*"))
    with pytest.raises(Conflict, match="into a git repository"):
        client.download(store, here)
    assert sorted(path for path in here.rglob("*")) == before
    with pytest.raises(Conflict, match="into a git repository"):
        client.download(store, whole / "config", view=f"files/{below}refs/x")


def test_a_worktree_of_a_repository_elsewhere_is_none_either(client: Client, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="into a git repository"):
        client.download(stored(client, tmp_path, "HEAD", "commondir", "x"), tmp_path / "here")


def test_what_the_disk_takes_for_the_folder_of_a_repository_is_not_written(client: Client, tmp_path: Path) -> None:
    """The disk decides what a name means: a link represents a short name that the rule does not know."""
    (tmp_path / "here" / ".git").mkdir(parents=True)
    (tmp_path / "here" / "CONFIG~1").symlink_to(".git")
    with pytest.raises(Conflict):
        client.download(stored(client, tmp_path, "CONFIG~1/config", "b"), tmp_path / "here")
    assert not os.listdir(tmp_path / "here" / ".git")


def test_a_link_in_the_folder_is_not_followed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here" / "folder").symlink_to(tmp_path / "elsewhere")
    store = stored(client, tmp_path, "folder/a", "b")
    with pytest.raises(Conflict, match="is a link"):
        client.download(store, tmp_path / "here")
    assert not os.listdir(tmp_path / "elsewhere")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    client.download(store, tmp_path / "link")
    assert (tmp_path / "elsewhere" / "b").read_text() == "b", "the folder that the user names may be a link"


GRAPH = b"\x0a\x05\x0a\x03one"
OTHER = b"\x0a\x05\x0a\x03two"


@contextmanager
def liar(said: dict[str, Any], content: bytes) -> Iterator[str]:
    """Run a service that reports this about its store, and sends `content` for a file, with a digest that fits."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_file = "/files/" in self.path
            body = content if is_file else json.dumps(said).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.send_header("etag", '"a"')
            if is_file:
                self.send_header("repr-digest", digest_of(body))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with in_a_thread(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"http://{address}"


def as_said(store: Store) -> dict[str, Any]:
    """The JSON of a store."""
    said = {name: getattr(store, name) for name in Store.__slots__}
    files = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in store.files]
    names = [{"protocol": each.protocol, "name": each.name} for each in store.names or ()]
    return said | {"created": store.created.isoformat(), "tags": list(store.tags), "files": files, "names": names}


@pytest.fixture(scope="module")
def store(client: Client) -> Store:
    return client.push(GRAPH, filename="graph.pb", type="tensorflow.GraphDef", tags=["trusted:1"]).store


def test_another_file_under_the_id_is_refused(store: Store, tmp_path: Path) -> None:
    said = as_said(store)
    said["files"][0]["sha256"] = hashlib.sha256(OTHER).hexdigest()
    with liar(said, OTHER) as url, Client(url, attempts=1) as client:
        for view in (None, "files/graph.pb"):
            with pytest.raises(IntegrityError, match="do not match its id"):
                client.download(store.id, tmp_path / "graph.pb", view=view)
    assert not (tmp_path / "graph.pb").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"root": None, "type": None},
        {"type": "tensorflow.NodeDef"},
        {"min_chunk": 5},
        {"max_chunk": 5},
        {"schema": None},
        {"planner": 999},
        {"rules": ["node: never"]},
        {"files": []},
    ],
    ids=str,
)
def test_whatever_is_said_of_it_is_in_the_id(store: Store, change: dict[str, Any]) -> None:
    said = as_said(store) | change
    with (
        liar(said, GRAPH) as url,
        Client(url, attempts=1) as client,
        pytest.raises(IntegrityError, match="match its id"),
    ):
        client.store(store.id)


def test_another_store_than_asked_for_is_refused(client: Client, store: Store, tmp_path: Path) -> None:
    other = client.push(OTHER, filename="graph.pb", type="tensorflow.GraphDef").store
    with liar(as_said(other), OTHER) as url, Client(url, attempts=1) as lied_to:
        for ref in (store.id, store.id[:12]):
            with pytest.raises(IntegrityError, match=f"instead of {ref}"):
                lied_to.download(ref, tmp_path / "graph.pb")
        assert lied_to.store("trusted:1") == other, "a tag may point anywhere"


Make = Callable[[Client], Store]


@pytest.mark.parametrize(
    "make",
    [
        lambda client: client.push(b"\x0a\x01a", filename="unheard-of").store,
        lambda client: client.push(b"no proto at all, just words", filename="words.bin").store,
        lambda client: client.push(b'node { name: "a" op: "Const" }', filename="graph.pbtxt").store,
        lambda client: client.push(GRAPH, type="unknown", min_chunk="64KiB").store,
    ],
    ids=["unknown", "rootless", "text", "named unknown"],
)
def test_every_kind_of_store_has_the_id_that_is_computed(client: Client, make: Make) -> None:
    made = make(client)
    assert client.store(made.id).files == made.files


def test_a_store_of_the_first_layout_keeps_its_id(store: Store) -> None:
    (file,) = store.files
    parts = [[[file.path, file.size, file.sha256]], [store.root, store.type, store.min_chunk, store.max_chunk]]
    first = json.dumps(["protoslice store 1", *parts], separators=(",", ":"))
    upgraded = as_said(store) | {"id": hashlib.sha256(first.encode()).hexdigest(), "planner": 1}
    with liar(upgraded, GRAPH) as url, Client(url, attempts=1) as client:
        assert client.store(upgraded["id"]).files == store.files


def test_what_lies_in_place_has_no_digests_to_compare(store: Store) -> None:
    said = as_said(store)
    said["files"][0]["sha256"] = None
    with liar(said, GRAPH) as url, Client(url, attempts=1) as client:
        assert client.store(store.id).id == store.id


def test_a_file_that_is_none_of_the_store(client: Client, store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no file"):
        client.download(store.id, tmp_path / "a", view="files/absent.txt")
