"""Names of blobs and tags under concurrent writes, and folders that become stores when no one writes to them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from tests.support.catalogues import InlineDatabase
from tests.support.stores import onnx, opened, read

from protoslice.artifacts import (
    ArtifactRepository,
    BlobUnknown,
    Digest,
    ManifestBlobUnknown,
    ManifestUnknown,
    RepositoryName,
)
from protoslice.artifacts.repository import BlobLocations
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import ChangedFolders, artifact_folder
from protoslice.errors import NotFound, StorageUnavailable
from protoslice.mlflow import AutoCommit, MlflowArtifacts
from protoslice.serving import StoreOptions
from protoslice.storage import Call, MemoryStorage, MeteredStorage, open_storage
from protoslice.stores import Stores
from protoslice.uploads import Body, UploadOptions

MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"
FIRST, SECOND = b"a blob of two manifests", b"another blob"


async def sent(repository: ArtifactRepository, data: bytes) -> str:
    """Send a blob; return the id of its upload."""

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    upload = await repository.begin_upload()
    await repository.finish_upload(upload.id, Digest.of(data), pieces(), len(data))
    return upload.id


def manifest_of(data: bytes, path: str | None = None) -> bytes:
    layer = {"mediaType": "application/octet-stream", "digest": Digest.of(data).text, "size": len(data)}
    layer |= {"annotations": {"org.opencontainers.image.title": path}} if path is not None else {}
    return json.dumps({"schemaVersion": 2, "mediaType": MEDIA_TYPE, "layers": [layer]}).encode()


async def content(repository: ArtifactRepository, data: bytes) -> bytes:
    store, path = await repository.open_blob(Digest.of(data))
    return await read(store.file(path))


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    async with opened(MemoryStorage()) as stores:
        yield stores


@pytest.fixture
def repository(stores: Stores) -> ArtifactRepository:
    return ArtifactRepository(stores, RepositoryName("team/model"))


async def test_a_blob_of_a_manifest_outlives_the_upload_that_sent_it_again(
    repository: ArtifactRepository, stores: Stores
) -> None:
    await sent(repository, FIRST)
    await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
    again = await sent(repository, FIRST)
    await stores.uploads.remove(again)
    assert await content(repository, FIRST) == FIRST


async def test_a_blob_of_a_manifest_outlives_an_upload_that_is_mounted_over_it(
    repository: ArtifactRepository, stores: Stores
) -> None:
    other = ArtifactRepository(stores, RepositoryName("team/other"))
    await sent(repository, FIRST)
    await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
    elsewhere = await sent(other, FIRST)
    assert await repository.mount(Digest.of(FIRST), other.name)
    await stores.uploads.remove(elsewhere)
    assert await content(repository, FIRST) == FIRST


async def test_an_upload_that_is_mounted_replaces_none_of_the_repository(
    repository: ArtifactRepository, stores: Stores
) -> None:
    other = ArtifactRepository(stores, RepositoryName("team/other"))
    elsewhere = await sent(other, FIRST)
    await sent(repository, FIRST)
    assert await repository.mount(Digest.of(FIRST), other.name)
    await stores.uploads.remove(elsewhere)
    assert await content(repository, FIRST) == FIRST


async def test_a_tag_that_was_removed_is_not_listed_and_can_be_set_again(repository: ArtifactRepository) -> None:
    await sent(repository, FIRST)
    for _ in range(2):
        await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
        assert await repository.tags(limit=10, after=None) == (["v1"], False)
        await repository.delete_manifest("v1")
        assert await repository.tags(limit=10, after=None) == ([], False)
        with pytest.raises(ManifestUnknown):
            await repository.manifest("v1")
        with pytest.raises(ManifestUnknown):
            await repository.delete_manifest("v1")


async def test_a_blob_that_a_manifest_named_before_it_came_never_expires(
    repository: ArtifactRepository, stores: Stores
) -> None:
    stored, _, missing = await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
    assert (stored.store, missing) == (None, [Digest.of(FIRST)])
    with pytest.raises(BlobUnknown):
        await repository.open_blob(Digest.of(FIRST))
    upload = await sent(repository, FIRST)
    with suppress(NotFound):
        await stores.uploads.remove(upload)  # as when it expires
    assert await content(repository, FIRST) == FIRST
    completed, _, missing = await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
    assert (completed.store is None, missing) == (False, [])


async def test_a_manifest_does_not_count_on_a_blob_that_is_gone(repository: ArtifactRepository, stores: Stores) -> None:
    upload = await sent(repository, FIRST)
    await stores.uploads.remove(upload)
    with pytest.raises(ManifestBlobUnknown):
        await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)


async def test_a_blob_that_comes_while_a_manifest_that_lacks_it_is_taken_is_part_of_it(
    repository: ArtifactRepository,
) -> None:
    find = BlobLocations.find
    looked = 0

    async def late(self: BlobLocations, digest: Digest) -> RepositoryFile | None:
        nonlocal looked
        found, looked = await find(self, digest), looked + 1
        if looked == 1:
            await sent(repository, FIRST)
        return found

    with patch.object(BlobLocations, "find", late):
        stored, _, missing = await repository.put_manifest("v1", manifest_of(FIRST), MEDIA_TYPE)
    assert (stored.store is None, missing) == (False, [])


@pytest.mark.parametrize(("path", "streams"), [("model.onnx", 1), ("model.bin", 1), ("model.onnx", 3)])
async def test_a_pushed_blob_is_not_read_again_for_its_store(path: str, streams: int) -> None:
    """The inspection that was made while the blob arrived also serves under the blob's name."""
    calls: list[Call] = []
    data, part = onnx(3_000_000, seed=5), 1_000_000

    async def pieces(start: int, end: int) -> AsyncIterator[bytes]:
        for at in range(start, end, 100_000):
            yield data[at : min(end, at + 100_000)]

    options = StoreOptions(uploads=UploadOptions(part_bytes=part))
    async with opened(MeteredStorage(MemoryStorage(), calls.append), options) as stores:
        repository = ArtifactRepository(stores, RepositoryName("team/model"))
        upload = await repository.begin_upload()
        for at in range(0, part * (streams - 1), part):
            await repository.append(upload.id, Body(pieces=pieces(at, at + part), offset=at))
        rest = part * (streams - 1)
        await repository.finish_upload(upload.id, Digest.of(data), pieces(rest, len(data)), len(data) - rest)
        assert sum(call.bytes_read for call in calls) < 500_000 * streams
        stored, _, _ = await repository.put_manifest("v1", manifest_of(data, path), MEDIA_TYPE)
        assert sum(call.bytes_read for call in calls) < 500_000 * (streams + 1)
        assert await content(repository, data) == data
        assert stored.store is not None
        assert (await stores.get(stored.store)).type == "onnx.ModelProto"


