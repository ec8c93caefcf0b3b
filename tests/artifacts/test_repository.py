"""Places of blobs and tags when several clients write them at once."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from unittest.mock import patch

import pytest
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
from protoslice.errors import NotFound
from protoslice.serving import StoreOptions
from protoslice.storage import Call, MemoryStorage, MeteredStorage
from protoslice.stores import Stores
from protoslice.uploads import Body, UploadOptions

MEDIA_TYPE = "application/vnd.oci.image.manifest.v1+json"
FIRST, SECOND = b"a blob of two manifests", b"another blob"


async def sent(repository: ArtifactRepository, data: bytes) -> str:
    """Send a blob; the id of its upload."""

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
    """The inspection made as it came serves under its name too."""
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
