"""Storage or catalogue that fail at call 1, 2, 3 … of an upload: acknowledged bytes stay, others can be resent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.faults import FaultyStorage
from tests.support.interrupted import FaultyDatabase
from tests.support.stores import assert_tidy, assert_whole, collect_everything, onnx, opened, visible

from protoslice.errors import ProtosliceError
from protoslice.serving import StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.stores import Stores
from protoslice.uploads import Body, NewUpload, Upload, UploadOptions, Uploads

DATA = onnx(300_000, 20_000, seed=5)
OPTIONS = StoreOptions(uploads=UploadOptions(part_bytes=100_000))
CUTS = (0, 70_001, 70_002, 200_000, len(DATA))
HOW = pytest.mark.parametrize(
    "how", [{}, {"after": True}, {"stays_down": True}, {"after": True, "stays_down": True}], ids=str
)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 30_000):
        yield data[at : at + 30_000]


async def work(uploads: Uploads, said: list[tuple[str, int]]) -> Upload:
    """An upload in several requests, which says what has been acknowledged."""
    upload = await uploads.create(NewUpload(length=len(DATA), path="model.onnx"))
    said.append((upload.id, 0))
    for start, end in pairwise(CUTS):
        upload = await uploads.append(upload.id, Body(pieces=pieces(DATA[start:end]), offset=start))
        said.append((upload.id, upload.offset))
    return upload


async def go_on(stores: Stores, upload_id: str, acknowledged: int) -> Upload:
    """The upload brought to its end, as a client would that asks first."""
    upload = await stores.uploads.get(upload_id)
    assert upload.offset >= acknowledged
    if upload.state == "open":
        rest = DATA[upload.offset :]
        upload = await stores.uploads.append(upload_id, Body(pieces=pieces(rest), offset=upload.offset))
    assert upload.state == "stored"
    return upload


async def with_a_fault(fail_at: int, how: dict[str, bool]) -> bool:
    """True once the fault has happened, in a call of the storage or a transaction; afterwards all must be well."""
    inner = MemoryStorage()
    faulty = FaultyStorage(inner, 1 << 40)
    said: list[tuple[str, int]] = []
    async with opened(faulty, OPTIONS, FaultyDatabase(catalogue_of(inner), faulty)) as stores:
        faulty.calls.clear()
        faulty._fail_at = fail_at
        faulty._after, faulty._stays_down = how.get("after", False), how.get("stays_down", False)
        try:
            await work(stores.uploads, said)
        except ProtosliceError:
            assert faulty.failed
        assert stores.shared.reservations.unpublished_bytes == 0
    async with opened(inner, OPTIONS) as fresh:
        if said:
            upload = await go_on(fresh, *said[-1])
            found = await visible(fresh)
            assert set(found) == {upload.store}
            whole = await assert_whole(fresh, found[upload.store or ""])
            assert whole["file model.onnx"] == DATA
            await fresh.uploads.remove(upload.id)
        before = await visible(fresh)
    await collect_everything(inner)
    await assert_tidy(inner)
    async with opened(inner, OPTIONS) as fresh:
        assert await visible(fresh) == before
        for info in before.values():
            await assert_whole(fresh, info)
    rows = await catalogue_of(inner).read(lambda tx: tx.all("SELECT id FROM uploads WHERE state <> 'gone'"))
    assert rows == []
    return faulty.failed


@HOW
def test_every_call_may_fail(how: dict[str, bool]) -> None:
    for fail_at in range(1, 300):
        if not asyncio.run(with_a_fault(fail_at, how)):
            assert fail_at > 30
            return
    raise AssertionError("there is no end to the calls")
