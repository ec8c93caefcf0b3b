"""Pushing: pushed content comes back byte for byte, and content that the service has is not sent again."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer
from tests.support.wire import Fault, FaultyProxy

from protoslice import schema
from protoslice.client import Client
from protoslice.client.http.connection import Connection
from protoslice.client.upload import plans, push
from protoslice.client.upload.bodies import items_of
from protoslice.errors import Conflict, CorruptModel, InvalidInput, NoRoot, NotFound, StorageError
from protoslice.recipes import MEDIA_TYPE, Copy, RecipeWriter

GRAPH = "tensorflow.GraphDef"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_of(client: Client, store: str, folder: Path) -> dict[str, bytes]:
    client.download(store, folder / "down")
    down = folder / "down"
    if down.is_file():
        return {"": down.read_bytes()}
    return {path.relative_to(down).as_posix(): path.read_bytes() for path in down.rglob("*") if path.is_file()}


def test_a_file(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "möd el?.pb"
    path.write_bytes(b"\x0a\x03one")
    seen: list[tuple[int, int | None]] = []
    pushed = client.push(path, tags=["file:1"], progress=lambda *now: seen.append(now))
    assert pushed.created
    assert (pushed.sent, pushed.copied) == (5, 0)
    assert pushed.store.root == "möd el?.pb"
    assert pushed.store.tags == ("file:1",)
    assert seen == [(5, 5)]
    assert files_of(client, "file:1", tmp_path) == {"": b"\x0a\x03one"}
    again = client.push(path, tags=["file:1"])
    assert not again.created
    assert again.store == pushed.store


def test_a_folder(client: Client, tmp_path: Path) -> None:
    given = {"saved_model.pb": b"\x0a\x01a", "variables/variables.data": os.urandom(300_000), "empty": b""}
    for name, data in given.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    store = client.push(tmp_path / "model", root="saved_model.pb").store
    assert store.root == "saved_model.pb"
    assert files_of(client, store.id, tmp_path) == given


def test_bytes_messages_files_and_iterators(client: Client, tmp_path: Path) -> None:
    node: Any = schema.bundled().message_class("tensorflow.NodeDef")()
    node.name, node.op = "a", "Const"
    data = node.SerializeToString()
    stores = [
        client.push(node, root="model.pb").store,
        client.push(data, type="tensorflow.NodeDef").store,
        client.push(memoryview(data), type="tensorflow.NodeDef").store,
        client.push(io.BytesIO(data), type="tensorflow.NodeDef").store,
        client.push((data[i : i + 1] for i in range(len(data))), type="tensorflow.NodeDef").store,
    ]
    assert {store.id for store in stores} == {stores[0].id}
    assert stores[0].type == "tensorflow.NodeDef"
    assert client.merge(stores[0].id, into=type(node)()) == node
    assert client.merge(stores[0].id, "name") == b"a"


def test_messages_become_a_stream_of_records(client: Client) -> None:
    kind: Any = schema.bundled().message_class("tensorflow.Example")

    def messages(count: int, size: int) -> Iterator[Any]:
        for number in range(count):
            message = kind()
            message.features.feature["image"].bytes_list.value.append(bytes([number % 256]) * size)
            yield message

    ref = client.push(messages(2000, 1000)).store.id
    assert [file.path for file in client.store(ref).files] == ["records.delimited"]
    records = client.records(ref, type="tensorflow.Example")
    assert len(records) == 2000
    assert list(records) == [message.SerializeToString() for message in messages(2000, 1000)]
    assert client.push(iter([kind()]), filename="one").store.files[0].size == 1
    with pytest.raises(InvalidInput, match="must not yield bytes"):
        client.push(iter([kind(), b"bytes"]))


def test_messages_are_made_as_they_are_sent() -> None:
    kind: Any = schema.bundled().message_class("tensorflow.Example")
    made = 0

    def endless() -> Iterator[Any]:
        nonlocal made
        while True:
            made += 1
            message = kind()
            message.features.feature["image"].bytes_list.value.append(bytes(1000))
            yield message

    (item,) = items_of(endless(), None)
    assert (item.path, item.size, made) == ("records.delimited", None, 1)
    sent = sum(len(piece) for piece in islice(item.read(0, None), 8))
    assert made < 2 * sent / 1000


def test_the_policy_is_sent(client: Client, versions: Any) -> None:
    store = client.push(versions.old_path, type=GRAPH, min_chunk="2MiB", max_chunk=1 << 22).store
    assert (store.min_chunk, store.max_chunk, store.chunks) == (2 << 20, 4 << 20, 6)


def test_an_older_service_that_refuses_tags_among_pieces(
    client: Client, versions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.push(versions.old_path, type=GRAPH, min_chunk=99_999, tags=["older:1"])
    asked, call = list[Any](), Connection.call

    def refused(self: Connection, method: str, path: str, **options: Any) -> Any:
        if path == "/v1/chunks/missing":
            asked.append(set(options["json"]))
            if "tags" in options["json"]:
                options["json"] = {"unknown": [], **options["json"]}
        return call(self, method, path, **options)

    monkeypatch.setattr(Connection, "call", refused)
    pushed = client.push(versions.new_path, type=GRAPH, min_chunk=99_999, tags=["older:2"])
    assert asked[:2] == [{"chunks", "tags"}, {"chunks"}]
    assert pushed.created
    assert pushed.store.tags == ("older:2",)


def test_what_cannot_be_pushed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFound):
        client.push(tmp_path / "none")
    with pytest.raises(InvalidInput, match="contains no files"):
        client.push(tmp_path / "folder")
    with pytest.raises(InvalidInput, match="pipe"):
        client.push(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="keep their names"):
        client.push(tmp_path, filename="x")
    with pytest.raises(InvalidInput, match="int"):
        client.push(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="must yield bytes, not str"):
        client.push(iter(["text"]))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        client.push(b"", tags=["no tag"])


def test_links_are_what_they_point_at(client: Client, tmp_path: Path) -> None:
    """Model caches have such links: their files and folders are links to content that several versions share."""
    (tmp_path / "blobs" / "shared").mkdir(parents=True)
    (tmp_path / "blobs" / "a").write_bytes(b"\x0a\x01a")
    (tmp_path / "blobs" / "shared" / "voc\u00e4b.txt").write_bytes(b"words")
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.pb").symlink_to(tmp_path / "blobs" / "a")
    (tmp_path / "m" / "assets").symlink_to(tmp_path / "blobs" / "shared")
    (tmp_path / "m" / "again").symlink_to(tmp_path / "blobs" / "shared")
    store = client.push(tmp_path / "m", root="model.pb").store
    assert [file.path for file in store.files] == ["again/voc\u00e4b.txt", "assets/voc\u00e4b.txt", "model.pb"]


def test_folders_that_cannot_be_pushed(client: Client, tmp_path: Path) -> None:
    loop, bytes_, lost = (tmp_path / name for name in ("loop", "bytes", "lost"))
    for folder in (loop, bytes_, lost):
        folder.mkdir()
    (loop / "model.pb").write_bytes(b"\x0a\x01a")
    (loop / "round").symlink_to(loop)
    (lost / "nowhere").symlink_to(tmp_path / "nothing")
    with open(os.fsencode(bytes_) + b"/\xff.pb", "wb"):
        pass
    for folder, says in ((loop, "parent folders"), (bytes_, "UTF-8"), (lost, "broken link")):
        with pytest.raises(InvalidInput, match=says):
            client.push(folder)


def test_a_file_that_changes_meanwhile_makes_no_store(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "changing.pb"
    path.write_bytes(b"\x0a\x80\x80\x40" + bytes(1 << 20))

    def shrink(done: int, total: int | None) -> None:
        os.truncate(path, 300_000)

    with pytest.raises(StorageError, match="changed"):
        client.push(path, progress=shrink)
    assert [store for store in client.stores() if store.root == "changing.pb"] == []


def test_a_progress_that_raises_ends_the_push(client: Client) -> None:
    class Enough(Exception):
        pass

    def progress(done: int, total: int | None) -> None:
        raise Enough

    with pytest.raises(Enough):
        client.push(b"\x0a\x01a", filename="never.pb", progress=progress)
    assert "never.pb" not in {store.root for store in client.stores()}


def test_another_version_sends_only_what_is_new(
    proxy: FaultyProxy, client: Client, versions: Any, tmp_path: Path
) -> None:
    with Client(proxy.url) as counted:
        first = counted.push(versions.old_path, type=GRAPH, tags=["delta:1"], base=[])
        assert (first.sent, first.copied) == (len(versions.old), 0)
        before = proxy.sent_up + proxy.sent_down
        second = counted.push(versions.new_path, type=GRAPH, tags=["delta:2"])
        moved = proxy.sent_up + proxy.sent_down - before
    assert second.created
    assert second.sent + second.copied == len(versions.new)
    assert moved < 1.1 * len(versions.changed)
    assert files_of(client, "delta:2", tmp_path) == {"": versions.new}


def test_a_base_may_be_named_and_refused(client: Client, versions: Any) -> None:
    base = client.push(versions.old_path, type=GRAPH).store
    for options, copies in (({"base": [base.id]}, True), ({"base": []}, False), ({}, True)):
        pushed = client.push(versions.new_path, type=GRAPH, min_chunk=1 << 19, **options)
        assert (pushed.copied > 0) is copies
        client.remove(pushed.store.id)


def test_without_a_base_any_store_whose_pieces_are_known_is_one(client: Client, tmp_path: Path) -> None:
    content, old = os.urandom(10_000_000), tmp_path / "old.bin"
    old.write_bytes(content)
    store = client.push(old).store
    for _ in client.pieces(store.id):
        pass
    for number in range(20):
        client.push(b"\x0a\x02%02d" % number, filename="newer.pb")
    new = tmp_path / "new.bin"
    new.write_bytes(b"in front" + content)
    pushed = client.push(new, tags=["unheard:1"])
    assert pushed.copied > 6_000_000
    assert files_of(client, pushed.store.id, tmp_path) == {"": b"in front" + content}


def test_a_large_file_without_a_base_is_looked_for_by_its_beginning(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "BEGINNING", 9_000_000)
    looked = list[int]()
    look = plans.hash_pieces

    def hashed(item: Any, options: Any, **more: Any) -> Any:
        found = look(item, options, **more)
        looked.append(sum(size for _, size, _ in found.pieces))
        return found

    monkeypatch.setattr(push, "hash_pieces", hashed)
    new = tmp_path / "unlike.bin"
    new.write_bytes(os.urandom(20_000_000))
    assert client.push(new).copied == 0
    assert len(looked) == 1
    assert 9_000_000 <= looked[0] < 14_000_000


def test_a_file_that_is_there_by_another_name_is_copied_whole(client: Client, tmp_path: Path) -> None:
    content = os.urandom(9_000_000)
    for name, copied in (("one.bin", 0), ("other.bin", len(content))):
        (tmp_path / name).write_bytes(content)
        assert client.push(tmp_path / name).copied == copied


def test_a_base_by_tag_is_used_whatever_the_beginning_of_the_file_is(
    proxy: FaultyProxy, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service finds the newest tagged store among the stores of the same name."""
    monkeypatch.setattr(push, "BEGINNING", 1 << 20)
    drawn, path = Random(9).randbytes, tmp_path / "model.bin"
    common = drawn(9_000_000)
    for number in (10, 9):
        path.write_bytes(drawn(4 << 20) + (common if number == 9 else drawn(9_000_000)))
        client.push(path, tags=[f"family:{number}"], base=[])
    path.write_bytes(drawn(4 << 20) + common)
    with Client(proxy.url) as counted:
        proxy.done.clear()
        pushed = counted.push(path, tags=["family:11"])
        assert [(method, target.partition("?")[0]) for method, target, _ in proxy.done] == [
            ("POST", "/v1/chunks/missing"), ("POST", "/v1/chunks/missing"), ("POST", "/v1/stores"),
        ]  # fmt: skip
    assert pushed.copied > 4_000_000  # the first pieces may begin before the common bytes
    assert files_of(client, pushed.store.id, tmp_path) == {"": path.read_bytes()}


