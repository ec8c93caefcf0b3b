"""Public objects are pickled, or say why not; workers of data loaders read through them."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.serve import LiveServer
from tests.support.streams import FRAMED, example

import protoslice
from protoslice.client import AsyncClient, Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import Conflict

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
