"""Clients that write, read and remove at random, and hold every later answer against earlier ones."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import httpx
from tests.support.stores import onnx

KEPT_STORES = 12
UNREACHED = {502, 503, 504}
"""Statuses that may be answered while something is down."""


class Unsure(Exception):
    """A request without an answer that tells whether it took effect."""


@dataclass
class Ledger:
    """Everything that one client knows of its stores and its tag."""

    seeds: dict[str, int] = field(default_factory=dict)
    """Seeds of stores that must be there, by id."""
    removed: set[str] = field(default_factory=set)
    """Ids of stores that must not be there."""
    tagged: set[str] = field(default_factory=set)
    """Ids of which one is the tag's; empty as long as none has been set."""


def content(seed: int) -> bytes:
    """A model of 20 kB to 1.5 MB, other for every seed."""
    return onnx(20_000 + seed * 7919 % 1_500_000, 300, seed=seed)


class Caller:
    """A client with a ledger; it goes on until it is told to stop."""

    def __init__(self, url: str, number: int, seed: int = 0) -> None:
        self.ledger = Ledger()
        self.wrong: list[str] = []
        """Answers that contradict the ledger."""
        self.gone: list[str] = []
        """Removals answered 404, right when nginx passed them on twice."""
        self.answered: Counter[str] = Counter()
        self._number = number
        self._random = Random(seed * 1000 + number)
        self._made = 0
        self._http = httpx.Client(base_url=url, timeout=60)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._go, name=f"caller {number}")

    def start(self) -> None:
        """Start the thread that asks."""
        self._thread.start()

    def stop(self) -> None:
        """End after the request that is under way."""
        self._stopping.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "a request has hung for 90 seconds"
        self._http.close()

    def _go(self) -> None:
        calls = [
            self._put,
            self._read,
            self._read,
            self._read,
            self._tag,
            self._find,
            self._search,
            self._list,
            self._remove,
        ]
        while not self._stopping.is_set():
            call = self._random.choice(calls) if len(self.ledger.seeds) > 2 else self._put
            try:
                call()
                self.answered[call.__name__.strip("_")] += 1
            except Unsure as why:
                self.answered[f"unsure: {why}"] += 1
                self._stopping.wait(0.1)

    def _ask(self, method: str, path: str, expected: set[int], **more: object) -> httpx.Response:
        try:
            answer = self._http.request(method, path, **more)  # type: ignore[arg-type]
        except httpx.TransportError as error:
            raise Unsure(type(error).__name__) from error
        if answer.status_code in UNREACHED:
            raise Unsure(str(answer.status_code))
        if answer.status_code not in expected:
            self.wrong.append(f"{method} {path}: {answer.status_code} {answer.text[:300]}")
            raise Unsure("wrong")
        return answer

    def _put(self) -> None:
        self._made += 1
        seed = self._number * 1_000_000 + self._made
        answer = self._ask("POST", "/v1/stores?filename=model.onnx", {201}, content=content(seed))
        self.ledger.seeds[answer.json()["id"]] = seed

    def _read(self) -> None:
        store, seed = self._any()
        data = content(seed)
        begin = self._random.randrange(len(data))
        end = min(len(data), begin + self._random.choice([1, 5000, len(data)]))
        ranged = {"range": f"bytes={begin}-{end - 1}"}
        answer = self._ask("GET", f"/v1/stores/{store}/merge", {206}, headers=ranged)
        self._expect(answer.content == data[begin:end], f"bytes {begin} to {end} of {store}")

    def _tag(self) -> None:
        store, _ = self._any()
        before = self.ledger.tagged
        # Until there is an answer either may be: what the tag was, or what it is asked to be.
        self.ledger.tagged = before | {store}
        self._ask("PUT", f"/v1/tags/own-{self._number}", {200, 201}, json={"store": store})
        self.ledger.tagged = {store}

    def _find(self) -> None:
        if self.ledger.tagged:
            found = self._ask("GET", f"/v1/tags/own-{self._number}", {200, 404}).json().get("store")
            self._expect(found in self.ledger.tagged, f"tag own-{self._number} is at {found}")

    def _search(self) -> None:
        if len(self.ledger.tagged) == 1:
            page = self._ask("GET", f"/v1/stores?name=own-{self._number}&sort=-size", {200}).json()["items"]
            found = {item["id"] for item in page}
            self._expect(found == self.ledger.tagged, f"a search for own-{self._number} finds {found}")

    def _list(self) -> None:
        page = self._ask("GET", "/v1/stores?limit=50", {200}).json()["items"]
        self._expect(all(item["id"] not in self.ledger.removed for item in page), "a removed store is listed")

    def _remove(self) -> None:
        store, _ = self._any()
        if len(self.ledger.seeds) < KEPT_STORES or store in self.ledger.tagged:
            return
        # Until there is an answer the store may be there or not: nothing is expected of it.
        del self.ledger.seeds[store]
        # nginx asks the other replica when the first dies, which may have removed the store before.
        if self._ask("DELETE", f"/v1/stores/{store}", {200, 204, 404}).status_code == 404:
            self.gone.append(f"DELETE /v1/stores/{store}")
        self.ledger.removed.add(store)

    def _any(self) -> tuple[str, int]:
        return self._random.choice(list(self.ledger.seeds.items()))

    def _expect(self, held: bool, what: str) -> None:
        if not held:
            self.wrong.append(what)


def passed_on_twice(access_log: str) -> set[str]:
    """Requests of an access log of nginx that name two replicas: the first gave no answer."""
    return {line.split('"')[1] for line in access_log.splitlines() if ", " in line}


def faults(ledger: Ledger, number: int, get: Callable[[str], httpx.Response]) -> list[str]:
    """Entries of a ledger that `get` answers otherwise."""
    wrong = [
        f"store {store} is lost or other"
        for store, seed in ledger.seeds.items()
        if get(f"/v1/stores/{store}/merge").content != content(seed)
    ]
    wrong += [f"store {store} is there" for store in ledger.removed if get(f"/v1/stores/{store}").status_code != 404]
    removals = "/v1/audit?what=store.removed&limit=1&subject="
    wrong += [
        f"removal of {store} is not in the audit"
        for store in ledger.removed
        if not get(f"{removals}{store}").json()["items"]
    ]
    if ledger.tagged and get(f"/v1/tags/own-{number}").json().get("store") not in ledger.tagged:
        wrong.append(f"tag own-{number}")
    return wrong