def test_a_base_that_goes_away_meanwhile(client: Client, versions: Any, tmp_path: Path) -> None:
    """The base disappears between finding the pieces and copying them; everything is sent then."""
    base = client.push(versions.old_path, type=GRAPH, min_chunk=77777, tags=["gone:1"]).store

    def remove(done: int, total: int | None) -> None:
        if base.id in {store.id for store in client.stores()}:
            client.remove(base.id, force=["gone:1"])

    pushed = client.push(
        versions.new_path, type=GRAPH, min_chunk=77777, base=[base.id], tags=["gone:2"], progress=remove
    )
    assert files_of(client, pushed.store.id, tmp_path) == {"": versions.new}
    assert pushed.copied == 0


def recipe(path: str, parts: list[bytes | Copy], size: int, sha256: str) -> bytes:
    writer = RecipeWriter()
    body = writer.file(path)
    for part in parts:
        body += writer.copy(part) if isinstance(part, Copy) else writer.literal(len(part)) + part
    return body + writer.end(size, sha256) + writer.done()


def send(service: LiveServer, body: bytes) -> httpx.Response:
    return httpx.post(f"{service.url}/v1/stores", content=body, headers={"content-type": MEDIA_TYPE})


@pytest.fixture(scope="module")
def source(client: Client) -> str:
    """Make a store to copy from."""
    return client.push(b"\x0a\x06secret", filename="s.pb").store.id


