"""The conformance tests of writes and removals, and of the abilities that a backend declares."""

from __future__ import annotations

import asyncio
import mmap
import random

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, Unsupported
from protoslice.plugins import check_version
from protoslice.storage.interface import INTERFACE, PIECE, Buffer, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, raises

KEY = ObjectKey("folder/object.pb")


class WritingConformance(Suite):
    """Tests that check whether objects appear and disappear in one step, and whether declared abilities work.

    Calls that need other abilities have to raise `Unsupported`.
    """

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
        await storage.put(KEY, data)  # a cancelled put that still runs must not replace this object
        equal(await raw.get(KEY) == data, True)

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

    @conforms
    async def test_the_interface_is_one_we_know(self, storage: Storage, raw: Raw) -> None:
        check_version("the backend", storage.interface, INTERFACE)

    @conforms
    async def test_an_open_file_outlives_its_name(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, b"0123456789")
        if not storage.abilities.open_file:
            with raises(Unsupported):
                await storage.open_file(KEY)
            return
        file = await storage.open_file(KEY)
        try:
            await storage.put(KEY, b"another")
            await storage.delete(KEY)
            equal((file.stat.size, file.pread(2, 5), file.pread(10, 10)), (10, b"234", b""))
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                equal(view[:], b"0123456789")
            with raises(IntegrityError):
                file.pread(5, 11)
        finally:
            file.close()
            file.close()
        with raises(NotFound):
            await storage.open_file(KEY)

    @conforms
    async def test_free_space_is_known_or_said_to_be_unknown(self, storage: Storage, raw: Raw) -> None:
        if storage.abilities.free_space:
            equal(await storage.free_bytes() > 0, True, "some room")
        else:
            with raises(Unsupported):
                await storage.free_bytes()
