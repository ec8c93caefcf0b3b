"""All conformance tests of a storage backend, as a class for pytest and as a check of the storage at a URI."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from secrets import token_hex

from protoslice.errors import ProtosliceError, StorageError
from protoslice.storage.interface import Abilities, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.storage.registry import open_storage, probe
from protoslice.storage.wrappers import PrefixStorage
from protoslice.testing.listing import ListingConformance
from protoslice.testing.reading import ReadingConformance
from protoslice.testing.suite import Body, Raw, RawThroughStorage, everything
from protoslice.testing.writing import WritingConformance


class StorageConformance(ReadingConformance, ListingConformance, WritingConformance):
    """The tests of everything that a storage backend has to promise.

    Define a subclass with an `open` method, so that pytest collects the tests.
    """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one test: the promise that it tests, and the error, or None if the backend keeps the promise."""

    name: str
    error: str | None

    @property
    def promise(self) -> str:
        """The promise as a text."""
        return self.name.removeprefix("test_").replace("_", " ")


@dataclass(frozen=True, slots=True)
class Report:
    """The result of checking a storage with all tests."""

    abilities: Abilities
    unsafe: str | None
    """Reason why a service would refuse to write to this storage, or None if writing is safe."""
    outcomes: tuple[Outcome, ...]

    @property
    def kept(self) -> bool:
        """True if the storage keeps every promise, and writing is safe."""
        return self.unsafe is None and all(outcome.error is None for outcome in self.outcomes)


async def check(
    uri: str, options: Mapping[str, str] | None = None, *, show: Callable[[Outcome], None] | None = None
) -> Report:
    """Run all tests on the storage at `uri`, in a temporary folder, and call `show` after each test.

    The storage must allow writing. The tests check the stored content through a second opening of the same URI.
    Therefore, the tests do not notice leftovers that the storage does not list, such as unfinished uploads.
    """
    async with open_storage(uri, options) as storage:
        second = open_storage(uri, options) if storage.abilities.shared else storage
        async with second:
            try:
                unsafe = await _unsafe(storage)
            except StorageError as error:  # do not run the tests: each of them would fail as slowly
                return Report(storage.abilities, str(error), ())
            suite = _Checked(storage, second)
            outcomes = []
            for name, body in suite.bodies().items():
                outcomes.append(Outcome(name, await suite.broken(body)))
                if show is not None:
                    show(outcomes[-1])
            return Report(storage.abilities, unsafe, tuple(outcomes))


class _Checked(StorageConformance):
    def __init__(self, storage: Storage, second: Storage) -> None:
        self._storage = storage
        self._second = second

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Storage, Raw]]:
        folder = ObjectKey(f"protoslice-check-{token_hex(8)}")
        behind = PrefixStorage(self._second, folder)
        try:
            yield PrefixStorage(self._storage, folder), RawThroughStorage(behind)
        finally:
            for item in await everything(behind):
                await behind.delete(item.key)

    async def broken(self, body: Body) -> str | None:
        try:
            await self.run(body)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None


async def _unsafe(storage: Storage) -> str | None:
    try:
        await probe(storage)
    except StorageError:
        raise
    except ProtosliceError as error:
        return str(error)
    return None