QUIET = 100.0
RUN = "0/run/artifacts"


async def piece() -> AsyncIterator[bytes]:
    yield b"a file"


class Clock:
    """A clock for the database."""

    now = 1_000_000.0

    def time(self) -> float:
        """Return the seconds since the epoch."""
        return self.now


class Replicas:
    """Two replicas over one folder, and their clock."""

    def __init__(self, stores: Stores, clock: Clock) -> None:
        self.stores, self.clock, self.space = stores, clock, "default"
        self.one, self.other = (AutoCommit(stores.database, self.stores_of, QUIET) for _ in range(2))

    async def stores_of(self, space: str) -> Stores:
        """Return the stores of the only space."""
        if space != self.space:
            raise NotFound("there is no such space")
        return self.stores

    async def write(self, *paths: str) -> None:
        """Write files."""
        for path in paths:
            await MlflowArtifacts(self.stores).put(path, piece())

    async def made(self) -> int:
        """Return the number of stores."""
        return len((await self.stores.list(limit=100)).items)

    async def changed(self) -> list[str]:
        """Return the changed folders of which no store was made yet."""
        return [each.name for each in await ChangedFolders(self.stores.database).quiet(-1e6, 100)]


@pytest.fixture
async def replicas(tmp_path: Path) -> AsyncIterator[Replicas]:
    clock = Clock()
    async with (
        open_storage(tmp_path.as_uri()) as storage,
        opened(storage, database=InlineDatabase(clock.time)) as stores,
    ):
        yield Replicas(stores, clock)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("0/run/artifacts/model/weights.bin", "0/run/artifacts"),
        ("0/models/m-1/artifacts/artifacts/x", "0/models/m-1/artifacts"),
        ("elsewhere/x", "elsewhere"),
        ("x", ""),
    ],
)
def test_the_folder_of_a_run_becomes_a_store(path: str, folder: str) -> None:
    assert artifact_folder(path) == folder


