"""Webhooks of spaces: their names, URLs and events, and the delivery of events.

An event is POSTed as a CloudEvent, signed as in Standard Webhooks, and sent again after a failure. Each replica has a
dispatcher, which takes over the deliveries of dead replicas.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import secrets
import ssl
import time
from base64 import b64encode
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import httpcore

from protoslice.catalog.webhooks import Delivery, DeliveryTable, Webhook, WebhookTable
from protoslice.concurrency.chores import keep_running
from protoslice.concurrency.gather import map_concurrently
from protoslice.database import Database
from protoslice.errors import InvalidInput, StorageDenied, StorageUnavailable
from protoslice.storage.sources import check_allowed, check_prefixes
from protoslice.storage.web_guard import Networks, guarded_pool
from protoslice.stores import ResultPage

_log = logging.getLogger(__name__)

DELIVERY_SECONDS: Final = 10.0
_TIMEOUTS: Final = {"timeout": {"connect": 5.0, "read": 10.0, "write": 5.0, "pool": 10.0}}
_FAILURES: Final = (
    httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException, httpcore.UnsupportedProtocol, OSError,
    TimeoutError, ValueError, StorageDenied, StorageUnavailable,
)  # fmt: skip
_GONE: Final = 410
LOOK_SECONDS: Final = 10.0
"""Time between two looks at the webhooks."""
DUE_SECONDS: Final = 1.0
"""Time between two deliveries of pending events, if there are webhooks."""
LEASE_SECONDS: Final = 60.0
"""Time for which a replica has a delivery to itself; longer than an attempt takes."""
WAITS: Final = (10, 60, 300, 1800, 7200, 21_600, 43_200, 86_400)
"""Seconds before each further attempt, some 45 hours in all."""
MOST_DEAD: Final = 1000
"""Dead deliveries of a webhook; the oldest go first."""
MOST_WAITING: Final = 10_000
"""Events that wait for a webhook; the oldest beyond them are dropped."""
_AT_ONCE: Final = 8
"""Deliveries of a replica at a time."""


class Refused(Exception):
    """Raised when the receiver did not accept an event; `final` if a retry is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Sender:
    """Sender of POSTs to URLs below the operator's prefixes, at permitted addresses; follows no redirects."""

    def __init__(self, prefixes: Sequence[str], networks: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        check_prefixes(prefixes)
        self._prefixes = tuple(prefixes)
        self._pool = guarded_pool(Networks(*networks), tls)

    def check(self, url: str) -> None:
        """Raise `StorageDenied` or `InvalidInput` unless a URL is an allowed prefix or below one."""
        check_allowed(url, self._prefixes)

    async def send(self, hook: Webhook, delivery: Delivery) -> None:
        """POST an event; raise `Refused` unless the receiver responds 2xx within `DELIVERY_SECONDS`."""
        try:
            json.loads(delivery.event)
        except (ValueError, RecursionError):
            raise Refused("The stored event is damaged and cannot be sent", final=True) from None
        body = delivery.event.encode()
        try:
            self.check(hook.url)  # again: the operator may have removed a prefix
            async with asyncio.timeout(DELIVERY_SECONDS):
                headers = _headers(hook, delivery.id, body)
                # Only the status counts: the body of the answer is not read.
                async with self._pool.stream(
                    "POST", hook.url, headers=headers, content=body, extensions=_TIMEOUTS
                ) as answer:
                    status = answer.status
        except _FAILURES as error:
            raise Refused(f"no response ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise Refused(f"status {status}", final=status == _GONE)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def signature(secret: bytes, id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of a POST: HMAC-SHA-256 over id, time and body, with dots between them."""
    mac = hmac.new(secret, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    return "v1," + b64encode(mac.digest()).decode()


def _headers(hook: Webhook, id: str, body: bytes) -> list[tuple[str, str]]:
    timestamp = str(int(time.time()))
    return [
        ("Content-Type", "application/cloudevents+json; charset=utf-8"),
        ("Content-Length", str(len(body))),
        ("User-Agent", "protoslice-webhooks"),
        ("webhook-id", id),
        ("webhook-timestamp", timestamp),
        ("webhook-signature", signature(hook.secret, id, timestamp, body)),
    ]


class Dispatcher:
    """Deliveries of one replica; between `start` and `close` it polls for deliveries."""

    def __init__(self, table: WebhookTable, deliveries: DeliveryTable, sender: Sender) -> None:
        self._sender = sender
        self._table = table
        self.deliveries = deliveries
        self._hooks: Mapping[str, Sequence[Webhook]] = {}
        """Webhooks by space, so that a write asks about those of its space alone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._window = asyncio.Semaphore(_AT_ONCE)

    async def start(self) -> None:
        """Load the webhooks, and begin to poll for deliveries."""
        await self.learn()
        self._begin(keep_running("the delivery of webhook events", self._look_for_ever))

    async def close(self) -> None:
        """Stop; undelivered events stay in the database."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def learn(self) -> None:
        """Load the webhooks of all spaces."""
        hooks = defaultdict[str, list[Webhook]](list)
        for hook in await self._table.all():
            hooks[hook.space].append(hook)
        self._hooks = dict(hooks)

    async def look(self) -> None:
        """Load the webhooks, deliver pending events, and drop the oldest of too many."""
        await self.learn()
        await self.deliver_due()
        for hook in [hook for hooks in self._hooks.values() for hook in hooks]:
            if dropped := await self.deliveries.trim(hook.id, MOST_WAITING):
                _log.warning("webhook %s of %s: too many pending events, %d dropped", hook.name, hook.space, dropped)

    def begin_due(self) -> None:
        """Deliver pending events in the background."""
        self._begin(self._logged(self.deliver_due()))

    async def deliver_due(self) -> None:
        """Take pending events and deliver them."""
        while taken := await self.deliveries.take(time.time(), time.time() + LEASE_SECONDS):
            await map_concurrently(lambda each: self._logged(self._delivered(each)), taken)

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        learned = loop.time()
        while True:
            await asyncio.sleep(DUE_SECONDS)
            if loop.time() - learned >= LOOK_SECONDS:
                learned = loop.time()
                await self._logged(self.look())
            elif self._hooks:
                await self._logged(self.deliver_due())

    async def _delivered(self, delivery: Delivery) -> None:
        """Deliver an event that was taken."""
        async with self._window:
            await self._deliver(delivery)

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work and log a failure, after which a later poll repeats the work."""
        try:
            await work
        except Exception:
            _log.exception("a webhook delivery failed and is tried again later")

    async def _deliver(self, delivery: Delivery) -> None:
        hook = await self._hook(delivery.hook)
        if hook is None:  # removed, and its deliveries with it
            return
        try:
            await self._sender.send(hook, delivery)
        except Refused as refused:
            if delivery.attempts < len(WAITS) and not refused.final:
                await self.deliveries.postpone(delivery, str(refused), time.time() + WAITS[delivery.attempts])
                return
            _log.warning(
                "webhook %s of %s: event %s failed permanently, %s", hook.name, hook.space, delivery.id, refused
            )
            await self.deliveries.mark_dead(delivery, str(refused), most=MOST_DEAD)
            return
        await self.deliveries.delete(delivery)

    async def _hook(self, id: str) -> Webhook | None:
        """Return the webhook with an id, even if another replica created it."""
        found = next((hook for hooks in self._hooks.values() for hook in hooks if hook.id == id), None)
        if found is None:
            await self.learn()
            found = next((hook for hooks in self._hooks.values() for hook in hooks if hook.id == id), None)
        return found

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


EVENTS: Final = (
    "store.created",
    "store.removed",
    "tag.set",
    "tag.removed",
    "ref.set",
    "ref.removed",
    "artifact.tagged",
    "artifact.untagged",
)
"""Types of events, without the `protoslice.` that CloudEvents has before them."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_URL: Final = 2048


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """Properties of a webhook; an empty list of events means all events."""

    name: str
    url: str
    events: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise `InvalidInput` for an invalid name, URL or event."""
        if not is_webhook_name(self.name):
            raise InvalidInput(f"Invalid webhook name {self.name[:80]!r}: use a-z, 0-9 and '-', at most 63 characters")
        if len(self.url) > _LONGEST_URL or not self.url.startswith(("https://", "http://")):
            raise InvalidInput(f"Invalid webhook URL: use http or https, at most {_LONGEST_URL} characters")
        if unknown := sorted(set(self.events) - set(EVENTS)):
            raise InvalidInput(f"Unknown events {', '.join(unknown)[:200]}: use {', '.join(EVENTS)}")


def is_webhook_name(name: str) -> bool:
    """Return True when `name` is a valid name of a webhook."""
    return _NAME.fullmatch(name) is not None


class Webhooks:
    """Webhooks of all spaces."""

    def __init__(self, database: Database, sender: Sender) -> None:
        self.database = database
        self._table = WebhookTable(database)
        self._deliveries = DeliveryTable(database)
        self._sender = sender
        self._dispatcher = Dispatcher(self._table, self._deliveries, sender)

    @classmethod
    async def open(cls, database: Database, prefixes: Sequence[str], networks: Sequence[str]) -> Self:
        """Open webhooks that may use URLs below `prefixes`; private addresses only in `networks`."""
        opened = cls(database, Sender(prefixes, networks))
        await opened._dispatcher.start()
        return opened

    async def close(self) -> None:
        """Stop delivering; undelivered events stay in the database."""
        await self._dispatcher.close()
        await self._sender.close()

    async def put(
        self, space: str, wanted: NewWebhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook, with a new secret; return it, and True if it is new. Its deliveries stay.

        Raise `Changed` unless its secret is `if_match`, if given, or, with `if_none_match`, it does not exist.
        """
        wanted.check()
        try:
            self._sender.check(wanted.url)
        except StorageDenied:
            raise InvalidInput(
                "The operator does not allow this webhook `url` (PROTOSLICE_WEBHOOK_ALLOW): use an allowed "
                "prefix, or ask the operator"
            ) from None
        events, secret = tuple(sorted(set(wanted.events))), secrets.token_bytes(32)
        proposed = Webhook(secrets.token_hex(16), space, wanted.name, wanted.url, events, time.time(), secret)
        hook, created = await self._table.put(proposed, if_match=if_match, if_none_match=if_none_match)
        await self._dispatcher.learn()
        return hook, created

    async def of(self, space: str) -> list[Webhook]:
        """Return the webhooks of a space, sorted by name."""
        return await self._table.of(space)

    async def get(self, space: str, name: str) -> Webhook:
        """Return a webhook of a space; raise `NotFound` if there is none of that name."""
        return await self._table.get(space, name)

    async def deliveries(self, hook: Webhook, *, dead: bool, limit: int, cursor: str | None) -> ResultPage[Delivery]:
        """Return a page of deliveries to a webhook, oldest first: retried ones, or dead ones."""
        found = await self._deliveries.page(hook.id, dead=dead, limit=limit + 1, after=cursor or "")
        return ResultPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def remove(self, space: str, name: str, *, if_match: bytes | None = None) -> None:
        """Remove a webhook and its deliveries; raise `NotFound` if there is none of that name."""
        await self._table.remove(await self.get(space, name), if_match=if_match)
        await self._dispatcher.learn()

    async def redeliver(self, space: str, name: str) -> int:
        """Deliver the dead events of a webhook again; return their number."""
        hook = await self.get(space, name)
        count = await self._deliveries.redeliver(hook.id, time.time())
        self._dispatcher.begin_due()
        return count