def test_a_recipe_copies(service: LiveServer, source: str, client: Client) -> None:
    data = b"\x0a\x03cre\x0a\x06secret"
    parts: list[bytes | Copy] = [b"\x0a\x03", Copy(source, "s.pb", 4, 3), Copy(source, "s.pb", 0, 8)]
    answer = send(service, recipe("c.pb", parts, len(data), sha(data)))
    assert answer.status_code == 201
    assert client.merge(answer.json()["id"]) == data


@pytest.mark.parametrize(
    ("change", "status", "says"),
    [
        ({"sha256": sha(b"other")}, 400, "digest"),
        ({"size": 9}, 400, "digest"),
        ({"copy": {"store": "f" * 64}}, 409, "missing or damaged"),
        ({"copy": {"file": "other.pb"}}, 409, "missing or damaged"),
        ({"copy": {"offset": 1}}, 400, "The recipe copies bytes after the end"),
        ({"copy": {"length": 1 << 62}}, 400, "The recipe copies bytes after the end"),
        ({"copy": {"store": "file:1"}}, 400, "full id"),
        ({"path": "../up"}, 400, "path"),
    ],
)
def test_a_recipe_that_is_wrong_stores_nothing(
    service: LiveServer, source: str, client: Client, change: dict[str, Any], status: int, says: str
) -> None:
    before = [store.id for store in client.stores()]
    copy = {"store": source, "file": "s.pb", "offset": 0, "length": 8} | change.pop("copy", {})
    given: dict[str, Any] = {"path": "w.pb", "size": 8, "sha256": sha(b"\x0a\x06secret")} | change
    answer = send(service, recipe(given["path"], [Copy(**copy)], given["size"], given["sha256"]))
    assert answer.status_code == status
    assert says in answer.json()["detail"]
    assert [store.id for store in client.stores()] == before


