"""Comparisons of large stores: bytes of the storage are counted, and read once at most."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path
from random import Random

import pytest
from onnx import TensorProto
from onnx import helper as onnx_helper
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.stores import onnx, opened, upload

from protoslice import _core
from protoslice.catalog.manifest import ObjectLocation
from protoslice.serving import StoreOptions
from protoslice.serving.stored import SUM_BLOCK, StoredObject
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest
from protoslice.views import comparisons
from protoslice.views.comparisons import ByteEvidence, StoreComparison

MIB = 1 << 20
SIZES = 6 * MIB + 5, 6 * MIB, 6 * MIB
FIRST = onnx(*SIZES)


def changed(data: bytes, number: int, seed: int) -> bytes:
    """The model with other bytes in the middle of one tensor."""
    at = data.index(b"weight-%d" % number) + 3 * MIB
    return data[:at] + Random(seed).randbytes(8) + data[at + 8 :]


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        yield found


@pytest.fixture(autouse=True)
def reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores of 18 MiB count as very large."""
    monkeypatch.setattr(comparisons, "MOST_CONFIRMED", MIB)


def tensors(found: StoreComparison) -> list[tuple[str, str]]:
    return [(each.change, each.path) for each in found.listed if each.what == "tensor"]


def test_registered_stores_are_digested_once_and_then_compared_without_a_read(bucket: CountedBucket) -> None:
    """A version is read for its digests by the first comparison; digests outlast the service."""
    versions = [FIRST, changed(FIRST, 1, 1), changed(changed(FIRST, 1, 1), 2, 2)]
    bucket.fill({f"models/{number}.onnx": data for number, data in enumerate(versions)})
    storage = MemoryStorage()
    options = StoreOptions(register_prefixes=(f"{bucket.uri}/models",))

    async def compared(before: int, after: int) -> tuple[StoreComparison, int]:
        """The comparison by a service that has just begun, and bytes of the bucket that were read for it."""
        async with opened(storage, options) as stores:
            ids = [
                (await stores.register({"m.onnx": f"{bucket.uri}/models/{number}.onnx"}, IngestRequest())).store.id
                for number in (before, after)
            ]
            read = bucket.bytes_read
            return await comparisons.compare(*[await stores.view(each) for each in ids]), bucket.bytes_read - read

    first, read = asyncio.run(compared(0, 1))
    assert tensors(first) == [("changed", "weight-1")]
    assert 2 * len(FIRST) < read < 2 * len(FIRST) + 16 * MIB, "both for digests, and what showed the need of them"
    assert read * 0.9 < first.read < read * 1.1, "as is said"
    again, read = asyncio.run(compared(0, 1))
    assert (again.listed, again.assumed) == (first.listed, 0)
    assert read < 10 * MIB, "the pieces around what changed"
    third, read = asyncio.run(compared(1, 2))
    assert tensors(third) == [("changed", "weight-2")]
    assert len(FIRST) < read < len(FIRST) + 16 * MIB, "the new version alone"


@pytest.mark.parametrize("shift", [b"", b"\x1a\x01x"])
def test_equal_checksums_are_believed_when_the_caller_asks_for_it(bucket: CountedBucket, shift: bytes) -> None:
    """Blocks that are not aligned have no equal checksums, and are read."""

    async def work() -> None:
        async with opened(bucket) as stores:
            second = changed(FIRST, 1, 1)
            ids = [(await upload(stores, data)).store.id for data in (FIRST, second[:2] + shift + second[2:])]
        async with opened(bucket) as stores:
            read = bucket.bytes_read
            found = await comparisons.compare(*[await stores.view(each) for each in ids], checksums=True)
            read = bucket.bytes_read - read
            assert tensors(found) == [("changed", "weight-1")]
            if shift:
                assert (found.assumed, read > 2 * len(FIRST)) == (0, True)
            else:
                assert (read < 2 * MIB, found.read < MIB) == (True, True)
                assert 11 * MIB < found.assumed <= len(FIRST)
            proven = await comparisons.compare(*[await stores.view(each) for each in ids])
            assert (tensors(proven), proven.assumed) == (tensors(found), 0)
            # The first comparison digested unaligned versions.
            assert (proven.read > 2 * len(FIRST)) == (not shift)

    asyncio.run(work())


