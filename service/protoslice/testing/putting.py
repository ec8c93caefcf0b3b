"""Conformance tests of objects that are made, replaced and removed in one step."""

from __future__ import annotations

import asyncio

from protoslice.errors import Conflict, NotFound
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
            etag = await storage.put(key, data)
            equal(await raw.get(key) == bytes(data), True, "the content")
            equal((await storage.stat(key)).etag, etag)

    @conforms
    async def test_put_makes_and_replaces(self, storage: Storage, raw: Raw) -> None:
        first = await storage.put(KEY, b"first")
        second = await storage.put(KEY, b"other")
        equal(await raw.get(KEY), b"other")
        equal((first == second, (await storage.stat(KEY)).etag == second), (False, True), "tags")

    @conforms
    async def test_a_tag_names_one_content(self, storage: Storage, raw: Raw) -> None:
        contents: dict[str, bytes] = {}
        for number in range(60):
            data = b"%04d" % number
            etag = await storage.put(KEY, data)
            equal(contents.setdefault(etag, data), data, f"content of tag {etag}")

    @conforms
    async def test_a_removed_object_can_be_made_again(self, storage: Storage, raw: Raw) -> None:
        await storage.put(KEY, b"first")
        await storage.delete(KEY)
        with raises(NotFound):
            await storage.stat(KEY)
        await storage.put(KEY, b"again")
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
                await storage.put(ObjectKey(f"deep/er/{name}"), b"x")
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
