"""Kills during all that the database holds, run by `make kills`.

Two replicas share a folder and a PostgreSQL; then one process, and two, a folder and a SQLite file. Clients upload,
commit, push, put stores, move tags, remove, restore and send again, and repeat what was not acknowledged. Replicas,
collectors and PostgreSQL's backends are killed at random, and leases of writers end early. A removed store can be
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
from tests.support.postgres import TestServer, running_postgres
from tests.support.process import ServiceProcess, service_process
from tests.support.tus import TusClient, metadata

from protoslice.catalog import connect
from protoslice.errors import ProtosliceError
from protoslice.storage import FileStorage
from protoslice.stores.collection import collect_garbage

T = TypeVar("T")

ROOT: Final = Path(__file__).resolve().parents[2]
RESULT: Final = ROOT / "bench/results/kills.json"
KINDS: Final = (
    "uploads", "commits", "pushes", "puts", "tags", "untags", "removals", "restores", "resent", "contested",
)  # fmt: skip
_TRIES: Final = 1500
_SHARED: Final = "models/all/shared"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_GRACE_SECONDS: Final = 3.0
_DELAY_SECONDS: Final = 4.0
_EPOCH_SECONDS: Final = 3.0
"""Seconds for which all writers send the same large file: soon after them no store has it any more."""
_CONTESTED: Final = 4
"""Stores that all writers put, remove and restore, and tags that all of them move."""
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
_REFERRED: Final = """
    SELECT key FROM objects o WHERE EXISTS (
        SELECT 1 FROM store_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM upload_objects r WHERE r.space = o.space AND r.object = o.id UNION ALL
        SELECT 1 FROM derived r WHERE r.space = o.space AND r.object = o.id)"""


class Refused(Exception):
    """The write was not acknowledged."""


class Rows(ABC):
    """The rows of a database, beside the service."""

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
        found = self.all("SELECT pid FROM pg_stat_activity WHERE application_name = 'protoslice'")
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
        return sqlite3.connect(self.url.removeprefix("sqlite://"), timeout=30)


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
        self._command = [sys.executable, "-m", "tests.catalog.kills", "collect", str(storage), database]
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
        self.pushed: dict[str, bytes] = {}
        """Layers by the digest of their manifest, in the repository that all push to."""
        self._lock = threading.Lock()
        self._begun = time.monotonic()

    def close(self) -> None:
        """End all processes."""
        for each in (*self.collectors, *self.replicas):
            each.close()

    @property
    def epoch(self) -> int:
        """Number of the large file that all writers send now."""
        return int((time.monotonic() - self._begun) / _EPOCH_SECONDS)

    @contextmanager
    def client(self, random: Random) -> Iterator[httpx.Client]:
        """Yield a client of any replica."""
        with httpx.Client(base_url=random.choice(self.replicas).service.url, timeout=30) as client:
            yield client

    def until_answered(self, random: Random, write: Callable[[httpx.Client], T]) -> T:
        """Return what `write` returns, once an attempt is answered."""
        for _ in range(_TRIES):
            try:
                with self.client(random) as client:
                    return write(client)
            except (httpx.HTTPError, Refused):
                with self._lock:
                    self.repeated += 1
                time.sleep(0.05)
        raise TimeoutError(f"none of {_TRIES} attempts was acknowledged")

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
        """Count what is as it was acknowledged; note as lost what is not."""
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
        """Return the store that a tag points at, None if there is no tag, else the status."""
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
        same = Random(self._cluster.epoch).randbytes(2000)
        self._cluster.pushed[self._push("all/net", f"w{self._number}", same)] = same

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
        """Tags of this writer alone and what they point at; those of which that is not known are not here."""
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
        elif chance < 0.65:
            self._contest()
        elif chance < 0.85:
            # Large files go soon, so that the next store with the same one meets its collection.
            self._remove(max(self._random.sample(live, 3), key=lambda each: each.content.digest))
            if self._random.random() < 0.4:
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
            content = Content({f"{name}.bin": _large_file(self._cluster.epoch)}, digest=True)
        else:
            base, data = self._large
            content = Content({f"{name}.bin": data[: 1 << 20] + self._random.randbytes(1000)})
        tag = f"w{self._number}:{self._sent if self._random.random() < 0.5 else 'a'}"

        def write(client: httpx.Client) -> str:
            answer = content.send(client, tag=tag, **({} if base is None else {"base": base}))
            if answer.status_code == 404 and base is None:
                raise AssertionError((answer.status_code, answer.text[:500]))
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
            listed = _good(client.get("/v1/tags", params={"store": kept.id}))
            tags = [tag["name"] for tag in listed.json()["items"]]
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

    def _contest(self) -> None:
        content, chance = _contested(self._random.randrange(_CONTESTED)), self._random.random()

        def write(client: httpx.Client) -> None:
            if chance < 0.5:
                _good(content.send(client))
                return
            store = _contested_id(content, client)
            answer = client.delete(f"/v1/stores/{store}") if chance < 0.8 else client.post(f"/v1/stores/{store}/restore")
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
