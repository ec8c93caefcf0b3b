"""Benchmark of calls over a distant bucket: Versity's gateway, each of its requests 20 ms late.

Needs the gateway that `make bucket` builds with Go. Each call is made by stores that have just been opened.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.bucket import FAR_SECONDS, gateway_program
from bench.timing import Row
from tests.bucket import BUCKET, KEY_ID, SECRET, gateway
from tests.support.distance import Distance, far_away
from tests.support.seeded import seed
from tests.support.stores import onnx, opened, upload

from protoslice.storage import ObjectKey, Storage, open_storage
from protoslice.stores import IngestRequest, StoreOptions, Stores

Call = Callable[[Stores], Awaitable[object]]

_FEW: Final = 100
_SEVERAL: Final = 1000
"""Stores of the emptier and of the fuller bucket."""
_REGISTERED: Final = 1000
"""Tensors of the model that is registered in place, each of which has a block of its own."""


@dataclass(frozen=True, slots=True)
class _Cost:
    requests: int
    lists: int
    seconds: float


class _Bucket:
    """Folders of a bucket, near and far."""

    def __init__(self, near: str, far: Distance) -> None:
        self._near = near
        self._far = far

    def options(self, endpoint: str) -> dict[str, str]:
        """Options of the bucket at an endpoint."""
        keys = {"access_key_id": KEY_ID, "secret_access_key": SECRET}
        return {"endpoint": endpoint, "region": "us-east-1", "allow_http": "true", **keys}

    def near(self, folder: str) -> Storage:
        """The folder without the distance, for preparations."""
        return open_storage(f"s3://{BUCKET}/{folder}", self.options(self._near))

    async def cost(self, folder: str, call: Call, *, again: bool = False) -> _Cost:
        """The cost of a call from far away, by stores with nothing in memory, or which have made it once."""
        places = {"s3": self.options(self._far.endpoint)}
        options = StoreOptions(
            trust_seconds=0.5, register_prefixes=(f"s3://{BUCKET}/models/",), register_options=places
        )
        async with open_storage(f"s3://{BUCKET}/{folder}", places["s3"]) as storage, opened(storage, options) as stores:
            if again:
                await call(stores)
            self._far.reset()
            begun = time.perf_counter()
            await call(stores)
            seen = self._far.seen
            return _Cost(sum(seen.values()), seen["GET list"], time.perf_counter() - begun)


def distance(_: Path, scale: float) -> Iterator[Row]:
    """Calls of a service over a distant bucket, against the bars of their design."""
    with ExitStack() as stack:
        near = stack.enter_context(gateway(str(gateway_program())))
        bucket = _Bucket(near, stack.enter_context(far_away(near, FAR_SECONDS)))
        for count in (_FEW, _SEVERAL):
            yield from asyncio.run(_calls(bucket, max(1, int(count * scale))))
        yield from asyncio.run(_reads(bucket))
        yield from asyncio.run(_in_place(bucket, max(1, int(_REGISTERED * scale))))


async def _calls(bucket: _Bucket, count: int) -> list[Row]:
    """Requests and times of calls beside `count` stores with a tag each."""
    folder, known = f"stores-{count}", onnx(100)
    async with bucket.near(folder) as storage:
        async with opened(storage) as stores:
            found = (await upload(stores, known, IngestRequest(tags=("known",)))).store.id
        await seed(storage, count)
    digest = hashlib.sha256(known).digest()
    calls: tuple[tuple[str, Call, int], ...] = (
        ("GET of a store", lambda stores: stores.get(found), 3),
        ("PUT of a small model with a tag", lambda stores: upload(stores, onnx(200), IngestRequest(tags=("a",))), 8),
        ("PUT of one larger than 4 KiB", lambda stores: upload(stores, onnx(9000), IngestRequest(tags=("b",))), 8),
        (
            "PUT of what is there with a tag, its digest told",
            lambda stores: upload(stores, known, expected_sha256=digest),
            3,
        ),
        ("list of the 20 newest", lambda stores: stores.list(limit=20), 22),
        ("list of 20 by type", lambda stores: stores.list(type="seeded.Model", limit=20), 22),
        ("list of 20 by a tag's beginning", lambda stores: stores.list(tag="t", limit=20), 22),
    )
    return [
        row
        for what, call, bar in calls
        for row in _rows(f"{what}, {count} stores", await bucket.cost(folder, call), bar)
    ] + [await _collection(bucket, folder, count)]


async def _collection(bucket: _Bucket, folder: str, count: int) -> Row:
    """Seconds of a collection with nothing to do beyond those of its listings."""
    cost = await bucket.cost(folder, lambda stores: stores.collect_garbage(dry_run=True))
    more = cost.seconds - cost.lists * FAR_SECONDS
    what = f"collection with nothing to do, {count} stores: seconds beyond its listings"
    return Row(what, f"{cost.seconds:.2f} s", f"{cost.lists} lists", more, 1, False)


async def _reads(bucket: _Bucket) -> list[Row]:
    """The first bytes of a chunk, cold and once more."""
    async with bucket.near("chunks") as storage, opened(storage) as stores:
        store = (await upload(stores, onnx(*[1 << 20] * 8), IngestRequest(min_chunk=1 << 16, tags=("m",)))).store.id

    def read(ref: str) -> Call:
        async def call(stores: Stores) -> None:
            chunk = await (await stores.view(ref)).chunk(0)
            async for _ in chunk.pieces(0, 4096):
                pass

        return call

    cold, again = await bucket.cost("chunks", read(store)), await bucket.cost("chunks", read("m"), again=True)
    what = "4 KiB of a chunk"
    return [
        Row(
            f"{what}: milliseconds",
            f"{cold.seconds * 1e3:.0f} ms",
            f"{cold.requests} requests",
            cold.seconds * 1e3,
            100,
            False,
        ),
        Row(f"{what}, by a tag and again: requests", str(again.requests), "0", again.requests, 0, False),
    ]


async def _in_place(bucket: _Bucket, count: int) -> list[Row]:
    """A model of `count` tensors registered where it lies, and its first listing."""
    async with bucket.near("models") as models:
        await models.put(ObjectKey("m.onnx"), onnx(*[70_000] * count))

    async def call(stores: Stores) -> None:
        made = await stores.register({"m.onnx": f"s3://{BUCKET}/models/m.onnx"}, IngestRequest())
        listed = await (await stores.view(made.store.id)).tensors.page(name=None, dtype=None, limit=count, cursor=None)
        assert listed.next is None

    async with bucket.near("registered") as storage, opened(storage):
        cost = await bucket.cost("registered", call)
    what = f"{count} tensors registered in place and listed: seconds"
    return [Row(what, f"{cost.seconds:.2f} s", f"{cost.requests} requests", cost.seconds, 3, False)]


def _rows(what: str, cost: _Cost, bar: int) -> Iterator[Row]:
    told = f"{cost.seconds * 1e3:.0f} ms"
    yield Row(f"{what}: requests", str(cost.requests), told, cost.requests, bar, False)
