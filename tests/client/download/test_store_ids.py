"""A store that is asked for by its id is that store: nobody on the way can give another one for it."""

from __future__ import annotations

import hashlib
import http.server
import json
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.wire import in_a_thread

from protoslice.client import Client, Store
from protoslice.client.http.digests import digest_of
from protoslice.errors import IntegrityError, NotFound

GRAPH = b"\x0a\x05\x0a\x03one"
OTHER = b"\x0a\x05\x0a\x03two"


@contextmanager
def liar(said: dict[str, Any], content: bytes) -> Iterator[str]:
    """A service that says this of its store, and gives `content` for a file, with a digest that fits."""

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
