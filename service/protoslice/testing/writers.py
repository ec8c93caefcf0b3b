"""Conformance tests of writers, which make objects piece by piece."""

from __future__ import annotations

import asyncio
import random

from protoslice.errors import InvalidInput, NotFound
from protoslice.storage.interface import PIECE, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, raises

KEY = ObjectKey("folder/object.pb")


class WriterConformance(Suite):
    """Objects are made piece by piece."""

    @conforms
    async def test_pieces_make_an_object(self, storage: Storage, raw: Raw) -> None:
        async with await storage.writer(KEY) as writer:
            for piece in (b"one", bytearray(b"two"), memoryview(b"-three-")[1:6], b""):
                await writer.write(piece)
            equal(writer.size, 11)
            etag = await writer.commit()
            equal(writer.size, 11, "the size after the commit")
        equal(await raw.get(KEY), b"onetwothree")
        equal((await storage.stat(KEY)).etag, etag)

    @conforms
    async def test_no_pieces_make_an_empty_object(self, storage: Storage, raw: Raw) -> None:
        async with await storage.writer(KEY) as writer:
            await writer.commit()
        equal(await raw.get(KEY), b"")

    @conforms
    async def test_large_objects_in_odd_pieces(self, storage: Storage, raw: Raw) -> None:
        chance = random.Random(7)
        data = chance.randbytes(21 * PIECE + 13)
        async with await storage.writer(KEY) as writer:
            at = 0
            while at < len(data):
                step = chance.choice([1, 1000, PIECE - 1, 3 * PIECE + 1, 9 * PIECE])
                await writer.write(data[at : at + step])
                at += step
            await writer.commit()
        equal(await raw.get(KEY) == data, True, "the content")

    @conforms
    async def test_a_piece_may_be_reused(self, storage: Storage, raw: Raw) -> None:
        piece = bytearray(PIECE)
        async with await storage.writer(KEY) as writer:
            for number in range(12):
                piece[:] = bytes([number]) * PIECE
                await writer.write(piece)
            await writer.commit()
        equal(await raw.get(KEY) == b"".join(bytes([number]) * PIECE for number in range(12)), True, "the content")

    @conforms
    async def test_nothing_is_visible_before_the_commit(self, storage: Storage, raw: Raw) -> None:
        async with await storage.writer(KEY) as writer:
            await writer.write(bytes(17 * PIECE))
            equal(await raw.get(KEY), None)
            equal((await storage.list()).items, ())
            with raises(NotFound):
                await storage.stat(KEY)
            await writer.commit()
        equal((await storage.stat(KEY)).size, 17 * PIECE)

    @conforms
    async def test_an_abort_leaves_nothing(self, storage: Storage, raw: Raw) -> None:
        for size in (0, 10, 17 * PIECE):
            writer = await storage.writer(KEY)
            await writer.write(bytes(size))
            await writer.abort()
            await writer.abort()
            equal(list(await raw.names()), [])

    @conforms
    async def test_leaving_without_a_commit_aborts(self, storage: Storage, raw: Raw) -> None:
        async with await storage.writer(KEY) as writer:
            await writer.write(bytes(17 * PIECE))
        equal(list(await raw.names()), [])
        with raises(InvalidInput):
            async with await storage.writer(KEY) as writer:
                await writer.write(b"x")
                raise InvalidInput("the source broke")
        equal(list(await raw.names()), [])

    @conforms
    async def test_a_cancelled_writer_leaves_nothing(self, storage: Storage, raw: Raw) -> None:
        async def write() -> None:
            async with await storage.writer(KEY) as writer:
                for _ in range(200):
                    await writer.write(bytes(PIECE))

        task = asyncio.ensure_future(write())
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        equal(list(await raw.names()), [])

    @conforms
    async def test_a_writer_ends_once(self, storage: Storage, raw: Raw) -> None:
        for size in (3, 17 * PIECE):
            key = ObjectKey(f"of/{size}")
            writer = await storage.writer(key)
            await writer.write(bytes(size))
            await writer.commit()
            with raises(InvalidInput):
                await writer.write(b"more")
            with raises(InvalidInput):
                await writer.commit()
            await writer.abort()
            equal((await storage.stat(key)).size, size, "the object after an abort that came too late")
        writer = await storage.writer(KEY)
        await writer.abort()
        with raises(InvalidInput):
            await writer.write(b"more")
        with raises(InvalidInput):
            await writer.commit()

    @conforms
    async def test_a_commit_replaces(self, storage: Storage, raw: Raw) -> None:
        for size in (3, 17 * PIECE):
            await storage.put(KEY, b"first")
            async with await storage.writer(KEY) as writer:
                await writer.write(bytes(size))
                etag = await writer.commit()
            equal(await raw.get(KEY), bytes(size))
            equal((await storage.stat(KEY)).etag, etag)

    @conforms
    async def test_the_object_of_one_of_two_writers_is_whole(self, storage: Storage, raw: Raw) -> None:
        one, two = await storage.writer(KEY), await storage.writer(KEY)
        await one.write(b"1" * 9 * PIECE)
        await two.write(b"2" * 9 * PIECE)
        await asyncio.gather(one.commit(), two.commit())
        content = await raw.get(KEY) or b""
        equal((len(content), len(set(content))), (9 * PIECE, 1), "size and number of writers of the content")

    @conforms
    async def test_garbage_collection_spares_a_writer_at_work(self, storage: Storage, raw: Raw) -> None:
        await storage.put(ObjectKey("kept"), b"x")
        async with await storage.writer(KEY) as writer:
            await writer.write(bytes(17 * PIECE))
            await storage.collect_garbage(-60)
            await writer.commit()
        await storage.collect_garbage(-60)
        equal((await storage.stat(KEY)).size, 17 * PIECE)
        equal(await raw.get(ObjectKey("kept")), b"x")
