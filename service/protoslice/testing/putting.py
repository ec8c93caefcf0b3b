"""Conformance tests of objects that are made, replaced and removed in one step."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from protoslice.errors import Conflict, NotFound, Unsupported
from protoslice.storage.interface import PIECE, Buffer, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, raises

KEY = ObjectKey("folder/object.pb")


class PuttingConformance(Suite):
    """Objects are made and replaced in one step."""

    @conforms
    async def test_an_object_is_what_was_put(self, storage: Storage, raw: Raw) -> None:
        contents: tuple[Buffer, ...] = (b"", b"x", bytearray(b"abc"), memoryview(b"-abcd-")[1:5], bytes(3 * PIECE))
        for number, data in enumerate(contents):
            key = ObjectKey(f"by/{number}")
            etag = await storage.put_if_absent(key, data)
            equal(await raw.get(key) == bytes(data), True, "the content")
            equal((await storage.stat(key)).etag, etag)

    @conforms
    async def test_create_does_not_replace(self, storage: Storage, raw: Raw) -> None:
        await storage.put_if_absent(KEY, b"first")
        for data in (b"other", b"first"):
            with raises(Conflict):
                await storage.put_if_absent(KEY, data)
        equal(await raw.get(KEY), b"first")

    @conforms
    async def test_one_of_many_creators_wins(self, storage: Storage, raw: Raw) -> None:
        for turn in range(5):
            key = ObjectKey(f"turn/{turn}")
            creators = (storage.put_if_absent(key, b"%d" % number) for number in range(12))
            results = await asyncio.gather(*creators, return_exceptions=True)
            winners = [number for number, result in enumerate(results) if isinstance(result, str)]
            equal(len(winners), 1, "winners")
            equal([r for r in results if not isinstance(r, str | Conflict)], [], "other outcomes")
            equal(await raw.get(key), b"%d" % winners[0])

    @conforms
    async def test_put_makes_and_replaces(self, storage: Storage, raw: Raw) -> None:
        first = await storage.put(KEY, b"first")
        second = await storage.put(KEY, b"other")
        equal(await raw.get(KEY), b"other")
        equal((first == second, (await storage.stat(KEY)).etag == second), (False, True), "tags")

    @conforms
    async def test_compare_and_set(self, storage: Storage, raw: Raw) -> None:
        first = await storage.put(KEY, b"first")
        if not storage.abilities.compare_and_set:
            with raises(Unsupported):
                await storage.put(KEY, b"second", if_etag=first)
            return
        second = await storage.put(KEY, b"second", if_etag=first)
        for stale in (first, "no-such-tag"):
            with raises(Conflict):
                await storage.put(KEY, b"third", if_etag=stale)
        equal(await raw.get(KEY), b"second")
        await storage.delete(KEY)
        with raises(Conflict):
            await storage.put(KEY, b"third", if_etag=second)
        equal(await raw.get(KEY), None)

    @conforms
    async def test_a_counter_counts_every_step(self, storage: Storage, raw: Raw) -> None:
        if not storage.abilities.compare_and_set:
            return
        await storage.put(KEY, b"0")

        async def step() -> None:
            while True:
                found = await storage.stat(KEY)
                try:
                    value = int(await storage.get_range(KEY, 0, found.size, if_etag=found.etag))
                    await asyncio.sleep(0)  # lets other steps read the same value
                    await storage.put(KEY, b"%d" % (value + 1), if_etag=found.etag)
                    return
                except Conflict:
                    continue

        await asyncio.gather(*(step() for _ in range(12)))
        equal(await raw.get(KEY), b"12")

    @conforms
    async def test_a_tag_names_one_content(self, storage: Storage, raw: Raw) -> None:
        contents: dict[str, bytes] = {}
        for number in range(60):
            data = b"%04d" % number
            etag = await storage.put(KEY, data)
            equal(contents.setdefault(etag, data), data, f"content of tag {etag}")

    @conforms
    async def test_a_removed_object_can_be_made_again(self, storage: Storage, raw: Raw) -> None:
        await storage.put_if_absent(KEY, b"first")
        await storage.delete(KEY)
        with raises(NotFound):
            await storage.stat(KEY)
        await storage.put_if_absent(KEY, b"again")
        equal(await raw.get(KEY), b"again")

    @conforms
    async def test_removing_nothing_is_no_error(self, storage: Storage, raw: Raw) -> None:
        await storage.delete(KEY)
        await storage.put(KEY, b"x")
        await storage.delete(ObjectKey("folder"))
        await storage.delete(KEY / "below")
        equal(await raw.get(KEY), b"x", "what lies below or above the key")
        await storage.delete(KEY)
        await storage.delete(KEY)
        equal(await raw.get(KEY), None)

    @conforms
    async def test_a_conditional_delete_spares_another_object(self, storage: Storage, raw: Raw) -> None:
        first, tried = await storage.put(KEY, b"first"), ObjectKey("tried")
        before = await storage.put(tried, b"once")
        await storage.try_conditional_delete(tried, await storage.put(tried, b"again"), before)
        await storage.delete(tried)
        if not storage.abilities.conditional_delete:
            return
        second = await storage.put(KEY, b"second")
        with raises(Conflict):
            await storage.delete(KEY, if_etag=first)
        equal(await raw.get(KEY), b"second")
        await storage.delete(KEY, if_etag=second)
        equal(await raw.get(KEY), None)
        for key in (KEY, ObjectKey("no/where")):
            with suppress(Conflict):
                await storage.delete(key, if_etag=second)

    @conforms
    async def test_removing_leaves_the_neighbours(self, storage: Storage, raw: Raw) -> None:
        names = ("a/b/c", "a/b/d", "a/bc")
        for name in names:
            await storage.put(ObjectKey(name), name.encode())
        await storage.delete(ObjectKey(names[0]))
        equal([await raw.get(ObjectKey(name)) for name in names], [None, b"a/b/d", b"a/bc"])

    @conforms
    async def test_makers_and_removers_of_one_folder(self, storage: Storage, raw: Raw) -> None:
        async def work(name: str) -> None:
            for _ in range(6):
                await storage.put_if_absent(ObjectKey(f"deep/er/{name}"), b"x")
                await storage.delete(ObjectKey(f"deep/er/{name}"))

        await asyncio.gather(*(work(name) for name in "abcdef"))
        equal(list((await storage.list()).items), [])

    @conforms
    async def test_an_object_where_a_folder_is(self, storage: Storage, raw: Raw) -> None:
        await storage.put(KEY, b"x")
        for key in (ObjectKey("folder"), KEY / "below"):
            try:
                await storage.put(key, b"y")
                equal(await raw.get(key), b"y", "a backend that has no folders")
            except Conflict:
                equal(await raw.get(key), None, "a backend that has folders")
        equal(await raw.get(KEY), b"x")

    @conforms
    async def test_a_cancelled_put_is_whole_or_nothing(self, storage: Storage, raw: Raw) -> None:
        data = bytes(2 * PIECE)
        for turn in range(10):
            task = asyncio.ensure_future(storage.put(KEY, data))
            await asyncio.sleep(turn / 1000)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await storage.put(KEY, data)  # after any cancelled put that is still under way
        equal(await raw.get(KEY) == data, True)