def test_a_recipe_without_its_end_or_its_files(service: LiveServer) -> None:
    whole = recipe("x.pb", [b"\x0a\x01a"], 3, sha(b"\x0a\x01a"))
    assert send(service, whole[:-10]).status_code == 400
    assert send(service, RecipeWriter().done()).status_code == 400


def test_pieces_are_looked_for_in_the_stores_named_or_in_any(
    service: LiveServer, client: Client, versions: Any
) -> None:
    store = client.push(versions.old_path, type=GRAPH, min_chunk=99999).store
    pieces = [*client.pieces(store.id)]
    piece = pieces[0]
    asked = {"chunks": [{"sha256": each.sha256, "size": each.size} for each in pieces]}
    asked["chunks"].append({"sha256": "0" * 64, "size": 1})
    for more in ({"stores": [store.id[:20]]}, {}):
        said = httpx.post(f"{service.url}/v1/chunks/missing", json=asked | more).json()
        assert said["missing"] == ["0" * 64]
        found = next(each for each in said["found"] if each["sha256"] == piece.sha256)
        place = client.source(found["store"], f"files/{found['file']}")
        assert sha(place.read(found["offset"], found["size"])) == piece.sha256
    client.tag("looked:1", store.id)
    said = httpx.post(f"{service.url}/v1/chunks/missing", json=asked | {"tags": ["looked:2", "unheard"]}).json()
    assert said["bases"] == [store.id]
    assert {each["store"] for each in said["found"]} == {store.id}
    wrong_size = {"chunks": [{"sha256": piece.sha256, "size": piece.size + 1}], "stores": [store.id]}
    assert httpx.post(f"{service.url}/v1/chunks/missing", json=wrong_size).json()["found"] == []


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"chunks": [{"sha256": "xyz", "size": 1}]}, 400),
        ({"chunks": [{"sha256": "0" * 64, "size": -1}]}, 400),
        ({"chunks": [{"sha256": "0" * 64, "size": 1}] * 10_001}, 400),
        ({"chunks": [{"sha256": "0" * 64, "size": 1}], "stores": ["nothing"]}, 404),
        ({}, 400),
    ],
)
def test_asking_wrongly(service: LiveServer, asked: dict[str, Any], status: int) -> None:
    assert httpx.post(f"{service.url}/v1/chunks/missing", json=asked).status_code == status


