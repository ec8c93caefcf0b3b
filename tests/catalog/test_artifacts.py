"""OCI repositories and MLflow's artifacts in the catalogue.

OCI tags move, and are removed with their manifests; blobs move by compare-and-set. Artifacts of MLflow are listed level
by level, and replaced by several writers; they are rows until a store is made of them.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, held, put_store

from protoslice.catalog import mlflow
from protoslice.catalog.artifacts import ArtifactTable, StoredManifest
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.labels import OCI
from protoslice.catalog.mlflow import ChangedFolders, MlflowTable, NoArtifact, folder_version
from protoslice.catalog.repositories import NamedStore, NamesOfStores, RepositoryTable
from protoslice.catalog.spaces import Usage
from protoslice.catalog.syntax import BlobUnknown, Digest, ManifestUnknown
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable
from protoslice.database import Database
from protoslice.database.transactions import ConcurrentChange
from protoslice.errors import Conflict

NAME = "lib/net"


def _digest(number: int) -> Digest:
    return Digest(f"sha256:{number:064x}")


D1, D2, D3, D4 = map(_digest, range(1, 5))


def _manifest(digest: Digest, store: str | None = None) -> StoredManifest:
    return StoredManifest(digest, "application/json", b"{}", store)


@pytest.fixture
async def one(database: Database) -> ArtifactTable:
    """Return a repository in a space with three stores."""
    for store in ("s", "s1", "s2"):
        await put_store(database, store)
    return ArtifactTable(database, ACCOUNT, NAME)


@pytest.fixture
def other(replica: Database) -> ArtifactTable:
    """Return the repository as another replica sees it."""
    return ArtifactTable(replica, ACCOUNT, NAME)


async def test_tag_points_at_the_manifest_pushed_last(
    one: ArtifactTable, other: ArtifactTable, database: Database
) -> None:
    with pytest.raises(ManifestUnknown):
        await one.tagged("v1")
    repositories = RepositoryTable(database, ACCOUNT, OCI)
    assert await repositories.names("", limit=9, after=None) == ([], False), "a look makes no repository"
    await one.put_manifest(_manifest(D1, "s1"), ["v1", "v2"])
    await other.put_manifest(_manifest(D2), ["v2"])
    assert (await held(database))[0] == 4
    for tag, digest in (("v1", D1), ("v2", D2)):
        found = await one.tagged(tag)
        assert found == await other.manifest(digest)
        assert found.digest == digest
    assert await one.known([D1, D2, D3]) == {D1: 2, D2: 2}
    assert await one.tags(limit=1, after=None) == (["v1"], True)
    assert await one.tags(limit=9, after="v1") == (["v2"], False)
    assert await one.newest_tag() == "v2"
    await one.put_manifest(_manifest(D1, "s2"))
    assert (await held(database))[0] == 4
    assert await one.stores(9) == ["s2"]
    names = NamesOfStores(database, "team")
    assert await names.naming(["s1", "s2"], 9) == [NamedStore("s2", OCI, "lib/net", "v1", "tags")]
    await other.remove_tag("v1")
    with pytest.raises(ManifestUnknown):
        await other.remove_tag("v1")
    assert await names.naming(["s2"], 9) == [NamedStore("s2", OCI, "lib/net", D1.text, "manifest")]
    of_store = await one.of_store("s")
    assert of_store is not None
    assert of_store.digest == D1


async def test_removal_of_a_manifest_takes_its_tags_and_no_other(
    one: ArtifactTable, other: ArtifactTable, database: Database
) -> None:
    hook = Webhook("h", "team", "ci", "https://hooks.example", (), 0.0, b"secret")
    await WebhookTable(database).put(hook)
    for _round in range(4):
        await one.put_manifest(_manifest(D1), ["v1", "v2"])
        await asyncio.gather(one.put_manifest(_manifest(D2), ["v1"]), other.remove_manifest(D1))
        assert (await one.tagged("v1")).digest == D2
        with pytest.raises(ManifestUnknown):
            await one.tagged("v2")
    with pytest.raises(ManifestUnknown):
        await one.remove_manifest(D1)
    assert (await held(database))[0] == 2
    deliveries = await DeliveryTable(database).page("h", dead=False, limit=99)
    assert json.loads(deliveries[-1].event)["data"] in (
        {"repository": "lib/net", "tag": tag, "digest": digest.text} for tag, digest in (("v1", D2), ("v2", D1))
    )


async def test_of_pushes_at_once_all_make_one_repository(
    one: ArtifactTable, other: ArtifactTable, database: Database
) -> None:
    digests = [_digest(number) for number in range(8)]
    await asyncio.gather(*((one, other)[n % 2].put_manifest(_manifest(each), ["v1"]) for n, each in enumerate(digests)))
    assert await RepositoryTable(database, ACCOUNT, OCI).names("", limit=9, after=None) == (["lib/net"], False)
    assert len(await one.known(digests)) == 8
    assert (await held(database))[0] == 16


async def test_manifest_that_all_push_at_once_is_counted_once(
    one: ArtifactTable, other: ArtifactTable, database: Database
) -> None:
    before, rounds = (await held(database))[0], 20
    for round in range(rounds):
        await asyncio.gather(
            *((one, other)[n % 2].put_manifest(_manifest(_digest(round)), ["v1"]) for n in range(4))
        )  # fmt: skip
    assert (await held(database))[0] - before == rounds * len(b"{}")


async def test_blob_is_moved_by_who_saw_its_latest_place(one: ArtifactTable, other: ArtifactTable) -> None:
    wanted = RepositoryFile(size=0, wanted=True)
    done = await asyncio.gather(*(each.change_blob(D1, wanted, None) for each in (one, other)), return_exceptions=True)
    assert [type(each) for each in done if each is not None] == [ConcurrentChange]
    seen = await one.find_blob(D1)
    assert seen is not None
    assert seen.wanted
    for refused in (one.blob(D1), one.remove_blob(D1)):
        with pytest.raises(BlobUnknown):
            await refused
    places = [RepositoryFile(size=1, upload=f"u{n}") for n in range(8)]
    moves = [(one, other)[n % 2].change_blob(D1, place, seen) for n, place in enumerate(places)]
    done = await asyncio.gather(*moves, return_exceptions=True)
    assert sum(isinstance(each, ConcurrentChange) for each in done) == 7, done
    found = await one.blob(D1)
    assert replace(found, version=b"") in places
    await one.put_blobs(
        {D1: RepositoryFile(size=1, store="s", path="p"), D2: RepositoryFile(size=2, store="s", path="q")}
    )
    with pytest.raises(ConcurrentChange):
        await one.change_blob(D1, places[0], found)
    await one.remove_blob(D1)
    with pytest.raises(BlobUnknown):
        await one.remove_blob(D1)


async def test_rows_of_a_store_that_was_removed_are_refused(one: ArtifactTable) -> None:
    for change in (
        one.put_manifest(_manifest(D1, "none"), ["v"]),
        one.put_blobs({D2: RepositoryFile(size=1, store="none", path="p")}),
        one.change_blob(D2, RepositoryFile(size=1, store="none", path="p"), None),
    ):
        with pytest.raises(Conflict, match="removed in the meantime"):
            await change
    assert (await one.known([D1]), await one.find_blob(D2)) == ({}, None)
    assert await one.tags(limit=9, after=None) == ([], False)


async def test_referrers_are_paged_by_digest(one: ArtifactTable) -> None:
    subject = _digest(9)
    for digest in (D3, D1, D2):
        await one.put_manifest(replace(_manifest(digest), subject=subject, referrer=f'"{digest.hex[-1]}"'))
    await one.put_manifest(replace(_manifest(D4), subject=_digest(8), referrer="{}"))
    assert await one.referrers(subject, limit=2, after=None) == [(D1, 3), (D2, 3)]
    assert await one.referrers(subject, limit=2, after=D2) == [(D3, 3)]
    assert await one.descriptors([D3, _digest(7), D1]) == [b'"3"', b'"1"']


FILE = RepositoryFile(size=3, data=b"abc")


async def _folders(table: MlflowTable, below: str, limit: int, after: str) -> list[str]:
    return [folder.path for folder in (await table.folders(below, limit=limit, after=after))[0]]


async def test_entries_show_one_level_whatever_the_page(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    table = MlflowTable(database, ACCOUNT)
    for path in ("a/b/1", "a/b/2", "a/b/3", "a/b.txt", "a/bb", "a/c/1", "a/c/2", "a/d", "x"):
        await table.put(path, FILE)
    await MlflowTable(database, Usage("elsewhere")).put("a/other", FILE)
    for page in (1, 2, 3, 100):
        monkeypatch.setattr(mlflow, "_PAGE", page)
        entries = await table.entries("a")
        assert entries == [("b", None), ("c", None), ("b.txt", 3), ("bb", 3), ("d", 3)], page
        assert await table.entries("") == [("a", None), ("x", 3)]
        assert await table.entries("a/d") == await table.entries("nothing") == []
        assert list((await table.files("a/b"))[0]) == ["1", "2", "3"]


async def test_bytes_in_rows_are_counted_whoever_writes(database: Database, replica: Database) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    writes = [tables[n % 2].put("r/a", RepositoryFile(size=n, data=b"x" * n)) for n in range(1, 17)]
    await asyncio.gather(*writes)
    (file,) = (await tables[0].files("r"))[0].values()
    assert await held(database) == (file.size, 0, 0)
    await put_store(database, "s")
    await tables[0].put("r/a", RepositoryFile(size=9, store="s", path="p"))
    assert (await held(database))[0] == 0
    await tables[0].remove("r")
    assert (await held(database))[0] == 0


async def test_bytes_of_files_in_no_folder_are_counted_whoever_writes(database: Database, replica: Database) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    for round in range(20):
        sizes = range(round, round + 6)
        await asyncio.gather(*(tables[n % 2].put(f"f{round}", RepositoryFile(size=n, data=b"x" * n)) for n in sizes))
    files = (await tables[0].files(""))[0]
    assert len(files) == 20
    assert await held(database) == (sum(file.size for file in files.values()), 0, 0)


@pytest.mark.parametrize(("top", "name"), [("", "artifacts"), ("run/artifacts/", "x"), ("run/", "x")])
async def test_of_a_file_and_what_would_lie_in_it_one_is_written(
    database: Database, replica: Database, top: str, name: str
) -> None:
    tables = [MlflowTable(database, ACCOUNT) for database in (database, replica)]
    for number in range(20):
        paths = [f"{top}{number}/{name}", f"{top}{number}/{name}/b/c"]
        done = await asyncio.gather(
            *(table.put(path, FILE) for table, path in zip(tables, paths, strict=True)),
            return_exceptions=True,
        )
        assert sorted(type(each).__name__ for each in done) == ["Conflict", "NoneType"]
    assert len((await tables[0].files(""))[0]) == 20


async def test_folder_is_removed_in_parts(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow, "_REMOVED", 2)
    table = MlflowTable(database, ACCOUNT)
    for path in ("r/a/1", "r/a/2", "r/b/1", "r/b/2", "r/c", "s/1", "t"):
        await table.put(path, FILE)
    await table.remove("r")
    assert await _folders(table, "", 9, "") == ["s"]
    await table.remove("t")
    assert (await held(database))[0] == 3


async def test_file_of_a_store_that_was_removed_is_refused(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    with pytest.raises(Conflict, match="removed in the meantime"):
        await table.put("r/a", RepositoryFile(size=1, store="none", path="p"))
    assert await table.entries("r") == []


async def test_folders_are_noted_until_they_are_settled(database: Database, replica: Database) -> None:
    table, changed = MlflowTable(database, ACCOUNT), ChangedFolders(replica)
    await table.put("r/a", FILE)
    (seen,) = await changed.quiet(0, 9)
    assert await changed.quiet(3600, 9) == []
    await table.put("r/b", FILE)
    await changed.settle(seen)
    (again,) = await changed.quiet(0, 9)
    assert again.changed > seen.changed, "a change that came meanwhile is not forgotten"
    await changed.settle(again)
    assert await changed.quiet(0, 9) == []
    await table.remove("r/a")
    assert len(await changed.quiet(0, 9)) == 1
    assert await _folders(table, "", 9, "") == ["r"]
    await table.remove("r")
    assert await _folders(table, "", 9, "") == []
    assert await changed.quiet(0, 9) == []
    with pytest.raises(NoArtifact):
        await table.remove("r")


async def test_folders_are_listed_below_another(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    for folder in ("1", "1/r", "1/s", "10", "2"):
        await table.put(f"{folder}/x", FILE)
    assert await _folders(table, "1", 2, "") == ["1", "1/r"]
    assert await _folders(table, "1", 9, "1/r") == ["1/s"]
    assert await _folders(table, "", 9, "1/s") == ["10", "2"]


async def test_stores_are_found_by_files_and_seals(database: Database) -> None:
    table = MlflowTable(database, ACCOUNT)
    for store in ("s1", "s2", "t0", "t1", "t2"):
        await put_store(database, store)
    await table.put("r/a/x", RepositoryFile(size=1, store="s1", path="x"))
    await table.put("r/a/y", RepositoryFile(size=1, store="s1", path="x"))
    await table.put("top", RepositoryFile(size=1, store="s2", path="top"))
    found = await NamesOfStores(database, "team").naming(["s1", "s2", "s3"], 9)
    held = [NamedStore("s1", "mlflow", "", "r/a", "file"), NamedStore("s2", "mlflow", "", "top", "file")]
    assert sorted(found, key=lambda each: each.store) == held
    assert await table.last_frozen("r") is None
    late = folder_version(await table.versions("r"))
    await table.put("r/a/x", FILE)
    version = folder_version(await table.versions("r"))
    for store in ("t1", "t2"):
        await table.freeze("r", version, store)
        assert await table.last_frozen("r") == (store, version)
    await table.freeze("r", late, "t0")
    assert await table.last_frozen("r") == ("t2", version), "a slow replica replaced what is known of a later version"
