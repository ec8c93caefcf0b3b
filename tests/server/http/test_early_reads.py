"""Reads of distant stores that are open: begun while the service looks whether they are still there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

import pytest
from tests.support.asgi import Asked, ask
from tests.support.counted import CountedBucket
from tests.support.stores import onnx, opened, upload

from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings
from protoslice.storage import ObjectKey, ObjectStat, register, unregister
from protoslice.stores import StoreOptions

MODEL = onnx(3_000_000)


class Noting(CountedBucket):
    """Bucket that notes which folders are read at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.together: set[frozenset[str]] = set()
        self._under_way: list[str] = []

    async def stat(self, key: ObjectKey) -> ObjectStat:
        """See `Storage.stat`."""
        async with self._noted(key):
            return await super().stat(key)

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        """See `Storage.get_range`."""
        async with self._noted(key):
            return await super().get_range(key, start, end, if_etag=if_etag)

    @asynccontextmanager
    async def _noted(self, key: ObjectKey) -> AsyncIterator[None]:
        self._under_way.append(key.segments[0])
        self.together.add(frozenset(self._under_way))
        for _ in range(50):  # as many turns of the loop as the others may need to begin
            await asyncio.sleep(0)
        try:
            yield
        finally:
            self._under_way.remove(key.segments[0])


@asynccontextmanager
async def seen_long_ago() -> AsyncIterator[tuple[Application, Noting, str]]:
    """A service with an open store, whose manifest it believes no more; its bucket, and the store's id."""
    bucket = Noting()
    register(bucket.scheme, bucket.opened)
    with TemporaryDirectory() as folder:
        database = f"sqlite:///{folder}/catalog.sqlite"
        app = create_app(Settings(storage=bucket.uri, database=database, auth="open"))
        await app.services.open()
        try:
            info = (await upload(app.services.stores, {"model.onnx": MODEL})).store
            (await app.services.stores.view(info.id)).seen_at = float("-inf")
            bucket.together.clear()
            yield app, bucket, info.id
        finally:
            await app.services.close()
            unregister(bucket.scheme)


async def get(app: Application, store: str, method: str = "GET", **headers: str) -> Asked:
    """The answer to a request for the model."""
    return await ask(app, method, f"/v1/stores/{store}/files/model.onnx", headers=headers)


async def test_bytes_are_read_beside_the_manifest() -> None:
    async with seen_long_ago() as (app, bucket, store):
        answer = await get(app, store)
        assert (answer.status, answer.body) == (200, MODEL)
        assert any({"stores", "objects"} <= each for each in bucket.together)


@pytest.mark.parametrize(
    ("method", "headers"),
    [("GET", {}), ("HEAD", {}), ("GET", {"range": "bytes=99999999-"}), ("GET", {"if-none-match": "*"})],
    ids=["whole", "head", "Range out of bounds", "unchanged"],
)
async def test_a_store_that_another_replica_removed_is_not_there(method: str, headers: dict[str, str]) -> None:
    async with seen_long_ago() as (app, bucket, store):
        async with opened(bucket.objects) as others:
            await others.delete(store)
        assert (await get(app, store, method, **headers)).status == 404


async def test_a_store_that_came_anew_is_read_where_it_lies_now() -> None:
    async with seen_long_ago() as (app, bucket, store):
        at = (await app.services.stores.view(store)).manifest.attempt
        async with opened(bucket.objects, StoreOptions(trust_seconds=0)) as others:
            await others.delete(store)
            await others.collect_garbage(grace_seconds=0)
            assert (await upload(others, {"model.onnx": MODEL})).store.id == store
            assert (await others.view(store)).manifest.attempt != at
        (await app.services.stores.view(store)).seen_at = float("-inf")
        answer = await get(app, store)
        assert (answer.status, answer.body) == (200, MODEL)
