"""Kills of replicas and of PostgreSQL's backends during uploads, commits and pushes, run by `make kills`.

Two replicas share a folder and a PostgreSQL. Clients repeat what was not acknowledged; in the end all that was is read
back. The counts are printed, and written to `bench/results/kills.json`.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import httpx
import psycopg
from tests.support.hub import commit
from tests.support.postgres import TestServer, running_postgres
from tests.support.process import ServiceProcess, service_process
from tests.support.tus import TusClient, metadata

T = TypeVar("T")

RESULT: Final = Path(__file__).resolve().parents[2] / "bench/results/kills.json"
_TRIES: Final = 400
_SHARED: Final = "models/all/shared"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"


class Refused(Exception):
    """The write was not acknowledged."""


class Replica:
    """A service that is killed over and over, and where it listens now."""

    def __init__(self, storage: Path, database: str) -> None:
        self._arguments = ("--storage", storage.as_uri())
        self._settings = {"PROTOSLICE_DATABASE": database, "PROTOSLICE_LOG_LEVEL": "error"}
        self._life = ExitStack()
        self.service = self._started()

    def _started(self) -> ServiceProcess:
        return self._life.enter_context(service_process(*self._arguments, settings=self._settings))

    def kill(self) -> None:
        """End the process as `kill -9` does, and start another."""
        self.service.running.kill()
        self.service.running.wait()
        self._life.close()
        self.service = self._started()

    def close(self) -> None:
        """End the process."""
        self._life.close()


class Cluster:
    """Two replicas, and what was acknowledged."""

    def __init__(self, storage: Path, database: str) -> None:
        self.replicas = [Replica(storage, database) for _ in range(2)]
        self.ended = threading.Event()
        self.acknowledged = {"uploads": 0, "commits": 0, "pushes": 0}
        self.repeated = 0
        self._lock = threading.Lock()

    @contextmanager
    def client(self, random: Random) -> Iterator[httpx.Client]:
        """Yield a client of either replica."""
        with httpx.Client(base_url=random.choice(self.replicas).service.url, timeout=20) as client:
            yield client

    def until_acknowledged(self, kind: str, random: Random, write: Callable[[httpx.Client], T]) -> T:
        """Return what `write` returns, once an attempt is acknowledged."""
        for _ in range(_TRIES):
            try:
                with self.client(random) as client:
                    result = write(client)
            except (httpx.HTTPError, Refused):
                with self._lock:
                    self.repeated += 1
                time.sleep(0.05)
                continue
            with self._lock:
                self.acknowledged[kind] += 1
            return result
        raise TimeoutError(f"none of {_TRIES} attempts was acknowledged")


class Writer:
    """A client that uploads, commits and pushes, one after the other."""

    def __init__(self, cluster: Cluster, number: int, seed: int) -> None:
        self._cluster = cluster
        self._number = number
        self._random = Random(seed * 1000 + number)
        self.stores = dict[str, bytes]()
        self.files = dict[str, dict[str, bytes]]()
        self.tags = dict[str, tuple[str, bytes]]()

    def run(self) -> None:
        """Write until the kills end."""
        number = 0
        while not self._cluster.ended.is_set():
            number += 1
            data = self._random.randbytes(self._random.choice((10, 20_000, 400_000)))
            self._upload(data)
            for name in (f"models/w{self._number}/m", _SHARED):
                self._commit(name, f"{self._number}-{number}.bin", data)
            self._push(f"v{number % 5}", data)

    def _commit(self, name: str, path: str, data: bytes) -> None:
        self._until("commits", lambda client: _good(commit(client, name, {path: data})))
        self.files.setdefault(name, {})[path] = data

    def _push(self, tag: str, data: bytes) -> None:
        digest = self._until("pushes", lambda client: _pushed(client, self._repository, tag, data))
        self.tags[tag] = (digest, data)

    @property
    def _repository(self) -> str:
        return f"w{self._number}/net"

    def _until(self, kind: str, write: Callable[[httpx.Client], T]) -> T:
        return self._cluster.until_acknowledged(kind, self._random, write)

    def _upload(self, data: bytes) -> None:
        place: list[str] = []

        def write(client: httpx.Client) -> str:
            tus = TusClient(client)
            if not place:
                answer = tus.begin(len(data), upload_metadata=metadata(filename="a.bin"))
                place.append(httpx.URL(_good(answer).headers["location"]).path)
            head = tus.head(place[0])
            offset = int(_good(head).headers["upload-offset"])
            while offset < len(data):
                end = min(len(data), offset + self._random.randrange(1, len(data) + 1))
                head = _good(tus.patch(place[0], offset, data[offset:end]))
                offset = int(head.headers["upload-offset"])
            if "protoslice-store" not in head.headers:
                raise Refused
            return head.headers["protoslice-store"]

        self.stores[self._until("uploads", write)] = data

    def check(self, client: httpx.Client) -> int:
        """Read back all that was acknowledged, and return how much that is."""
        for store, data in self.stores.items():
            _same(client.get(f"/v1/stores/{store}/files/a.bin"), data)
        for name, files in self.files.items():
            for path, data in files.items():
                _same(client.get(f"/{name.removeprefix('models/')}/resolve/main/{path}"), data)
        for tag, (digest, data) in self.tags.items():
            manifest = client.get(f"/v2/{self._repository}/manifests/{tag}", headers={"accept": _MEDIA_TYPE})
            if manifest.headers.get("docker-content-digest") != digest:
                raise AssertionError(f"{self._repository}:{tag} is not what was pushed last")
            _same(client.get(f"/v2/{self._repository}/blobs/{_digest(data)}"), data)
        return len(self.stores) + sum(map(len, self.files.values())) + len(self.tags)


def _pushed(client: httpx.Client, repository: str, tag: str, data: bytes) -> str:
    place = _good(client.post(f"/v2/{repository}/blobs/uploads/")).headers["location"]
    _good(client.put(place, params={"digest": _digest(data)}, content=data))
    layer = {"mediaType": "application/octet-stream", "digest": _digest(data), "size": len(data)}
    body = json.dumps({"schemaVersion": 2, "mediaType": _MEDIA_TYPE, "layers": [layer]})
    headers = {"content-type": _MEDIA_TYPE}
    put = _good(client.put(f"/v2/{repository}/manifests/{tag}", content=body, headers=headers))
    return str(put.headers["docker-content-digest"])


def _good(answer: httpx.Response) -> httpx.Response:
    """Return an answer that acknowledges; raise `Refused` for one that says to try again."""
    if answer.status_code in {404, 409, 410, 412, 423, 429} or answer.status_code >= 500:
        raise Refused(answer.status_code)
    if not answer.is_success:
        raise AssertionError((answer.request.method, answer.request.url, answer.status_code, answer.text[:500]))
    return answer


def _same(answer: httpx.Response, data: bytes) -> None:
    if answer.status_code != 200 or answer.content != data:
        raise AssertionError((str(answer.request.url), answer.status_code, "is not what was acknowledged"))


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _terminate_backends(server: TestServer, random: Random) -> int:
    """Terminate about half of the connections of the replicas; return how many."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'protoslice'"
        pids = [pid for (pid,) in connection.execute(sql).fetchall() if random.random() < 0.5]
        for pid in pids:
            connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    return len(pids)


