"""Staged files: found in their repository until they expire, and adopted without a copy."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.repositories import contents
from tests.support.stores import collect_garbage, written

from protoslice.repositories import MAIN, Author, Repositories, Repository
from protoslice.storage import Storage
from protoslice.uploads import Body, Upload

DATA = bytes(range(256)) * 4000


async def staged(repository: Repository, data: bytes) -> Upload:
    """The upload of `data`, complete and staged."""

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    upload = await repository.staged.begin(hashlib.sha256(data).hexdigest(), len(data), "")
    upload = await repository.stores.uploads.append(upload.id, Body(pieces=pieces(), offset=0, last=True))
    await repository.staged.keep(upload)
    return upload


async def test_a_staged_file_is_adopted_without_a_copy(repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    upload = await staged(made, DATA)
    before = await written(storage)
    async with await made.change(MAIN) as change:
        await change.take("a", upload)
        await change.commit(Author())
    assert await contents(made) == {"a": DATA}
    assert await written(storage) == before


@pytest.mark.parametrize("lost", ["upload", "record"])
async def test_what_has_expired_is_sent_again(lost: str, repositories: Repositories, storage: Storage) -> None:
    made = await repositories.create("m")
    upload = await staged(made, DATA)
    digest = upload.sha256 or ""
    found = await made.staged.find(digest)
    assert found is not None
    assert found.id == upload.id
    if lost == "upload":
        await made.stores.uploads.remove(upload.id)
    else:
        await catalogue_of(storage).write(lambda tx: tx.run("UPDATE uploads SET expires = 0"))
        await collect_garbage(storage, grace_seconds=0)
    assert await made.staged.find(digest) is None
    again = await made.staged.begin(digest, len(DATA), "")
    assert not again.is_whole


async def test_an_upload_under_way_is_left_alone(repositories: Repositories) -> None:
    made = await repositories.create("m")
    digest = hashlib.sha256(DATA).hexdigest()
    first, second = [await made.staged.begin(digest, len(DATA), "") for _ in range(2)]
    assert first.id != second.id
    assert await made.staged.find(digest) is None
