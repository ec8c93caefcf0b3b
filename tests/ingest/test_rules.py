"""Rules of an upload, or kept by type, decide the chunks of a store and are named in its id."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.golden import CHUNKED
from tests.support.stores import in_files, in_memory, open_stores, opened, read, upload

import protoslice
from protoslice import _core
from protoslice.errors import InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.facts import Store
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.versions import Policy, is_id_of, store_id
from protoslice.views import chunks, documents

GRAPH = (CHUNKED / "graph_many_nodes.pb").read_bytes()
FILES = {"graph.pb": GRAPH}
RULES = ("node : every 100", "versions: always")
CANONICAL = ("node: every 100", "versions: always")
REQUEST = IngestRequest(type="tensorflow.GraphDef", rules=RULES)


async def paths(stores: Stores, store: Store) -> list[str]:
    """Paths of a store's chunks."""
    page = await chunks.chunks((await stores.view(store.id)), limit=10_000, cursor=None)
    return [entry.path for entry in page.items]


def test_a_store_has_the_chunks_of_its_rules() -> None:
    with protoslice.open(GRAPH, "tensorflow.GraphDef") as proto:
        due = {chunk.path: chunk.rope.read() for chunk in proto.split(rules=RULES)}

    async def work(stores: Stores, storage: FileStorage) -> None:
        made = (await upload(stores, FILES, REQUEST)).store
        assert (made.rules, made.chunks, len(due) > 2) == (CANONICAL, len(due), True)
        async with opened(storage) as others:
            assert await paths(others, made) == list(due)
            assert (await others.get(made.id)).rules == CANONICAL
            view = await others.view(made.id)
            assert [await read(await chunks.chunk(view, n)) for n in range(made.chunks)] == list(due.values())
            assert await read(await documents.merge(view, "", None, None)) == GRAPH

    in_files(work)


async def test_the_rules_are_named_in_the_id(stores: Stores) -> None:
    plain = (await upload(stores, FILES, replace(REQUEST, rules=None))).store
    ruled = (await upload(stores, FILES, REQUEST)).store
    same = await upload(stores, FILES, replace(REQUEST, rules=CANONICAL))
    other = (await upload(stores, FILES, replace(REQUEST, rules=CANONICAL[::-1]))).store
    assert len({plain.id, ruled.id, other.id}) == 3
    assert (same.store.id, same.created) == (ruled.id, False), "spaces in a rule say nothing"
    assert (await upload(stores, FILES, replace(REQUEST, rules=()))).store.id == plain.id
    for store in (plain, ruled):
        files = [(file.path, file.size, file.sha256 or "") for file in store.files]
        policy = Policy(
            root=store.root,
            type=store.type,
            min_chunk=store.min_chunk,
            max_chunk=store.max_chunk,
            schema=store.schema,
            planner=store.planner,
            rules=store.rules,
        )
        assert store_id(files, policy) == store.id
        assert is_id_of(store.id, files, policy)
        assert not is_id_of(store.id, files, replace(policy, rules=("node: never",)))


def test_rules_kept_by_type_are_for_roots_that_come_without() -> None:
    kept = StoreOptions(rules={"tensorflow.GraphDef": RULES, "onnx.ModelProto": ["graph: whole"]})

    async def work(_: Stores, storage: Storage) -> None:
        stores = await open_stores(storage, kept)
        try:
            by_type = (await upload(stores, FILES, replace(REQUEST, rules=None))).store
            assert by_type.rules == CANONICAL
            assert (await upload(stores, FILES, REQUEST)).store.id == by_type.id
            assert (await upload(stores, FILES, replace(REQUEST, rules=("node: never",)))).store.rules == (
                "node: never",
            )
            assert (await upload(stores, FILES, replace(REQUEST, rules=()))).store.rules == ()
            assert (await upload(stores, FILES, replace(REQUEST, type="unknown", rules=None))).store.rules == ()
        finally:
            await stores.close()

    in_memory(work)


def test_a_chunked_root_keeps_its_plan_unless_rules_are_given() -> None:
    files = {"graph.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()}
    kept = StoreOptions(rules={"tensorflow.GraphDef": RULES})

    async def work(_: Stores, storage: Storage) -> None:
        stores = await open_stores(storage, kept)
        try:
            came = (await upload(stores, files)).store
            assert (came.planner, came.rules) == (_core.Plan.KEPT_VERSION, ())
            ruled = (await upload(stores, files, IngestRequest(rules=CANONICAL))).store
            assert (ruled.planner, ruled.rules) == (_core.Plan.MERGED_VERSION, CANONICAL)
            assert "versions" in await paths(stores, ruled)
        finally:
            await stores.close()

    in_memory(work)


@pytest.mark.parametrize(
    ("files", "rules", "error", "said"),
    [
        (FILES, ("node: every 0",), InvalidInput, "at character 6"),
        (FILES, ("nodes: every 5",), NotFound, "has no field nodes"),
        (
            {"words.txt": b"no proto at all"},
            ("node: never",),
            Unsupported,
            "pass its type",
        ),
    ],
    ids=["syntax", "path", "no proto"],
)
async def test_rules_that_cannot_apply_store_nothing(
    stores: Stores, files: dict[str, bytes], rules: tuple[str, ...], error: type[ProtosliceError], said: str
) -> None:
    with pytest.raises(error, match=said):
        await upload(stores, files, IngestRequest(rules=rules))
    assert not (await stores.list()).items


@pytest.mark.parametrize(
    ("type_name", "rule", "said"),
    [
        ("tensorflow.GraphDef", "node: every 0", "default rules for tensorflow.GraphDef: .*at character 6"),
        ("tensorflow.GraphDef", "nodes: never", "default rules for tensorflow.GraphDef: .*no field nodes"),
        ("mine.Own", "node: often", "default rules for mine.Own: .*at character 6"),
    ],
)
def test_kept_rules_are_checked_when_the_service_starts(type_name: str, rule: str, said: str) -> None:
    async def work(_: Stores, storage: Storage) -> None:
        with pytest.raises(ProtosliceError, match=said) as refused:
            await open_stores(storage, StoreOptions(rules={type_name: [rule]}))
        assert rule.partition(":")[0] in str(refused.value.path)

    in_memory(work)
