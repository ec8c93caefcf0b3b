"""Limits of open uploads: in all, by client, and the time that an idle one keeps its place."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.stores import in_memory, opened, uploads_in

from protoslice.database.transactions import now
from protoslice.errors import ClientLimit, Gone, TooMany
from protoslice.server.api.encoding import encode_fact
from protoslice.server.api.uploads import state_of
from protoslice.server.app import create_app
from protoslice.server.bodies.tus import upload_headers
from protoslice.server.settings import Settings
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, NewUpload, UploadOptions, append

DAY = timedelta(days=1)
OPTIONS = StoreOptions(uploads=UploadOptions(max_open=8, max_open_per_client=3))


def wanted(client: str, **more: object) -> NewUpload:
    return NewUpload(length=1000, client=client, **more)  # type: ignore[arg-type]


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def expire(storage: Storage, upload_id: str) -> None:
    """Set an upload's time to the past."""
    records = uploads_in(storage)
    held = await records.read(upload_id)
    await records.change(held, replace(held, expires=now() - DAY))


def test_one_client_leaves_room_for_others() -> None:
    """The records tell whose an upload is, so another replica counts alike."""

    async def work(one: Stores, storage: MemoryStorage) -> None:
        for _ in range(3):
            await one.uploads.create(wanted("greedy"))
        async with opened(storage, OPTIONS) as other:
            for stores in (one, other):
                with pytest.raises(ClientLimit, match=r"of this client \(3\)"):
                    await stores.uploads.create(wanted("greedy"))
                with pytest.raises(ClientLimit):
                    await stores.uploads.join([], wanted("greedy"))
                await stores.uploads.create(wanted("honest"))

    in_memory(work, OPTIONS)


def test_all_together_have_a_limit_too() -> None:
    async def work(stores: Stores, _: MemoryStorage) -> None:
        for number in range(8):
            await stores.uploads.create(wanted(f"client {number}"))
        with pytest.raises(TooMany, match=r"Too many open uploads \(8\)") as caught:
            await stores.uploads.create(wanted("another"))
        assert not isinstance(caught.value, ClientLimit)

    in_memory(work, OPTIONS)


def test_who_has_no_name_has_no_limit_of_its_own() -> None:
    async def work(stores: Stores, storage: MemoryStorage) -> None:
        for _ in range(8):
            await stores.uploads.create(wanted(""))

    in_memory(work, OPTIONS)


@pytest.mark.parametrize("ended", ["removed", "expired"])
def test_an_upload_that_has_ended_frees_its_place(ended: str) -> None:

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        first, *_ = [await stores.uploads.create(wanted("greedy")) for _ in range(3)]
        with pytest.raises(ClientLimit):
            await stores.uploads.create(wanted("greedy"))
        await (stores.uploads.remove(first.id) if ended == "removed" else expire(storage, first.id))
        await stores.uploads.create(wanted("greedy"))
        with pytest.raises(Gone):
            await stores.uploads.get(first.id)

    in_memory(work, OPTIONS)


def test_an_upload_of_which_nothing_came_is_kept_for_minutes() -> None:
    options = UploadOptions()

    async def work(stores: Stores, _: MemoryStorage) -> None:
        begun = await stores.uploads.create(wanted("a"))
        assert begun.expires <= now() + timedelta(minutes=10)
        nothing = await stores.uploads.append(begun.id, Body(pieces=pieces(), offset=0))
        assert nothing.expires <= now() + timedelta(minutes=10)
        got_on = await stores.uploads.append(begun.id, Body(pieces=pieces(b"\x0a"), offset=0))
        assert got_on.expires > now() + DAY / 2

    in_memory(work, StoreOptions(uploads=options))


def test_a_slow_body_keeps_its_upload_before_any_of_it_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(append, "monotonic", lambda: clock[0])
    seen = []

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        begun = await stores.uploads.create(wanted("a"))
        await expire_soon(storage, begun.id)

        async def slowly() -> AsyncIterator[bytes]:
            for _ in range(4):
                held = await uploads_in(storage).read(begun.id)
                seen.append(held.expires)
                yield b"\x0a"
                clock[0] += 20

        got_on = await stores.uploads.append(begun.id, Body(pieces=slowly(), offset=0))
        assert got_on.offset == 4

    async def expire_soon(storage: MemoryStorage, upload_id: str) -> None:
        records = uploads_in(storage)
        held = await records.read(upload_id)
        await records.change(held, replace(held, expires=now() + timedelta(seconds=30)))

    in_memory(work)
    assert seen[0] == seen[1] < seen[2] == seen[3], "told once, when half of the time was over"


async def test_whose_it_is_is_told_to_nobody(stores: Stores) -> None:
    found = await stores.uploads.create(wanted("203.0.113.77"))
    settings = Settings(storage="memory://")
    said = encode_fact(state_of(found)).decode() + str(upload_headers(found, {"app": create_app(settings)}))
    assert "203.0.113.77" not in said


@pytest.mark.parametrize("ends", ["join", "assemble"])
def test_uploads_that_a_store_was_made_of_count_no_longer(ends: str) -> None:
    """A client that sends in parallel would else be shut out for a day; asking again goes on to work."""

    async def work(stores: Stores, storage: MemoryStorage) -> None:
        made: set[str | None] = set()
        for turn in range(4):
            parts = [(await stores.uploads.create(wanted("client", partial=True))).id for _ in range(2)]
            for part in parts:
                body = Body(pieces=pieces(bytes([turn]) * 1000), offset=0, length=1000)
                await stores.uploads.append(part, body)
            for _ in range(2):
                if ends == "join":
                    made.add((await stores.uploads.join(parts, NewUpload(path="a.bin", client="client"))).store)
                else:
                    made.add((await stores.uploads.assemble({"a.bin": parts}, IngestRequest())).store.id)
            for part in parts:
                assert (await stores.uploads.get(part)).state == "complete"
        assert len(made) == 4

    in_memory(work, OPTIONS)