def test_what_differs_everywhere_is_not_digested(bucket: CountedBucket) -> None:
    """Checksums prove that, and of stores without any a first look at each tensor."""
    bucket.fill({"models/a.onnx": FIRST, "models/b.onnx": onnx(*SIZES, seed=9)})

    async def work() -> None:
        async with opened(MemoryStorage(), StoreOptions(register_prefixes=(f"{bucket.uri}/models",))) as stores:
            uris = [f"{bucket.uri}/models/{name}.onnx" for name in "ab"]
            ids = [(await stores.register({"m.onnx": uri}, IngestRequest())).store.id for uri in uris]
            found = await comparisons.compare(*[await stores.view(each) for each in ids])
            assert tensors(found) == [("changed", f"weight-{number}") for number in range(3)]
            assert found.read < 2 * len(FIRST)

    asyncio.run(work())


def test_local_files_are_read_once_and_not_digested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change at the end is found by one read of either: its tensor alone is read again."""
    monkeypatch.delattr(comparisons, "table_of")
    changed_last = changed(FIRST, 2, 1)
    for name, data in (("a", FIRST), ("b", changed_last)):
        (tmp_path / f"{name}.onnx").write_bytes(data)

    async def work() -> None:
        async with opened(MemoryStorage(), StoreOptions(register_prefixes=(tmp_path.as_uri(),))) as stores:
            uris = [(tmp_path / f"{name}.onnx").as_uri() for name in "ab"]
            ids = [(await stores.register({"m.onnx": uri}, IngestRequest())).store.id for uri in uris]
            found = await comparisons.compare(*[await stores.view(each) for each in ids])
            assert tensors(found) == [("changed", "weight-2")]
            assert found.read < 2 * len(FIRST) + 2 * 8 * MIB

    asyncio.run(work())


@pytest.mark.parametrize("count", [1500, 60_000])
def test_computed_elements_are_compared_for_each_tensor(count: int) -> None:
    """Halves in `int32_data` are computed: the source of a tensor may get the `id` of an earlier one."""

    def model(changed: Collection[int]) -> bytes:
        tensors = [
            onnx_helper.make_tensor(f"t{n}", TensorProto.FLOAT16, [count], [float(n % 7 + (n in changed))] * count)
            for n in range(30)
        ]
        data: bytes = onnx_helper.make_model(onnx_helper.make_graph([], "g", [], [], tensors)).SerializeToString()
        return data

    async def work() -> None:
        changes = set(range(1, 30, 4))
        async with opened(MemoryStorage()) as stores:
            ids = [(await upload(stores, model(each))).store.id for each in ((), changes)]
            found = await comparisons.compare(*[await stores.view(each) for each in ids])
            assert tensors(found) == [("changed", f"t{n}") for n in sorted(changes)]

    asyncio.run(work())


def stored(data: bytes, name: str) -> StoredObject:
    """An object in memory, with its checksums."""
    sums = _core.BlockSums()
    sums.update(data)
    location = ObjectLocation(size=len(data), key=f"data/{name}")
    return StoredObject(MemoryStorage(), ObjectKey(f"data/{name}"), location, sums.finish(), None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_only_bytes_in_equal_blocks_count_as_equal(seed: int) -> None:
    """Bytes of two random extents that need no read lie in equal blocks of both."""
    random = Random(seed)
    ours = random.randbytes(random.randrange(1, 6 * SUM_BLOCK))
    shift = random.choice([0, 0, SUM_BLOCK, 1])
    theirs = bytearray(random.randbytes(shift) + ours[: random.choice([len(ours), random.randrange(len(ours)) + 1])])
    for _ in range(random.randrange(3)):
        theirs[random.randrange(len(theirs))] ^= 1
    one, other = stored(ours, "one"), stored(bytes(theirs), "other")
    start = random.randrange(len(ours))
    length = min(len(ours) - start, len(theirs) - start - shift)
    if length <= 0:
        return
    same = [
        (at - start, min(at + SUM_BLOCK, start + length) - start)
        for at in range(0, len(ours), SUM_BLOCK)
        if shift % SUM_BLOCK == 0 and ours[at : at + SUM_BLOCK] == theirs[at + shift :][:SUM_BLOCK]
    ]
    equal = ours[start : start + length] == theirs[start + shift :][:length]
    left = ByteEvidence({}, checksums=True).unverified((one, start), (other, start + shift), length)
    assert left is not None or not equal
    covered = bytearray(length)
    for at, many in left or []:
        covered[at : at + many] = b"\x01" * many
    alike = bytearray(length)
    for low, high in same:
        alike[max(low, 0) : max(high, 0)] = b"\x01" * (max(high, 0) - max(low, 0))
    assert all(read or known for read, known in zip(covered, alike, strict=True)) or left is None
    if left is not None and equal and alike.count(1) == length:
        assert not left, "nothing is read of equal blocks"
