"""The tensors of a store: costly results are made once for all ranges of it.

Searches and groups of tensors are compared with slow and simple ones.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from tests.support.protos.writer import varint
from tests.support.stores import field, in_memory, opened, read, upload

from protoslice.catalog.paging import PageBudget, ResultPage
from protoslice.concurrency import finish
from protoslice.errors import CorruptModel, InvalidInput
from protoslice.facts import TensorBranch, TensorEntry
from protoslice.formats import onnx
from protoslice.serving import OpenStore, StoreOptions
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import Stores
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import Tensors, natural
from protoslice.tensors.model import Tensor, Unreadable
from protoslice.views import models, tensors
from protoslice.views import tensor_names as grouping
from protoslice.views import tensor_names as searching
from protoslice.views.tensor_names import NamedTensors, NameSearch, page_job, totals_of

IDS = np.random.default_rng(1).integers(0, 1 << 40, 300_000)


def model(*, dims: int = len(IDS)) -> bytes:
    """Return a model with some plain tensors, and one whose elements are varints."""
    ids: Any = TensorProto(name="ids", data_type=TensorProto.INT64, dims=[dims], int64_data=IDS)
    plain = [numpy_helper.from_array(np.full(50, number, np.float32), f"w{number}") for number in range(30)]
    made: Any = helper.make_model(helper.make_graph([], "g", [], [], [*plain, ids]))
    content: bytes = made.SerializeToString()
    return content


def bytes_read(calls: list[Call]) -> int:
    return sum(call.bytes_read for call in calls if call.name.startswith("get_range"))


def test_a_safetensors_file_is_made_once_and_kept() -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model())).store.id)
        first, second = await asyncio.gather(tensors.safetensors(store, []), tensors.safetensors(store, []))
        assert first is second is await tensors.safetensors(store, [])
        named = await tensors.safetensors(store, ["w1", "w2*"])
        assert named is await tensors.safetensors(store, ["w1", "w2*"])
        assert named.etag != first.etag
        for number in range(30):
            await tensors.safetensors(store, [f"w{number}"])
        assert await tensors.safetensors(store, []) is not first, "only so many are kept"

    in_memory(work, StoreOptions(open_stores_bytes=60_000))


def test_what_is_held_in_memory_weighs() -> None:
    """Separate numbers are brought together: of files with many such numbers, only the newest is kept."""
    one_by_one = b"\x38\x01" * 20_000
    initializer = b"\x08" + varint(20_000) + b"\x10\x07" + field(8, b"ids") + one_by_one
    model = b"\x08\x08" + field(7, field(2, b"graph") + field(5, initializer))

    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model)).store.id)
        before = store.results.weight
        first = await tensors.safetensors(store, [])
        assert (await read(first)).endswith(np.ones(20_000, "<i8").tobytes())
        assert first is await tensors.safetensors(store, [])
        assert store.results.weight > before + 20_000
        await tensors.safetensors(store, ["ids"])
        assert first is not await tensors.safetensors(store, [])
        assert first.size == (await tensors.safetensors(store, [])).size

    in_memory(work, StoreOptions(open_stores_bytes=15_000))


def on_metered(work: Any, data: bytes) -> None:
    async def run() -> None:
        calls: list[Call] = []
        storage = MeteredStorage(MemoryStorage(), calls.append)
        async with opened(storage) as stores:
            info = (await upload(stores, data)).store
            store = await stores.view(info.id)
            calls.clear()
            await work(store, calls)

    asyncio.run(run())


def test_varints_are_counted_once_for_all_ranges_and_slices() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        await asyncio.gather(*(tensors.one(store, "ids", None, "raw") for _ in range(4)))
        counting = bytes_read(calls)
        assert len(model()) * 0.9 < counting < len(model()) * 2, "four at once pass over them once"
        calls.clear()
        for number in range(0, len(IDS), 10_000):
            view = await tensors.one(store, "ids", f"{number}:{number + 10}", "raw")
            assert np.frombuffer(await read(view), "<i8").tolist() == IDS[number : number + 10].tolist()
        calls.clear()
        view = await tensors.one(store, "path:graph.initializer[30]", None, "raw")
        assert bytes_read(calls) == 0
        assert np.array_equal(np.frombuffer(await read(view), "<i8"), IDS)

    on_metered(work, model())


def test_what_is_refused_counts_nothing() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        await tensors.page(store, name=None, dtype=None, limit=1, cursor=None)
        calls.clear()
        for slice_text, form in ((None, "pickle"), ("0:1,0:1", "raw")):
            with pytest.raises(InvalidInput):
                await tensors.one(store, "ids", slice_text, form)
        assert bytes_read(calls) == 0

    on_metered(work, model())


def test_varints_that_are_too_few_are_an_error_every_time() -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, model(dims=len(IDS) + 1))).store.id)
        for _ in range(2):
            with pytest.raises(CorruptModel, match="300000 varints") as caught:
                await tensors.one(store, "ids", None, "raw")
            assert caught.value.path == "graph.initializer[30]"

    in_memory(work)


def test_statistics_are_made_once_for_all_who_ask() -> None:
    async def work(store: OpenStore, calls: list[Call]) -> None:
        asked = (tensors.one(store, "path:graph.initializer[30]", None, form) for form in ("stats", "stats"))
        one, other, _ = await asyncio.gather(*asked, tensors.one(store, "ids/stats", None, "raw"))
        assert await read(one) == await read(other)
        calls.clear()
        told = json.loads(await read(await tensors.one(store, "ids", None, "stats")))
        assert (told["min"], told["max"], told["looked_at"]) == (IDS.min(), IDS.max(), IDS.size)
        assert bytes_read(calls) == 0
        other = await tensors.one(store, "ids", None, "stats", 100)
        assert json.loads(await read(other))["looked_at"] == 64

    on_metered(work, model())


def test_statistics_stop_when_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []

    def endless(*_: object) -> Iterator[None]:
        while True:
            begun.append(1)
            yield None

    monkeypatch.setattr("protoslice.views.tensors.statistics_job", endless)

    async def work(store: OpenStore, calls: list[Call]) -> None:
        task = asyncio.create_task(tensors.one(store, "ids", None, "stats"))
        while not begun:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        for _ in range(50):
            await asyncio.sleep(0.001)
        seen = len(begun)
        await asyncio.sleep(0.01)
        assert len(begun) == seen

    on_metered(work, model())


async def test_tensors_are_found_once_and_built_once_for_all_columns(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Summary, sorted lists and tree share them."""
    found, built = list[object](), list[int]()

    class Counting(Tensors):
        def __init__(self, count: int, make: Callable[[int], Tensor], key: Any = None) -> None:
            def counted(number: int) -> Tensor:
                built.append(number)
                return make(number)

            super().__init__(count, counted, key)
            found.append(self)

    monkeypatch.setattr(onnx, "Tensors", Counting)
    store = await stores.view((await upload(stores, model())).store.id)
    built.clear()
    found.clear()
    assert (await models.summary(store)).tensors == 31
    assert built == [0, *range(31)], "the first also when the graph is read"
    built.clear()
    for sort in ("size", "-size", "shape", "dtype", "-dtype", "name"):
        await tensors.page(store, name=None, dtype=None, limit=1, cursor=None, sort=sort)
    assert (await tensors.tree(store, "", 0, 100, 100)).children
    assert len(built) <= 31 + 2 * 6 + 31, "facts, a row of each page and the next, and tensors of the tree"
    assert len(found) == 1


