"""The webhooks of spaces, and the delivery of events to webhooks.

An event is sent with POST as a CloudEvent, is signed according to Standard Webhooks, and is sent again after a failure.
Each replica has a dispatcher, which also takes over the deliveries of replicas that have stopped.
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
"""Seconds after which a replica loads the webhooks again."""
DUE_SECONDS: Final = 1.0
"""Seconds between two searches for pending deliveries, if there are webhooks."""
LEASE_SECONDS: Final = 60.0
"""Seconds for which a replica reserves a delivery. No attempt takes longer."""
WAITS: Final = (10, 60, 300, 1800, 7200, 21_600, 43_200, 86_400)
"""Seconds to wait before each further attempt. All waits together take about 45 hours."""
MOST_DEAD: Final = 1000
"""Maximum number of dead deliveries (no longer retried) of a webhook. Older deliveries are removed first."""
MOST_WAITING: Final = 10_000
"""Maximum number of pending events of a webhook. If there are more, the oldest events are dropped."""
_AT_ONCE: Final = 8
"""Maximum number of concurrent deliveries of a replica."""


class Refused(Exception):
    """Raised when the receiver of a webhook does not accept an event. `final` is True if a retry is useless."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Sender:
    """A sender of events, which only connects to URLs and network addresses that the operator allows.

    The sender does not follow redirects.
    """

    def __init__(self, prefixes: Sequence[str], networks: Sequence[str], tls: ssl.SSLContext | None = None) -> None:
        check_prefixes(prefixes)
        self._prefixes = tuple(prefixes)
        self._pool = guarded_pool(Networks(*networks), tls)

    def check(self, url: str) -> None:
        """Raise `StorageDenied` or `InvalidInput` unless `url` is an allowed prefix or is below one."""
        check_allowed(url, self._prefixes)

    async def send(self, hook: Webhook, delivery: Delivery) -> None:
        """Send an event; raise `Refused` if the receiver does not respond with 2xx within `DELIVERY_SECONDS`."""
        try:
            json.loads(delivery.event)
        except (ValueError, RecursionError):
            raise Refused("The stored event is damaged and cannot be sent", final=True) from None
        body = delivery.event.encode()
        try:
            self.check(hook.url)  # the operator may have removed a prefix since the webhook was created
            async with asyncio.timeout(DELIVERY_SECONDS):
                headers = _headers(hook, delivery.id, body)
                # The body of the response is not read, because only the status matters.
                async with self._pool.stream(
                    "POST", hook.url, headers=headers, content=body, extensions=_TIMEOUTS
                ) as answer:
                    status = answer.status
        except _FAILURES as error:
            raise Refused(f"the receiver did not respond ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise Refused(f"the receiver responded with status {status}", final=status == _GONE)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


def signature(secret: bytes, id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of an event: an HMAC-SHA-256 of the id, the time and the body, joined by dots."""
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
    """The dispatcher of one replica, which searches for pending deliveries from `start` until `close`."""

    def __init__(self, table: WebhookTable, deliveries: DeliveryTable, sender: Sender) -> None:
        self._sender = sender
        self._table = table
        self.deliveries = deliveries
        self._hooks: Mapping[str, Sequence[Webhook]] = {}
        """The webhooks of each space."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._window = asyncio.Semaphore(_AT_ONCE)

    async def start(self) -> None:
        """Load the webhooks, and begin to search for pending deliveries in the background."""
        await self.learn()
        self._begin(keep_running("the delivery of webhook events", self._look_for_ever))

    async def close(self) -> None:
        """Stop the dispatcher. Undelivered events stay in the database."""
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
        """Load the webhooks, and deliver pending events. If a webhook has too many events, drop the oldest."""
        await self.learn()
        await self.deliver_due()
        for hook in [hook for hooks in self._hooks.values() for hook in hooks]:
            if dropped := await self.deliveries.trim(hook.id, MOST_WAITING):
                _log.warning("webhook %s of %s: too many pending events, %d dropped", hook.name, hook.space, dropped)

    def begin_due(self) -> None:
        """Begin to deliver pending events in the background."""
        self._begin(self._logged(self.deliver_due()))

    async def deliver_due(self) -> None:
        """Reserve pending events and deliver them, until no events are due."""
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
        """Deliver an event that this replica has reserved, when fewer than 8 other deliveries run."""
        async with self._window:
            await self._deliver(delivery)

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` and log a failure. A later search finds the same deliveries and repeats the work."""
        try:
            await work
        except Exception:
            _log.exception("a webhook delivery failed and is tried again later")

    async def _deliver(self, delivery: Delivery) -> None:
        hook = await self._hook(delivery.hook)
        if hook is None:  # the webhook and its deliveries were removed
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
        """Return the webhook with this id, even if another replica created it. Return None for a removed webhook."""
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
"""The types of events. In a CloudEvent, the type begins with `protoslice.`."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_URL: Final = 2048


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """The properties of a webhook that a client sets. With no `events`, the webhook receives all events."""

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
    """Return True if `name` is a valid name of a webhook."""
    return _NAME.fullmatch(name) is not None


class Webhooks:
    """The webhooks of all spaces."""

    def __init__(self, database: Database, sender: Sender) -> None:
        self.database = database
        self._table = WebhookTable(database)
        self._deliveries = DeliveryTable(database)
        self._sender = sender
        self._dispatcher = Dispatcher(self._table, self._deliveries, sender)

    @classmethod
    async def open(cls, database: Database, prefixes: Sequence[str], networks: Sequence[str]) -> Self:
        """Open the webhooks, and begin to deliver events.

        The URLs of webhooks must be below one of `prefixes`. Private network addresses are only allowed in `networks`.
        """
        opened = cls(database, Sender(prefixes, networks))
        await opened._dispatcher.start()
        return opened

    async def close(self) -> None:
        """Stop the delivery of events. Undelivered events stay in the database."""
        await self._dispatcher.close()
        await self._sender.close()

    async def put(
        self, space: str, wanted: NewWebhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook with a new secret. Return the webhook, and whether it is new.

        Pending deliveries of a replaced webhook stay. Raise `Changed` if the current secret is not `if_match`, unless
        `if_match` is None. With `if_none_match`, raise `Changed` if the webhook exists.
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
        """Return a webhook of a space by name; raise `NotFound` if it does not exist."""
        return await self._table.get(space, name)

    async def deliveries(self, hook: Webhook, *, dead: bool, limit: int, cursor: str | None) -> ResultPage[Delivery]:
        """Return a page of undelivered events of a webhook, oldest first.

        With `dead`, these are the events that are no longer retried; otherwise, the events that are still retried.
        """
        found = await self._deliveries.page(hook.id, dead=dead, limit=limit + 1, after=cursor or "")
        return ResultPage(found[:limit], found[limit - 1].id if len(found) > limit else None)

    async def remove(self, space: str, name: str, *, if_match: bytes | None = None) -> None:
        """Remove a webhook and its undelivered events; raise `NotFound` if the webhook does not exist."""
        await self._table.remove(await self.get(space, name), if_match=if_match)
        await self._dispatcher.learn()

    async def redeliver(self, space: str, name: str) -> int:
        """Retry the delivery of a webhook's dead events, and return their number."""
        hook = await self.get(space, name)
        count = await self._deliveries.redeliver(hook.id, time.time())
        self._dispatcher.begin_due()
        return count
