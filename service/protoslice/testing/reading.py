"""The conformance tests of reads.

The tests create objects without the storage under test, so that read-only backends can be tested too.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing

from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, ProtosliceError
from protoslice.storage.interface import PIECE, Buffer, Storage
from protoslice.storage.keys import ObjectKey
from protoslice.testing.suite import Raw, Suite, conforms, equal, raises

KEY = ObjectKey("folder/object.pb")
DATA = bytes(range(256)) * 4
ODD = (
    "a b",
    "a+b",
    "a=b",
    "50%",
    "%41",
    "a:b@c,d~e",
    "é/ü.pb",
    "日本/語",
    "x#y",
    "[1]{2}",
    "a'b\"c",
    "q?x=1&y",
    "a;b$c!d*",
)


async def collect(pieces: AsyncGenerator[Buffer, None]) -> bytes:
    """Return all bytes of a stream."""
    async with aclosing(pieces):
        return b"".join([piece async for piece in pieces])


class ReadingConformance(Suite):
    """Tests that check whether reads return exactly the requested bytes, all from one version of an object."""

    @conforms
    async def test_stat_tells_size_tag_and_time(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        found = await storage.stat(KEY)
        equal((found.key, found.size), (KEY, len(DATA)))
        equal(bool(found.etag), True, "an entity tag")
        equal(found.modified.utcoffset() is not None, True, "a time with a zone")
        equal((await storage.stat(KEY)).etag, found.etag, "the tag of an unchanged object")

    @conforms
    async def test_an_object_comes_with_its_facts(self, storage: Storage, raw: Raw) -> None:
        for data in (DATA, b""):
            await raw.set(KEY, data)
            found = await storage.get(KEY)
            equal((found.data, found.stat.size, type(found.data)), (data, len(data), bytes))
            equal((found.stat.key, found.stat.etag), (KEY, (await storage.stat(KEY)).etag))
        for missing in (ObjectKey("folder"), ObjectKey("nothing")):
            with raises(NotFound):
                await storage.get(missing)

    @conforms
    async def test_what_is_not_there_is_not_found(self, storage: Storage, raw: Raw) -> None:
        for key in (KEY, ObjectKey("folder")):
            with raises(NotFound):
                await storage.stat(key)
            with raises(NotFound):
                await storage.get_range(key, 0, 1)
            with raises(NotFound):
                await storage.get_range(key, 0, 0)
            with raises(NotFound):
                await storage.get_ranges(key, [(0, 1), (5, 9)])
            with raises(NotFound):
                await collect(storage.stream(key))

    @conforms
    async def test_a_folder_is_no_object(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        with raises(NotFound):
            await storage.stat(ObjectKey("folder"))
        with raises(NotFound):
            await storage.get_range(ObjectKey("folder"), 0, 1)
        with raises(NotFound):
            await storage.stat(KEY / "below-an-object")

    @conforms
    async def test_ranges_are_exact(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        size = len(DATA)
        for start, end in [(0, size), (0, 1), (size - 1, size), (1, size - 1), (7, 300)]:
            equal(await storage.get_range(KEY, start, end), DATA[start:end], f"range {start}-{end}")

    @conforms
    async def test_ranges_are_bytes(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        equal(type(await storage.get_range(KEY, 3, 9)), bytes)
        equal([type(data) for data in await storage.get_ranges(KEY, [(3, 9), (0, 0)])], [bytes, bytes])

    @conforms
    async def test_empty_ranges_are_empty(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        for at in (0, 1, len(DATA)):
            equal(await storage.get_range(KEY, at, at), b"", f"nothing at {at}")

    @conforms
    async def test_an_empty_object_reads_empty(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, b"")
        equal((await storage.stat(KEY)).size, 0)
        equal(await storage.get_range(KEY, 0, 0), b"")
        equal(await collect(storage.stream(KEY)), b"")
        with raises(IntegrityError):
            await storage.get_range(KEY, 0, 1)

    @conforms
    async def test_past_the_end_is_never_short(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        size = len(DATA)
        for start, end in [
            (0, size + 1),
            (size - 1, size + 1),
            (size, size + 1),
            (size + 5, size + 9),
            (size + 1, size + 1),
        ]:
            with raises(IntegrityError):
                await storage.get_range(KEY, start, end)
            with raises(IntegrityError):
                await storage.get_ranges(KEY, [(0, 1), (start, end)])
            with raises(IntegrityError):
                await collect(storage.stream(KEY, start, end))
        with raises(IntegrityError):
            await collect(storage.stream(KEY, size + 1))

    @conforms
    async def test_offsets_beyond_32_bits_are_offsets(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        for start in (1 << 31, 1 << 32, (1 << 32) + 3, 1 << 53, (1 << 63) - 8):
            with raises(IntegrityError):
                await storage.get_range(KEY, start, start + 4)

    @conforms
    async def test_a_range_that_is_none_is_refused(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        for start, end in [(-1, 1), (-5, -1), (5, 4), (0, -1), (0, 1 << 63), (1 << 64, (1 << 64) + 1)]:
            with raises(InvalidInput):
                await storage.get_range(KEY, start, end)
            with raises(InvalidInput):
                await storage.get_ranges(KEY, [(0, 1), (start, end)])
            with raises(InvalidInput):
                await collect(storage.stream(KEY, start, end))

    @conforms
    async def test_ranges_come_in_the_order_asked(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        spans = [(900, 1000), (0, 10), (5, 20), (5, 20), (1024, 1024), (0, 1024), (1023, 1024), (0, 0)]
        equal(list(await storage.get_ranges(KEY, spans)), [DATA[start:end] for start, end in spans])

    @conforms
    async def test_no_ranges_give_nothing(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        equal(list(await storage.get_ranges(KEY, [])), [])

    @conforms
    async def test_random_ranges_equal_slices(self, storage: Storage, raw: Raw) -> None:
        chance = random.Random(20261121)
        data = chance.randbytes(5 * PIECE + 77)
        await raw.set(KEY, data)
        spans = []
        for _ in range(40):
            start = chance.randrange(len(data))
            spans.append((start, min(len(data), start + chance.choice([0, 1, 100, 70_000, 2 * PIECE]))))
        slices = [data[start:end] for start, end in spans]
        equal(list(await storage.get_ranges(KEY, spans)) == slices, True, "all slices")
        for start, end in spans[:8]:
            equal(await storage.get_range(KEY, start, end) == data[start:end], True, f"range {start}-{end}")
            equal(await collect(storage.stream(KEY, start, end)) == data[start:end], True, f"stream {start}-{end}")

    @conforms
    async def test_a_stream_comes_in_pieces(self, storage: Storage, raw: Raw) -> None:
        data = random.Random(1).randbytes(6 * PIECE + 5)
        await raw.set(KEY, data)
        async with aclosing(storage.stream(KEY)) as stream:
            pieces = [piece async for piece in stream]
        equal(b"".join(pieces) == data, True, "the whole model")
        equal({type(piece) for piece in pieces} <= {bytes, memoryview}, True, "bytes of an unchanged object")
        sizes = [len(piece) for piece in pieces]
        equal(min(sizes) > 0 and max(sizes) <= 4 * PIECE, True, f"pieces of {sizes}")

    @conforms
    async def test_a_stream_may_be_left(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, b"x" * (5 * PIECE))
        for _ in range(20):
            async with aclosing(storage.stream(KEY)) as stream:
                equal((await anext(stream))[:1], b"x")
        equal(await storage.get_range(KEY, 0, 1), b"x")

    @conforms
    async def test_the_right_tag_reads(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        etag = (await storage.stat(KEY)).etag
        equal(await storage.get_range(KEY, 1, 3, if_etag=etag), DATA[1:3])
        equal(await storage.get_range(KEY, 3, 3, if_etag=etag), b"")
        equal(list(await storage.get_ranges(KEY, [(1, 3), (900, 901)], if_etag=etag)), [DATA[1:3], DATA[900:901]])
        equal(await collect(storage.stream(KEY, if_etag=etag)), DATA)

    @conforms
    async def test_a_replaced_object_is_a_conflict(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        etag = (await storage.stat(KEY)).etag
        await raw.set(KEY, DATA[::-1])
        with raises(Conflict):
            await storage.get_range(KEY, 1, 3, if_etag=etag)
        with raises(Conflict):
            await storage.get_range(KEY, 3, 3, if_etag=etag)
        with raises(Conflict):
            await storage.get_ranges(KEY, [(1, 3), (900, 901)], if_etag=etag)
        with raises(Conflict):
            await collect(storage.stream(KEY, if_etag=etag))
        equal(await storage.get_range(KEY, 0, 2), DATA[::-1][:2], "without a tag, the new object")

    @conforms
    async def test_a_removed_object_is_gone(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        etag = (await storage.stat(KEY)).etag
        await raw.remove(KEY)
        with raises(NotFound):
            await storage.stat(KEY)
        with raises(NotFound, Conflict):
            await storage.get_range(KEY, 1, 3, if_etag=etag)

    @conforms
    async def test_a_stream_never_mixes_two_objects(self, storage: Storage, raw: Raw) -> None:
        size = 12 * PIECE
        await raw.set(KEY, b"a" * size)
        seen = bytearray()
        try:
            async with aclosing(storage.stream(KEY)) as stream:
                seen += await anext(stream)
                await raw.set(KEY, b"b" * size)
                async for piece in stream:
                    seen += piece
            equal(len(seen), size, "bytes of a stream that ended well")
        except (Conflict, IntegrityError):
            pass
        equal(seen.count(b"a"), len(seen), "bytes of the object the stream began with")

    @conforms
    async def test_many_readers_at_once(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        results = await asyncio.gather(*(storage.get_range(KEY, at, at + 9) for at in range(64)))
        equal(results, [DATA[at : at + 9] for at in range(64)])

    @conforms
    async def test_a_cancelled_read_leaves_nothing_held(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        for _ in range(20):
            task = asyncio.ensure_future(storage.get_range(KEY, 0, 5))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        equal(await storage.get_range(KEY, 0, 5), DATA[:5])

    @conforms
    async def test_keys_of_any_script_and_sign(self, storage: Storage, raw: Raw) -> None:
        for text in ODD:
            key = ObjectKey(f"odd/{text}")
            await raw.set(key, text.encode())
            equal(await storage.get_range(key, 0, len(text.encode())), text.encode(), f"content of {text!r}")

    @conforms
    async def test_messages_name_the_key_and_no_address(self, storage: Storage, raw: Raw) -> None:
        await raw.set(KEY, DATA)
        for start, end, etag in [(0, 4096, None), (0, 1, "another"), (9000, 9000, None)]:
            try:
                await storage.get_range(KEY, start, end, if_etag=etag)
            except ProtosliceError as error:
                equal("object.pb" in str(error) and "://" not in str(error), True, str(error))
            else:
                raise AssertionError("no error")
