"""Deletes on a condition, where a bucket is seen to keep it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpcore
import pytest
from tests.support.s3 import RawBucket, emulator

from protoslice.errors import Conflict, StorageDenied, StorageUnavailable, Unsupported
from protoslice.storage import ObjectKey, Storage
from protoslice.storage.cloud.backend import CloudStorage
from protoslice.storage.cloud.deletes import ConditionalDeletes
from protoslice.storage.probe import probe

T = TypeVar("T")
KEY = ObjectKey("a b/c+d")


def in_bucket(work: Callable[[CloudStorage], Awaitable[T]]) -> T:
    async def run() -> T:
        async with CloudStorage.from_uri(RawBucket.make(options).uri, options) as storage:
            return await work(storage)

    with emulator() as options:
        return asyncio.run(run())


async def tried(storage: Storage) -> bool:
    """True when an opening finds that the storage deletes on a condition."""
    await probe(storage)
    assert [item async for item in storage.iterate(ObjectKey("probe"))] == []
    return storage.abilities.conditional_delete


def test_a_bucket_that_keeps_the_condition_is_found_when_it_is_opened() -> None:
    async def work(storage: CloudStorage) -> None:
        etag = await storage.put(KEY, b"first")
        with pytest.raises(Unsupported):
            await storage.delete(KEY, if_etag=etag)
        assert await tried(storage)
        other = await storage.put(KEY, b"second")
        with pytest.raises(Conflict):
            await storage.delete(KEY, if_etag=etag)
        assert (await storage.get(KEY)).data == b"second"
        await storage.delete(KEY, if_etag=other)
        assert not await storage.exists(KEY)

    in_bucket(work)


def test_one_that_passes_over_the_condition_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def heedless(self: ConditionalDeletes, key: ObjectKey, etag: str) -> None:
        await CloudStorage(self._store).delete(key)

    monkeypatch.setattr(ConditionalDeletes, "delete", heedless)
    assert not in_bucket(tried)


@pytest.mark.parametrize(("status", "kind"), [(403, StorageDenied), (501, StorageUnavailable), (412, Conflict)])
def test_refusals_and_their_classes(status: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: object, method: str, url: str, **_: object) -> httpcore.Response:
        assert method == "DELETE"
        refusal = httpcore.Response(status, content=b"<Error><Code>SomeCode</Code></Error>")
        await refusal.aread()
        return refusal

    async def work(storage: CloudStorage) -> None:
        monkeypatch.setattr(httpcore.AsyncConnectionPool, "request", answer)
        assert storage._deletes is not None
        with pytest.raises(kind) as caught:
            await storage._deletes.delete(KEY, '"an-etag"')
        assert "Signature" not in str(caught.value)
        assert kind is Conflict or f"{status} (SomeCode)" in str(caught.value)
        assert not await tried(storage), "there is no such ability, and the bucket is of use as it was"

    in_bucket(work)


def test_no_answer_is_an_unavailable_storage() -> None:
    async def run() -> None:
        async with CloudStorage.from_uri("s3://bucket/folder", options) as storage:
            assert storage._deletes is not None
            with pytest.raises(StorageUnavailable):
                await storage._deletes.delete(KEY, '"an-etag"')

    options = {"endpoint": "http://127.0.0.1:9", "access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
    asyncio.run(run())
