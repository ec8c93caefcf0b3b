"""Recipes are executed as they arrive; a wrong recipe stores nothing.

Recipes share parts of files: a version writes only new bytes, and a chain of versions stays cheap to read.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

import pytest
from tests.support.stores import (
    collect_a_day_later,
    in_time,
    keys_in,
    keys_of,
    onnx,
    opened,
    read,
    upload,
    visible,
    written,
)

from protoslice.catalog.manifest import Manifest, ObjectExtent, ObjectLocation
from protoslice.errors import Conflict, CorruptModel, InvalidInput, LimitExceeded, ProtosliceError
from protoslice.ingest import follow
from protoslice.recipes import Copy, RecipeWriter
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage, Storage
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
    """Return the message with which a recipe over a store is refused, and the calls that read files or wrote."""

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


TENSOR, TENSORS, PIECE = 4000, 64, 800
FILE = "weights.bin"
SHARING = "protoslice.ingest.sharing"
Step = Copy | bytes


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use tensors of some kilobytes in place of mebibytes."""
    for module in (SHARING, "protoslice.ingest.recipes"):
        monkeypatch.setattr(f"{module}.LEAST_SHARED", 1000)


async def pushed(stores: Stores, files: Mapping[str, Sequence[Step]], contents: Mapping[str, bytes]) -> str:
    """Return the id of a recipe's store."""

    async def body() -> AsyncIterator[bytes]:
        writer = RecipeWriter()
        for path, steps in files.items():
            yield writer.file(path)
            for step in steps:
                yield writer.copy(step) if isinstance(step, Copy) else writer.literal(len(step)) + step
            yield writer.end(len(contents[path]), hashlib.sha256(contents[path]).hexdigest())
        yield writer.done()

    async with await stores.ingest(IngestRequest()) as ingest:
        await follow(body(), ingest, stores.view)
        return (await ingest.commit()).store.id


