"""The runner of conformance tests, and the bypass: access to the stored objects without the storage under test."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, Protocol

from protoslice.errors import ProtosliceError
from protoslice.storage.interface import ObjectStat, Storage
from protoslice.storage.keys import ObjectKey

SECONDS: Final = 120


class Raw(Protocol):
    """A bypass: access to the objects of a namespace without the storage under test."""

    async def get(self, key: ObjectKey) -> bytes | None:
        """Return the content of an object, or None if there is no such object."""

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """Create or replace an object."""

    async def remove(self, key: ObjectKey) -> None:
        """Remove an existing object."""

    async def names(self) -> Sequence[str]:
        """Return the names of everything that takes space, including temporary files and unfinished uploads."""


class RawThroughStorage(Raw):
    """A bypass for any backend, which opens the same namespace a second time."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def get(self, key: ObjectKey) -> bytes | None:
        found = {item.key: item for item in await everything(self._storage)}.get(key)
        return None if found is None else await self._storage.get_range(key, 0, found.size)

    async def set(self, key: ObjectKey, data: bytes) -> None:
        await self._storage.put(key, data)

    async def remove(self, key: ObjectKey) -> None:
        await self._storage.delete(key)

    async def names(self) -> Sequence[str]:
        """See `Raw.names`. Unfinished uploads are not included, because no storage lists them."""
        return [str(item.key) for item in await everything(self._storage)]


class RawFiles(Raw):
    """A bypass for `file://`, which accesses objects as plain files below `root`."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    async def get(self, key: ObjectKey) -> bytes | None:
        path = self._root / key.text
        return path.read_bytes() if path.is_file() else None

    async def set(self, key: ObjectKey, data: bytes) -> None:
        """See `Raw.set`. The object is replaced by renaming a new file."""
        path = self._root / key.text
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = path.with_name(path.name + ".raw")
        spare.write_bytes(data)
        spare.rename(path)

    async def remove(self, key: ObjectKey) -> None:
        (self._root / key.text).unlink()

    async def names(self) -> Sequence[str]:
        """See `Raw.names`. Temporary files are included."""
        return sorted(str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())


class Suite(ABC):
    """The base class of conformance tests. A subclass opens the storage under test."""

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[tuple[Storage, Raw]]:
        """Yield a storage for one test, and its bypass. Their namespace is empty at first, and removed at the end."""

    async def run(self, body: Body) -> None:
        """Run one test on a fresh storage, remove the objects, and check that nothing else is left."""
        async with asyncio.timeout(SECONDS), self.open() as (storage, raw):
            await body(self, storage, raw)
            equal(await _left_behind(storage, raw), [], "left behind")

    @classmethod
    def bodies(cls) -> dict[str, Body]:
        """Return the tests of this class by name, as functions of a storage and a bypass."""
        members = ((name, getattr(cls, name)) for name in dir(cls) if name.startswith("test_"))
        return {name: member.body for name, member in members if hasattr(member, "body")}


Body = Callable[[Any, Storage, Raw], Awaitable[None]]


async def _left_behind(storage: Storage, raw: Raw) -> list[str]:
    """Remove all objects, and return the names that remain. Retry for up to 5 seconds while names remain."""
    # A cancelled call may still run in a thread or in a server, and create its object after the first removal.
    names: list[str] = []
    for _ in range(500):
        for name in await objects(storage, raw):
            await raw.remove(ObjectKey(name))
        names = list(await raw.names())
        if not names:
            break
        await asyncio.sleep(0.01)
    return names


def conforms(body: Body) -> Callable[[Suite], None]:
    """Turn a test of a storage and a bypass into a method for pytest, which runs it on a fresh storage."""

    def test(self: Suite) -> None:
        asyncio.run(self.run(body))

    # With functools.wraps, pytest would mistake the parameters of `body` for fixtures.
    test.__name__, test.__qualname__, test.__doc__ = body.__name__, body.__qualname__, body.__doc__
    test.body = body  # type: ignore[attr-defined]
    return test


async def everything(storage: Storage, limit: int = 1000) -> list[ObjectStat]:
    """List all objects, in pages of `limit` objects."""
    return [item async for item in storage.iterate(limit=limit)]


async def objects(storage: Storage, raw: Raw) -> Sequence[str]:
    """Return the names of all objects. If the storage cannot list objects, the bypass lists them."""
    if storage.abilities.listing:
        return [str(item.key) for item in await everything(storage)]
    return await raw.names()


# These functions replace assert statements: they also work with `python -O`, and report values without pytest.
def equal(got: object, wanted: object, what: str = "") -> None:
    """Raise `AssertionError` unless `got` equals `wanted`."""
    if got != wanted:
        raise AssertionError(f"{what or 'result'}: {_short(got)} instead of {_short(wanted)}")


class raises:  # noqa: N801 - read as a statement
    """A context manager that raises `AssertionError` unless its `with` block raises one of the given errors."""

    def __init__(self, *kinds: type[ProtosliceError]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, self._kinds):
            return True
        if error is not None and not isinstance(error, Exception):
            return False
        names = " or ".join(kind.__name__ for kind in self._kinds)
        seen = "no error" if error is None else f"{type(error).__name__} ({error})"
        raise AssertionError(f"{seen} instead of {names}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}… ({len(text)} characters)"
