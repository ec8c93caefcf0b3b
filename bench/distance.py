"""Benchmark of calls over a bucket whose gateway delays each request by 20 ms.

The gateway is Versity's, which `tools/programs.sh` builds with Go. Each call uses a `Stores` that was just opened.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench.bucket import FAR_SECONDS, gateway_program
from bench.timing import Row
from tests.support.buckets import BUCKET, KEY_ID, SECRET, gateway
from tests.support.postgres import running_postgres
from tests.support.rows import seed
from tests.support.stores import onnx, opened, upload
from tests.support.wire import Distance, far_away

from protoslice.catalog.store_lists import StoreQuery
from protoslice.database import Database, Transaction, upgrade
from protoslice.database.postgres import PostgresDatabase, PostgresTransaction
from protoslice.database.sqlite import SqliteDatabase, SqliteTransaction
from protoslice.serving import StoreOptions
from protoslice.storage import ObjectKey, Storage, open_storage
from protoslice.stores import IngestRequest, Stores
from protoslice.stores.collection import collect_garbage
from protoslice.views import tensors

Call = Callable[[Stores], Awaitable[object]]

_FEW: Final = 100
_SEVERAL: Final = 1000
"""The number of stores in the fuller bucket; the emptier one has `_FEW`."""
_REGISTERED: Final = 1000
"""The number of tensors in the model that is registered in place; each tensor takes a separate block."""


@dataclass(frozen=True, slots=True)
class _Cost:
    requests: int
    statements: int
    """The database statements, without those that begin and end transactions."""
    transactions: int
    """The transactions that write."""
    seconds: float


class _Statements:
    """A counter of the catalogue's database statements and writing transactions."""

    def __init__(self) -> None:
        self.statements = 0
        self.transactions = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count statements and writing transactions until the block ends."""
        with ExitStack() as stack:
            for kind in (SqliteTransaction, PostgresTransaction):
                for name in ("all", "run", "many"):
                    stack.enter_context(patch.object(kind, name, self._counted(getattr(kind, name))))
                stack.enter_context(patch.object(kind, "record", self._recorded(kind.record)))
            yield

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(tx: Transaction, sql: str, *args: Any, **values: Any) -> Any:
            self.statements += "INTO changes" not in sql
            return call(tx, sql, *args, **values)

        return counted

    def _recorded(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def recorded(tx: Transaction, change: bytes, schema: int) -> None:
            self.transactions += 1
            call(tx, change, schema)

        return recorded


class _Bucket:
    """Folders of a bucket, near (without a delay) and far (with the delay), and each folder's catalogue."""

    def __init__(self, near: str, far: Distance, connect: Callable[[str], Database]) -> None:
        self._near = near
        self._far = far
        self._connect = connect
        self._databases: dict[str, Database] = {}

    async def database(self, folder: str) -> Database:
        """Return the catalogue of a folder; create it on the first call."""
        if folder not in self._databases:
            self._databases[folder] = self._connect(folder)
            await upgrade(self._databases[folder])
        return self._databases[folder]

    async def close(self) -> None:
        """Close all catalogues."""
        while self._databases:
            await self._databases.popitem()[1].close()

    @asynccontextmanager
    async def prepared(self, folder: str) -> AsyncIterator[Stores]:
        """Open the stores of a folder without the delay, for preparations."""
        async with self.near(folder) as storage, opened(storage, database=await self.database(folder)) as stores:
            yield stores

    def options(self, endpoint: str) -> dict[str, str]:
        """Return the bucket's options for an endpoint."""
        keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
        return {"endpoint": endpoint, "region": "us-east-1", "allow_http": "true", **keys}

    def near(self, folder: str) -> Storage:
        """Open the storage of a folder without the delay, for preparations."""
        return open_storage(f"s3://{BUCKET}/{folder}", self.options(self._near))

    async def cost(self, folder: str, call: Call, *, again: bool = False) -> _Cost:
        """Measure a call of newly opened stores over the far bucket; with `again`, make the call once before."""
        places = {"s3": self.options(self._far.endpoint)}
        options = StoreOptions(
            trust_seconds=0.5, register_prefixes=(f"s3://{BUCKET}/models/",), register_options=places
        )
        database, counted = await self.database(folder), _Statements()
        async with (
            open_storage(f"s3://{BUCKET}/{folder}", places["s3"]) as storage,
            opened(storage, options, database) as stores,
        ):
            reserving = stores.new_objects()
            await reserving.writer()  # a running service has reserved objects already
            reserving.end()
            if again:
                await call(stores)
            self._far.reset()
            with counted.counting():
                begun = time.perf_counter()
                await call(stores)
                seconds = time.perf_counter() - begun
            return _Cost(sum(self._far.seen.values()), counted.statements, counted.transactions, seconds)


def distance(folder: Path, scale: float) -> Iterator[Row]:
    """Measure a service's calls over a distant bucket with either database, against the targets of their design."""
    with ExitStack() as stack:
        near = stack.enter_context(gateway(str(gateway_program())))
        far = stack.enter_context(far_away(near, FAR_SECONDS))
        postgres = stack.enter_context(running_postgres())
        connecting: tuple[tuple[str, Callable[[str], Database]], ...] = (
            ("SQLite", lambda place: SqliteDatabase(folder / f"{place}.sqlite")),
            ("PostgreSQL", lambda _: PostgresDatabase(postgres.new_database())),
        )
        for name, connect in connecting:
            yield from asyncio.run(_rows_of(_Bucket(near, far, connect), name, scale))