T = TypeVar("T")
NAMES = st.lists(st.text("ab12./", min_size=1, max_size=8), max_size=25)
STEP = re.compile(r"(?<=[^./:])[./:]")


def tensors_named(names: Sequence[str]) -> Tensors:
    """Return tensors of one byte, two bytes …, with these names."""
    found = [
        Tensor(name, f"path:t[{n}]", DTYPES["U8"], (n + 1,), "t", None, Unreadable(CorruptModel("nothing is read")))
        for n, name in enumerate(names)
    ]
    return Tensors.of(found)


def page_of(
    found: Tensors, order: Sequence[int], search: NameSearch, limit: int, first: int = 0
) -> ResultPage[TensorEntry]:
    """Return the page of the tensors that `search` finds."""
    return finish(page_job(found, order, first, search, lambda tensor: True, PageBudget(limit)))


def groups(names: Sequence[str], prefix: str) -> list[TensorBranch]:
    """Return the groups directly below `prefix`, with the longest common part of their names."""
    root = tree(names, prefix)
    if root.name != prefix or not root.children:
        return [root] if root.tensors else []
    return [replace(child, name=root.name + child.name) for child in root.children]


def named(names: Sequence[str]) -> NamedTensors:
    """Return tensors of one byte, two bytes …, of alternating types, by name."""
    order = sorted(range(len(names)), key=lambda number: natural(names[number]))
    sizes = [number + 1 for number in range(len(names))]
    dtypes = ["U8" if number % 2 else "I8" for number in range(len(names))]
    return NamedTensors(tensors_named(names), totals_of(order, sizes, sizes, sizes, dtypes, ["other"] * len(names)))


