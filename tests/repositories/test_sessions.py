"""Sessions of Xet: they are bounded, visible to their creators, and removed with their uploads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.stores import collect_garbage, objects_in, uploads_in, usage_of

from protoslice.catalog.manifest import ObjectExtent, ObjectLocation
from protoslice.errors import ChecksumMismatch, InvalidInput, LimitExceeded, NotFound
from protoslice.ingest.sharing import LEAST_SHARED
from protoslice.repositories import Author, Repositories, Repository, StagedXorb, XorbSession
from protoslice.storage import ObjectKey, Storage
from protoslice.uploads import Upload

NAMES = ("0" * 64, "1" * 64)


async def kept(session: XorbSession, name: str, data: bytes) -> ObjectLocation:
    """Store a xorb of one chunk."""
    objects = session.new_objects()
    try:
        chunks = await objects.writer()
        chunks.sums.update(data)
        await chunks.write(data)
        stored = await chunks.commit()
        await session.keep(name, stored, [len(data)], objects)
        return stored
    finally:
        objects.end()


async def opened(repositories: Repositories) -> tuple[Repository, XorbSession]:
    """Return a new repository, and a session of it."""
    made = await repositories.create("m")
    return made, await made.sessions.open(await made.sessions.begin(""), "")


async def composed(made: Repository, session: XorbSession, extents: Sequence[ObjectExtent], data: bytes) -> Upload:
    """Return the staged file that consists of the extents."""
    upload = await made.staged.begin(hashlib.sha256(data).hexdigest(), len(data), "")
    return await session.compose(upload, extents)


async def test_a_xorb_is_found_by_its_hash(repositories: Repositories) -> None:
    made = await repositories.create("m")
    session = await made.sessions.open(await made.sessions.begin("ann"), "ann")
    assert not await session.has(NAMES[0])
    with pytest.raises(InvalidInput, match="was not sent"):
        await session.xorb(NAMES[0])
    for name in (*NAMES, NAMES[0]):  # the last one comes twice
        await kept(session, name, b"abc")
    assert await session.has(NAMES[0])
    assert (await session.xorb(NAMES[1])).ends == [3]


async def test_a_xorb_is_read_once(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    session = await made.sessions.open(await made.sessions.begin("ann"), "ann")
    await kept(session, NAMES[0], b"abc")
    found = await session.xorb(NAMES[0])
    for key in await objects_in(storage):
        await storage.delete(ObjectKey(key))
    assert await session.xorb(NAMES[0]) == found


async def test_extents_of_two_xorbs_in_turn_are_read_by_a_call_for_each_xorb(
    monkeypatch: pytest.MonkeyPatch, repositories: Repositories, storage: Storage
) -> None:
    blocks = [hashlib.shake_256(bytes([number])).digest(LEAST_SHARED) for number in range(8)]
    data = b"".join(block for pair in zip(blocks[:4], blocks[4:], strict=True) for block in pair)
    made, session = await opened(repositories)
    xorbs = [await kept(session, name, b"".join(half)) for name, half in zip(NAMES, halves(blocks), strict=True)]
    extents = [
        ObjectExtent(xorb, at, at + LEAST_SHARED) for at in range(0, 4 * LEAST_SHARED, LEAST_SHARED) for xorb in xorbs
    ]
    reads, get_ranges = Counter[ObjectKey](), type(storage).get_ranges

    async def counted(self: Storage, key: ObjectKey, *rest: Any, **more: Any) -> Sequence[bytes]:
        reads[key] += 1
        return await get_ranges(self, key, *rest, **more)

    monkeypatch.setattr(type(storage), "get_ranges", counted)
    upload = await composed(made, session, extents, data)
    assert reads == {ObjectKey(xorb.key or ""): 1 for xorb in xorbs}
    assert b"".join([piece async for piece in made.stores.uploads.content(upload.id)]) == data
    assert {each.key for part in upload.parts for each in part.objects} == {xorb.key for xorb in xorbs}


def halves(blocks: Sequence[bytes]) -> tuple[Sequence[bytes], Sequence[bytes]]:
    """Return the first and the last half."""
    return blocks[: len(blocks) // 2], blocks[len(blocks) // 2 :]


async def test_small_extents_are_copied_unless_they_go_on_with_a_large_one(
    repositories: Repositories, storage: Storage
) -> None:
    large, small = hashlib.shake_256(b"large").digest(LEAST_SHARED), b"small"
    data = large + small * 3 + large[:-1] + large + small
    made, session = await opened(repositories)
    xorb = await kept(session, NAMES[0], large + small)
    parts = [ObjectExtent(xorb, 0, len(large)), ObjectExtent(xorb, len(large), xorb.size)]
    cut = ObjectExtent(xorb, 0, len(large) - 1)
    extents = [parts[0], *[parts[1]] * 3, cut, *parts]
    made_of = await composed(made, session, extents, data)
    assert b"".join([piece async for piece in made.stores.uploads.content(made_of.id)]) == data
    own = [part for part in made_of.parts[0].objects if part.key != xorb.key]
    assert {part.size for part in own} == {len(data) - 2 * len(large + small)}
    assert await uploads_in(storage).read(made_of.id) == made_of
    location = "SELECT location FROM upload_parts WHERE upload = :id"
    ((stored,),) = await catalogue_of(storage).read(lambda tx: tx.all(location, id=made_of.id))
    assert stored.count("sums") == 1


async def test_extents_of_other_bytes_leave_nothing(repositories: Repositories, storage: Storage) -> None:
    made, session = await opened(repositories)
    xorb = await kept(session, NAMES[0], b"abc")
    upload = await made.staged.begin(hashlib.sha256(b"abd").hexdigest(), 3, "")
    with pytest.raises(ChecksumMismatch):
        await session.compose(upload, [ObjectExtent(xorb, 0, 3)])
    await collect_garbage(storage)
    assert await objects_in(storage) == [xorb.key]


async def test_a_file_is_kept_as_long_as_its_session(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    begun = await made.sessions.begin("")
    session = await made.sessions.open(begun, "")
    xorb = await kept(session, NAMES[0], b"abc")
    records = uploads_in(storage)
    held = await records.read(begun)
    soon = await records.change(held, held, keep_seconds=60)
    upload = await composed(made, session, [ObjectExtent(xorb, 0, 3)], b"abc")
    renewed = await records.read(begun)
    assert upload.expires == renewed.expires > soon.expires + timedelta(hours=20)


async def test_a_committed_file_outlives_its_session(repositories: Repositories, storage: Storage) -> None:
    data = hashlib.shake_256(b"large").digest(LEAST_SHARED)
    made, session = await opened(repositories)
    xorb, other = await kept(session, NAMES[0], data), await kept(session, NAMES[1], data[1:])
    upload = await composed(made, session, [ObjectExtent(xorb, 0, len(data))], data)
    await made.staged.keep(upload)
    async with await made.change("main") as change:
        await change.take("m.bin", upload)
        commit = await change.commit(Author("x"))
    await expire(storage)
    await collect_garbage(storage, grace_seconds=0)
    left = await objects_in(storage)
    assert xorb.key in left
    assert other.key not in left
    file = (await made.stores.view(commit.store or "")).file("m.bin")
    assert b"".join([bytes(piece) async for piece in file.pieces(0, file.size)]) == data


async def expire(storage: Storage) -> None:
    """Let all uploads expire."""
    await catalogue_of(storage).write(lambda tx: tx.run("UPDATE uploads SET expires = 0"))


async def test_a_session_is_seen_by_the_client_that_began_it(repositories: Repositories) -> None:
    made, other = await repositories.create("m"), await repositories.create("n")
    session = await made.sessions.begin("ann")
    assert await made.sessions.open(session, "ann")
    for sessions, client in ((made.sessions, "bob"), (other.sessions, "ann")):
        with pytest.raises(NotFound):
            await sessions.open(session, client)


async def test_a_session_takes_as_many_bytes_as_an_upload(repositories: Repositories) -> None:
    made = await repositories.create("m")
    session = await made.sessions.open(await made.sessions.begin(""), "")
    await kept(session, NAMES[0], b"abc")
    made.stores.uploads.options = replace(made.stores.uploads.options, max_bytes=3)
    with pytest.raises(LimitExceeded):
        await session.has(NAMES[1])
    assert await session.has(NAMES[0])


async def test_the_collector_removes_what_an_expired_session_left(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    begun = await made.sessions.begin("")
    session = await made.sessions.open(begun, "")
    await kept(session, NAMES[0], b"abc" * 1000)
    await collect_garbage(storage, grace_seconds=0)
    assert (await session.xorb(NAMES[0])).ends == [3000]
    await expire(storage)
    await collect_garbage(storage, grace_seconds=0)
    assert await objects_in(storage) == []
    assert (await usage_of(storage)).stored_bytes == 0
    with pytest.raises(NotFound):
        await made.sessions.open(begun, "")


async def test_a_session_that_is_removed_leaves_nothing(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    begun = await made.sessions.begin("")
    session = await made.sessions.open(begun, "")
    await kept(session, NAMES[0], b"abc" * 1000)
    await made.stores.uploads.remove(begun)
    await collect_garbage(storage, grace_seconds=-1)
    assert await objects_in(storage) == []
    assert (await usage_of(storage)).stored_bytes == 0
    assert await catalogue_of(storage).read(lambda tx: tx.all("SELECT id FROM uploads")) == []


@pytest.mark.parametrize(("first", "end", "size"), [(0, 3, 10), (-1, 1, 4), (1, 1, 0), (1, 0, 4), (0, 1, 5)])
def test_an_extent_lies_in_its_xorb(first: int, end: int, size: int) -> None:
    chunks = ObjectLocation(10, "objects/aa/1-aa")
    xorb = StagedXorb(chunks, [4, 10])
    assert xorb.extent(1, 2, 6) == ObjectExtent(chunks, 4, 10)
    assert xorb.extent(0, 2, 10) == ObjectExtent(chunks, 0, 10)
    with pytest.raises(InvalidInput):
        xorb.extent(first, end, size)