async def _rows_of(bucket: _Bucket, name: str, scale: float) -> list[Row]:
    try:
        rows = [row for count in (_FEW, _SEVERAL) for row in await _calls(bucket, name, max(1, int(count * scale)))]
        rows += await _reads(bucket, name)
        return rows + await _in_place(bucket, name, max(1, int(_REGISTERED * scale)))
    finally:
        await bucket.close()


async def _calls(bucket: _Bucket, name: str, count: int) -> list[Row]:
    """Measure requests, statements and times of calls with `count` stores, each with one tag."""
    folder, known = f"{name.lower()}-stores-{count}", onnx(100)
    async with bucket.prepared(folder) as stores:
        found = (await upload(stores, known, IngestRequest(tags=("known",)))).store.id
        await seed(stores.database, count)
    digest = hashlib.sha256(known).digest()
    calls: tuple[tuple[str, Call, int, int], ...] = (
        ("GET of a store", lambda stores: stores.get(found), 0, 2),
        ("GET of a store by its tag", lambda stores: stores.get("known"), 0, 2),
        (
            "PUT of a small model with a tag",
            lambda stores: upload(stores, onnx(200), IngestRequest(tags=("a",))),
            0,
            30,
        ),
        ("PUT of one larger than 4 KiB", lambda stores: upload(stores, onnx(9000), IngestRequest(tags=("b",))), 1, 30),
        ("PUT of a stored model, its digest given", lambda stores: upload(stores, known, expected_sha256=digest), 0, 8),
        ("list of the 20 newest", lambda stores: stores.list(limit=20), 0, 2),
        ("list of 20 by type", lambda stores: stores.list(StoreQuery(type="seeded.Model"), limit=20), 0, 2),
        ("list of 20 by the beginning of a tag", lambda stores: stores.pages.family("t", limit=20), 0, 2),
        ("collection with nothing to do", _collect, 1, 30),  # looks for multipart uploads that were abandoned
    )
    return [
        row
        for what, call, requests, statements in calls
        for row in _rows(f"{name}, {what}, {count} stores", await bucket.cost(folder, call), requests, statements)
    ]


async def _collect(stores: Stores) -> None:
    await collect_garbage(stores.storage, stores.database)


async def _reads(bucket: _Bucket, name: str) -> list[Row]:
    """Measure a read of a store's first bytes: first with empty caches, then a second time."""
    folder = f"{name.lower()}-chunks"
    async with bucket.prepared(folder) as stores:
        store = (await upload(stores, onnx(*[1 << 20] * 8), IngestRequest(min_chunk=1 << 16, tags=("m",)))).store.id

    def read(ref: str) -> Call:
        async def call(stores: Stores) -> None:
            file = (await stores.view(ref)).file("model.onnx")
            async for _ in file.pieces(0, 4096):
                pass

        return call

    cold, again = await bucket.cost(folder, read(store)), await bucket.cost(folder, read("m"), again=True)
    what = f"{name}, first 4 KiB of a store"
    return [
        Row(
            f"{what}: milliseconds",
            f"{cold.seconds * 1e3:.0f} ms",
            f"{cold.requests} requests",
            cold.seconds * 1e3,
            50,
            False,
        ),
        Row(f"{what}: requests", str(cold.requests), "2", cold.requests, 2, False),
        Row(f"{what}, by a tag and again: requests", str(again.requests), "0", again.requests, 0, False),
        Row(f"{what}, by a tag and again: statements", str(again.statements), "0", again.statements, 0, False),
    ]


async def _in_place(bucket: _Bucket, name: str, count: int) -> list[Row]:
    """Register a model of `count` tensors in place, and measure the registration with the first listing."""
    async with bucket.near("models") as models:
        await models.put(ObjectKey("m.onnx"), onnx(*[70_000] * count))

    async def call(stores: Stores) -> None:
        made = await stores.register({"m.onnx": f"s3://{BUCKET}/models/m.onnx"}, IngestRequest())
        listed = await tensors.page((await stores.view(made.store.id)), name=None, dtype=None, limit=count, cursor=None)
        assert listed.next is None

    folder = f"{name.lower()}-registered"
    async with bucket.prepared(folder):
        pass
    cost = await bucket.cost(folder, call)
    what = f"{name}, {count} tensors registered in place and listed: seconds"
    return [Row(what, f"{cost.seconds:.2f} s", f"{cost.requests} requests", cost.seconds, 3, False)]


def _rows(what: str, cost: _Cost, requests: int, statements: int) -> Iterator[Row]:
    shown = f"{cost.seconds * 1e3:.0f} ms"
    yield Row(f"{what}: requests", str(cost.requests), shown, cost.requests, requests, False)
    took = f"{cost.transactions} transactions that write"
    yield Row(f"{what}: statements", str(cost.statements), took, cost.statements, statements, False)