def play(server: TestServer, seed: int, *, kills: int, writers: int = 4) -> dict[str, Any]:
    """Return the counts of one run."""
    random, counts = Random(seed), {"replicas": 0, "backends": 0}
    with TemporaryDirectory() as folder, ThreadPoolExecutor(writers) as threads:
        cluster = Cluster(Path(folder), server.new_catalogue())
        try:
            for name in ("all/shared", *(f"w{number}/m" for number in range(writers))):
                with cluster.client(random) as client:
                    _good(client.post("/api/repos/create", json={"name": name, "type": "model"}))
            clients = [Writer(cluster, number, seed) for number in range(writers)]
            running = [threads.submit(each.run) for each in clients]
            try:
                for _ in range(kills):
                    time.sleep(random.uniform(0.2, 1.5))
                    if random.random() < 0.4:
                        random.choice(cluster.replicas).kill()
                        counts["replicas"] += 1
                    else:
                        counts["backends"] += _terminate_backends(server, random)
            finally:
                cluster.ended.set()
            for each in running:
                each.result(timeout=120)
            read = 0
            for replica in cluster.replicas:
                with httpx.Client(base_url=replica.service.url, timeout=60, follow_redirects=True) as client:
                    read = sum(each.check(client) for each in clients)
        finally:
            for replica in cluster.replicas:
                replica.close()
    return {
        "seed": seed,
        "killed": counts,
        "acknowledged": cluster.acknowledged,
        "repeated": cluster.repeated,
        "read_back": read,
    }


def main(seeds: int, kills: int) -> int:
    """Play `seeds` runs of `kills` kills each; a lost write is an error."""
    with running_postgres() as server:
        runs = [play(server, seed, kills=kills) for seed in range(1, seeds + 1)]
    text = json.dumps({"command": f"make kills KILLS='{seeds} {kills}'", "runs": runs}, indent=1)
    RESULT.write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
