"""Invariants that hold once all is quiet, whatever has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.stores.simulation.artifacts import check_artifacts
from tests.stores.simulation.clients import TAGS
from tests.stores.simulation.cluster import Cluster, Machine
from tests.stores.simulation.committing import check_history
from tests.stores.simulation.ledger import Ledger, Violation
from tests.stores.simulation.quieting import check_left
from tests.stores.simulation.registers import Deed, linearizable
from tests.stores.simulation.removing import ATTEMPT
from tests.support.stores import assert_whole, keys_in, read, visible

from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.facts import Store
from protoslice.storage import ObjectKey
from protoslice.stores import Stores
from protoslice.stores.catalog.named_records import is_removal_mark
from protoslice.stores.catalog.piece_index import sampled
from protoslice.stores.catalog.piece_table import TABLE

ROUNDS = 5
"""After so many collections, each after a grace, nothing is left to be collected."""


async def check(cluster: Cluster, ledger: Ledger, *, grace: float, lifetime: float) -> None:
    """Raise a `Violation` unless everything is as it must be."""
    old = list(cluster.machines.values())
    fresh = await cluster.start(len(old))
    await _at(cluster, fresh, lambda stores: _check_stores(ledger, stores))
    await _at(cluster, fresh, _check_lists)
    for machine in old:
        await _at(cluster, machine, lambda stores: _check_files(ledger, stores))
    await _at(cluster, fresh, lambda stores: _check_tags(ledger, stores))
    await _at(cluster, fresh, lambda stores: check_history(ledger, stores))
    _check_creators(ledger)
    await _at(cluster, fresh, lambda stores: check_left(ledger, stores))
    await _collect(cluster, fresh, grace, lifetime)
    # All uploads have expired by now: what was pushed needs none.
    await _at(cluster, fresh, lambda stores: check_artifacts(ledger, stores))
    await _at(cluster, fresh, lambda stores: _check_pieces(cluster, stores))
    await _check_leftovers(cluster, ledger)


async def _at(cluster: Cluster, machine: Machine, work: Callable[[Stores], Awaitable[object]]) -> None:
    """Let a machine do something in peace."""

    async def done() -> None:
        assert machine.stores is not None
        await work(machine.stores)

    await cluster.begin(machine, cluster.request(f"check {machine.name} {cluster.loop.now}", "check"), done())


async def _check_stores(ledger: Ledger, stores: Stores) -> None:
    """Required stores are there and can be read, and removed ones are gone.

    A store that nobody was told of may lack its objects until a collector withdraws it: see `_check_leftovers`.
    """
    listed = await visible(stores)
    moment = ledger.moment()
    for store, content in ledger.contents.items():
        if store in listed:
            if ledger.must_be(store, moment, moment):
                await _check_whole(stores, listed[store], content.name)
            if not ledger.may_be(store, moment) and not ledger.left:
                raise Violation("what was removed is gone", content.name)
        elif ledger.must_be(store, moment, moment):
            raise Violation("what was acknowledged can be read", f"{content.name} is not listed")
        elif await _is_whole(stores, store):
            raise Violation("a list shows what was sent", f"{content.name} is there, and not listed")
    strange = listed.keys() - ledger.contents.keys()
    if strange and not ledger.left:  # replicas made stores of folders that clients were writing to
        raise Violation("a list shows what was sent", f"{sorted(strange)}")
    for store in strange:
        await _check_whole(stores, listed[store], store)


async def _check_lists(stores: Stores) -> None:
    """All lists show the same, each store once and as it is; tags may be left out until a collection."""
    for listed in (await _paged(stores), await _paged(stores, tag="v"), await _paged_by_types(stores)):
        if len({info.id for info in listed}) < len(listed):
            raise Violation("a list shows a store once", f"{[info.id for info in listed]}")
        for info in listed:
            try:
                there = await stores.get(info.id)
            except NotFound:
                raise Violation("a list shows stores that are there", info.id) from None
            if not set(info.tags) <= set(there.tags) or replace(info, tags=()) != replace(there, tags=()):
                raise Violation("a list shows stores as they are", f"{info} and not {there}")
    everything = {info.id: info for info in await _paged(stores)}
    if {info.id: info for info in await _paged_by_types(stores)} != {
        store: info for store, info in everything.items() if info.type is not None
    }:
        raise Violation("lists agree", f"{sorted(everything)}")


async def _paged(stores: Stores, *, tag: str | None = None, type: str | None = None) -> list[Store]:
    """All pages of a list, each of two stores."""
    found: list[Store] = []
    cursor: str | None = None
    while True:
        page = await stores.list(tag=tag, type=type, limit=2, cursor=cursor)
        found += page.items
        cursor = page.next
        if cursor is None:
            return found


async def _paged_by_types(stores: Stores) -> list[Store]:
    types = sorted({info.type for info in await _paged(stores) if info.type is not None})
    return [info for each in types for info in await _paged(stores, type=each)]


async def _is_whole(stores: Stores, store: str) -> bool:
    """True when a store is there with its objects: its writer was not too late for a collector."""
    try:
        await assert_whole(stores, await stores.get(store))
    except (NotFound, IntegrityError):
        return False
    return True


async def _check_whole(stores: Stores, info: Store, name: str) -> None:
    try:
        await assert_whole(stores, info)
    except (ProtosliceError, AssertionError) as error:
        raise Violation("a manifest names what is there", f"{name}: {error}") from error


async def _check_files(ledger: Ledger, stores: Stores) -> None:
    """A replica that has seen much reads the files that a fresh one reads."""
    moment = ledger.moment()
    for store, content in ledger.contents.items():
        try:
            opened = await stores.view(store)
            for path, data in content.files.items():
                if await read(opened.file(path)) != data:
                    raise Violation("what was acknowledged can be read", f"{content.name}: another {path}")
        except NotFound:
            if ledger.must_be(store, moment, moment):
                raise Violation("what was acknowledged can be read", f"{content.name}: not found") from None
        except ProtosliceError as error:
            if ledger.must_be(store, moment, moment):
                raise Violation("what was acknowledged can be read", f"{content.name}: {error}") from error


async def _check_tags(ledger: Ledger, stores: Stores) -> None:
    for name in TAGS:
        deed = ledger.deed(name, Deed("look", ledger.moment()))
        try:
            tag = await stores.tag(name)
            deed.told, deed.store, deed.etag = "done", tag.store, tag.etag
        except NotFound:
            deed.told = "missing"
        ledger.end(deed, sure=True)
        if not linearizable(ledger.tags[name]):
            raise Violation("each condition has one winner", f"{name}: " + "; ".join(map(str, ledger.tags[name])))


def _check_creators(ledger: Ledger) -> None:
    """One sender of equal content was told that it created the store, and one more after each removal."""
    for store, content in ledger.contents.items():
        creators = sum(entry.created for entry in ledger.sent if entry.store == store)
        removals = sum(entry.store == store for entry in [*ledger.removed, *ledger.damaged])
        if creators > 1 + removals:
            raise Violation("each condition has one winner", f"{content.name} was created {creators} times")


async def _collect(cluster: Cluster, fresh: Machine, grace: float, lifetime: float) -> None:
    """Collect until nothing changes, as time passes."""
    before: list[str] = []
    for _ in range(ROUNDS):
        await asyncio.sleep(lifetime + grace + 2 * cluster.skew + 1)
        await _at(cluster, fresh, lambda stores: stores.collect_garbage(grace_seconds=grace))
        keys = await keys_in(cluster.truth)
        if keys == before:
            return
        before = keys
    raise Violation("a collection leaves nothing to collect", f"after {ROUNDS} rounds something still changes")


async def _check_pieces(cluster: Cluster, stores: Stores) -> None:
    """Stores whose tables of pieces are there are found by each piece that has an entry."""
    if not cluster.conditional_delete:
        return  # a collector may have hit what came to the place of an old entry meanwhile
    for info in (await visible(stores)).values():
        table = [key for key in await keys_in(cluster.truth, f"derived/{info.id}") if key.endswith(TABLE)]
        pieces = (await stores.pieces(info.id, limit=100, cursor=None)).items if table else ()
        expected = {digest.hex() for digest in sampled((bytes.fromhex(each.sha256), each.size) for each in pieces)}
        entries = [key.split("/") for key in await keys_in(cluster.truth, "indexes/piece")]
        if missing := expected - {digest for _, _, digest, place in entries if _store_at(place) == info.id}:
            raise Violation("pieces are found in any store", f"{info.id} lacks the entries of {sorted(missing)}")


async def _check_leftovers(cluster: Cluster, ledger: Ledger) -> None:
    """ReachableObjects objects are those read when everything is read; all others are leftovers."""
    if any(ledger.may_be_damaged(store) for store in ledger.contents):
        return  # damaged stores are not read whole, so nobody knows their needed objects
    cluster.touched.clear()
    reader = await cluster.start(len(cluster.machines))

    tags: set[str] = set()

    async def read_all(stores: Stores) -> None:
        listed = await visible(stores)
        for info in listed.values():
            await _check_whole(stores, info, info.id)
        for name in TAGS:
            try:
                store = (await stores.tag(name)).store
            except NotFound:
                continue
            tags.add(f"indexes/tag/{store}/{name}")
            if store not in listed:
                raise Violation("a tag points at a store", f"{name} points at {store}")
            if name not in listed[store].tags or name not in (await stores.get(store)).tags:
                raise Violation("a store is shown with its tags", f"{name} is missing")

    await _at(cluster, reader, read_all)
    found = await keys_in(cluster.truth)
    listed = [await cluster.truth.stat(ObjectKey(key)) for key in found]
    empty = {item.key.text for item in listed if not item.size}
    left = _unaccounted(found, cluster.touched, tags, await _named(cluster, found), empty)
    # Marks are told by their size among records; parts of uploads may have that size too.
    left += [item.key.text for item in listed if item.key.segments[0] != "objects" and is_removal_mark(item)]
    if not cluster.conditional_delete:  # marks stay: something may come to their places any time
        left = [key for key in left if not key.startswith("stores/")]
    if left:
        raise Violation("nothing but garbage is left over", ", ".join(left))


async def _named(cluster: Cluster, found: list[str]) -> dict[str, set[str]]:
    """Attempts that entries of the indexes name, by the keys of the entries."""
    named: dict[str, set[str]] = {}
    for key in [key for key in found if key.startswith(("indexes/time/", "indexes/file/"))]:
        size = (await cluster.truth.stat(ObjectKey(key))).size
        named[key] = {*ATTEMPT.findall((await cluster.truth.get_range(ObjectKey(key), 0, size)).decode())}
    return named


def _store_at(entry: str) -> str:
    """The store of an entry or a mark in an index by time or type."""
    return entry.rpartition("/")[2].partition("-")[2][:64]


def _unaccounted(
    found: list[str], read: set[str], tags: set[str], named: dict[str, set[str]], empty: set[str]
) -> list[str]:
    """Keys that nothing needs, given those `read`, tag entries, attempts `named` by entries, `empty` ones."""
    stores = {key.rpartition("/")[2] for key in read if key.startswith("stores/")} & {key[7:] for key in found}
    contents = {key for key in found if {key, f"{key}.sums"} & read}
    attempts = {key.split("/")[1] for key in contents if key.startswith("objects/")}
    # All that a store names may lie in the attempts of others, and its own claim then stands for it alone.
    own = {
        each
        for key, some in named.items()
        if key.startswith("indexes/time/") and _store_at(key) in stores
        for each in some
    }

    def is_needed(key: str) -> bool:
        folder, _, rest = key.partition("/")
        last = key.rpartition("/")[2]
        if folder == "objects" and (last == "claim" or last.startswith("of-")):
            return rest.split("/")[0] in attempts | own and (last == "claim" or last[3:].split("-")[1] in stores)
        if key.startswith(("indexes/time/", "indexes/type/")):
            return _store_at(key) in stores
        if key.startswith("indexes/name/"):
            return key.rpartition("-")[2] in stores
        if key.startswith("indexes/file/"):
            return named[key] <= attempts
        if key.startswith("indexes/piece/"):
            return _store_at(key) in stores
        if key.startswith("derived/"):
            return key.split("/")[1] in stores
        if key.startswith("indexes/tag/"):
            return key in tags
        # Nothing of an empty object is read, but its sums if they are an object.
        return key in contents or (key in empty and key.split("/")[1] in attempts | own)

    entries = [key for key in found if key.startswith("indexes/time/") and not key.endswith("+")]
    twice = [key for key in entries if [*map(_store_at, entries)].count(_store_at(key)) > 1]
    return sorted(key for key in found if not is_needed(key)) + twice