def test_a_push_that_breaks_off_is_sent_again_only_if_it_can_be(proxy: FaultyProxy, client: Client) -> None:
    with Client(proxy.url, backoff_seconds=0.001) as ours:
        proxy.script[:] = [Fault("cut upload")]
        assert ours.push(b"\x0a\x05again", filename="again.pb").created
        proxy.script[:] = [Fault("reset")]
        with pytest.raises(StorageError):
            ours.push(iter([b"\x0a\x04once"]), filename="once.pb")
        for at in (0.1, 0.4, 0.9):
            proxy.script[:] = [Fault("flip upload", at)]
            pushed = ours.push(b"\x0a\x28" + b"f" * 40, filename=f"flipped-{at}.pb")
            assert ours.merge(pushed.store.id) == b"\x0a\x28" + b"f" * 40
        proxy.script[:] = [Fault("flip upload", 0.4)] * 2
        with pytest.raises((InvalidInput, CorruptModel, Conflict)):
            ours.push(b"\x0a\x29" + b"f" * 41, filename="flipped.pb")
    assert {"once.pb", "flipped.pb"} & {store.root for store in client.stores()} == set()


def test_a_folder_without_a_proto(client: Client, tmp_path: Path) -> None:
    given = {"README.md": b"# Words\n", "weights.bin": os.urandom(300_000), "logo.png": b"\x89PNG\r\n\x1a\n\0\0"}
    for name, data in given.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    store = client.push(tmp_path / "tree", tags=["tree:1"]).store
    assert (store.root, store.type) == (None, None)
    assert store.why is not None
    assert "none of the 3 files is in a supported format" in store.why
    assert files_of(client, store.id, tmp_path) == given
    with pytest.raises(NoRoot, match="none of the 3 files"):
        list(client.chunks(store.id))
