"""Dispatcher of one replica: delivers letters, tries again, takes over those of dead replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from protoslice.catalog.webhooks import Webhook, WebhookRecords
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, ProtosliceError
from protoslice.storage import Storage
from protoslice.stores.layout.keys import new_attempt
from protoslice.webhooks.changes import SpaceChange, took_place
from protoslice.webhooks.delivery import Delivery, Refused, cloud_event
from protoslice.webhooks.model import Letter, Proof
from protoslice.webhooks.records import DEAD, MOST_DEAD, MOST_WAITING, OUTBOX, Letters

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Time between two looks at webhooks and at letters that are due."""
LEASE_SECONDS: Final = 60.0
"""Time for which a replica has a letter to itself; longer than a write and a delivery take."""
DOUBT_SECONDS: Final = 900.0
"""Time after which a change that did not take place is one that never will."""
WAITS: Final = (10, 60, 300, 1800, 7200, 21_600, 43_200, 86_400)
"""Seconds before each further attempt, some 45 hours in all."""
_AT_ONCE: Final = 8
"""Deliveries of a replica at a time."""
_MOST_TASKS: Final = 256
"""Deliveries that wait in memory; further letters wait in the storage."""
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class _Addressed:
    """Letter of a webhook, with the entity tag of its record."""

    hook: Webhook
    letter: Letter
    etag: str


class Dispatcher:
    """Outbox and deliveries of one replica; between `start` and `close` it looks for letters by itself."""

    def __init__(self, records: WebhookRecords, storage: Storage, delivery: Delivery) -> None:
        self._storage = storage
        self._delivery = delivery
        self._records = records
        self.waiting = Letters(storage, OUTBOX)
        self.dead = Letters(storage, DEAD)
        self._hooks: Mapping[str, Sequence[Webhook]] = {}
        """Webhooks by space, so that a write asks about those of its own alone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._window = asyncio.Semaphore(_AT_ONCE)

    async def start(self) -> None:
        """Learn the webhooks, and look for letters from now on."""
        await self.learn()
        self._begin(self._look_for_ever())

    async def close(self) -> None:
        """Stop; letters that are on their way stay in the storage."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def learn(self) -> None:
        """Read the webhooks of all spaces."""
        hooks = defaultdict[str, list[Webhook]](list)
        for hook in await self._records.all():
            hooks[hook.space].append(hook)
        self._hooks = dict(hooks)

    def listens(self, space: str) -> bool:
        """True when a webhook of the space is known here."""
        return space in self._hooks

    async def announce(self, space: str, change: SpaceChange, proof: Proof) -> _Announced:
        """Write a letter to each webhook that wants the event."""
        id, now = new_attempt(), time.time()

        async def write(hook: Webhook) -> _Addressed:
            event = cloud_event(id, space, change.event, change.subject, change.facts)
            letter = Letter(id, event, now, now + LEASE_SECONDS, proof)
            return _Addressed(hook, letter, await self.waiting.add(hook.id, letter))

        hooks = [hook for hook in self._hooks.get(space, ()) if hook.wants(change.event)]
        return _Announced(self, await map_concurrently(write, hooks))

    def settle(self, addressed: _Addressed, *, made: bool) -> None:
        """Deliver a letter beside whatever else goes on; unless `made`, only if the storage shows its change."""
        if len(self._tasks) < _MOST_TASKS:
            self._begin(self._settled(addressed, made=made))

    async def look(self) -> None:
        """Learn the webhooks, and take over the letters that are due."""
        await self.learn()
        await map_concurrently(self._look_after, [hook for hooks in self._hooks.values() for hook in hooks])

    async def _look_for_ever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.look()
            except ProtosliceError:
                _log.exception("webhook deliveries wait for the storage")

    async def _look_after(self, hook: Webhook) -> None:
        page = await self.waiting.page(hook.id, limit=_PAGE)
        due = [_Addressed(hook, *found) for found in page.items if found[0].due <= time.time()]
        await map_concurrently(self._take_over, due)
        if page.next is not None:
            for name in await self.waiting.beyond(hook.id, MOST_WAITING):
                _log.warning("webhook %s of %s: too many pending events, %s dropped", hook.name, hook.space, name)
                await self.waiting.drop(hook.id, name)

    async def _take_over(self, addressed: _Addressed) -> None:
        """Claim a letter that is due, make sure of its change, and deliver it."""
        hook, letter = addressed.hook, addressed.letter
        async with self._window:
            claimed = letter.postponed(time.time() + LEASE_SECONDS)
            etag = await self.waiting.replace(hook.id, claimed, addressed.etag)
            if etag is None:
                return
            if letter.proof is None or await took_place(self._storage, letter.proof, strictly=False):
                await self._deliver(_Addressed(hook, claimed, etag))
            elif letter.written + DOUBT_SECONDS < time.time():
                await self.waiting.drop(hook.id, letter.id)

    async def _settled(self, addressed: _Addressed, *, made: bool) -> None:
        proof = addressed.letter.proof
        try:
            if not made and proof is not None and not await took_place(self._storage, proof, strictly=True):
                await self.waiting.drop(addressed.hook.id, addressed.letter.id)
                return
            async with self._window:
                await self._deliver(addressed)
        except ProtosliceError:
            _log.exception("a delivery of webhook %s waits for the storage", addressed.hook.name)

    async def _deliver(self, addressed: _Addressed) -> None:
        hook, letter = addressed.hook, addressed.letter
        try:
            await self._delivery.send(hook, letter)
        except Refused as refused:
            wait = WAITS[letter.attempts] if letter.attempts < len(WAITS) and not refused.final else None
            failed = letter.failed(str(refused), time.time() + (wait or 0))
            if wait is not None:
                await self.waiting.replace(hook.id, failed, addressed.etag)
                return
            await self._give_up(hook, failed)
        await self.waiting.drop(hook.id, letter.id)

    async def _give_up(self, hook: Webhook, letter: Letter) -> None:
        _log.warning(
            "webhook %s of %s: event %s failed permanently, %s", hook.name, hook.space, letter.id, letter.error
        )
        with suppress(Conflict):  # another replica gave it up at the same time
            await self.dead.add(hook.id, letter)
        for name in await self.dead.beyond(hook.id, MOST_DEAD):
            await self.dead.drop(hook.id, name)

    async def redeliver(self, hook: Webhook) -> int:
        """Put the dead letters of a webhook into its outbox again, and deliver them; the number of them."""
        count = 0
        page = await self.dead.page(hook.id, limit=MOST_DEAD)
        for letter, _ in page.items:
            again = replace(letter, due=time.time() + LEASE_SECONDS, proof=None, attempts=0)
            with suppress(Conflict):  # in the outbox already, by a call that ended in the middle
                self.settle(_Addressed(hook, again, await self.waiting.add(hook.id, again)), made=True)
            await self.dead.drop(hook.id, letter.id)
            count += 1
        return count

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Announced:
    """Letters about one change."""

    def __init__(self, dispatcher: Dispatcher, letters: Sequence[_Addressed]) -> None:
        self._dispatcher = dispatcher
        self._letters = letters

    def made(self) -> None:
        """Deliver the letters: the change took place."""
        for letter in self._letters:
            self._dispatcher.settle(letter, made=True)

    def refused(self) -> None:
        """Deliver the letters if the storage shows the change."""
        for letter in self._letters:
            self._dispatcher.settle(letter, made=False)
