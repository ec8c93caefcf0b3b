"""Sessions of Xet: bounded, seen by those who began them, and gone with their uploads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.repositories import in_repositories

from protoslice.errors import InvalidInput, LimitExceeded, NotFound
from protoslice.repositories import Repositories, StagedXorb, XorbSession
from protoslice.storage import ObjectContent, ObjectKey, Storage
from protoslice.stores.layout import keys
from protoslice.stores.uploads import Body, Uploads
from protoslice.stores.uploads.records import UploadRecords

NAMES = ("0" * 64, "1" * 64)


async def kept(session: XorbSession, uploads: Uploads, name: str, data: bytes) -> None:
    """Keep a xorb of one chunk."""

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    upload = await session.begin()
    upload = await uploads.append(upload.id, Body(pieces=pieces(), offset=0, last=True))
    await session.keep(name, upload, [len(data)])


def test_a_xorb_is_found_by_its_hash() -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made = await repositories.create("m")
        session = await made.sessions.open(await made.sessions.begin("ann"), "ann")
        assert not await session.has(NAMES[0])
        with pytest.raises(InvalidInput, match="has not come"):
            await session.xorb(NAMES[0])
        for name in (*NAMES, NAMES[0]):  # the last one comes twice
            await kept(session, made.stores.uploads, name, b"abc")
        assert await session.has(NAMES[0])
        assert (await session.xorb(NAMES[1])).ends == [3]

    in_repositories(work)


def test_a_xorb_is_read_once() -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made = await repositories.create("m")
        session = await made.sessions.open(await made.sessions.begin("ann"), "ann")
        await kept(session, made.stores.uploads, NAMES[0], b"abc")
        found = await session.xorb(NAMES[0])
        async for stat in storage.iterate(keys.OBJECTS):
            await storage.delete(stat.key)
        assert await session.xorb(NAMES[0]) == found

    in_repositories(work)


def test_extents_of_two_xorbs_in_turn_read_no_record_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made = await repositories.create("m")
        session = await made.sessions.open(await made.sessions.begin("ann"), "ann")
        uploads, extents = made.stores.uploads, []
        for name, data in zip(NAMES, (b"abc", b"xyz"), strict=True):
            await kept(session, uploads, name, data)
            extents.append((await session.xorb(name)).extent(0, 1, 3))
        asked, get = [], type(storage).get

        async def counted(self: Storage, key: ObjectKey) -> ObjectContent:
            asked.append(key)
            return await get(self, key)

        monkeypatch.setattr(type(storage), "get", counted)
        assert b"".join([piece async for piece in uploads.extents(extents * 20)]) == b"abcxyz" * 20
        assert len(asked) == len(set(asked))

    in_repositories(work)


def test_a_session_is_seen_by_the_client_that_began_it() -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made, other = await repositories.create("m"), await repositories.create("n")
        session = await made.sessions.begin("ann")
        assert await made.sessions.open(session, "ann")
        for sessions, client in ((made.sessions, "bob"), (other.sessions, "ann")):
            with pytest.raises(NotFound):
                await sessions.open(session, client)

    in_repositories(work)


def test_a_session_takes_as_many_bytes_as_an_upload() -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made = await repositories.create("m")
        session = await made.sessions.open(await made.sessions.begin(""), "")
        await kept(session, made.stores.uploads, NAMES[0], b"abc")
        made.stores.uploads.options = replace(made.stores.uploads.options, max_bytes=3)
        with pytest.raises(LimitExceeded):
            await session.has(NAMES[1])
        assert await session.has(NAMES[0])

    in_repositories(work)


def test_the_collector_removes_what_an_expired_session_left() -> None:
    async def work(repositories: Repositories, storage: Storage) -> None:
        made = await repositories.create("m")
        begun = await made.sessions.begin("")
        session = await made.sessions.open(begun, "")
        await kept(session, made.stores.uploads, NAMES[0], b"abc" * 1000)
        await made.stores.collect_garbage(grace_seconds=0)
        assert (await session.xorb(NAMES[0])).ends == [3000]
        records = UploadRecords(storage)
        async for stat in storage.iterate(keys.UPLOADS):
            held = await records.read(stat.key.segments[-1])
            past = held.upload.created - timedelta(days=1)
            await records.change(held, replace(held.upload, expires=past))
        for _ in range(3):  # one ends the uploads, the next removes their records, the last their objects
            await made.stores.collect_garbage(grace_seconds=0)
        assert [item.key async for item in storage.iterate(keys.OBJECTS)] == []
        with pytest.raises(NotFound):
            await made.sessions.open(begun, "")

    in_repositories(work)


@pytest.mark.parametrize(("first", "end", "size"), [(0, 3, 10), (-1, 1, 4), (1, 1, 0), (1, 0, 4), (0, 1, 5)])
def test_an_extent_lies_in_its_xorb(first: int, end: int, size: int) -> None:
    xorb = StagedXorb("u", [4, 10])
    assert xorb.extent(1, 2, 6) == ("u", 4, 10)
    assert xorb.extent(0, 2, 10) == ("u", 0, 10)
    with pytest.raises(InvalidInput):
        xorb.extent(first, end, size)
