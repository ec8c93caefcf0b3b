"""Kills during all that the database holds, run by `make kills`.

Two replicas share a folder and a PostgreSQL; then one process, and two, a folder and a SQLite file. Clients upload,
commit, push, put stores, move tags, remove, restore and send again, and repeat what was not acknowledged. Replicas,
collectors and PostgreSQL's backends are killed at random, and unpublished objects expire early. A removed store can be
restored for `_GRACE_SECONDS`, and bytes are deleted `_DELAY_SECONDS` after their rows: collectors of this program do
that, since the service's own setting allows no less than ten minutes.

In the end all that was acknowledged is read back from every replica, and again from a new one after a last collection;
rows are compared with files and with what is counted. The counts are printed. If nothing was lost they are written to
`bench/results/kills.json`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final, TypeVar

import httpx
import psycopg
from tests.support.hub import commit
from tests.support.postgres import running_postgres
from tests.support.serve import ServiceProcess, service_process
from tests.support.tus import TusClient, metadata

from protoslice.database import connect
from protoslice.errors import ProtosliceError
from protoslice.storage import FileStorage
from protoslice.stores.collection import collect_garbage

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / "bench/results/kills.json"
KINDS: Final = (
    "uploads", "commits", "pushes", "puts", "tags", "untags", "removals", "restores", "resent", "contested",
)  # fmt: skip
_PATIENCE_SECONDS: Final = 60.0
"""Seconds after which a write of which no attempt is acknowledged counts as lost."""
_SHARED: Final = "models/all/shared"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_GRACE_SECONDS: Final = 3.0
_DELAY_SECONDS: Final = 4.0
_EPOCH_SECONDS: Final = 3.0
"""Seconds for which all writers send the same large file: soon after them no store has it any more."""
_MOMENT_SECONDS: Final = 0.5
"""Seconds for which all writers push the same manifest."""
_CONTESTED: Final = 4
"""Number of stores that all writers put, remove and restore, and of tags that all of them move."""
_PASSED_ON: Final = tuple(name for name in ("PYTHONPATH",) if name in os.environ)
"""Variables that replicas get too, so that a changed copy of the package can be tried."""

_COUNTED: Final = """
    SELECT (SELECT coalesce(sum(size), 0) FROM objects) + (SELECT coalesce(sum(held), 0) FROM stores)
            + (SELECT coalesce(sum(length(body)), 0) FROM manifests),
        (SELECT count(*) FROM stores WHERE deleted IS NULL),
        (SELECT coalesce(sum(size), 0) FROM stores WHERE deleted IS NULL),
        (SELECT coalesce(sum(stored_bytes), 0) FROM usage), (SELECT coalesce(sum(stores), 0) FROM usage),
        (SELECT coalesce(sum(logical_bytes), 0) FROM usage)"""
_DANGLING: Final = """
    SELECT name FROM names n WHERE repository = 0 AND kind = 'tag' AND NOT EXISTS (
        SELECT 1 FROM stores s WHERE s.space = n.space AND s.digest = n.store AND s.deleted IS NULL)"""
_USED_TWICE: Final = "SELECT object FROM store_objects GROUP BY space, object HAVING count(*) > 1"
_REFERRED: Final = """
    SELECT key FROM objects o WHERE EXISTS (
        SELECT 1 FROM store_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM upload_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM derived r WHERE r.space = o.space AND r.object = o.id)"""


class Refused(Exception):
    """The write was not acknowledged."""


class BaseGone(Exception):
    """The store that an upload builds upon was removed."""


class Rows(ABC):
    """Access to the rows of a database without the service."""

    name: str

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def all(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""

    @abstractmethod
    def run(self, *statements: str) -> None:
        """Commit statements in one transaction."""

    def keys(self, sql: str) -> set[str]:
        """Return the first column of a statement."""
        return {row[0] for row in self.all(sql)}


class PostgresRows(Rows):
    """Rows in PostgreSQL."""

    name = "postgresql"

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(sql.encode()).fetchall()

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.url) as connection:
            for sql in statements:
                connection.execute(sql.encode())

    def terminate_backends(self, random: Random) -> int:
        """Terminate about half of the connections of replicas and collectors; return how many."""
        found = self.all("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'protoslice/%'")
        pids = [pid for (pid,) in found if random.random() < 0.5]
        self.run(*(f"SELECT pg_terminate_backend({pid})" for pid in pids))
        return len(pids)


class SqliteRows(Rows):
    """Rows in a SQLite file."""

    name = "sqlite"

    def all(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(self._connection()) as connection:
            return connection.execute(sql).fetchall()

    def run(self, *statements: str) -> None:
        with closing(self._connection()) as connection, connection:
            for sql in statements:
                connection.execute(sql)

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.url.removeprefix("sqlite:///"), timeout=30)


class Replica:
    """A service that is killed over and over, and where it listens now."""

    def __init__(self, storage: Path, database: str) -> None:
        self._arguments = ("--storage", storage.as_uri())
        self._settings = {"PROTOSLICE_DATABASE": database, "PROTOSLICE_LOG_LEVEL": "error"}
        self._settings |= {name: os.environ[name] for name in _PASSED_ON}
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

    @contextmanager
    def client(self) -> Iterator[httpx.Client]:
        """Yield a client of the process."""
        with httpx.Client(base_url=self.service.url, timeout=60, follow_redirects=True) as client:
            yield client


class Collector:
    """A process that collects all the time, with a short grace and a short delay, and is killed over and over."""

    def __init__(self, storage: Path, database: str, log: Path) -> None:
        self._command = [sys.executable, "-m", "tests.database.kills", "collect", str(storage), database]
        self._log = log
        self._start()

    def _start(self) -> None:
        with self._log.open("a") as log:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdout=log)

    def kill(self) -> None:
        """End the process as `kill -9` does, and start another."""
        self.close()
        self._start()

    def close(self) -> None:
        """End the process as `kill -9` does."""
        self._process.kill()
        self._process.wait()

    def counts(self) -> list[int]:
        """Return how many stores were purged, objects dropped, and objects whose bytes were deleted."""
        lines = [line.split() for line in self._log.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [sum(map(int, column)) for column in zip(*lines, strict=True)] or [0, 0, 0]


async def _collect_for_ever(storage: str, url: str) -> None:
    """Collect until the process is killed, and print the counts of each collection."""
    database, files = connect(url, "memory://"), FileStorage(storage)
    while True:
        with suppress(ProtosliceError):  # the next collection makes up for it
            found = await collect_garbage(files, database, grace_seconds=_GRACE_SECONDS, delay_seconds=_DELAY_SECONDS)
            print(found.stores, found.objects, found.deleted, flush=True)
        await asyncio.sleep(0.5)


class Cluster:
    """Replicas and collectors over one database, what was acknowledged, and what was lost of it."""

    def __init__(self, folder: Path, rows: Rows, replicas: int) -> None:
        self.storage = folder / "storage"
        self.rows = rows
        self.replicas = [Replica(self.storage, rows.url) for _ in range(replicas)]
        self.collectors = [Collector(self.storage, rows.url, folder / f"collector-{n}.log") for n in range(2)]
        self.ended = threading.Event()
        self.acknowledged = dict.fromkeys(KINDS, 0)
        self.repeated = 0
        self.lost: list[str] = []
        self.recent: deque[str] = deque(maxlen=12)
        """Ids of stores of all writers, some of which are removed by now."""
        self.targets: dict[str, set[str]] = {f"all:{n}": set() for n in range(_CONTESTED)}
        """Stores at which tags that all writers move may point."""
        self.contested: list[tuple[str, Content]] = []
        """Stores that all writers put, remove and restore."""
        self.pushed: dict[str, bytes] = {}
        """Layers by the digest of their manifest, in the repository that all push to."""
        self._lock = threading.Lock()
        self._begun = time.monotonic()

    def close(self) -> None:
        """End all processes."""
        for collector in self.collectors:
            collector.close()
        for replica in self.replicas:
            replica.close()

    def epoch(self, seconds: float) -> int:
        """Return a number that all writers see, and another one every few seconds."""
        return int((time.monotonic() - self._begun) / seconds)

    @contextmanager
    def client(self, random: Random) -> Iterator[httpx.Client]:
        """Yield a client of any replica."""
        with httpx.Client(base_url=random.choice(self.replicas).service.url, timeout=30) as client:
            yield client

    def until_answered(self, random: Random, write: Callable[[httpx.Client], T]) -> T:
        """Return what `write` returns, once an attempt is answered."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                with self.client(random) as client:
                    return write(client)
            except (httpx.HTTPError, Refused) as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no attempt was acknowledged, the last one was {error!r}") from error
                with self._lock:
                    self.repeated += 1
                time.sleep(0.05)

    def count(self, kind: str) -> None:
        """Count an acknowledged write."""
        with self._lock:
            self.acknowledged[kind] += 1

    def lose(self, what: str) -> None:
        """Note that something that was acknowledged is not there, or that something else is wrong."""
        with self._lock:
            self.lost.append(what)

    def check_counts(self) -> None:
        """Compare what is counted with the rows, in one statement."""
        (row,) = self.rows.all(_COUNTED)
        counted = [*map(int, row)]
        if counted[:3] != counted[3:]:
            self.lose(f"usage: rows hold {counted[:3]} bytes, stores and bytes of files, {counted[3:]} are counted")


