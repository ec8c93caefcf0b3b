"""Listings of a bucket, compared with the sorted list of all keys, cut as S3 cuts it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from random import Random

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.rows import Counting, seed
from tests.support.stores import onnx, open_stores

from protoslice.catalog import open_database
from protoslice.catalog.repositories import ensure_repository
from protoslice.database.transactions import Row, Transaction
from protoslice.server.registries.s3 import names as names_module
from protoslice.server.registries.s3 import objects
from protoslice.server.registries.s3.objects import Bucket
from protoslice.storage import MemoryStorage
from protoslice.stores import IngestRequest, Stores

PATHS = ("config.json", "data-0", "data/a", "data/b", "m.onnx")
PARTS = ("m", "m-1", "m.1", "m+", "m_", "M", "m1", "mm", "a", "Z9", "x-y")


def drawn_names(random: Random, marks: str, count: int) -> list[str]:
    """Return names with common beginnings, made of characters of both cases and of `marks`."""
    found = set[str]()
    while len(found) < count:
        found.add(random.choice(PARTS) + "".join(random.choice(f"aA1{marks}") for _ in range(random.randrange(4))))
    return [name for name in found if not name.endswith(tuple("/.-"))]


@pytest.fixture
async def stores(catalogue: str) -> AsyncIterator[Stores]:
    """Return stores whose catalogue is of each engine in turn."""
    async with open_database(catalogue, "memory://") as database:
        stores = await open_stores(MemoryStorage(), database=database)
        yield stores
        await stores.close()


async def fill(stores: Stores, random: Random, count: int) -> list[str]:
    """Give many names to one store, and return the keys of the bucket without those of stores."""
    async with await stores.ingest(IngestRequest()) as ingest:
        for path in PATHS:
            writer = await ingest.file(path)
            await writer.write(onnx(50, seed=len(path)))
            await writer.close()
        store = (await ingest.commit()).store.id
    tags = drawn_names(random, "-.+_:@~", count)
    hub = {
        f"o{name}" if "/" not in name else name: drawn_names(random, "-/.", 4)
        for name in drawn_names(random, "-/", count // 4)
    }
    oci = {name.lower(): drawn_names(random, "-.", 4) for name in drawn_names(random, "-/", count // 4)}

    def work(tx: Transaction) -> None:
        sql = """
            INSERT INTO names (space, repository, kind, name, store, version, updated)
            VALUES (:space, :repository, :kind, :name, :store, :version, 0)"""
        place = {"space": "default", "store": store, "version": b"v"}
        ensure_repository(tx, "default", "stores", "", 0)
        tx.many(sql, [{**place, "repository": 0, "kind": "tag", "name": name} for name in tags])
        for id, (protocol, name) in enumerate((p, n) for p, many in (("hub", hub), ("oci", oci)) for n in many):
            ensure_repository(tx, "default", protocol, name, id + 10)
            refs = (hub if protocol == "hub" else oci)[name]
            kind = "heads" if protocol == "hub" else "tags"
            tx.many(sql, [{**place, "repository": id + 10, "kind": kind, "name": ref} for ref in refs])

    await stores.database.write(work)
    prefixes = [f"tags/{name}/" for name in tags]
    prefixes += [f"hub/{name}@{ref.replace('/', '%2F')}/" for name, refs in hub.items() for ref in refs]
    prefixes += [f"oci/{name}:{ref}/" for name, refs in oci.items() for ref in refs]
    return sorted(prefix + path for prefix in prefixes for path in PATHS)


def cut(keys: Sequence[str], prefix: str, after: str, delimiter: str) -> list[str]:
    """Return the keys and common prefixes after `after`, in order."""
    found = list[str]()
    for key in keys:
        if key.startswith(prefix):
            at = key.find(delimiter, len(prefix)) if delimiter else -1
            shown = key if at < 0 else key[: at + len(delimiter)]
            if shown > after and shown not in found[-1:]:
                found.append(shown)
    return found


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_page_is_a_cut_of_the_sorted_keys(
    stores: Stores, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    # small, so that every listing exceeds these bounds
    monkeypatch.setattr(names_module, "_BATCH", 5)
    monkeypatch.setattr(names_module, "_REPOSITORIES", 3)
    monkeypatch.setattr(names_module, "_REVISIONS", 4)
    monkeypatch.setattr(objects, "_SKIPPED", 4)
    monkeypatch.setattr(objects, "_VISITED", random.choice([3, 400]))
    keys = await fill(stores, random, 60)
    bucket = Bucket(stores)
    for _ in range(60):
        key = random.choice(keys)
        prefix = random.choice(["", key[: random.randrange(len(key))], key[: key.find("/", 6) + 1], key])
        delimiter = random.choice(["", "/", "/", "-", "m", "@"])
        after = random.choice(["", "", random.choice(keys), random.choice(keys)[:-3]])
        expected, found, at = cut(keys, prefix, after, delimiter), list[str](), after
        for _ in range(3 * len(keys)):
            page = await bucket.list(prefix, at, delimiter, random.choice([1, 3, 7, 1000]))
            found += sorted([*(entry.key for entry in page.entries), *page.prefixes])
            if page.next is None:
                break
            at = page.next
        assert found == expected, (prefix, after, delimiter)


async def test_ten_thousand_drawn_keys_are_listed_as_sorted(stores: Stores) -> None:
    keys, found, after = await fill(stores, Random(10), 1400), list[str](), ""
    assert len(keys) > 10_000
    for _ in range(len(keys)):
        page = await Bucket(stores).list("", after, "", 1000)
        found += [entry.key for entry in page.entries]
        if page.next is None:
            break
        after = page.next
    assert found == keys


async def test_page_reads_the_manifests_of_many_stores_at_once_and_no_object() -> None:
    storage = Counting(MemoryStorage())
    database = catalogue_of(storage)
    await seed(database, 300)
    stores = await open_stores(storage)
    storage.calls.clear()
    database.count_anew()
    page = await Bucket(stores).list("tags/", "", "", 1000)
    assert len(page.entries) == 300
    assert database.transactions["read"] < 30
    assert not storage.calls
    await stores.close()


async def test_prefix_of_a_revision_reads_no_other_of_its_repository(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await fill(stores, Random(4), 40)
    shown = [key.split("/data")[0] for key in keys if key.startswith("hub/") and key.endswith("/data-0")]
    repository = Counter(each.partition("@")[0] for each in shown).most_common(1)[0][0]
    refs = [each.partition("@")[2] for each in shown if each.startswith(f"{repository}@")]
    assert len(refs) > 1
    read, found = names_module.NamesInSpace._all, list[Row]()

    async def counted(names: names_module.NamesInSpace, sql: str, **values: object) -> list[Row]:
        rows = await read(names, sql, **values)
        found.extend(rows)
        return rows

    monkeypatch.setattr(names_module.NamesInSpace, "_all", counted)
    for ref in refs:
        found.clear()
        prefix = f"{repository}@{ref}/"
        page = await Bucket(stores).list(prefix, "", "", 1000)
        assert [entry.key for entry in page.entries] == [key for key in keys if key.startswith(prefix)]
        assert len(found) == 2  # the repository, and the revision


@pytest.mark.parametrize("section", ["tags/", "hub/", "oci/"])
async def test_key_that_is_longer_than_any_name_costs_no_more(
    stores: Stores, section: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = await fill(stores, Random(3), 40)
    read, bound = names_module.NamesInSpace._all, list[int]()

    async def counted(names: names_module.NamesInSpace, sql: str, **values: object) -> list[Row]:
        bound.append(sum(len(str(value)) for value in values.values()))
        return await read(names, sql, **values)

    monkeypatch.setattr(names_module.NamesInSpace, "_all", counted)
    for after in (section + "!" * 15_000, section + "m" * 300, f"{section}m{'-' * 300}"):
        page = await Bucket(stores).list(section, after, "", 1000)
        expected = [key for key in keys if key.startswith(section) and key > after][:1000]
        assert [entry.key for entry in page.entries] == expected
    assert max(bound) < 40_000
