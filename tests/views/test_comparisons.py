"""Stores are compared by digests, extents and checksums where they tell, else by reading."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterator
from random import Random

import pytest
from tests.support.protos.writer import varint
from tests.support.stores import field, in_memory, onnx, upload

from protoslice.errors import CorruptModel, Unsupported
from protoslice.facts import TensorDelta
from protoslice.ingest import follow
from protoslice.recipes import Copy, RecipeWriter
from protoslice.stores import IngestRequest, Stores
from protoslice.views import comparisons
from protoslice.views.comparisons import StoreComparison, Unfinished

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
    """Copies of a recipe are the other store's own bytes, wherever they lie in the new file."""
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
    """The store that a recipe of copies of the store's file, and of new bytes, makes."""
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
    """Tensors that differ in their middles alone look the same at their ends."""
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
