"""Storage wrapper that writes letters before each change that somebody wants to hear of."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol, TypeVar

from protoslice.catalog.letters import Proof
from protoslice.errors import Conflict, NotFound
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.interface import Buffer
from protoslice.storage.wrappers.interceptor import InterceptedStorage
from protoslice.webhooks.changes import SpaceChange, change_at, proof_of, space_changed

T = TypeVar("T")


class Announcement(Protocol):
    """Letters about one change."""

    def made(self) -> None:
        """Deliver the letters: the change took place."""
        ...

    def refused(self) -> None:
        """Deliver the letters if the storage shows the change: it was refused, or its answer was lost."""
        ...


class Outbox(Protocol):
    """Outbox of a replica."""

    def listens(self, space: str) -> bool:
        """True when somebody wants to hear of the space."""
        ...

    async def announce(self, space: str, change: SpaceChange, proof: Proof) -> Announcement:
        """Write letters about a change that is about to take place."""
        ...


class WatchedStorage(InterceptedStorage):
    """Storage whose visible changes are written to an outbox first.

    Without webhooks it makes no call of its own. A change whose letters cannot be written does not take place.
    """

    def __init__(self, inner: Storage, outbox: Outbox) -> None:
        super().__init__(inner)
        self._outbox = outbox

    async def intercept(self, name: str, key: ObjectKey | None, call: Callable[[], Awaitable[T]]) -> T:
        return await call()

    async def put_if_absent(self, key: ObjectKey, data: Buffer) -> str:
        space = space_changed(key)
        if space is not None and self._outbox.listens(space):
            with suppress(NotFound):  # a look costs less than letters that are taken back
                await self._inner.stat(key)
                raise Conflict(f"there is an object at {key} already")
        return await self._announced(key, data, None, lambda: self._inner.put_if_absent(key, data))

    async def put(self, key: ObjectKey, data: Buffer, *, if_etag: str | None = None) -> str:
        return await self._announced(key, data, if_etag, lambda: self._inner.put(key, data, if_etag=if_etag))

    async def delete(self, key: ObjectKey, *, if_etag: str | None = None) -> None:
        if if_etag is not None:  # of a mark, whose writing was the removal
            await self._inner.delete(key, if_etag=if_etag)
            return
        await self._announced(key, None, None, lambda: self._inner.delete(key))

    async def _announced(
        self, key: ObjectKey, data: Buffer | None, replaces: str | None, call: Callable[[], Awaitable[T]]
    ) -> T:
        space = space_changed(key)
        if space is None or not self._outbox.listens(space):
            return await call()
        content = None if data is None else bytes(data)
        change = await change_at(self._inner, key, content)
        if change is None:
            return await call()
        announcement = await self._outbox.announce(space, change, await proof_of(key, content, replaces))
        try:
            result = await call()
        except Conflict:
            announcement.refused()
            raise
        # After any other error nobody knows: the letters wait for a replica that looks.
        announcement.made()
        return result
