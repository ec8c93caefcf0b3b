"""Writers of all content that a service holds, and the writes that were acknowledged to them.

They upload, commit, push, put stores, move tags, remove, restore and send again. They also read back, and repeat
unacknowledged writes.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Final, TypeVar

import httpx
from tests.kills.checks import COUNTED, Reader
from tests.kills.processes import GRACE_SECONDS, Processes, Replica
from tests.support.hub import commit
from tests.support.stores import onnx
from tests.support.tus import TusClient, metadata

T = TypeVar("T")

KINDS: Final = (
    "uploads", "joined", "commits", "pushes", "puts", "tags", "untags", "removals", "restores", "resent", "contested",
)  # fmt: skip
_PATIENCE_SECONDS: Final = 60.0
"""The seconds after which a write without an acknowledged attempt counts as lost."""
_SHARED: Final = "models/all/shared"
_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
_EPOCH_SECONDS: Final = 3.0
"""The seconds for which all writers send the same large file; soon afterwards no store has it any more."""
_MOMENT_SECONDS: Final = 0.5
"""The seconds for which all writers push the same manifest."""
_CONTESTED: Final = 4
"""The number of stores that all writers put, remove and restore, and of tags that all writers move."""


class Refused(Exception):
    """The error of a write that was not acknowledged."""


class BaseGone(Exception):
    """The error of an upload whose base store was removed."""


class Run:
    """The writers on the processes of a profile, their acknowledged writes, and the losses."""

    def __init__(self, processes: Processes, seed: int, writers: int = 4) -> None:
        self.processes = processes
        self.ended = threading.Event()
        self.acknowledged = dict.fromkeys(KINDS, 0)
        self.repeated = 0
        self.lost: list[str] = []
        self.suspects: list[tuple[str, str]] = []
        """The requests whose answers look like those of repeated requests, and the loss if no one repeated them."""
        self.recent: deque[str] = deque(maxlen=12)
        """The ids of stores of all writers; some are removed by now."""
        self.targets: dict[str, set[str]] = {f"all:{n}": set() for n in range(_CONTESTED)}
        """The stores at which the shared tags may point."""
        self.contested: list[tuple[str, Content]] = []
        """The stores that all writers put, remove and restore."""
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._prepare(Random(seed), writers)
        self.writers = [Writer(self, number, seed) for number in range(writers)]

    def _prepare(self, random: Random, writers: int) -> None:
        """Make the repositories, and the stores that all writers change."""
        with self.client(random) as client:
            for name in ("all/shared", *(f"w{number}/m" for number in range(writers))):
                _good(client.post("/api/repos/create", json={"name": name, "type": "model"}))
            for number, size in zip(range(_CONTESTED), (100, 50_000, 1_200_000, 1_200_000), strict=True):
                content = Content({f"contested-{number}.bin": Random(size).randbytes(size)}, digest=size > 1 << 20)
                self.contested.append((str(_good(content.send(client)).json()["id"]), content))

    def epoch(self, seconds: float) -> int:
        """Return a number that is the same for all writers, and changes every few seconds."""
        return int((time.monotonic() - self._begun) / seconds)

    @contextmanager
    def client(self, random: Random) -> Iterator[httpx.Client]:
        """Yield a client of any replica, or of the proxy."""
        with httpx.Client(base_url=self.processes.url(random), timeout=30) as client:
            yield client

    @contextmanager
    def another_replica(self) -> Iterator[Replica]:
        """Yield a new process over the same storage and database."""
        replica = Replica(self.processes.place)
        try:
            yield replica
        finally:
            replica.close()

    def until_answered(self, random: Random, write: Callable[[httpx.Client], T]) -> T:
        """Repeat `write` until an attempt is answered, and return its result."""
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
        """Record that an acknowledged write is lost, or another fault."""
        with self._lock:
            self.lost.append(what)

    def suspect(self, request: str, what: str) -> None:
        """Record a fault that does not count if a proxy sent this request twice."""
        with self._lock:
            self.suspects.append((request, what))

    def judge_suspects(self) -> None:
        """Record the faults of requests that no proxy sent twice."""
        twice = self.processes.sent_twice()
        for request, what in self.suspects:
            if request not in twice:
                self.lose(what)

    def check_counts(self) -> None:
        """Compare the counts with the rows, in one statement."""
        (row,) = self.processes.rows.all(COUNTED)
        counted = [*map(int, row)]
        if counted[:3] != counted[3:]:
            self.lose(f"usage: rows hold {counted[:3]} bytes, stores and bytes of files, {counted[3:]} are counted")


class Doubt:
    """The doubt whether an unacknowledged attempt has taken effect."""

    def __init__(self) -> None:
        self.is_there = False

    def ask(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        """Send a request, and return the answer."""
        try:
            answer = request()
        except httpx.HTTPError:
            self.is_there = True
            raise
        self.is_there |= answer.status_code >= 500
        return answer


class RegistryWriter:
    """A client that uploads, commits and pushes, one after the other."""

    def __init__(self, run: Run, number: int, random: Random) -> None:
        self._run = run
        self._number = number
        self._random = random
        self._sent = 0
        self.stores = dict[str, bytes]()
        self.files = dict[str, dict[str, bytes]]()
        self.tags = dict[str, tuple[str, bytes]]()
        self._pushed = dict[str, bytes]()
        """The layers by the digest of their manifest, in the repository to which all writers push."""

    def write(self) -> None:
        """Upload, commit and push once."""
        self._sent += 1
        data = self._random.randbytes(self._random.choice((10, 20_000, 400_000, 1_500_000)))
        self._upload(data)
        for name in (f"models/w{self._number}/m", _SHARED):
            self._commit(name, f"{self._number}-{self._sent}.bin", data)
        tag = f"v{self._sent % 5}"
        self.tags[tag] = self._push(self._repository, tag, data), data

    def push_same(self) -> None:
        """Push the same content that other writers push at that moment."""
        data = Random(self._run.epoch(_MOMENT_SECONDS)).randbytes(2000)
        self._pushed[self._push("all/net", f"w{self._number}", data)] = data

    def _commit(self, name: str, path: str, data: bytes) -> None:
        self._until("commits", lambda client: _good(commit(client, name, {path: data})))
        self.files.setdefault(name, {})[path] = data

    def _push(self, repository: str, tag: str, data: bytes) -> str:
        return self._until("pushes", lambda client: _pushed(client, repository, tag, data))

    @property
    def _repository(self) -> str:
        return f"w{self._number}/net"

    def _until(self, kind: str, write: Callable[[httpx.Client], T]) -> T:
        result = self._run.until_answered(self._random, write)
        self._run.count(kind)
        return result

    def _upload(self, data: bytes) -> None:
        name = metadata(filename="a.bin")
        self.stores[self._until("uploads", self._resumed(data, upload_metadata=name))] = data
        cut = self._random.randrange(len(data) + 1)
        parts = [
            self._run.until_answered(self._random, self._resumed(part, upload_concat="partial"))
            for part in (data[:cut], data[cut:])
        ]

        def join(client: httpx.Client) -> str:
            concat = f"final;{' '.join(parts)}"
            answer = TusClient(client).send("POST", "/v1/uploads", upload_concat=concat, upload_metadata=name)
            return _good(answer).headers["protoslice-store"]

        self.stores[self._until("joined", join)] = data

    def _resumed(self, data: bytes, **fields: str) -> Callable[[httpx.Client], str]:
        """Return an attempt to complete an upload; the attempt returns the store, or the URL of a part."""
        place: list[str] = []
        acknowledged = 0

        def write(client: httpx.Client) -> str:
            nonlocal acknowledged
            tus = TusClient(client)
            if not place:
                place.append(httpx.URL(_good(tus.begin(len(data), **fields)).headers["location"]).path)
            head = tus.head(place[0])
            if head.status_code in {404, 410}:
                self._run.lose(f"uploads: an upload that was begun is {head.status_code}")
                place.clear()
                acknowledged = 0
            offset = int(_good(head).headers["upload-offset"])
            if offset < acknowledged:
                self._run.lose(f"uploads: {acknowledged} bytes were acknowledged, and {offset} are there")
            while offset < len(data):
                end = min(len(data), offset + self._random.randrange(1, len(data) + 1))
                head = _good(tus.patch(place[0], offset, data[offset:end]))
                offset = acknowledged = int(head.headers["upload-offset"])
            if "upload_concat" in fields:
                return place[0]
            if "protoslice-store" not in head.headers:
                raise Refused
            return head.headers["protoslice-store"]

        return write

    def check(self, reader: Reader) -> None:
        """Read back all acknowledged content."""
        for store, data in self.stores.items():
            reader.expect("uploads", store, reader.files(store, {"a.bin": data}), "whole")
        for name, files in self.files.items():
            for path, data in files.items():
                url = f"/{name.removeprefix('models/')}/resolve/main/{path}"
                reader.expect("commits", url, _content(reader.get(url)), data)
        for tag, (digest, data) in self.tags.items():
            _check_pushed(reader, self._repository, tag, digest, data)
        for digest, data in self._pushed.items():
            _check_pushed(reader, "all/net", digest, digest, data)


@dataclass(frozen=True, slots=True)
class Content:
    """The files of a store and how they are sent; with `digest`, a stored file with that digest is shared."""

    files: Mapping[str, bytes]
    digest: bool = False

    def send(self, client: httpx.Client, **parameters: str) -> httpx.Response:
        """Put the store, and return the answer."""
        if len(self.files) > 1:
            return client.post("/v1/stores", params=parameters, files=[("file", file) for file in self.files.items()])
        ((name, data),) = self.files.items()
        digest = f"sha-256=:{b64encode(hashlib.sha256(data).digest()).decode()}:"
        headers = {"repr-digest": digest} if self.digest else {}
        return client.put("/v1/stores", params={"filename": name, **parameters}, content=data, headers=headers)


@dataclass(slots=True)
class Kept:
    """A store of one writer, and its last acknowledged state."""

    id: str
    content: Content
    last: str = "puts"
    removals: int = 0
    removed: float = 0.0
    """The time when the last removal began."""
    tags: Sequence[str] = ()
    """The tags that were removed with the store."""
    ever: set[str] = field(default_factory=set)
    """All tags that have pointed at the store."""


class StoreWriter:
    """A client that puts stores, moves tags, removes, restores and sends again."""

    def __init__(self, run: Run, number: int, random: Random) -> None:
        self._run = run
        self._number = number
        self._random = random
        self._sent = 0
        self._stores: dict[str, Kept] = {}
        self._tags: dict[str, str | None] = {}
        """The tags that only this writer sets, with their stores; tags whose state is unknown are left out."""
        self._large: tuple[str, bytes] | None = None

    def write(self) -> None:
        """Make a random change."""
        live = [each for each in self._stores.values() if each.last != "removals"]
        removed = [each for each in self._stores.values() if each.last == "removals"]
        chance, pick = self._random.random(), self._random.choice
        if chance < 0.3 or len(live) < 4:
            self._put()
        elif chance < 0.4:
            self._move(f"w{self._number}:{pick('ab')}", pick(live))
        elif chance < 0.45:
            self._untag()
        elif chance < 0.6:
            (self._move_shared if chance < 0.52 else self._contest)()
        elif chance < 0.71:
            self._read(pick(live))
            self._look()
        elif chance < 0.88:
            # Large files are removed soon, so that the next store with the same file meets its collection.
            self._remove(max(self._random.sample(live, 3), key=lambda each: each.content.digest))
            if self._random.random() < 0.3:
                self._restore(max(self._stores.values(), key=lambda each: each.removed))
        elif removed:
            (self._restore if self._random.random() < 0.5 else self._resend)(pick(removed))

    def _put(self) -> None:
        self._sent += 1
        name, chance, base = f"{self._number}-{self._sent}", self._random.random(), None
        if chance < 0.35:
            content = Content({f"{name}.bin": self._random.randbytes(self._random.choice((10, 3000, 20_000, 400_000)))})
        elif chance < 0.5:
            sizes = self._random.choices((10, 3000, 20_000, 70_000), k=3)
            content = Content({f"{name}.onnx": onnx(*sizes, seed=self._random.randrange(1 << 40))})
        elif chance < 0.6:
            sizes = self._random.sample((10, 100, 5000, 70_000), 3)
            content = Content({f"{name}/{size}.bin": self._random.randbytes(size) for size in sizes})
        elif chance < 0.85 or self._large is None:
            content = Content({f"{name}.bin": _large_file(self._run.epoch(_EPOCH_SECONDS))}, digest=True)
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
        self._run.recent.append(store)
        if content.digest:
            self._large = store, content.files[f"{name}.bin"]

    def _move(self, tag: str, kept: Kept) -> None:
        def write(client: httpx.Client) -> None:
            answer = client.put(f"/v1/tags/{tag}", json={"store": kept.id})
            if answer.status_code == 404:
                self._run.lose(f"{kept.last}: {kept.id} is 404 when it is tagged")
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
                self._run.suspect(f"DELETE /v1/tags/{tag}", f"tags: {tag} is 404 when it is removed")

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
                self._run.suspect(f"DELETE /v1/stores/{kept.id}", f"{kept.last}: {kept.id} is 404 when it is removed")

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

        if not self._run.until_answered(self._random, write):
            if time.monotonic() - kept.removed < GRACE_SECONDS:
                self._run.lose(f"removals: {kept.id} cannot be restored within the grace")
            return
        self._run.count("restores")
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
            self._run.lose(f"resent: {kept.id} became {found}")
        kept.last = "resent"

    def _move_shared(self) -> None:
        if not self._run.recent:
            return
        tag, store = self._random.choice([*self._run.targets]), self._random.choice([*self._run.recent])
        doubt = Doubt()

        def write(client: httpx.Client) -> bool:
            answer = doubt.ask(lambda: client.put(f"/v1/tags/{tag}", json={"store": store}))
            return answer.status_code != 404 and bool(_good(answer))  # another writer has removed the store

        is_set = self._run.until_answered(self._random, write)
        if is_set:
            self._run.count("tags")
        if is_set or doubt.is_there:
            self._run.targets[tag].add(store)

    def _read(self, kept: Kept) -> None:
        path, data = self._random.choice([*kept.content.files.items()])
        view = "merge" if path.endswith(".onnx") and self._random.random() < 0.5 else f"files/{path}"
        begin = self._random.randrange(len(data))
        end = min(len(data), begin + self._random.choice([1, 5000, len(data)]))
        ranged = {"range": f"bytes={begin}-{end - 1}"}

        def read(client: httpx.Client) -> None:
            answer = client.get(f"/v1/stores/{kept.id}/{view}", headers=ranged)
            if answer.status_code in {404, 500} or (answer.is_success and answer.content != data[begin:end]):
                self._run.lose(f"{kept.last}: {view} of {kept.id} is {answer.status_code} between two writes")
            else:
                _good(answer)

        self._run.until_answered(self._random, read)

    def _look(self) -> None:
        """Look for a tag by its name, by a search and in the list."""
        tag = f"w{self._number}:b"
        if tag not in self._tags:
            return
        store = self._tags[tag]
        removed = {each.id for each in self._stores.values() if each.last == "removals"}

        def read(client: httpx.Client) -> None:
            answer = client.get(f"/v1/tags/{tag}")
            found = None if answer.status_code == 404 else str(_good(answer).json()["store"])
            if found != store:
                self._run.lose(f"tags: {tag} is at {found}, not at {store}")
            items = _good(client.get("/v1/stores", params={"name": tag, "sort": "-size"})).json()["items"]
            if [item["id"] for item in items] != ([] if store is None else [store]):
                self._run.lose(f"tags: a search for {tag} finds {[item['id'] for item in items]}, not {store}")
            items = _good(client.get("/v1/stores", params={"limit": 50})).json()["items"]
            if listed := removed & {item["id"] for item in items}:
                self._run.lose(f"removals: {listed} are listed")

        self._run.until_answered(self._random, read)

    def _contest(self) -> None:
        (store, content), chance = self._random.choice(self._run.contested), self._random.random()

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
        result = self._run.until_answered(self._random, write)
        self._run.count(kind)
        return result

    def check(self, reader: Reader) -> None:
        """Read back all acknowledged content."""
        for kept in self._stores.values():
            if kept.removals:
                audit = reader.get("/v1/audit", params={"what": "store.removed", "subject": kept.id, "limit": 1})
                reader.expect("removals", f"audit of {kept.id}", len(audit.json()["items"]), 1)
            if kept.last == "removals":
                reader.expect("removals", kept.id, reader.get(f"/v1/stores/{kept.id}").status_code, 404)
            else:
                reader.expect(kept.last, kept.id, reader.files(kept.id, kept.content.files), "whole")
        for tag, store in self._tags.items():
            reader.expect("untags" if store is None else "tags", tag, reader.tag(tag), store)


class Writer:
    """A client that makes all kinds of writes, one after the other."""

    def __init__(self, run: Run, number: int, seed: int) -> None:
        self._run = run
        self._random = Random(seed * 1000 + number)
        self._registry = RegistryWriter(run, number, self._random)
        self._stores = StoreWriter(run, number, self._random)

    def work(self) -> None:
        """Write until the kills end."""
        try:
            while not self._run.ended.is_set():
                chance = self._random.random()
                if chance < 0.12:
                    self._registry.write()
                elif chance < 0.3:
                    self._registry.push_same()
                else:
                    self._stores.write()
        except TimeoutError as error:
            self._run.lose(f"writers: {error}")

    def check(self, reader: Reader) -> None:
        """Read back all acknowledged content."""
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
    """Return an answer that acknowledges; raise `Refused` for an answer to try again."""
    if answer.status_code in {404, 409, 410, 412, 423, 429} or answer.status_code > 500:
        raise Refused(answer.status_code, answer.text[:500])
    if not answer.is_success:
        raise AssertionError((answer.request.method, answer.request.url, answer.status_code, answer.text[:500]))
    return answer


def _content(answer: httpx.Response) -> bytes | int:
    """Return the content of an answer, or the status of an error."""
    return answer.content if answer.status_code == 200 else answer.status_code


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
