"""Dispatcher of one replica: delivers letters, tries again, takes over those of dead replicas."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, Final

from protoslice.catalog.letters import Letter, LetterTable
from protoslice.catalog.webhooks import Webhook, WebhookRecords
from protoslice.concurrency.chores import keep_running
from protoslice.concurrency.gather import map_concurrently
from protoslice.webhooks.delivery import Delivery, Refused

_log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 10.0
"""Time between two looks at the webhooks."""
DUE_SECONDS: Final = 1.0
"""Time between two deliveries of pending letters, if there are webhooks."""
LEASE_SECONDS: Final = 60.0
"""Time for which a replica has a letter to itself; longer than a delivery takes."""
WAITS: Final = (10, 60, 300, 1800, 7200, 21_600, 43_200, 86_400)
"""Seconds before each further attempt, some 45 hours in all."""
MOST_DEAD: Final = 1000
"""Dead letters of a webhook; the oldest go first."""
MOST_WAITING: Final = 10_000
"""Letters of a webhook that wait; the oldest beyond them are given up."""
_AT_ONCE: Final = 8
"""Deliveries of a replica at a time."""


class Dispatcher:
    """Deliveries of one replica; between `start` and `close` it polls for letters."""

    def __init__(self, records: WebhookRecords, letters: LetterTable, delivery: Delivery) -> None:
        self._delivery = delivery
        self._records = records
        self.letters = letters
        self._hooks: Mapping[str, Sequence[Webhook]] = {}
        """Webhooks by space, so that a write asks about those of its own alone."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._window = asyncio.Semaphore(_AT_ONCE)

    async def start(self) -> None:
        """Learn the webhooks, and look for letters from now on."""
        await self.learn()
        self._begin(keep_running("the delivery of webhook events", self._look_for_ever))

    async def close(self) -> None:
        """Stop; letters that are on their way stay in the database."""
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

    async def look(self) -> None:
        """Learn the webhooks, deliver pending letters, and drop the oldest of too many."""
        await self.learn()
        await self.deliver_due()
        for hook in [hook for hooks in self._hooks.values() for hook in hooks]:
            if dropped := await self.letters.trim(hook.id, MOST_WAITING):
                _log.warning("webhook %s of %s: too many pending events, %d dropped", hook.name, hook.space, dropped)

    def begin_due(self) -> None:
        """Deliver pending letters in the background."""
        self._begin(self._logged(self.deliver_due()))

    async def deliver_due(self) -> None:
        """Take pending letters and deliver them."""
        while letters := await self.letters.take(time.time(), time.time() + LEASE_SECONDS):
            await map_concurrently(lambda letter: self._logged(self._delivered(letter)), letters)

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

    async def _delivered(self, letter: Letter) -> None:
        """Deliver a letter that was taken."""
        async with self._window:
            await self._deliver(letter)

    async def _logged(self, work: Coroutine[Any, Any, None]) -> None:
        """Do what a later look does again if it fails."""
        try:
            await work
        except Exception:
            _log.exception("a webhook delivery failed and is tried again later")

    async def _deliver(self, letter: Letter) -> None:
        hook = await self._hook(letter.hook)
        if hook is None:  # removed, and its letters with it
            return
        try:
            await self._delivery.send(hook, letter)
        except Refused as refused:
            wait = WAITS[letter.attempts] if letter.attempts < len(WAITS) and not refused.final else None
            failed = letter.failed(str(refused), time.time() + (wait or 0))
            if wait is not None:
                await self.letters.change(letter, failed)
                return
            _log.warning(
                "webhook %s of %s: event %s failed permanently, %s", hook.name, hook.space, letter.id, failed.error
            )
            await self.letters.give_up(failed, most=MOST_DEAD)
            return
        await self.letters.drop(letter)

    async def _hook(self, id: str) -> Webhook | None:
        """Return the webhook of an id, also one that another replica has made."""
        found = next((hook for hooks in self._hooks.values() for hook in hooks if hook.id == id), None)
        if found is None:
            await self.learn()
            found = next((hook for hooks in self._hooks.values() for hook in hooks if hook.id == id), None)
        return found

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
