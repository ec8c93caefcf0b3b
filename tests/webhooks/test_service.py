"""Webhooks and receivers on the loopback: events are delivered, retried and never lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
from tests.support.catalogues import catalogue_of, shared_catalogue
from tests.support.interrupted import FaultyDatabase, FaultyStorage, at_every_call
from tests.support.receiver import Receiver, running_receiver
from tests.support.repositories import change
from tests.support.stores import opened, upload

from protoslice import webhooks as delivery
from protoslice.artifacts import ArtifactRepository, RepositoryName
from protoslice.catalog.spaces import SpaceTable
from protoslice.catalog.webhooks import MOST_HOOKS, Delivery, Webhook, emit
from protoslice.database import Database, transactions
from protoslice.errors import Conflict, InvalidInput, LimitExceeded, NotFound, ProtosliceError
from protoslice.repositories import Repositories
from protoslice.server.api.admin import _undelivered
from protoslice.storage import MemoryStorage
from protoslice.stores import Stores
from protoslice.stores.collection import collect_garbage
from protoslice.stores.service import Spaces
from protoslice.webhooks import NewWebhook, Webhooks

LOOPBACK = ("127.0.0.0/8",)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@dataclass
class Clock:
    """The time as a dispatcher sees it."""

    later: float = 0

    def time(self) -> float:
        """Return the seconds since the epoch, with the test's advance."""
        return time.time() + self.later


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(delivery, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver when a test calls for it, and not in the background."""
    monkeypatch.setattr(delivery, "DUE_SECONDS", 3600.0)


async def make(stores: Stores, data: bytes) -> str:
    """Make a store of one file; return its id."""
    return (await upload(stores, data)).store.id


_CATALOGUE: Final = ContextVar[Path]("catalogue")


@pytest.fixture(autouse=True)
def catalogue(tmp_path: Path) -> Iterator[None]:
    """Let all replicas of a test share one catalogue."""
    token = _CATALOGUE.set(tmp_path / "catalog.sqlite")
    yield
    _CATALOGUE.reset(token)


@asynccontextmanager
async def webhooks(receiver: Receiver, networks: Sequence[str] = LOOPBACK) -> AsyncIterator[Webhooks]:
    """Return a replica whose operator allows the receiver."""
    async with shared_catalogue(_CATALOGUE.get()) as database:
        hooks = await Webhooks.open(database, [receiver.url.removesuffix("/hooks")], networks)
        try:
            yield hooks
        finally:
            await hooks.close()


@asynccontextmanager
async def replica(receiver: Receiver, networks: Sequence[str] = LOOPBACK) -> AsyncIterator[tuple[Webhooks, Stores]]:
    """Return webhooks, and stores that report their changes to them."""
    async with webhooks(receiver, networks) as hooks, opened(MemoryStorage(), database=hooks.database) as stores:
        yield hooks, stores


async def deliver(hooks: Webhooks) -> None:
    """Deliver pending deliveries."""
    await hooks._dispatcher.look()


async def idle(hooks: Webhooks) -> None:
    """Wait until no delivery is in progress in the background."""
    while len(hooks._dispatcher._tasks) > 1:  # one task watches for deliveries forever
        await asyncio.sleep(0.001)


async def pending(hooks: Webhooks) -> list[Delivery]:
    """Return the undelivered deliveries of all webhooks of the default space."""
    found = [await hooks.deliveries(hook, dead=False, limit=100, cursor=None) for hook in await hooks.of("default")]
    return [each for page in found for each in page.items]


async def put(hooks: Webhooks, receiver: Receiver, *events: str, space: str = "default", name: str = "ci") -> Webhook:
    """Create a webhook for the receiver."""
    return (await hooks.put(space, NewWebhook(name, receiver.url, events)))[0]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_url_that_is_an_allowed_prefix_itself_is_taken(receiver: Receiver, slash: str) -> None:
    async with shared_catalogue(_CATALOGUE.get()) as database:
        hooks = await Webhooks.open(database, [receiver.url + slash], LOOPBACK)
        try:
            async with opened(MemoryStorage(), database=database) as stores:
                await put(hooks, receiver, "store.created")
                for beyond in (receiver.url + "2", receiver.url.rpartition("/")[0]):
                    with pytest.raises(InvalidInput, match="does not allow"):
                        await hooks.put("default", NewWebhook("beyond", beyond, ()))
                store = await make(stores, b"model")
                await deliver(hooks)
                assert receiver.events() == [("store.created", store)]
        finally:
            await hooks.close()


async def test_every_change_is_told_and_signed(receiver: Receiver) -> None:
    async with replica(receiver) as (hooks, stores):
        secret = (await put(hooks, receiver)).secret_text
        store = await make(stores, b"model")
        await make(stores, b"model")  # is there
        await stores.put_tag("resnet:4", store)
        await stores.tags.remove("resnet:4")
        repository = await Repositories(stores).create("ann/resnet")
        first = await change(repository, {"a": b"1"}, title="first")
        await repository.create("tags", "v1")
        await repository.remove("tags", "v1")
        artifacts = ArtifactRepository(stores, RepositoryName("lib/net"))
        pushed, _, _ = await artifacts.put_manifest("4", b'{"layers": []}', "application/json")
        await artifacts.delete_manifest("4")
        await artifacts.put_manifest("5", pushed.data, "application/json", tags=["6"])
        await artifacts.delete_manifest(pushed.digest.text)
        await stores.delete(store)
        await deliver(hooks)
        assert sorted(receiver.events()) == sorted(
            [
                ("store.created", store),
                ("tag.set", "resnet:4"),
                ("tag.removed", "resnet:4"),
                ("store.created", first.store),
                ("ref.set", "ann/resnet@main"),
                ("ref.set", "ann/resnet@v1"),
                ("ref.removed", "ann/resnet@v1"),
                ("artifact.tagged", "lib/net:4"),
                ("artifact.untagged", "lib/net:4"),
                *((event, f"lib/net:{tag}") for event in ("artifact.tagged", "artifact.untagged") for tag in "56"),
                ("store.removed", store),
            ]
        )
        assert all(receiver.is_signed(number, secret) for number in range(len(receiver.posts)))
        bodies = {body["type"]: body for body in (json.loads(body) for _, body in receiver.posts)}
        assert bodies["protoslice.ref.removed"]["data"] == {
            "repository": "ann/resnet", "ref": "refs/tags/v1", "commit": first.id, "store": first.store,
            "title": "first", "user": "",
        }  # fmt: skip
        assert {body["specversion"] for body in bodies.values()} == {"1.0"}
        assert {body["source"] for body in bodies.values()} == {"/spaces/default"}
        assert await pending(hooks) == []


@pytest.mark.parametrize("most", [1, 6, 500])
async def test_a_repository_is_removed_with_an_event_for_each_ref(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(transactions, "BATCH", most)
    async with replica(receiver) as (hooks, stores):
        catalogue = Repositories(stores)
        repository = await catalogue.create("ann/resnet")
        await change(repository, {"a": b"1"})
        for name in ("v1", "v2", "v3"):
            await repository.create("tags", name)
        await deliver(hooks)
        await put(hooks, receiver, "ref.removed")
        await catalogue.remove("ann/resnet")
        await deliver(hooks)
        refs = ["ann/resnet@main", *(f"ann/resnet@v{number}" for number in (1, 2, 3))]
        assert sorted(receiver.events()) == [("ref.removed", ref) for ref in refs]
        await collect_garbage(MemoryStorage(), hooks.database, grace_seconds=0)
        assert await held(hooks.database) == 0


async def held(database: Database) -> int:
    """Return the entries of all spaces."""
    return (await SpaceTable(database).totals())[0].entries


async def test_a_webhook_hears_of_its_space_and_its_events_alone(receiver: Receiver) -> None:
    async with replica(receiver) as (hooks, stores):
        spaces = Spaces(stores)
        await spaces.create("team")
        await put(hooks, receiver, "tag.set", space="team")
        await put(hooks, receiver, "ref.set")  # listens in the default space, for another event
        for place in (stores, await spaces.get("team")):
            store = await make(place, b"model")
            await place.put_tag("t", store)
            await place.tags.remove("t")
        await deliver(hooks)
        assert receiver.events() == [("tag.set", "t")]
        assert json.loads(receiver.posts[0][1])["source"] == "/spaces/team"


@dataclass
class Case:
    """A change, and the condition that the storage shows once the change has happened."""

    event: str
    act: Callable[[Stores], Awaitable[object]]
    is_made: Callable[[Stores], Awaitable[bool]]
    before: Callable[[Stores], Awaitable[object]] = field(default=lambda stores: asyncio.sleep(0))


async def _tag(stores: Stores, data: bytes) -> None:
    await stores.put_tag("t", await make(stores, data))


async def _points_at(stores: Stores, data: bytes) -> bool:
    with suppress(NotFound):
        return (await stores.tags.get("t")).store == await make(stores, data)
    return False


async def _is_there(stores: Stores) -> bool:
    return bool((await stores.list()).items)


async def _remove(stores: Stores) -> None:
    await stores.delete((await stores.list()).items[0].id)


async def _is_gone(stores: Stores) -> bool:
    return not await _is_there(stores)


CASES = [
    Case("store.created", lambda stores: make(stores, b"1"), _is_there),
    Case("store.removed", _remove, _is_gone, lambda stores: make(stores, b"1")),
    Case("tag.set", lambda stores: _tag(stores, b"1"), lambda stores: _points_at(stores, b"1")),
    Case(
        "tag.set",
        lambda stores: _tag(stores, b"2"),
        lambda stores: _points_at(stores, b"2"),
        lambda stores: _tag(stores, b"1"),
    ),
]


@pytest.mark.parametrize("answers", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.event)
def test_a_replica_that_dies_at_any_call_loses_no_event(
    case: Case, answers: bool, receiver: Receiver, clock: Clock, tmp_path: Path
) -> None:
    async def dies_at(number: int) -> bool:
        """Return True when the change makes this many storage calls and transactions."""
        storage, clock.later = MemoryStorage(), 0
        _CATALOGUE.set(tmp_path / f"{number}.sqlite")
        async with webhooks(receiver) as hooks, opened(storage, database=hooks.database) as stores:
            await case.before(stores)
            await put(hooks, receiver, case.event)
        receiver.posts.clear()
        mortal = FaultyStorage(storage, 1 << 40, after=answers, stays_down=True)
        async with (
            shared_catalogue(_CATALOGUE.get()) as shared,
            opened(mortal, database=FaultyDatabase(shared, mortal)) as stores,
        ):
            mortal.calls.clear()
            mortal._fail_at = number
            with suppress(ProtosliceError):
                await case.act(stores)
            reached = mortal.failed
        async with webhooks(receiver) as other, opened(storage, database=other.database) as stores:
            await deliver(other)
            made = await case.is_made(stores)
            assert await pending(other) == [], number
        assert len(receiver.posts) == made, (number, made, receiver.events())
        return reached

    asyncio.run(at_every_call(dies_at, 2))


async def test_two_replicas_seldom_send_the_same(receiver: Receiver, clock: Clock) -> None:
    async with webhooks(receiver) as one, webhooks(receiver) as other:
        await put(one, receiver)
        for number in range(20):
            await one.database.write(lambda tx: emit(tx, "default", "tag.set", str(number), {}))  # noqa: B023
        await asyncio.gather(one._dispatcher.look(), other._dispatcher.look())
        assert sorted(int(subject) for _, subject in receiver.events()) == [*range(20)]


async def test_a_refused_event_is_tried_again_until_it_is_dead(receiver: Receiver, clock: Clock) -> None:
    async with replica(receiver) as (hooks, stores):
        hook, receiver.status = await put(hooks, receiver, "store.created"), 503
        store = await make(stores, b"model")
        await deliver(hooks)
        for attempts, wait in enumerate(delivery.WAITS, 1):
            deliveries = (await hooks.deliveries(hook, dead=False, limit=9, cursor=None)).items
            assert [(each.attempts, each.error) for each in deliveries] == [
                (attempts, "the receiver responded with status 503")
            ]
            assert len(receiver.posts) == attempts
            clock.later += wait - 1
            await hooks._dispatcher.look()
            assert len(receiver.posts) == attempts, "too early"
            clock.later += 2
            await hooks._dispatcher.look()
        assert not (await hooks.deliveries(hook, dead=False, limit=9, cursor=None)).items
        dead = (await hooks.deliveries(hook, dead=True, limit=9, cursor=None)).items
        assert [(json.loads(each.event)["subject"], each.attempts) for each in dead] == [
            (store, len(delivery.WAITS) + 1)
        ]

        receiver.status = 200
        receiver.posts.clear()
        assert await hooks.redeliver("default", "ci") == 1
        await idle(hooks)
        assert receiver.events() == [("store.created", store)]
        assert receiver.posts[0][0]["webhook-id"] == dead[0].id
        assert not (await hooks.deliveries(hook, dead=True, limit=9, cursor=None)).items
        assert not (await hooks.deliveries(hook, dead=False, limit=9, cursor=None)).items


async def test_a_receiver_that_is_gone_is_not_asked_again(receiver: Receiver) -> None:
    async with replica(receiver) as (hooks, stores):
        hook, receiver.status = await put(hooks, receiver, "store.created"), 410
        await make(stores, b"model")
        await deliver(hooks)
        assert [each.error for each in (await hooks.deliveries(hook, dead=True, limit=9, cursor=None)).items] == [
            "the receiver responded with status 410"
        ]


async def test_a_damaged_event_becomes_dead_and_stops_no_other(receiver: Receiver) -> None:
    async with replica(receiver) as (hooks, stores):
        hook = await put(hooks, receiver, "store.created")
        damaged = ["{", "", "[" * 100_000]
        sql = "INSERT INTO deliveries VALUES (:hook, :id, :event, 0, 1, 1, 0, '')"
        rows = [{"hook": hook.id, "id": str(number), "event": event} for number, event in enumerate(damaged)]
        await hooks.database.write(lambda tx: tx.many(sql, rows))
        store = await make(stores, b"model")
        await deliver(hooks)
        assert receiver.events() == [("store.created", store)]
        dead = (await hooks.deliveries(hook, dead=True, limit=9, cursor=None)).items
        assert [each.event for each in dead] == damaged
        assert {each.error for each in dead} == {"The stored event is damaged and cannot be sent"}
        assert [(found.type, found.subject) for found in map(_undelivered, dead)] == [("protoslice.damaged", "")] * 3


async def test_dead_deliveries_are_bounded(receiver: Receiver, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "MOST_DEAD", 2)
    async with replica(receiver) as (hooks, stores):
        hook, receiver.status = await put(hooks, receiver, "store.created"), 410
        made = []
        for number in range(4):
            made.append(await make(stores, b"model %d" % number))
            await deliver(hooks)
        dead = (await hooks.deliveries(hook, dead=True, limit=9, cursor=None)).items
        assert {json.loads(each.event)["subject"] for each in dead} <= set(made)
        assert len(dead) == 2


def test_deliveries_are_written_in_the_transaction_of_the_change(receiver: Receiver) -> None:
    """A webhook adds no transaction, and a failed change writes no delivery."""

    async def work(space: str | None) -> tuple[Counter[str], int]:
        storage = MemoryStorage()
        database = catalogue_of(storage)
        hooks = await Webhooks.open(database, [receiver.url.removesuffix("/hooks")], LOOPBACK)
        if space is not None:
            await put(hooks, receiver, space=space)
        async with opened(storage) as stores:
            store = await make(stores, b"model")
            database.transactions.clear()
            await stores.put_tag("t", store)
            with pytest.raises(Conflict):
                await stores.put_tag("t", store, if_none_match=True)
            await stores.tags.remove("t")
            counted = database.transactions.copy()
            written = await database.read(lambda tx: tx.all("SELECT count(*) FROM deliveries"))
        await hooks.close()
        return counted, written[0][0]

    without, _ = asyncio.run(work(None))
    assert asyncio.run(work("team")) == (without, 0)
    assert asyncio.run(work("default")) == (without, 3), "a store, a tag that is set, and one that is removed"


async def test_events_are_delivered_in_the_background(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "DUE_SECONDS", 0.01)
    async with replica(receiver) as (hooks, stores):
        await put(hooks, receiver, "store.created")
        store = await make(stores, b"model")
        async with asyncio.timeout(60):
            while not receiver.posts:
                await asyncio.sleep(0.01)
        assert receiver.events() == [("store.created", store)]


async def test_no_redirect_is_followed(receiver: Receiver) -> None:
    with running_receiver() as inside:
        receiver.status, receiver.location = 307, inside.url
        async with replica(receiver) as (hooks, stores):
            hook = await put(hooks, receiver, "store.created")
            await make(stores, b"model")
            await deliver(hooks)
            deliveries = (await hooks.deliveries(hook, dead=False, limit=9, cursor=None)).items
            assert [each.error for each in deliveries] == ["the receiver responded with status 307"]
        assert not inside.posts


async def test_a_private_address_is_not_visited(receiver: Receiver) -> None:
    async with replica(receiver, ()) as (hooks, stores):
        hook = await put(hooks, receiver, "store.created")
        await make(stores, b"model")
        await deliver(hooks)
        deliveries = (await hooks.deliveries(hook, dead=False, limit=9, cursor=None)).items
        assert [each.error for each in deliveries] == ["the receiver did not respond (StorageDenied)"]
    assert not receiver.posts


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (NewWebhook("ci", "http://elsewhere.example/hooks"), InvalidInput),
        (NewWebhook("ci", "file:///etc/passwd"), InvalidInput),
        (NewWebhook("ci", "http://user:secret@127.0.0.1/hooks"), InvalidInput),
        (NewWebhook("C I", "http://elsewhere.example/hooks"), InvalidInput),
        (NewWebhook("ci", "http://elsewhere.example/hooks", ("store.burnt",)), InvalidInput),
        (NewWebhook("ci", "http://elsewhere.example/" + "a" * 3000), InvalidInput),
    ],
)
async def test_terms_that_no_webhook_may_have(wanted: NewWebhook, error: type[Exception], receiver: Receiver) -> None:
    async with webhooks(receiver) as hooks:
        with pytest.raises(error):
            await hooks.put("default", wanted)


async def test_a_space_has_few_webhooks_and_a_removed_one_gets_nothing(receiver: Receiver) -> None:
    async with replica(receiver) as (hooks, stores):
        for number in range(MOST_HOOKS):
            await put(hooks, receiver, name=f"h{number}")
        with pytest.raises(LimitExceeded):
            await put(hooks, receiver, name="more")
        await put(hooks, receiver, name="h0")  # replaced
        for number in range(MOST_HOOKS):
            await hooks.remove("default", f"h{number}")
        await make(stores, b"model")
        await deliver(hooks)
        assert not receiver.posts
        with pytest.raises(NotFound):
            await hooks.remove("default", "h0")