def tree(
    names: Sequence[str], prefix: str = "", start: int = 0, end: int = 1 << 40, limit: int = 10_000
) -> TensorBranch:
    """Return the tree of the tensors with `prefix`."""
    return finish(named(names).tree(prefix, start, end, limit))


def leaves(branch: TensorBranch, above: str = "") -> list[tuple[str, TensorBranch]]:
    """Return the closed nodes of a tree, with the beginnings of their names; check the nodes above."""
    if not branch.children:
        return [(above + branch.name, branch)]
    for member in ("tensors", "size", "elements"):
        assert getattr(branch, member) == sum(getattr(child, member) for child in branch.children)
    assert branch.start == branch.children[0].start
    below = above if branch.last is not None else above + branch.name
    return [leaf for child in branch.children for leaf in leaves(child, below)]


def steps_in(name: str) -> list[str]:
    """Return the beginnings of a name up to the end of each step."""
    return [name[: found.end()] for found in STEP.finditer(name)]


@given(NAMES, st.sampled_from(["", "a", "a.", "b/", "ab."]))
def test_groups_hold_all_tensors_once_and_share_their_steps(names: list[str], prefix: str) -> None:
    found = groups(names, prefix)
    below = sorted((name for name in names if name.startswith(prefix)), key=natural)
    at = 0
    for group in found:
        members = below[at : at + group.tensors]
        at += group.tensors
        assert all(name.startswith(group.name) for name in members)
        if group.name == prefix:  # tensors of one name, one by one
            assert group.address is not None
            continue
        assert group.size == sum(n + 1 for n, name in enumerate(names) if name in members)
        assert (group.address is not None) == (group.tensors == 1)
        shared = [each for each in steps_in(members[0]) if all(name.startswith(each) for name in members)]
        assert group.name == (members[0] if len(set(members)) == 1 else shared[-1])
    assert at == len(below)
    groups_below = [group.name for group in found if group.name != prefix]
    assert len(set(groups_below)) == len(groups_below)


def test_a_name_that_begins_others_stands_beside_them() -> None:
    found = groups(["w", "w.a", "w.b", "w", "/x/y", "encoder.layer.1.k", "encoder.layer.2.k"], "")
    assert [(each.name, each.tensors) for each in found] == [
        ("/x/y", 1),
        ("encoder.layer.", 2),
        ("w", 2),
        ("w.", 2),
    ]
    assert [each.name for each in groups(["a.b", "a.b.c", "a.b.d"], "a.")] == ["a.b", "a.b."]


