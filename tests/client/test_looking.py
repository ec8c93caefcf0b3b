"""Lists of a service: stores, tags, schemas and trees, by the client and by the asynchronous client.

Public objects can be pickled, or raise an error with the reason; workers of data loaders read through them.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.serve import LiveServer
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import schema
from protoslice.client import AsyncClient, Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.client.http.decoding import decode
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound
from protoslice.facts import Store, Tag

GRAPH = "tensorflow.GraphDef"


@pytest.fixture(scope="module")
def store(client: Client, versions: Any) -> Store:
    return client.push(versions.old_path, type=GRAPH, tags=["look:1"]).store


def test_stores_are_listed(client: Client, store: Store) -> None:
    assert store in list(client.stores())
    assert list(client.stores(tag="look:")) == [store]
    assert store in list(client.stores(type=GRAPH))
    assert list(client.stores(type="onnx.ModelProto")) == []
    assert client.store(store.id[:14]) == store


@pytest.mark.parametrize("time", ["2026", 2026, 1.5, date(2026, 1, 1)])
def test_times_are_datetimes_with_a_zone(client: Client, store: Store, time: Any) -> None:
    assert store.created.tzinfo is not None
    assert store in list(client.stores(since=store.created, until=datetime.now(UTC)))
    for call in (client.stores, client.changes):
        for name in ("since", "until"):
            with pytest.raises(InvalidInput, match=f"Invalid {name}.*use a datetime"):
                list(call(**{name: time}))
    with pytest.raises(IntegrityError, match="updated"):
        decode(Tag, {"name": "a", "store": store.id, "updated": "2026-01-01T00:00:00"})


def test_long_lists_come_page_by_page(client: Client, store: Store) -> None:
    from protoslice.client.http.decoding import paginated
    from protoslice.facts import Piece

    pieces = list(paginated(client._connection, Piece, f"/v1/stores/{store.id}/pieces", limit=2))
    assert pieces == list(client.pieces(store.id))
    assert sum(piece.size for piece in pieces) == store.size
    assert len(pieces) > 4


def test_trees_and_parts(client: Client, store: Store, versions: Any) -> None:
    (node,) = client.tree(store.id)
    assert (node.path, node.name, node.count) == ("node", "node", 5)
    deep = list(client.tree(store.id, "node", depth=3))
    assert len(deep) == 5
    assert deep[0].children
    assert client.merge(store.id) == versions.old
    slim = client.merge(store.id, omit_larger_than="1KiB", fields=["node[*].name"])
    message: Any = client.merge(store.id, fields=["node[*].name"], into=schema.bundled().message_class(GRAPH)())
    assert slim == message.SerializeToString()
    assert [each.name for each in message.node] == [f"constant_{n}" for n in range(5)]
    with pytest.raises(NotFound):
        client.merge(store.id, "node[9]")
    with pytest.raises(InvalidInput):
        client.merge(store.id, "node[")
    assert len(client.metadata(store.id)) > 100


def test_a_view_is_a_source_for_the_library(client: Client, store: Store, versions: Any) -> None:
    with protoslice.open(client.source(store.id, "files/graph.pb"), type=GRAPH) as proto:
        assert [node.name for node in proto.tree()] == ["node"]
        content = bytes(proto.merge('node[2].attr["value"].tensor.tensor_content'))
    assert content in versions.old
    source = client.source(store.id, "files/graph.pb")
    assert source.read(2_000_000, 3_000_000) == versions.old[2_000_000:5_000_000]
    assert source.read(5, 0) == b""
    for offset, length in ((-1, 1), (0, len(versions.old) + 1), (1, -1)):
        with pytest.raises(InvalidInput):
            source.read(offset, length)


def test_tags(client: Client, store: Store) -> None:
    other = client.push(b"\x0a\x05other").store
    assert client.tag("moving", store.id).store == store.id
    assert "moving" in {tag.name for tag in client.tags()}
    with pytest.raises(Conflict):
        client.tag("moving", other.id, create=True)
    with pytest.raises(Conflict):
        client.tag("moving", other.id, expected=other.id)
    assert client.tag("moving", other.id, expected=store.id).store == other.id
    assert client.tag("fresh", other.id, create=True).store == other.id
    client.untag("moving")
    with pytest.raises(NotFound):
        client.untag("moving")
    with pytest.raises(Conflict, match="is a name of a store"):
        client.remove("fresh")
    client.remove(other.id, force=["fresh"])
    with pytest.raises(NotFound):
        client.store(other.id)


def test_schemas(client: Client) -> None:
    data = (Path(protoslice.__file__).parent / "schema/bundled/types.binpb").read_bytes()
    put = client.put_schema("mine", data)
    assert put.messages > 10
    assert put.name in {each.name for each in client.schemas()}
    assert client.schema("mine") == data
    client.delete_schema("mine")
    with pytest.raises(NotFound):
        client.schema("mine")


def test_registering_is_refused_unless_the_operator_allows_it(client: Client) -> None:
    with pytest.raises(protoslice.ProtosliceError):
        client.register({"a.pb": "file:///nowhere/a.pb"}, tags=["r"], min_chunk="1MiB")


def test_the_asynchronous_client_has_the_same_methods() -> None:
    def public(kind: type) -> dict[str, Any]:
        ours = [base for base in kind.__mro__ if base.__module__.startswith("protoslice.client.")]
        found = {name: value for base in reversed(ours) for name, value in vars(base).items()}
        return {name: value for name, value in found.items() if not name.startswith("_") and callable(value)}

    ours, theirs = public(Client), public(AsyncClient)
    assert ours.keys() - {"source"} == theirs.keys() - {"read"}
    for name in ours.keys() & theirs.keys() - {"merge", "push"}:
        assert list(inspect.signature(ours[name]).parameters) == list(inspect.signature(theirs[name]).parameters), name


async def test_the_asynchronous_client(service: LiveServer, client: Client, versions: Any, tmp_path: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(versions.old), 1_000_000):
            await asyncio.sleep(0)
            yield versions.old[at : at + 1_000_000]

    async with AsyncClient(service.url) as ours:
        seen: list[int] = []
        pushed = await ours.push(pieces(), type=GRAPH, tags=["async"], progress=lambda done, _: seen.append(done))
        ref = pushed.store.id
        assert seen[-1] == len(versions.old)
        assert await ours.store("async") == pushed.store
        assert pushed.store in [each async for each in ours.stores(type=GRAPH)]
        listed, expected = [each async for each in ours.chunks(ref)], list(client.chunks(ref))
        assert listed == expected
        data = await asyncio.gather(*[ours.chunk(ref, chunk) for chunk in listed])
        assert data == [client.chunk(ref, chunk) for chunk in listed]
        assert [each async for each in ours.tree(ref)] == list(client.tree(ref))
        assert [each async for each in ours.pieces(ref)] == list(client.pieces(ref))
        assert await ours.merge(ref, "node[1].name") == b"constant_1"
        assert await ours.metadata(ref) == client.metadata(ref)
        assert await ours.read(ref, "files/model.pb", 10, 100) == versions.old[10:110]
        (done,) = await ours.download(ref, tmp_path / "a")
        assert done.path.read_bytes() == versions.old
        assert (await ours.tag("async:2", ref)).name in [tag.name async for tag in ours.tags()]
        await ours.untag("async:2")
        await ours.remove(ref, force=["async"])
        with pytest.raises(NotFound):
            await ours.store(ref)


async def test_a_transfer_whose_task_is_cancelled_ends(service: LiveServer, client: Client) -> None:
    begun, ended = threading.Event(), threading.Event()

    def endless() -> Any:
        try:
            yield b"\x0a\xff\xff\xff\xff\x07"
            while True:
                yield bytes(100_000)
                begun.set()
        finally:
            ended.set()

    async with AsyncClient(service.url) as ours:
        push = asyncio.create_task(ours.push(endless(), filename="endless.pb"))
        await asyncio.to_thread(begun.wait, 20)
        push.cancel()
        with pytest.raises(asyncio.CancelledError):
            await push
    assert ended.wait(20)
    assert "endless.pb" not in {each.root for each in client.stores()}


async def test_parts_that_are_left_early_give_their_connection_back(
    service: LiveServer, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []
    parts = Client.parts

    def noted(self: Client, ref: str, views: Any) -> Any:
        begun.append(parts(self, ref, views))
        return begun[-1]

    monkeypatch.setattr(Client, "parts", noted)
    async with AsyncClient(service.url) as ours, aclosing(ours.parts(store.id, ["chunks/0", "chunks/1"])) as some:
        async for part in some:
            assert part.view == "chunks/0"
            break
    assert begun[0].gi_frame is None, "its end closes the response"


def test_it_imports_without_the_web_framework_and_without_numpy() -> None:
    script = (
        "import sys, protoslice.client\n"
        "banned = {'fastapi', 'starlette', 'uvicorn', 'pydantic', 'numpy', 'fsspec', 'typer', 'obstore'}\n"
        "print(sorted(banned & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


EXAMPLES = [example(n) for n in range(600)]


@pytest.fixture(scope="module")
def stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stream") / "train.tfrecord"
    path.write_bytes(FRAMED["tfrecord"](EXAMPLES))
    return path


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        part = FRAMED["tfrecord"](EXAMPLES[shard * 200 : shard * 200 + 200])
        (folder / f"train-{shard:05}-of-00003").write_bytes(part)
    return folder


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_read_through_objects_of_their_parent(
    method: str, service: LiveServer, client: Client, versions: Any, stream: Path, shards: Path
) -> None:
    client.push(versions.old, type="tensorflow.GraphDef", tags=["workers"])
    client.push(stream, tags=["records"])
    command = [sys.executable, "-m", "tests.client.workers", method, service.url, str(stream), str(shards)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_options_go_along(service: LiveServer, tmp_path: Path) -> None:
    for kind in (Client, AsyncClient):
        made: Any = kind(service.url, token="psl_secret", headers={"x": "y"}, parallel=3, cache=tmp_path)
        again = pickle.loads(pickle.dumps(made))
        sync = again if kind is Client else again._sync
        sent = sync._connection._client.headers
        assert (again.url, sent["authorization"], sent["x"]) == (service.url, "Bearer psl_secret", "y")
        assert (sync._parallel, sync.cache.folder) == (3, tmp_path)
    system = pickle.loads(pickle.dumps(StoreFileSystem(options={"token": "psl_secret"}, skip_instance_cache=True)))
    assert system._options == {"token": "psl_secret"}


def test_bytes_go_along_and_files_by_their_path(
    stream: Path, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stream.parent)
    relative = protoslice.records(stream.name)
    in_memory = protoslice.records(stream.read_bytes())
    remote = protoslice.records(client.source(client.push(stream).store.id, f"files/{stream.name}"))
    pickled = [pickle.dumps(records[5:9]) for records in (relative, in_memory, remote)]
    monkeypatch.chdir(tmp_path)
    for data in pickled:
        assert list(pickle.loads(data)) == EXAMPLES[5:9]
    assert len(pickled[0]) < 100_000


def test_a_file_that_has_changed_is_not_taken_for_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(FRAMED["tfrecord"](EXAMPLES))
    pickled = pickle.dumps(protoslice.records(path))
    path.write_bytes(FRAMED["tfrecord"](EXAMPLES[:-1]))
    with pytest.raises(Conflict, match="changed"):
        pickle.loads(pickled)


def test_what_cannot_be_pickled_says_why(stream: Path, client: Client, versions: Any) -> None:
    with protoslice.open(versions.old_path) as proto, stream.open("rb") as file:
        for given, said in ((proto, "open it again"), (protoslice.records(file), "BufferedReader")):
            with pytest.raises(TypeError, match=said):
                pickle.dumps(given)
