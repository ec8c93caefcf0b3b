"""MLflow's artifacts over a storage: single files, folders, parts in any order, and stores that are made of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.stores import collect_garbage, objects_in, onnx, opened, usage_of, written

from protoslice.catalog import mlflow
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import ArtifactEntry, MlflowTable, NoArtifact
from protoslice.catalog.spaces import Quota
from protoslice.errors import InvalidInput, LimitExceeded, QuotaExceeded
from protoslice.mlflow import MlflowArtifacts, UnknownPart, new_session
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import UploadOptions

LARGE = onnx(7, 50_000)


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def content(stores: Stores, file: RepositoryFile) -> bytes:
    if file.store is None:
        return file.data or b""
    return await (await stores.view(file.store)).file(file.path or "").read(1 << 30)


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    """Return the stores of a space in memory."""
    async with opened(MemoryStorage()) as stores:
        yield stores


@pytest.fixture
def artifacts(stores: Stores) -> MlflowArtifacts:
    """Return the artifacts over `stores`."""
    return MlflowArtifacts(stores)


@pytest.mark.parametrize("size", [0, 1, 16 << 10, (16 << 10) + 1, 3 << 20])
async def test_a_file_comes_back_whatever_its_size(artifacts: MlflowArtifacts, stores: Stores, size: int) -> None:
    data = bytes(range(251)) * (size // 251 + 1)
    await artifacts.put("0/run/artifacts/a ü.bin", pieces(data[: size // 2], data[size // 2 : size]))
    found = await artifacts.table.get("0/run/artifacts/a ü.bin")
    assert found.size == size
    assert await content(stores, found) == data[:size]


async def test_a_large_file_is_a_store_at_once(artifacts: MlflowArtifacts, stores: Stores) -> None:
    file = await artifacts.put("0/r/model.onnx", pieces(LARGE))
    assert (await stores.get(file.store or "")).type == "onnx.ModelProto"


async def test_a_name_is_a_file_now_and_a_folder_later(artifacts: MlflowArtifacts, stores: Stores) -> None:
    await artifacts.put("r/a", pieces(b"file"))
    await artifacts.table.remove("r/a")
    await artifacts.put("r/a/b", pieces(b"inside"))
    assert await artifacts.table.entries("r") == [ArtifactEntry("a", None)]
    await artifacts.table.remove("r")
    assert await artifacts.table.entries("") == []
    with pytest.raises(NoArtifact):
        await artifacts.table.remove("r")


async def test_parts_come_in_any_order_and_twice(artifacts: MlflowArtifacts, stores: Stores) -> None:
    session, sent = new_session(), dict[int, str]()
    for number in (3, 1, 2, 1):
        piece = LARGE[(number - 1) * 20_000 : number * 20_000 if number < 3 else None]
        sent[number] = await artifacts.put_part(session, number, pieces(piece), "")
    file = await artifacts.join("r/m.onnx", session, list(sent.items()))
    assert await content(stores, file) == LARGE
    assert await content(stores, await artifacts.table.get("r/m.onnx")) == LARGE


async def test_parts_that_have_come_count_for_no_limit_of_open_uploads() -> None:
    options = StoreOptions(uploads=UploadOptions(max_open=3, max_open_per_client=2))
    async with opened(MemoryStorage(), options) as stores:
        artifacts, session, sent = MlflowArtifacts(stores), new_session(), list[tuple[int, str]]()
        for number in range(1, 8):
            sent.append((number, await artifacts.put_part(session, number, pieces(b"%d" % number), "ann")))
        assert await content(stores, await artifacts.join("r/f", session, sent)) == b"1234567"


async def test_a_part_belongs_to_its_session_and_number(artifacts: MlflowArtifacts) -> None:
    session, other = new_session(), new_session()
    part = await artifacts.put_part(session, 1, pieces(b"1"), "")
    for asked, number in ((other, 1), (session, 2)):
        with pytest.raises(UnknownPart):
            await artifacts.join("r/f", asked, [(number, part)])
    for count in (0, 10_001):
        with pytest.raises(LimitExceeded):
            await artifacts.join("r/f", session, [(1, part)] * count)
    with pytest.raises(NoArtifact):
        await artifacts.table.get("r/f")


async def test_a_store_of_a_folder_has_its_files_and_writes_no_large_one_again(
    artifacts: MlflowArtifacts, stores: Stores
) -> None:
    await artifacts.put("0/r/artifacts/model/model.onnx", pieces(LARGE * 4))
    await artifacts.put("0/r/artifacts/model/MLmodel", pieces(b"flavors: {}"))
    await artifacts.put("0/r/artifacts/notes.txt", pieces(b"no part of it"))
    before = await stored(stores)
    made = await artifacts.store("0/r/artifacts/model", IngestRequest(tags=("m:1",)))
    assert await stored(stores) - before < len(LARGE)
    assert {file.path: file.size for file in made.store.files} == {"MLmodel": 11, "model.onnx": 4 * len(LARGE)}
    again = await artifacts.store("0/r/artifacts/model", IngestRequest())
    assert (again.store.id, again.created) == (made.store.id, False)
    with pytest.raises(NoArtifact):
        await artifacts.store("0/r/nothing", IngestRequest())


async def test_a_folder_is_sealed_when_asked_and_again_when_it_changed(
    artifacts: MlflowArtifacts, stores: Stores
) -> None:
    await artifacts.put("7/r/model.onnx", pieces(LARGE))
    await artifacts.put("7/r/sub/MLmodel", pieces(b"first"))
    first = await artifacts.freeze("7/r")
    made = await count(stores)
    assert await artifacts.freeze("7/r") == first
    assert await count(stores) == made  # nothing was written for it
    await artifacts.put("7/r/sub/MLmodel", pieces(b"other"))
    changed = await artifacts.freeze("7/r")
    assert await (await stores.view(changed)).file("sub/MLmodel").read(9) == b"other"
    await artifacts.table.remove("7/r/sub")
    assert [file.path for file in (await stores.get(await artifacts.freeze("7/r"))).files] == ["model.onnx"]
    await artifacts.put("7/r/sub/MLmodel", pieces(b"first"))
    assert await artifacts.freeze("7/r") == first


async def test_a_store_that_was_removed_is_made_again(artifacts: MlflowArtifacts, stores: Stores) -> None:
    await artifacts.put("7/r/MLmodel", pieces(b"flavors: {}"))
    store = await artifacts.freeze("7/r")
    await stores.delete(store)
    assert await artifacts.freeze("7/r") == store
    assert (await stores.get(store)).size == 11


async def test_a_file_written_while_its_folder_is_read_is_sealed_the_next_time(
    artifacts: MlflowArtifacts, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    await artifacts.put("7/r/a", pieces(b"old"))
    read = MlflowTable.files

    async def meanwhile(self: MlflowTable, folder: str) -> tuple[dict[str, RepositoryFile], bytes]:
        found = await read(self, folder)
        await artifacts.put("7/r/b", pieces(b"new"))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(MlflowTable, "files", meanwhile)
        first = await artifacts.freeze("7/r")
    assert [file.path for file in (await stores.get(first)).files] == ["a"]
    assert [file.path for file in (await stores.get(await artifacts.freeze("7/r"))).files] == ["a", "b"]


async def test_a_folder_of_more_files_than_a_store_holds_is_no_store(
    artifacts: MlflowArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mlflow, "MAX_FILES", 3)
    for number in range(4):
        await artifacts.put(f"7/r/{number}", pieces(b""))
    with pytest.raises(LimitExceeded, match="choose a folder inside it"):
        await artifacts.freeze("7")


async def count(stores: Stores) -> int:
    return len(await objects_in(stores.storage))


async def stored(stores: Stores) -> int:
    return sum((await written(stores.storage)).values())


@pytest.mark.parametrize("path", ["../x", "/x", "a//b", "a/./b", "a/..", "", "a\\b", "a\0b", "x" * 1025])
async def test_paths_that_climb_or_do_not_fit_are_refused(artifacts: MlflowArtifacts, path: str) -> None:
    with pytest.raises(InvalidInput):
        await artifacts.put(path, pieces(b"x"))


async def test_a_writer_that_dies_leaves_the_file_that_was_there(artifacts: MlflowArtifacts, stores: Stores) -> None:
    async def dying() -> AsyncIterator[bytes]:
        yield LARGE
        raise ConnectionError

    await artifacts.put("r/f", pieces(b"old"))
    with pytest.raises(ConnectionError):
        await artifacts.put("r/f", dying())
    assert await content(stores, await artifacts.table.get("r/f")) == b"old"


async def test_small_files_count_against_the_quota_of_their_space() -> None:
    options = StoreOptions(quota=Quota(stored_bytes=100_000))
    async with opened(storage := MemoryStorage(), options) as stores:
        artifacts = MlflowArtifacts(stores)

        async def used() -> int:
            """Return the counted bytes, after asserting that they equal the stored bytes."""
            counted = (await usage_of(storage)).stored_bytes
            sql = "SELECT coalesce(sum(length(data)), 0) FROM kept_files"
            assert await stores.database.read(lambda tx: tx.all(sql)) == [(counted,)]
            return counted

        for _ in range(50):
            await artifacts.put("0/run/artifacts/again", pieces(bytes(10_000)))
        assert await used() == 10_000
        for number in range(9):
            await artifacts.put(f"0/run/artifacts/{number}", pieces(bytes(10_000)))
        with pytest.raises(QuotaExceeded):
            await artifacts.put("0/run/artifacts/9", pieces(bytes(10_000)))
        assert await used() == 100_000
        await artifacts.table.remove("0/run/artifacts/again")
        assert await used() == 90_000
        await artifacts.put("0/run/artifacts/more", pieces(bytes(10_000)))
        await collect_garbage(storage)
        assert await used() == 100_000
        await artifacts.table.remove("0/run")
        assert await used() == 0