def test_numbers_in_names_are_in_natural_order() -> None:
    names = [f"layer.{n}.w" for n in range(120)] + ["layer.x", f"layer.{'9' * 400}"]
    assert sorted(names[::-1], key=natural) == [*names[:120], names[121], names[120]]


@given(NAMES, st.sampled_from(["", "a.", "b/"]))
def test_a_tree_has_every_tensor_once_below_the_beginnings_of_its_name(names: list[str], prefix: str) -> None:
    found = leaves(tree(names, prefix))
    below = sorted((name for name in names if name.startswith(prefix)), key=natural)
    assert [name for name, leaf in found if leaf.tensors] == below
    assert all(leaf.tensors == 1 and leaf.address and leaf.shape for _, leaf in found if below)


@given(st.data())
def test_many_groups_are_ranges_whose_members_are_found_by_their_place(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_MOST_CHILDREN", 4)
        patch.setattr(grouping, "_RANGES", 3)
        names = data.draw(st.lists(st.text("ab123.", min_size=1, max_size=6), min_size=5, max_size=60))
        root = tree(names)
        assert [name for name, leaf in leaves(root) if leaf.tensors == 1] == sorted(names, key=natural)
        waiting = [("", root)]
        while waiting:
            above, branch = waiting.pop()
            assert len(branch.children) <= max(4, 2 * (3 + 1) + 3)
            below = above if branch.last is not None else above + branch.name
            waiting += [(below, child) for child in branch.children]
            if branch.last is not None:
                assert branch.name != branch.last or not branch.name
                again = tree(names, below, branch.start, branch.start + branch.tensors)
                assert again.children == branch.children


def test_a_tree_opens_its_largest_nodes_first() -> None:
    names = [f"layer.{n}.{part}" for n in range(30) for part in ("k", "v")]
    root = tree(names, limit=34)
    assert (root.name, root.tensors, root.dtype) == ("layer.", 60, "U8")
    assert [child.name for child in root.children] == [f"{n}." for n in range(30)]
    assert [child.name for child in root.children if child.children] == ["28.", "29."]


@given(NAMES, st.sampled_from(["a", "^a", "a$", "[.]b", "(a|b)+$", "x"]), st.sampled_from(["", "a", "b."]))
def test_expressions_and_beginnings_choose_as_they_do_elsewhere(names: list[str], regex: str, prefix: str) -> None:
    search = NameSearch(regex=regex, prefix=prefix)
    wanted = [bool(re.search(regex, name)) and name.startswith(prefix) for name in names]
    assert list(search.fits(names)) == wanted
    page = page_of(tensors_named(names), range(len(names)), search, 1000)
    assert len(page.items) == sum(wanted)


def test_a_page_looks_at_so_many_names_and_the_next_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searching, "_WORK", 20_000)
    found, order = tensors_named([f"tensor.{n}" for n in range(2000)]), range(2000)
    search = NameSearch(regex="1999$")
    page = page_of(found, order, search, 10)
    pages, shown = 1, len(page.items)
    while page.next is not None:
        page = page_of(found, order, search, 10, int(page.next))
        pages, shown = pages + 1, shown + len(page.items)
    assert (shown, pages) == (1, 4)
    costly = NameSearch(regex=r"\w{3}").work
    assert costly < search.work / 4


@pytest.mark.parametrize("regex", ["(", r"(a)\1", "(?=a)", "a" * 257, r"\w{900}", "a{1000}{1000}"])
def test_an_expression_that_is_none_or_too_large_is_refused(regex: str) -> None:
    with pytest.raises(InvalidInput):
        NameSearch(regex=regex)


def test_names_that_are_no_text_are_searched() -> None:
    assert list(NameSearch(regex="b$").fits(["a\udcffb", "b\udcff"])) == [True, False]
