"""Stores are compared by digests, extents and checksums where these suffice, and otherwise by reading.

Comparisons of large stores: the bytes read from the storage are counted, and read once at most.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection, Iterator
from pathlib import Path
from random import Random

import pytest
from onnx import TensorProto
from onnx import helper as onnx_helper
from tests.support.counted import CountedBucket, counted_bucket
from tests.support.protos.writer import varint
from tests.support.stores import field, in_memory, onnx, opened, upload

from protoslice import _core
from protoslice.catalog.manifest import ObjectLocation
from protoslice.errors import CorruptModel, Unsupported
from protoslice.facts import TensorDelta
from protoslice.ingest import follow
from protoslice.recipes import Copy, RecipeWriter
from protoslice.serving import StoreOptions
from protoslice.serving.stored import SUM_BLOCK, StoredObject
from protoslice.storage import MemoryStorage, ObjectKey
from protoslice.stores import IngestRequest, Stores
from protoslice.views import comparisons
from protoslice.views.comparisons import ByteEvidence, StoreComparison, Unfinished

MIB = 1 << 20


def compared(before: bytes, after: bytes) -> StoreComparison:
    async def work(stores: Stores, _: object) -> StoreComparison:
        one, other = [(await upload(stores, data)).store.id for data in (before, after)]
        found = await comparisons.compare(await stores.view(one), await stores.view(other))
        assert await comparisons.compare(await stores.view(one), await stores.view(other)) is found, "made once"
        back = await comparisons.compare(await stores.view(other), await stores.view(one))
        assert sum(back.counts.values()) == sum(found.counts.values()), "the same both ways"
        return found

    return in_memory(work)


def changes(found: StoreComparison) -> list[tuple[str, str, str]]:
    return [(each.change, each.what, each.path) for each in found.listed]


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_a_store_is_equal_to_itself_without_a_look() -> None:
    model = onnx(MIB, 10)
    found = compared(model, model)
    assert (found.counts, found.listed, found.read) == ({}, [], 0)


def test_a_changed_tensor_is_found_and_its_place_told() -> None:
    model = onnx(MIB, 3 * MIB, MIB)
    at = model.index(b"weight-1") + 2 * MIB
    found = compared(model, with_bytes(model, at, b"changed"))
    assert changes(found)[1:] == [("changed", "tensor", "weight-1")]
    tensor = found.listed[1]
    assert tensor.address == tensor.was == "path:graph.initializer[1]"
    assert (tensor.before, tensor.after) == (3 * MIB, 3 * MIB)


def test_checksums_prove_a_difference_and_nothing_is_read_for_it() -> None:
    model = onnx(4 * MIB)
    other = with_bytes(model, model.index(b"weight-0") + MIB, Random(1).randbytes(MIB))
    assert compared(model, other).read < 256 << 10, "the small rest of the proto alone"


def test_what_is_one_stored_extent_is_not_read() -> None:
    """A recipe's copies are the other store's bytes, at any position in the new file."""
    old = onnx(4 * MIB, MIB)
    end = len(old) - 3 * MIB
    new = old[:end] + Random(2).randbytes(8) + old[end + 8 :]

    async def work(stores: Stores, _: object) -> tuple[int, int]:
        first = (await upload(stores, old)).store.id
        second = await followed(stores, first, [(0, end), new[end : end + 8], (end + 8, len(old))], new)
        alone = (await upload(stores, new + b"\x10\x00")).store.id
        shared, copied = (
            await comparisons.compare(await stores.view(first), await stores.view(second)),
            await comparisons.compare(await stores.view(first), await stores.view(alone)),
        )
        assert [each[1:] for each in changes(shared)] == [("file", "model.onnx"), ("tensor", "weight-0")]
        return shared.read, copied.read

    shared, copied = in_memory(work)
    assert shared < 64 << 10
    assert copied > 2 * MIB, "of equal checksums, read to be sure"


async def followed(stores: Stores, store: str, parts: list[tuple[int, int] | bytes], whole: bytes) -> str:
    """Return the store of a recipe that copies the store's file and adds new bytes."""
    writer = RecipeWriter()
    recipe = [writer.file("model.onnx")]
    for part in parts:
        if isinstance(part, bytes):
            recipe.append(writer.literal(len(part)) + part)
        else:
            recipe.append(writer.copy(Copy(store, "model.onnx", part[0], part[1] - part[0])))
    recipe += [writer.end(len(whole), hashlib.sha256(whole).hexdigest()), writer.done()]

    async def body() -> AsyncIterator[bytes]:
        for part in recipe:
            yield part

    async with await stores.ingest(IngestRequest()) as ingest:
        await follow(body(), ingest, stores.view)
        return (await ingest.commit()).store.id


