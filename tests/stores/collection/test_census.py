"""A census clears no store whose records are not all in order, and misses none that exists."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from protoslice.storage import MemoryStorage, ObjectKey, ObjectStat
from protoslice.stores.collection.census import Census, TagCensus
from protoslice.stores.layout import keys
from protoslice.stores.layout.references import Reference

ONE, TWO, ALIKE = "1" * 64, "2" * 64, "2" * 16 + "3" * 48
PLACE = "00abcdef012345-"


def census(*stores: str, places: tuple[str, ...]) -> Census:
    """Census of stores and of entries of the index by time."""
    found = Census()
    for store in stores:
        found.add(ObjectStat(keys.store(store), 500, '"a"', datetime.now(UTC)))
    for place in places:
        found.place(place)
    return found


def note(store: str, attempts: int) -> Reference:
    """Reference of a manifest."""
    return Reference(store, PLACE + store, attempts, "")


def test_a_store_with_one_place_is_current_there() -> None:
    found = census(ONE, TWO, places=(PLACE + ONE,))
    assert found.is_current(PLACE + ONE)
    assert not found.is_astray
    assert not found.is_current(f"00abcdef012346-{ONE}")
    assert not found.is_current(PLACE + TWO)
    assert not found.is_current(None)


@pytest.mark.parametrize("other", [f"00abcdef012346-{ONE}", f"zz-{ONE}", f"-{ONE}", PLACE + ONE])
def test_a_store_with_several_entries_is_looked_at(other: str) -> None:
    found = census(ONE, places=(PLACE + ONE, other))
    assert found.is_astray
    assert not found.is_current(PLACE + ONE)
    assert not found.is_current(other)


@pytest.mark.parametrize("place", ["zz", "", "-", PLACE + "x", f"+0abcdef012345-{TWO}"])
def test_an_entry_of_nothing_is_astray(place: str) -> None:
    found = census(ONE, places=(place,))
    assert found.is_astray
    assert not found.is_current(place)


def test_ids_that_begin_alike_are_looked_at() -> None:
    found = census(TWO, ALIKE, places=(PLACE + TWO, PLACE + ALIKE))
    assert not found.is_current(PLACE + TWO)
    assert not found.is_current(PLACE + ALIKE)
    assert found.has(TWO)
    assert found.has(ALIKE)
    assert [*found.incomplete()] == ["2" * 16] * 2


@pytest.mark.parametrize(("seen", "is_complete"), [(0, False), (1, False), (2, True), (3, False)])
def test_a_store_is_complete_with_a_reference_in_each_attempt(seen: int, is_complete: bool) -> None:
    found = census(ONE, places=(PLACE + ONE,))
    for _ in range(seen):
        found.see(note(ONE, 2))
    assert [*found.incomplete()] == ([] if is_complete else ["1" * 16])


def test_a_withdrawn_manifest_is_no_store() -> None:
    found = Census()
    found.add(ObjectStat(keys.store(ONE), 24, '"a"', datetime.now(UTC)))
    assert not found.has(ONE)
    assert [item.key for item in found.marks] == [keys.store(ONE)]


def test_entries_of_tags_are_counted() -> None:
    async def run() -> None:
        storage = MemoryStorage()
        for name in ("b", "a"):
            await storage.put(keys.tag(name), b"x" * 100)
        await storage.put(keys.tag("c"), b"removed 0123456789abcdef")
        tags = await TagCensus.of(storage)
        assert [tags.see(name) for name in ("a", "b", "c", "a", "a", "d")] == [1, 1, 0, 2, 2, 0]
        assert [item.key for item in tags.marks] == [ObjectKey("tags/c")]

    asyncio.run(run())