async def test_a_folder_becomes_a_store_when_it_is_quiet_and_again_when_it_changes(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/MLmodel", f"{RUN}/data/model.bin", "0/x", "top")
    replicas.clock.now += QUIET - 1
    await replicas.other.look()
    assert await replicas.made() == 0
    await replicas.write(f"{RUN}/late")
    replicas.clock.now += QUIET - 1
    await replicas.other.look()
    assert await replicas.made() == 1, "0 was quiet, the run was not"
    replicas.clock.now += QUIET
    await asyncio.gather(replicas.one.look(), replicas.other.look())
    assert await replicas.made() == 2
    assert await replicas.changed() == []
    sealed = await MlflowArtifacts(replicas.stores).freeze(RUN)
    assert {*await replicas.stores.files(sealed)} == {"MLmodel", "data/model.bin", "late"}
    assert await replicas.made() == 2
    await MlflowArtifacts(replicas.stores).table.remove(f"{RUN}/late")
    replicas.clock.now += 3 * QUIET
    await replicas.one.look()
    assert await replicas.made() == 3


async def test_folders_within_folders_are_stores_of_their_own_but_not_below_artifacts(replicas: Replicas) -> None:
    artifacts = MlflowArtifacts(replicas.stores)
    await replicas.write("up/x", "up/deep/er/y", f"{RUN}/a/b/c", f"{RUN}/a/d")
    replicas.clock.now += 2 * QUIET
    await replicas.other.look()
    assert await replicas.made() == 3, "one of each folder outside, one of the whole run"
    held = {folder: {*await replicas.stores.files(await artifacts.freeze(folder))} for folder in ("up", "up/deep/er")}
    assert held == {"up": {"x", "deep/er/y"}, "up/deep/er": {"y"}}
    assert {*await replicas.stores.files(await artifacts.freeze(RUN))} == {"a/b/c", "a/d"}
    assert await replicas.made() == 3, "those that were asked for were there"
    await artifacts.table.remove(f"{RUN}/a/b")
    replicas.clock.now += 2 * QUIET
    await replicas.other.look()
    assert await replicas.made() == 4
    assert {*await replicas.stores.files(await artifacts.freeze(RUN))} == {"a/d"}
    assert await replicas.changed() == []


async def test_a_folder_that_cannot_become_a_store_now_is_tried_again(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/x")
    replicas.clock.now += 2 * QUIET
    with patch.object(MlflowArtifacts, "freeze", side_effect=StorageUnavailable("not now")):
        await replicas.one.look()
    assert await replicas.made() == 0
    await replicas.other.look()
    assert await replicas.made() == 1


async def test_folders_that_are_gone_are_forgotten(replicas: Replicas) -> None:
    await replicas.write(f"{RUN}/x", f"{RUN}/y/z", "up/x")
    await MlflowArtifacts(replicas.stores).table.remove(RUN)
    assert await replicas.changed() == ["up"]
    replicas.clock.now += 2 * QUIET
    replicas.space = "another"
    await replicas.one.look()
    assert await replicas.changed() == []
    assert await replicas.made() == 0