def test_tensors_by_other_names_are_no_others() -> None:
    model = onnx(*[1000] * 500)
    renamed = model.replace(b"weight-", b"gewich-")
    found = compared(model, renamed)
    assert found.counts == {("file", "changed"): 1, ("tensor", "renamed"): 500}
    assert found.listed[1].detail == "was weight-0"


def test_new_names_for_what_only_looks_the_same_cost_no_comparison_of_all_with_all() -> None:
    """Tensors that differ only in their middles look the same at their ends."""
    count, size = 60, 40_000

    def model(name: bytes, seed: int) -> bytes:
        graph = b""
        for number in range(count):
            data = bytearray(size)
            data[size // 2 : size // 2 + 8] = Random(seed * 1000 + number).randbytes(8)
            graph += field(
                5, b"\x08" + varint(size) + b"\x10\x03" + field(8, b"%b%d" % (name, number)) + field(9, bytes(data))
            )
        return b"\x08\x08" + field(7, graph) + field(8, b"\x10\x11")

    found = compared(model(b"weight-", 1), model(b"gewicht-", 2))
    assert found.counts == {("file", "changed"): 1, ("tensor", "renamed"): count}
    assert {each.detail.partition("; ")[2] for each in found.listed[1:]} == {"values differ"}
    assert found.read < 2 * size * count * 1.5, "each with one"


def test_more_differences_than_are_listed_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparisons, "MOST_LISTED", 10)
    found = compared(onnx(*[10] * 50), onnx(*[11] * 50))
    assert found.counts["tensor", "changed"] == 50
    assert len(found.listed) == 10
    page = found.page(4, None)
    assert (len(page.items), page.next) == (4, "4")
    assert [*page.items, *found.page(100, page.next).items] == found.listed


@pytest.mark.parametrize("way", ["waits", "leaves"])
def test_a_comparison_is_resumed_where_its_caller_left_it(way: str) -> None:
    """All bytes of both are read, since equal checksums are no proof: 4 MiB in each slice."""
    model = onnx(16 * MIB, 16 * MIB)

    async def work(stores: Stores, _: object) -> tuple[StoreComparison, list[tuple[int, int]]]:
        one, other = [(await upload(stores, data)).store.id for data in (model, model + b"\x10\x00")]
        so_far = list[tuple[int, int]]()
        for _ in range(1000):
            if way == "leaves":
                leaving = asyncio.create_task(comparisons.compare(await stores.view(one), await stores.view(other)))
                await asyncio.sleep(0)
                leaving.cancel()
                await asyncio.wait([leaving])
            try:
                return await comparisons.compare(await stores.view(one), await stores.view(other), wait=0), so_far
            except Unfinished as unfinished:
                so_far.append((unfinished.read, unfinished.size))
        raise AssertionError("each call begins from the start")

    found, progress = in_memory(work)
    assert {size for _, size in progress} == {2 * len(model) + 2}
    so_far = [read for read, _ in progress]
    assert len(so_far) > 2
    assert so_far == sorted(so_far)
    assert so_far[-1] <= found.read < 2.1 * len(model), "nothing is read twice"


def test_a_comparison_that_fails_is_begun_again_by_the_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx(MIB, 10)

    async def work(stores: Stores, _: object) -> StoreComparison:
        ids = [(await upload(stores, data)).store.id for data in (model, model + b"\x10\x00")]
        with monkeypatch.context() as patch:
            patch.setattr(comparisons, "steps_of_differences", _failing)
            with pytest.raises(CorruptModel):
                await comparisons.compare(*[await stores.view(each) for each in ids])
        return await comparisons.compare(*[await stores.view(each) for each in ids])

    assert changes(in_memory(work))[0] == ("changed", "file", "model.onnx")


def _failing(*_: object) -> Iterator[None]:
    yield
    raise CorruptModel("as a storage may fail")


def delta(before: bytes, after: bytes, sample: int | None = None) -> TensorDelta:
    async def work(stores: Stores, _: object) -> TensorDelta:
        one, other = [(await upload(stores, data)).store.id for data in (before, after)]
        return await comparisons.delta(await stores.view(one), await stores.view(other), "weight-0", "weight-0", sample)

    return in_memory(work)


