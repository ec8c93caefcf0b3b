"""Recipes are carried out as they arrive; a wrong one stores nothing."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable

import pytest
from tests.support.stores import onnx, opened, upload, visible

from protoslice.errors import Conflict, CorruptModel, InvalidInput, LimitExceeded, ProtosliceError
from protoslice.ingest import follow
from protoslice.recipes import Copy, RecipeWriter
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import IngestRequest, Stores

MIB = 1 << 20
MODEL = onnx(2 * MIB)
OPTIONS = StoreOptions(max_upload_bytes=8 * MIB)
WRITES = {"writer", "write", "commit", "put", "put_if_absent"}


async def body(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def refused(kind: type[ProtosliceError], recipe: Callable[[str], list[bytes]]) -> tuple[str, list[str]]:
    """Message with which the recipe over a store is refused, and the calls that read files or wrote."""

    async def work() -> tuple[str, list[str]]:
        calls: list[Call] = []
        async with opened(MeteredStorage(MemoryStorage(), calls.append), OPTIONS) as stores:
            made = (await upload(stores, MODEL)).store.id
            await stores.view(made)
            del calls[:]
            with pytest.raises(kind) as error:
                await make(stores, recipe(made))
            assert [*await visible(stores)] == [made]
            return error.value.message, [call.name for call in calls if call.name in WRITES | {"get_ranges"}]

    return asyncio.run(work())


async def make(stores: Stores, recipe: list[bytes]) -> str:
    async with await stores.ingest(IngestRequest()) as ingest:
        await follow(body(*recipe), ingest, stores.view)
        return (await ingest.commit()).store.id


def whole(store: str, **given: int) -> Copy:
    return Copy(store, "model.onnx", given.get("offset", 0), given.get("length", len(MODEL)))


def file(writer: RecipeWriter, path: str, copies: list[Copy], end: tuple[int, str]) -> bytes:
    return writer.file(path) + b"".join(map(writer.copy, copies)) + writer.end(*end)


def test_a_recipe_beyond_the_room_is_refused_at_the_event_that_exceeds_it() -> None:
    def too_much(store: str) -> list[bytes]:
        writer = RecipeWriter()
        files = [file(writer, f"{n}.onnx", [whole(store)], (len(MODEL), sha(MODEL))) for n in range(4)]
        return [*files, writer.done()]

    def announced(store: str) -> list[bytes]:
        writer = RecipeWriter()
        return [writer.file("a") + writer.copy(whole(store)) + writer.literal(6 * MIB)]

    for recipe in (too_much, announced):
        message, calls = refused(LimitExceeded, recipe)
        assert str(8 * MIB) in message
        assert calls == []


@pytest.mark.parametrize(
    ("copies", "end"),
    [
        ([{}, {}], (len(MODEL), sha(MODEL))),
        ([{}], (len(MODEL) + 1, sha(MODEL))),
        ([{}], (len(MODEL), sha(b"another"))),
        ([{}, {"length": 0}], (len(MODEL), sha(b"another"))),
    ],
)
def test_an_end_that_cannot_be(copies: list[dict[str, int]], end: tuple[int, str]) -> None:
    def recipe(store: str) -> list[bytes]:
        writer = RecipeWriter()
        return [file(writer, "a", [whole(store, **copy) for copy in copies], end), writer.done()]

    message, calls = refused(InvalidInput, recipe)
    assert "does not match the size and digest" in message
    assert calls == []


def test_a_digest_that_only_the_bytes_tell() -> None:
    def recipe(store: str) -> list[bytes]:
        writer = RecipeWriter()
        return [file(writer, "a", [whole(store, length=100)], (100, sha(b"another"))), writer.done()]

    assert "'a'" in refused(InvalidInput, recipe)[0]


def test_the_last_line_is_wrong() -> None:
    def lines(store: str, last: bytes) -> list[bytes]:
        return [file(RecipeWriter(), "a", [whole(store)], (len(MODEL), sha(MODEL))), last]

    gone = Copy("0" * 64, "model.onnx", 0, 1)
    for kind, last in (
        (CorruptModel, b""),
        (CorruptModel, b'{"done": "0"}\n'),
        (Conflict, RecipeWriter().file("b") + RecipeWriter().copy(gone) + RecipeWriter().end(1, sha(b"x"))),
    ):
        assert refused(kind, lambda store, last=last: lines(store, last))[1] == []  # type: ignore[misc]


def test_a_long_recipe_is_carried_out_as_it_comes() -> None:
    more = bytes(range(256)) * (3 * MIB // 256)
    writer = RecipeWriter()

    async def work(store: str, stores: Stores, written: Callable[[], int]) -> None:
        async def recipe() -> AsyncIterator[bytes]:
            yield writer.file("a") + writer.copy(whole(store)) + writer.literal(len(more))
            for at in range(0, len(more), MIB // 4):
                yield more[at : at + MIB // 4]
            assert written() > 0, "nothing was written"
            yield writer.end(len(MODEL + more), sha(MODEL + more)) + writer.done()

        async with await stores.ingest(IngestRequest()) as ingest:
            await follow(recipe(), ingest, stores.view)

    async def run() -> None:
        calls: list[Call] = []
        async with opened(MeteredStorage(MemoryStorage(), calls.append), OPTIONS) as stores:
            made = (await upload(stores, MODEL)).store.id
            del calls[:]
            await work(made, stores, lambda: sum(call.name == "write" for call in calls))

    asyncio.run(run())
