"""Recipes share parts of files: a version writes what is new, and a chain of them stays cheap to read."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest
from tests.support.stores import collect_a_day_later, in_time, keys_in, keys_of, read, upload, written

from protoslice.catalog.manifest import Manifest, ObjectExtent, ObjectLocation
from protoslice.errors import Conflict
from protoslice.ingest import follow
from protoslice.recipes import Copy, RecipeWriter
from protoslice.storage import Storage
from protoslice.stores import IngestRequest, Stores

TENSOR, TENSORS, PIECE = 4000, 64, 800
FILE = "weights.bin"
SHARING = "protoslice.ingest.sharing"
Step = Copy | bytes


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of some kilobytes in the place of mebibytes."""
    for module in (SHARING, "protoslice.ingest.recipes"):
        monkeypatch.setattr(f"{module}.LEAST_SHARED", 1000)


async def pushed(stores: Stores, files: Mapping[str, Sequence[Step]], contents: Mapping[str, bytes]) -> str:
    """Id of the store of a recipe."""

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
    """Stores and contents of a model in so many versions, one of its tensors changed in each.

    Clients copy piece by piece, which may be smaller than what is shared.
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
    """Manifest of a store."""
    return (await stores.view(store)).manifest


async def test_twenty_versions_take_the_room_of_what_is_new(stores: Stores, storage: Storage) -> None:
    ids, contents = await chain(stores, 20)
    assert sum((await written(storage)).values()) <= 1.35 * len(contents[0])
    for store, content in zip(ids, contents, strict=True):
        assert await read((await stores.view(store)).file(FILE)) == content
    last, content = (await stores.view(ids[-1])).file(FILE), contents[-1]
    size = len(content)
    for start, end in ((0, 1), (TENSOR - 1, TENSOR + 9), (3, 30 * TENSOR + 7), (size - 1, size), (17, size - 17)):
        assert await read(last, start, end) == content[start:end]


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


async def test_heavy_objects_are_shared_however_many(
    stores: Stores, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{SHARING}.MOST_LIGHT", 2)
    monkeypatch.setattr(f"{SHARING}.HEAVY", TENSOR)
    _, contents = await chain(stores, 20)
    assert sum((await written(storage)).values()) <= 1.35 * len(contents[0])


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


async def test_small_parts_are_written_anew(stores: Stores) -> None:
    old = bytes(range(250)) * 400
    first = (await upload(stores, {FILE: old})).store.id
    new = old[:999] + b"new" + old[5000:6000]
    steps: list[Step] = [Copy(first, FILE, 0, 999), b"new", Copy(first, FILE, 5000, 1000)]
    second = await pushed(stores, {FILE: steps}, {FILE: new})
    (location,) = (await the_manifest(stores, second)).objects
    assert [extent.size for extent in location.extents()] == [999 + 3, 1000]
    assert await read((await stores.view(second)).file(FILE)) == new


async def test_a_damaged_part_is_not_shared(stores: Stores, storage: Storage) -> None:
    old = bytes(range(250)) * 400
    first = (await upload(stores, {FILE: old})).store.id
    await storage.put((await keys_of(stores, first))["file-0"], old[:-1] + b"?")
    with pytest.raises(Conflict, match="missing or damaged"):
        await pushed(stores, {FILE: [b"new", Copy(first, FILE, 0, len(old))]}, {FILE: b"new" + old})


A, B = (ObjectLocation(size, key=f"objects/0-{name}/file-0") for name, size in (("a", 10), ("b", 20)))
NESTED = ObjectLocation.joined([A, ObjectExtent(B, 5, 9).location, ObjectExtent(A, 2, 3).location])


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
