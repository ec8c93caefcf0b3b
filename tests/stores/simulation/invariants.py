"""The invariants that must hold once all actions have ended and all garbage is collected."""

from __future__ import annotations

from typing import Any, Final

from tests.stores.simulation.clients import CONTENTS, SPACES, TAGS, Content, sent
from tests.stores.simulation.cluster import Cluster
from tests.stores.simulation.ledger import Ledger
from tests.stores.simulation.replica import Violation
from tests.support.stores import read, visible

from protoslice.catalog.marker import MARKER
from protoslice.catalog.spaces import SpaceTable
from protoslice.errors import IntegrityError, NotFound, ProtosliceError
from protoslice.stores import IngestRequest, Stores

_REFERRED: Final = " UNION ".join(
    f"SELECT space, object FROM {table}" for table in ("store_objects", "upload_objects", "derived")
)
_UNREFERRED: Final = f"SELECT * FROM objects WHERE (space, id) NOT IN ({_REFERRED} WHERE object IS NOT NULL)"
_EMPTY: Final = ("trash", "uploads", "upload_parts", "upload_objects", "stores WHERE deleted IS NOT NULL")
_HELD: Final = """
    SELECT (SELECT coalesce(sum(size), 0) FROM objects WHERE space = :space)
            + (SELECT coalesce(sum(held), 0) FROM stores WHERE space = :space),
        (SELECT count(*) FROM stores WHERE space = :space AND deleted IS NULL),
        (SELECT coalesce(sum(size), 0) FROM stores WHERE space = :space AND deleted IS NULL)"""
_TAGS_OF_NONE: Final = """
    SELECT name FROM names n WHERE repository = 0 AND NOT EXISTS (
        SELECT 1 FROM stores s WHERE s.space = n.space AND s.digest = n.store AND s.deleted IS NULL)"""


async def check(cluster: Cluster, ledger: Ledger, ids: dict[str, str]) -> None:
    """Raise `Violation` unless all invariants hold."""
    if cluster.violations:
        raise Violation(cluster.violations[0])
    await _check_garbage(cluster)
    replica = cluster.replica_at_peace()
    try:
        for space in SPACES:
            stores = replica.stores if space == "default" else replica.stores.of_space(space)
            await _check_stores(stores, space, ledger, ids)
            await _check_usage(cluster, space)
        await _check_tags(replica.stores, ledger)
        for content in cluster.random.sample(CONTENTS, 3):
            await _check_life(replica.stores, content)
        await _check_usage(cluster, "default")
    finally:
        await replica.stores.close()


async def _check_garbage(cluster: Cluster) -> None:
    """Raise `Violation` for bytes without a row, rows without bytes, and rows that nothing needs."""
    for table in _EMPTY:
        if rows := _all(cluster, f"SELECT * FROM {table}"):
            raise Violation(f"{table} still has {len(rows)} rows, such as {rows[0]}")
    if rows := _all(cluster, _UNREFERRED):
        raise Violation(f"nothing needs {len(rows)} objects, such as {rows[0]}")
    there = {key.text: len(found.data) for key, found in cluster.storage._objects.items() if key != MARKER}
    rows = _all(cluster, "SELECT key, size FROM objects")
    if orphans := there.keys() - {name for key, _ in rows for name in (key, f"{key}.sums")}:
        raise Violation(f"{len(orphans)} objects have no row, such as {sorted(orphans)[0]}")
    for key, size in rows:
        if key not in there:
            raise Violation(f"{key} is missing")
        if size is not None and size != there[key] + there.get(f"{key}.sums", 0):
            raise Violation(f"{key} has {there[key]} bytes, and its row says {size}")


async def _check_stores(stores: Stores, space: str, ledger: Ledger, ids: dict[str, str]) -> None:
    """Raise `Violation` unless stores are those that were sent, with their bytes, and lists show them."""
    listed = await visible(stores)
    for content in CONTENTS:
        store = ids[content.name]
        try:
            view = await stores.view(store)
            found = {path: await read(view.file(path)) for path in content.files}
        except NotFound:
            if ledger.must_exist(space, store):
                raise Violation(f"{content.name} in {space} is lost") from None
            if store in listed:
                raise Violation(f"{content.name} in {space} is listed, and is not there") from None
            continue
        except IntegrityError as error:
            raise Violation(f"{content.name} in {space} is damaged: {error}") from None
        if found != content.files:
            raise Violation(f"{content.name} in {space} has other bytes")
        if ledger.must_be_gone(space, store):
            raise Violation(f"{content.name} in {space} is there after it was removed")
        if listed.pop(store, None) is None:
            raise Violation(f"{content.name} in {space} is not listed")
    if listed:
        raise Violation(f"{[*listed]} in {space} are listed, but were never sent")


async def _check_life(stores: Stores, content: Content) -> None:
    """Raise `Violation` unless a store can be sent, removed and restored, regardless of its history."""
    try:
        store = await sent(stores, content, IngestRequest())
        await stores.put_tag("last", store)
        for again in range(2):
            await stores.delete(store)
            if again:
                await sent(stores, content, IngestRequest())
            await stores.restore(store)
            if "last" not in {tag.name for tag in (await stores.tags.page(1000))[0]}:
                raise Violation(f"{content.name} was not restored with its tag")
        if {path: await read((await stores.view(store)).file(path)) for path in content.files} != content.files:
            raise Violation(f"{content.name} has other bytes")
    except ProtosliceError as error:
        raise Violation(f"{content.name} cannot be sent, removed and restored: {error!r}") from error


async def _check_usage(cluster: Cluster, space: str) -> None:
    held = (await SpaceTable(cluster.catalogue).get(space)).held
    used = (held.stored_bytes, held.stores, held.logical_bytes)
    counted = _all(cluster, _HELD, space=space)[0]
    if used != counted:
        raise Violation(f"usage of {space} is {used}, and counted are {counted}")


async def _check_tags(stores: Stores, ledger: Ledger) -> None:
    tags = {tag.name: tag.store for tag in (await stores.tags.page(1000))[0]}
    for name in TAGS:
        if tags.get(name) not in ledger.stores_of("default", name):
            raise Violation(f"tag {name} is at {tags.get(name)}, not at {ledger.stores_of('default', name)}")
    if names := _all(stores.database._replica.cluster, _TAGS_OF_NONE):  # type: ignore[attr-defined]
        raise Violation(f"tag {names[0][0]} points at no store")


def _all(cluster: Cluster, sql: str, **values: Any) -> list[Any]:
    return cluster.catalogue.run(lambda tx: tx.all(sql, **values), "ROLLBACK")