class Doubt:
    """Whether an attempt may have taken effect that was not acknowledged."""

    def __init__(self) -> None:
        self.is_there = False

    def ask(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        """Return the answer to a request."""
        try:
            answer = request()
        except httpx.HTTPError:
            self.is_there = True
            raise
        self.is_there |= answer.status_code >= 500
        return answer


class Reader:
    """What is read back, and compared with what was acknowledged."""

    def __init__(self, cluster: Cluster, client: httpx.Client) -> None:
        self._cluster = cluster
        self._client = client
        self.read: Counter[str] = Counter(dict.fromkeys(KINDS, 0))

    def get(self, url: str, **more: Any) -> httpx.Response:
        """Return the answer to a GET."""
        return self._client.get(url, **more)

    def expect(self, kind: str, what: str, found: object, wanted: object) -> None:
        """Count a value that is as acknowledged; note any other value as lost."""
        if found == wanted:
            self.read[kind] += 1
        else:
            shown = [each if isinstance(each, str | int | None) else type(each).__name__ for each in (found, wanted)]
            self._cluster.lose(f"{kind}: {what} is {shown[0]}, not {shown[1]}")

    def files(self, store: str, files: Mapping[str, bytes]) -> str:
        """Return "whole" for a store with these files, else what is wrong with it."""
        for path, data in files.items():
            answer = self.get(f"/v1/stores/{store}/files/{path}")
            if answer.status_code != 200:
                return f"{answer.status_code} at {path}"
            if answer.content != data:
                return f"another content of {path}"
        return "whole"

    def tag(self, name: str) -> str | None:
        """Return the store that a tag points at, None if the tag does not exist, else the status."""
        answer = self.get(f"/v1/tags/{name}")
        return str(answer.json()["store"]) if answer.status_code == 200 else _unless_404(answer)


class RegistryWriter:
    """A client that uploads, commits and pushes, one after the other."""

    def __init__(self, cluster: Cluster, number: int, random: Random) -> None:
        self._cluster = cluster
        self._number = number
        self._random = random
        self._sent = 0
        self.stores = dict[str, bytes]()
        self.files = dict[str, dict[str, bytes]]()
        self.tags = dict[str, tuple[str, bytes]]()

    def write(self) -> None:
        """Upload, commit and push once."""
        self._sent += 1
        data = self._random.randbytes(self._random.choice((10, 20_000, 400_000)))
        self._upload(data)
        for name in (f"models/w{self._number}/m", _SHARED):
            self._commit(name, f"{self._number}-{self._sent}.bin", data)
        tag = f"v{self._sent % 5}"
        self.tags[tag] = self._push(self._repository, tag, data), data

    def push_same(self) -> None:
        """Push what other writers push at the same moment."""
        data = Random(self._cluster.epoch(_MOMENT_SECONDS)).randbytes(2000)
        self._cluster.pushed[self._push("all/net", f"w{self._number}", data)] = data

    def _commit(self, name: str, path: str, data: bytes) -> None:
        self._until("commits", lambda client: _good(commit(client, name, {path: data})))
        self.files.setdefault(name, {})[path] = data

    def _push(self, repository: str, tag: str, data: bytes) -> str:
        return self._until("pushes", lambda client: _pushed(client, repository, tag, data))

    @property
    def _repository(self) -> str:
        return f"w{self._number}/net"

    def _until(self, kind: str, write: Callable[[httpx.Client], T]) -> T:
        result = self._cluster.until_answered(self._random, write)
        self._cluster.count(kind)
        return result

    def _upload(self, data: bytes) -> None:
        place: list[str] = []

        def write(client: httpx.Client) -> str:
            tus = TusClient(client)
            if not place:
                answer = tus.begin(len(data), upload_metadata=metadata(filename="a.bin"))
                place.append(httpx.URL(_good(answer).headers["location"]).path)
            head = tus.head(place[0])
            if head.status_code in {404, 410}:
                self._cluster.lose(f"uploads: an upload that was begun is {head.status_code}")
                place.clear()
            offset = int(_good(head).headers["upload-offset"])
            while offset < len(data):
                end = min(len(data), offset + self._random.randrange(1, len(data) + 1))
                head = _good(tus.patch(place[0], offset, data[offset:end]))
                offset = int(head.headers["upload-offset"])
            if "protoslice-store" not in head.headers:
                raise Refused
            return head.headers["protoslice-store"]

        self.stores[self._until("uploads", write)] = data

    def check(self, reader: Reader) -> None:
        """Read back all that was acknowledged."""
        for store, data in self.stores.items():
            reader.expect("uploads", store, reader.files(store, {"a.bin": data}), "whole")
        for name, files in self.files.items():
            for path, data in files.items():
                url = f"/{name.removeprefix('models/')}/resolve/main/{path}"
                reader.expect("commits", url, _content(reader.get(url)), data)
        for tag, (digest, data) in self.tags.items():
            _check_pushed(reader, self._repository, tag, digest, data)


@dataclass(frozen=True, slots=True)
class Content:
    """Files of a store, and how they are sent; with `digest`, a stored file with that digest is shared."""

    files: Mapping[str, bytes]
    digest: bool = False

    def send(self, client: httpx.Client, **parameters: str) -> httpx.Response:
        """Return the answer to a store that is put."""
        if len(self.files) > 1:
            return client.post("/v1/stores", params=parameters, files=[("file", file) for file in self.files.items()])
        ((name, data),) = self.files.items()
        digest = f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"
        headers = {"repr-digest": digest} if self.digest else {}
        return client.put("/v1/stores", params={"filename": name, **parameters}, content=data, headers=headers)


@dataclass(slots=True)
class Kept:
    """A store of one writer, and what was acknowledged of it last."""

    id: str
    content: Content
    last: str = "puts"
    removals: int = 0
    removed: float = 0.0
    """When the last removal was begun."""
    tags: Sequence[str] = ()
    """Tags that were removed with it."""
    ever: set[str] = field(default_factory=set)
    """Tags that pointed at it at any time."""


class StoreWriter:
    """A client that puts stores, moves tags, removes, restores and sends again."""

    def __init__(self, cluster: Cluster, number: int, random: Random) -> None:
        self._cluster = cluster
        self._number = number
        self._random = random
        self._sent = 0
        self._stores: dict[str, Kept] = {}
        self._tags: dict[str, str | None] = {}
        """Tags that only this writer sets, and the store of each; tags whose state is unknown are left out."""
        self._large: tuple[str, bytes] | None = None

    def write(self) -> None:
        """Change something."""
        live = [each for each in self._stores.values() if each.last != "removals"]
        removed = [each for each in self._stores.values() if each.last == "removals"]
        chance, pick = self._random.random(), self._random.choice
        if chance < 0.3 or len(live) < 4:
            self._put()
        elif chance < 0.4:
            self._move(f"w{self._number}:{pick('ab')}", pick(live))
        elif chance < 0.45:
            self._untag()
        elif chance < 0.52:
            self._move_shared()
        elif chance < 0.6:
            self._contest()
        elif chance < 0.67:
            self._read(pick(live))
        elif chance < 0.88:
            # Large files go soon, so that the next store with the same one meets its collection.
            self._remove(max(self._random.sample(live, 3), key=lambda each: each.content.digest))
            if self._random.random() < 0.3:
                self._restore(max(self._stores.values(), key=lambda each: each.removed))
        elif removed:
            (self._restore if self._random.random() < 0.5 else self._resend)(pick(removed))

    def _put(self) -> None:
        self._sent += 1
        name, chance, base = f"{self._number}-{self._sent}", self._random.random(), None
        if chance < 0.4:
            content = Content({f"{name}.bin": self._random.randbytes(self._random.choice((10, 3000, 20_000, 400_000)))})
        elif chance < 0.55:
            sizes = self._random.sample((10, 100, 5000, 70_000), 3)
            content = Content({f"{name}/{size}.bin": self._random.randbytes(size) for size in sizes})
        elif chance < 0.85 or self._large is None:
            content = Content({f"{name}.bin": _large_file(self._cluster.epoch(_EPOCH_SECONDS))}, digest=True)
        else:
            base, data = self._large
            content = Content({f"{name}.bin": data[: 1 << 20] + self._random.randbytes(1000)})
        tag = f"w{self._number}:{self._sent if self._random.random() < 0.5 else 'a'}"

        def write(client: httpx.Client) -> str:
            answer = content.send(client, tag=tag, **({} if base is None else {"base": base}))
            if answer.status_code == 404 and base is not None:
                raise BaseGone
            return str(_good(answer).json()["id"])

        try:
            store = self._answered("puts", write)
        except BaseGone:
            self._large = None
            return
        kept = self._stores[store] = Kept(store, content)
        self._point(tag, kept)
        self._cluster.recent.append(store)
        if content.digest:
            self._large = store, content.files[f"{name}.bin"]

    def _move(self, tag: str, kept: Kept) -> None:
        def write(client: httpx.Client) -> None:
            answer = client.put(f"/v1/tags/{tag}", json={"store": kept.id})
            if answer.status_code == 404:
                self._cluster.lose(f"{kept.last}: {kept.id} is 404 when it is tagged")
            else:
                _good(answer)

        self._answered("tags", write)
        self._point(tag, kept)

    def _untag(self) -> None:
        tags = [name for name, store in self._tags.items() if store is not None]
        if not tags:
            return
        tag, doubt = self._random.choice(tags), Doubt()

        def write(client: httpx.Client) -> None:
            answer = doubt.ask(lambda: client.delete(f"/v1/tags/{tag}"))
            if answer.status_code != 404:
                _good(answer)
            elif not doubt.is_there:
                self._cluster.lose(f"tags: {tag} is 404 when it is removed")

        self._answered("untags", write)
        self._tags[tag] = None

    def _remove(self, kept: Kept) -> None:
        kept.removed, doubt = time.monotonic(), Doubt()

        def write(client: httpx.Client) -> None:
            answer = client.get("/v1/tags", params={"store": kept.id})
            if answer.is_success:
                tags = [tag["name"] for tag in answer.json()["items"]]
                answer = doubt.ask(lambda: client.delete(f"/v1/stores/{kept.id}", params={"force": tags}))
            if answer.status_code != 404:
                _good(answer)
            elif not doubt.is_there:
                self._cluster.lose(f"{kept.last}: {kept.id} is 404 when it is removed")

        self._answered("removals", write)
        kept.last, kept.removals = "removals", kept.removals + 1
        kept.tags = [name for name, store in self._tags.items() if store == kept.id]
        self._tags |= dict.fromkeys(kept.tags)

    def _restore(self, kept: Kept) -> None:
        if kept.last != "removals":
            return
        doubt = Doubt()

        def write(client: httpx.Client) -> bool:
            answer = doubt.ask(lambda: client.post(f"/v1/stores/{kept.id}/restore"))
            return answer.status_code != 404 and bool(_good(answer))

        if not self._cluster.until_answered(self._random, write):
            if time.monotonic() - kept.removed < _GRACE_SECONDS:
                self._cluster.lose(f"removals: {kept.id} cannot be restored within the grace")
            return
        self._cluster.count("restores")
        kept.last = "restores"
        for tag in kept.tags:
            if tag in self._tags and self._tags[tag] is None:
                self._point(tag, kept)
        if doubt.is_there and kept.removals > 1:  # the second attempt may have met an older removal, with its tags
            for tag in kept.ever:
                if self._tags.get(tag, "") is None:
                    del self._tags[tag]

    def _resend(self, kept: Kept) -> None:
        found = self._answered("resent", lambda client: str(_good(kept.content.send(client)).json()["id"]))
        if found != kept.id:
            self._cluster.lose(f"resent: {kept.id} became {found}")
        kept.last = "resent"

    def _move_shared(self) -> None:
        if not self._cluster.recent:
            return
        tag, store = self._random.choice([*self._cluster.targets]), self._random.choice([*self._cluster.recent])
        doubt = Doubt()

        def write(client: httpx.Client) -> bool:
            answer = doubt.ask(lambda: client.put(f"/v1/tags/{tag}", json={"store": store}))
            return answer.status_code != 404 and bool(_good(answer))  # another writer has removed the store

        is_set = self._cluster.until_answered(self._random, write)
        if is_set:
            self._cluster.count("tags")
        if is_set or doubt.is_there:
            self._cluster.targets[tag].add(store)

    def _read(self, kept: Kept) -> None:
        path, data = self._random.choice([*kept.content.files.items()])

        def read(client: httpx.Client) -> None:
            answer = client.get(f"/v1/stores/{kept.id}/files/{path}")
            if answer.status_code in {404, 500} or (answer.status_code == 200 and answer.content != data):
                self._cluster.lose(f"{kept.last}: {kept.id} is {answer.status_code} between two writes")
            else:
                _good(answer)

        self._cluster.until_answered(self._random, read)

    def _contest(self) -> None:
        (store, content), chance = self._random.choice(self._cluster.contested), self._random.random()

        def write(client: httpx.Client) -> None:
            if chance < 0.5:
                _good(content.send(client))
                return
            url = f"/v1/stores/{store}"
            answer = client.delete(url) if chance < 0.8 else client.post(f"{url}/restore")
            if answer.status_code != 404:  # another writer was first
                _good(answer)

        self._answered("contested", write)

    def _point(self, tag: str, kept: Kept) -> None:
        self._tags[tag] = kept.id
        kept.ever.add(tag)

    def _answered(self, kind: str, write: Callable[[httpx.Client], T]) -> T:
        result = self._cluster.until_answered(self._random, write)
        self._cluster.count(kind)
        return result

    def check(self, reader: Reader) -> None:
        """Read back all that was acknowledged."""
        for kept in self._stores.values():
            if kept.last == "removals":
                reader.expect("removals", kept.id, reader.get(f"/v1/stores/{kept.id}").status_code, 404)
            else:
                reader.expect(kept.last, kept.id, reader.files(kept.id, kept.content.files), "whole")
        for tag, store in self._tags.items():
            reader.expect("untags" if store is None else "tags", tag, reader.tag(tag), store)


class Writer:
    """A client that does everything, one after the other."""

    def __init__(self, cluster: Cluster, number: int, seed: int) -> None:
        self._cluster = cluster
        self._random = Random(seed * 1000 + number)
        self._registry = RegistryWriter(cluster, number, self._random)
        self._stores = StoreWriter(cluster, number, self._random)

    def run(self) -> None:
        """Write until the kills end."""
        try:
            while not self._cluster.ended.is_set():
                chance = self._random.random()
                if chance < 0.12:
                    self._registry.write()
                elif chance < 0.3:
                    self._registry.push_same()
                else:
                    self._stores.write()
        except TimeoutError as error:
            self._cluster.lose(f"writers: {error}")

    def check(self, reader: Reader) -> None:
        """Read back all that was acknowledged."""
        self._registry.check(reader)
        self._stores.check(reader)


@lru_cache(maxsize=64)
def _large_file(epoch: int) -> bytes:
    """Return a file that is large enough to be found by its digest."""
    return Random(epoch).randbytes(1_200_000)


def _pushed(client: httpx.Client, repository: str, tag: str, data: bytes) -> str:
    place = _good(client.post(f"/v2/{repository}/blobs/uploads/")).headers["location"]
    _good(client.put(place, params={"digest": _digest(data)}, content=data))
    layer = {"mediaType": "application/octet-stream", "digest": _digest(data), "size": len(data)}
    body = json.dumps({"schemaVersion": 2, "mediaType": _MEDIA_TYPE, "layers": [layer]})
    headers = {"content-type": _MEDIA_TYPE}
    put = _good(client.put(f"/v2/{repository}/manifests/{tag}", content=body, headers=headers))
    return str(put.headers["docker-content-digest"])


def _check_pushed(reader: Reader, repository: str, reference: str, digest: str, data: bytes) -> None:
    manifest = reader.get(f"/v2/{repository}/manifests/{reference}", headers={"accept": _MEDIA_TYPE})
    found = (
        manifest.headers.get("docker-content-digest"),
        _content(reader.get(f"/v2/{repository}/blobs/{_digest(data)}")),
    )
    reader.expect("pushes", f"{repository}:{reference}", found, (digest, data))


def _good(answer: httpx.Response) -> httpx.Response:
    """Return an answer that acknowledges; raise `Refused` for one that says to try again."""
    if answer.status_code in {404, 409, 410, 412, 423, 429} or answer.status_code > 500:
        raise Refused(answer.status_code, answer.text[:500])
    if not answer.is_success:
        raise AssertionError((answer.request.method, answer.request.url, answer.status_code, answer.text[:500]))
    return answer


def _content(answer: httpx.Response) -> bytes | int:
    """Return the content of an answer, or the status of an error."""
    return answer.content if answer.status_code == 200 else answer.status_code


def _unless_404(answer: httpx.Response) -> str | None:
    return None if answer.status_code == 404 else str(answer.status_code)


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _contend(cluster: Cluster, random: Random) -> None:
    """Put the stores that all writers change."""
    for number, size in zip(range(_CONTESTED), (100, 50_000, 1_200_000, 1_200_000), strict=True):
        content = Content({f"contested-{number}.bin": Random(size).randbytes(size)}, digest=size > 1 << 20)
        with cluster.client(random) as client:
            cluster.contested.append((str(_good(content.send(client)).json()["id"]), content))


def _storm(cluster: Cluster, random: Random, kills: int) -> dict[str, int]:
    """Kill at random; return how many processes and connections, and how often unpublished objects expired."""
    counts = {"replicas": 0, "backends": 0, "collectors": 0, "expiries": 0}
    tried = False
    for _ in range(kills):
        time.sleep(random.uniform(0.2, 1.5))
        chance, rows = random.random(), cluster.rows
        if chance < 0.15:
            random.choice(cluster.collectors).kill()
            counts["collectors"] += 1
        elif chance < 0.25:
            rows.run("UPDATE objects SET unpublished = 0 WHERE unpublished IS NOT NULL")
            counts["expiries"] += 1
        elif chance < 0.6 and isinstance(rows, PostgresRows):
            tried = True
            counts["backends"] += rows.terminate_backends(random)
        else:
            random.choice(cluster.replicas).kill()
            counts["replicas"] += 1
        cluster.check_counts()
    if tried and not counts["backends"]:
        cluster.lose("harness: no connection of PostgreSQL was found to terminate")
    return counts


def _check(cluster: Cluster, replica: Replica, writers: Sequence[Writer]) -> tuple[dict[str, int], list[str]]:
    """Read everything back; return how much that is, by kind, and what became of the contested stores."""
    with replica.client() as client:
        reader = Reader(cluster, client)
        for writer in writers:
            writer.check(reader)
        for digest, data in cluster.pushed.items():
            _check_pushed(reader, "all/net", digest, digest, data)
        for name, targets in cluster.targets.items():
            store = reader.tag(name)
            if store is not None:  # it is gone with its last store
                known = store in targets and reader.get(f"/v1/stores/{store}").status_code == 200
                reader.expect("tags", f"{name} at {store}", known, True)
        states = []
        for store, content in cluster.contested:
            there = reader.get(f"/v1/stores/{store}").status_code
            states.append("removed" if there == 404 else reader.files(store, content.files))
            reader.expect("contested", store, states[-1] in {"removed", "whole"}, True)
        return dict(reader.read), states


def _check_spaces(cluster: Cluster, replica: Replica) -> None:
    """Compare what the service shows of its space with the rows, while there are no writers."""
    ((stored, stores, *_),) = cluster.rows.all(_COUNTED)
    with replica.client() as client:
        (space,) = _good(client.get("/v1/spaces")).json()["items"]
    shown, held = [space["stored_bytes"], space["stores"]], [int(stored), int(stores)]
    if shown != held:
        cluster.lose(f"usage: GET /v1/spaces shows {shown} bytes and stores, rows hold {held}")


def _check_rows(cluster: Cluster) -> None:
    """Compare rows with each other and with files, when no process is left."""
    rows, files = cluster.rows, _files(cluster.storage)
    known = rows.keys("SELECT key FROM objects") | rows.keys("SELECT key FROM trash")
    for key in sorted(files - known):
        cluster.lose(f"files: {key} has no row")
    for key in sorted(rows.keys(_REFERRED) - files):
        cluster.lose(f"files: {key} is referred to and is not there")
    for name in sorted(rows.keys(_DANGLING)):
        cluster.lose(f"tags: {name} points at no store")
    cluster.check_counts()
    if isinstance(rows, SqliteRows):
        for problem in rows.all("PRAGMA integrity_check") + rows.all("PRAGMA foreign_key_check"):
            if problem != ("ok",):
                cluster.lose(f"integrity: {problem}")


async def _collect_all(cluster: Cluster) -> dict[str, int]:
    """Collect all garbage, with all times and delays over; return what is left of the storage's."""
    database, storage = connect(cluster.rows.url, "memory://"), FileStorage(str(cluster.storage))
    for _ in range(3):  # bytes that were never published are deleted twice
        cluster.rows.run("UPDATE trash SET due = 0")
        await collect_garbage(storage, database, grace_seconds=0, unfinished_seconds=0, delay_seconds=0)
    # Temporary files of killed processes, which are otherwise kept for a day: no process is left that could need them.
    leftovers = await storage.collect_garbage(0)
    await storage.close()
    await database.close()
    rows, files = cluster.rows, _files(cluster.storage)
    referred = rows.keys(_REFERRED)
    for key in sorted(files ^ referred):
        cluster.lose(f"files: {key} {'is not needed' if key in files else 'is not there'} after the last collection")
    for key in sorted(rows.keys("SELECT key FROM objects") - referred):
        cluster.lose(f"objects: nothing refers to {key} after the last collection")
    for (left,) in rows.all("SELECT count(*) FROM trash"):
        if left:
            cluster.lose(f"trash: {left} rows are left after the last collection")
    return {"objects": len(files), "shared_objects": len(rows.all(_USED_TWICE)), "temporary_files": leftovers}


def _files(storage: Path) -> set[str]:
    """Return the keys of all objects in the folder, without their checksums."""
    paths = (path.relative_to(storage) for path in (storage / "objects").rglob("*") if path.is_file())
    return {path.as_posix().removesuffix(".sums") for path in paths}


def play(rows: Rows, seed: int, *, kills: int, replicas: int, writers: int = 4) -> dict[str, Any]:
    """Return the counts of one run."""
    random, begun = Random(seed), time.monotonic()
    with TemporaryDirectory() as name, ThreadPoolExecutor(writers) as threads, ExitStack() as life:
        folder = Path(name)
        if isinstance(rows, SqliteRows):
            rows.url = f"sqlite:///{folder / 'catalog.sqlite'}"
        cluster = Cluster(folder, rows, replicas)
        life.callback(cluster.close)
        for each in ("all/shared", *(f"w{number}/m" for number in range(writers))):
            with cluster.client(random) as client:
                _good(client.post("/api/repos/create", json={"name": each, "type": "model"}))
        _contend(cluster, random)
        clients = [Writer(cluster, number, seed) for number in range(writers)]
        running = [threads.submit(each.run) for each in clients]
        try:
            killed = _storm(cluster, random, kills)
        finally:
            cluster.ended.set()
        for thread in running:
            thread.result(timeout=180)
        found = [_check(cluster, replica, clients) for replica in cluster.replicas]
        for collector in cluster.collectors:
            collector.close()
        _check_spaces(cluster, cluster.replicas[0])
        cluster.close()
        _check_rows(cluster)
        collected = [sum(column) for column in zip(*(each.counts() for each in cluster.collectors), strict=True)]
        left = asyncio.run(_collect_all(cluster))
        last = Replica(cluster.storage, rows.url)
        life.callback(last.close)
        found.append(_check(cluster, last, clients))
        if any(states != found[0][1] for _, states in found):
            cluster.lose(f"contested: replicas differ: {[states for _, states in found]}")
    return {
        "seed": seed,
        "database": rows.name,
        "processes": replicas,
        "killed": killed,
        "acknowledged": cluster.acknowledged,
        "repeated": cluster.repeated,
        "collected": dict(zip(("stores", "objects", "deleted"), collected, strict=True)),
        "read_back": found[-1][0],
        "left": left,
        "lost": cluster.lost,
        "seconds": round(time.monotonic() - begun),
    }


def main(seeds: int, kills: int) -> int:
    """Play `seeds` runs of `kills` kills with each database; return 1 if anything was lost."""
    runs = []
    with running_postgres() as server:
        for seed in range(1, seeds + 1):
            for rows, replicas in ((PostgresRows(server.new_catalogue()), 2), (SqliteRows(""), 1), (SqliteRows(""), 2)):
                runs.append(play(rows, seed, kills=kills, replicas=replicas))
                print(json.dumps(runs[-1]), flush=True)
    if any(run["lost"] for run in runs):
        return 1
    text = json.dumps({"command": f"make kills KILLS='{seeds} {kills}'", "runs": runs}, indent=1)
    RESULT.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "collect":
        asyncio.run(_collect_for_ever(sys.argv[2], sys.argv[3]))
    sys.exit(main(*map(int, sys.argv[1:])))