def test_distances_of_two_tensors() -> None:
    model = onnx(1000)
    at = model.index(b"weight-0") + 100
    found = delta(model, with_bytes(model, at, bytes([model[at] ^ 1])))
    assert (found.dtype, found.shape, found.elements, found.looked_at) == ("I8", (1000,), 1000, 1000)
    assert (found.changed, found.incomparable, found.max, found.mean) == (1, 0, 1.0, 0.001)
    assert found.cosine is not None
    assert 0.999 < found.cosine < 1
    assert delta(model, model).changed == 0
    assert delta(model, onnx(1000, seed=5), sample=64).looked_at == 64
    with pytest.raises(Unsupported, match=r"I8 \[1000\] and I8 \[999\]"):
        delta(model, onnx(999))


SIZES = 6 * MIB + 5, 6 * MIB, 6 * MIB
FIRST = onnx(*SIZES)


def changed(data: bytes, number: int, seed: int) -> bytes:
    """Return the model with other bytes in the middle of one tensor."""
    at = data.index(b"weight-%d" % number) + 3 * MIB
    return data[:at] + Random(seed).randbytes(8) + data[at + 8 :]


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        yield found


@pytest.fixture
def reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make stores of 18 MiB count as very large."""
    monkeypatch.setattr(comparisons, "MOST_CONFIRMED", MIB)


def tensors(found: StoreComparison) -> list[tuple[str, str]]:
    return [(each.change, each.path) for each in found.listed if each.what == "tensor"]


@pytest.mark.usefixtures("reduced")
def test_registered_stores_are_digested_once_and_then_compared_without_a_read(bucket: CountedBucket) -> None:
    """The first comparison reads a version for its digests; digests outlast the service."""
    versions = [FIRST, changed(FIRST, 1, 1), changed(changed(FIRST, 1, 1), 2, 2)]
    bucket.fill({f"models/{number}.onnx": data for number, data in enumerate(versions)})
    storage = MemoryStorage()
    options = StoreOptions(register_prefixes=(f"{bucket.uri}/models",))

    async def compared(before: int, after: int) -> tuple[StoreComparison, int]:
        """Return the comparison by a newly started service, and the bytes of the bucket that it read."""
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


@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("shift", [b"", b"\x1a\x01x"])
def test_equal_checksums_are_believed_when_the_caller_asks_for_it(bucket: CountedBucket, shift: bytes) -> None:
    """Blocks that are not aligned have no equal checksums, so they are read."""

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


@pytest.mark.usefixtures("reduced")
def test_what_differs_everywhere_is_not_digested(bucket: CountedBucket) -> None:
    """Checksums prove that; for stores without checksums, a sample of each tensor does."""
    bucket.fill({"models/a.onnx": FIRST, "models/b.onnx": onnx(*SIZES, seed=9)})

    async def work() -> None:
        async with opened(MemoryStorage(), StoreOptions(register_prefixes=(f"{bucket.uri}/models",))) as stores:
            uris = [f"{bucket.uri}/models/{name}.onnx" for name in "ab"]
            ids = [(await stores.register({"m.onnx": uri}, IngestRequest())).store.id for uri in uris]
            found = await comparisons.compare(*[await stores.view(each) for each in ids])
            assert tensors(found) == [("changed", f"weight-{number}") for number in range(3)]
            assert found.read < 2 * len(FIRST)

    asyncio.run(work())


@pytest.mark.usefixtures("reduced")
def test_local_files_are_read_once_and_not_digested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One read of both files finds a change at the end, and only its tensor is read again."""
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


@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("count", [1500, 60_000])
def test_computed_elements_are_compared_for_each_tensor(count: int) -> None:
    """Halves in `int32_data` are computed: the source of a tensor may get the `id` of an earlier source."""

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
    """Return an object in memory, with its checksums."""
    sums = _core.BlockSums()
    sums.update(data)
    location = ObjectLocation(size=len(data), key=f"data/{name}")
    return StoredObject(MemoryStorage(), ObjectKey(f"data/{name}"), location, sums.finish(), None, None)  # type: ignore[arg-type]


@pytest.mark.usefixtures("reduced")
@pytest.mark.parametrize("seed", range(60))
def test_only_bytes_in_equal_blocks_count_as_equal(seed: int) -> None:
    """Bytes of two random extents that need no read are in equal blocks of both."""
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