async def chain(stores: Stores, versions: int) -> tuple[list[str], list[bytes]]:
    """Upload several versions of a model with one changed tensor in each; return their stores and contents.

    Clients copy piece by piece, and a piece may be smaller than the shared range.
    """
    tensors = [bytes([at, 0]) * (TENSOR // 2) for at in range(TENSORS)]
    contents = [b"head" + b"".join(tensors)]
    ids = [(await upload(stores, {FILE: contents[0], "note.txt": b"1"})).store.id]
    for number in range(1, versions):
        changed = number * 7 % TENSORS
        tensors[changed] = bytes([changed, number]) * (TENSOR // 2)
        contents.append(b"head" + b"".join(tensors))
        steps: list[Step] = [Copy(ids[-1], FILE, 0, 4)]
        for at, tensor in enumerate(tensors):
            begin = 4 + at * TENSOR
            pieces = [Copy(ids[-1], FILE, piece, PIECE) for piece in range(begin, begin + TENSOR, PIECE)]
            steps += [tensor] if at == changed else pieces
        note = b"%d" % number
        ids.append(await pushed(stores, {FILE: steps, "note.txt": [note]}, {FILE: contents[-1], "note.txt": note}))
    return ids, contents


async def the_manifest(stores: Stores, store: str) -> Manifest:
    """Return a store's manifest."""
    return (await stores.view(store)).manifest


@pytest.mark.usefixtures("little")
async def test_twenty_versions_take_the_room_of_what_is_new(stores: Stores, storage: Storage) -> None:
    ids, contents = await chain(stores, 20)
    assert sum((await written(storage)).values()) <= 1.35 * len(contents[0])
    for store, content in zip(ids, contents, strict=True):
        assert await read((await stores.view(store)).file(FILE)) == content
    last, content = (await stores.view(ids[-1])).file(FILE), contents[-1]
    size = len(content)
    for start, end in ((0, 1), (TENSOR - 1, TENSOR + 9), (3, 30 * TENSOR + 7), (size - 1, size), (17, size - 17)):
        assert await read(last, start, end) == content[start:end]


@pytest.mark.usefixtures("little")
async def test_versions_stay_when_those_before_them_are_removed_and_collected(stores: Stores, storage: Storage) -> None:
    ids, contents = await chain(stores, 6)
    for store in ids[:-1]:
        await stores.delete(store)
    for _ in range(3):
        await collect_a_day_later(storage)
    assert await read((await stores.view(ids[-1])).file(FILE)) == contents[-1]
    assert sum((await written(storage)).values()) <= 1.35 * len(contents[0])
    assert await in_time(storage) == [ids[-1]]
    await stores.delete(ids[-1])
    for _ in range(3):
        await collect_a_day_later(storage)
    assert await keys_in(storage) == ["protoslice.json"]


@pytest.mark.usefixtures("little")
async def test_a_long_chain_names_a_bounded_number_of_objects(
    stores: Stores, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Occasionally, a version writes the bytes of the lightest objects again."""
    monkeypatch.setattr(f"{SHARING}.MOST_LIGHT", 8)
    ids, contents = await chain(stores, 40)
    for store, content in zip(ids, contents, strict=True):
        manifest = await the_manifest(stores, store)
        assert len(manifest.object_ids) <= 8 + 2
        assert await read((await stores.view(store)).file(FILE)) == content
    assert sum((await written(storage)).values()) <= len(contents[0]) + 2.5 * 39 * TENSOR, (
        "each byte is written twice, about"
    )


@pytest.mark.usefixtures("little")
async def test_heavy_objects_are_shared_however_many(
    stores: Stores, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SHARING}.MOST_LIGHT", 2)
    monkeypatch.setattr(f"{SHARING}.HEAVY", TENSOR)
    _, contents = await chain(stores, 20)
    assert sum((await written(storage)).values()) <= 1.35 * len(contents[0])


@pytest.mark.usefixtures("little")
async def test_so_many_parts_are_shared_and_no_more(
    stores: Stores, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SHARING}.MOST_EXTENTS", 3)
    old = bytes(range(250)) * 400
    first = (await upload(stores, {FILE: old})).store.id
    steps = [Copy(first, FILE, at, 2000) for at in range(0, 60_000, 3000)]
    new = b"".join(old[step.offset : step.offset + step.length] for step in steps)
    second = await pushed(stores, {FILE: steps}, {FILE: new})
    assert sum((await written(storage)).values()) - len(old) == len(new) - 3 * 2000
    assert await read((await stores.view(second)).file(FILE)) == new


@pytest.mark.usefixtures("little")
async def test_small_parts_are_written_anew(stores: Stores) -> None:
    old = bytes(range(250)) * 400
    first = (await upload(stores, {FILE: old})).store.id
    new = old[:999] + b"new" + old[5000:6000]
    steps: list[Step] = [Copy(first, FILE, 0, 999), b"new", Copy(first, FILE, 5000, 1000)]
    second = await pushed(stores, {FILE: steps}, {FILE: new})
    (location,) = (await the_manifest(stores, second)).objects
    assert [extent.size for extent in location.extents()] == [999 + 3, 1000]
    assert await read((await stores.view(second)).file(FILE)) == new


@pytest.mark.usefixtures("little")
async def test_a_damaged_part_is_not_shared(stores: Stores, storage: Storage) -> None:
    old = bytes(range(250)) * 400
    first = (await upload(stores, {FILE: old})).store.id
    await storage.put((await keys_of(stores, first))["file-0"], old[:-1] + b"?")
    with pytest.raises(Conflict, match="missing or damaged"):
        await pushed(stores, {FILE: [b"new", Copy(first, FILE, 0, len(old))]}, {FILE: b"new" + old})


A, B = (ObjectLocation(size, key=f"objects/0-{name}/file-0") for name, size in (("a", 10), ("b", 20)))
NESTED = ObjectLocation.joined([A, ObjectExtent(B, 5, 9).location, ObjectExtent(A, 2, 3).location])


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize(
    ("location", "span", "expected"),
    [
        (A, (0, 10), [(A, 0, 10)]),
        (A, (3, 3), []),
        (ObjectLocation(4, parts=(A, B), at=8), (0, 4), [(A, 8, 10), (B, 0, 2)]),
        (ObjectLocation(0, parts=(A,), at=8), (0, 0), []),
        (NESTED, (0, 15), [(A, 0, 10), (B, 5, 9), (A, 2, 3)]),
        (NESTED, (10, 15), [(B, 5, 9), (A, 2, 3)]),
        (NESTED, (9, 12), [(A, 9, 10), (B, 5, 7)]),
        (ObjectLocation(5, parts=(NESTED, B), at=13), (1, 5), [(A, 2, 3), (B, 0, 3)]),
    ],
)
def test_extents_of_a_location(location: ObjectLocation, span: tuple[int, int], expected: object) -> None:
    assert [(each.object, each.start, each.end) for each in location.extents(*span)] == expected
