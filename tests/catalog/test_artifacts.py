"""OCI repositories: tags move and go with their manifests, blobs move by compare-and-set."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.support.rows import ACCOUNT, held, put_store

from protoslice.catalog import Database, open_database
from protoslice.catalog.artifacts import ArtifactTable, ManifestRow
from protoslice.catalog.kept_files import FileMoved, KeptFile
from protoslice.catalog.labels import OCI
from protoslice.catalog.letters import LetterTable
from protoslice.catalog.repositories import NamedStore, NamesOfStores, RepositoryTable
from protoslice.catalog.spaces import Account
from protoslice.catalog.webhooks import Webhook, WebhookRecords
from protoslice.errors import Conflict

Work = Callable[[ArtifactTable, ArtifactTable, Database], Awaitable[None]]


def _run(url: str, work: Work) -> None:
    """Run `work` with a repository as two replicas see it."""

    async def run() -> None:
        async with open_database(url, "memory://") as one, open_database(url, "memory://") as other:
            for store in ("s", "s1", "s2"):
                await put_store(one, store)
            await work(ArtifactTable(one, ACCOUNT, "lib/net"), ArtifactTable(other, ACCOUNT, "lib/net"), one)

    asyncio.run(run())


def _manifest(
    digest: str, store: str | None = None, *, subject: str | None = None, referrer: str | None = None
) -> ManifestRow:
    return ManifestRow(
        digest=digest, media_type="application/json", body=b"{}", store=store, subject=subject, referrer=referrer
    )


def test_tag_points_at_the_manifest_pushed_last(catalogue: str) -> None:
    async def work(one: ArtifactTable, other: ArtifactTable, database: Database) -> None:
        assert await one.manifest(tag="v1") is None
        assert await RepositoryTable(database, Account("team"), OCI).names("", limit=9, after=None) == ([], False), (
            "a look makes no repository"
        )
        await one.put_manifest(_manifest("d1", "s1"), ["v1", "v2"])
        await other.put_manifest(_manifest("d2"), ["v2"])
        assert (await held(database))[0] == 4
        for tag, digest in (("v1", "d1"), ("v2", "d2")):
            found = await one.manifest(tag=tag)
            assert found is not None
            assert found == await other.manifest(digest=digest)
            assert found.digest == digest
        assert (await one.known(["d1", "d2", "d3"])).keys() == {"d1", "d2"}
        assert await one.tags(1, "") == ["v1"]
        assert await one.tags(9, "v1") == ["v2"]
        assert await one.newest_tag() == "v2"
        await one.put_manifest(_manifest("d1", "s2"), [])
        assert (await held(database))[0] == 4
        assert await one.stores(9) == ["s2"]
        names = NamesOfStores(database, "team")
        assert await names.naming(["s1", "s2"], 9) == [NamedStore("s2", OCI, "lib/net", "v1", "tags")]
        assert await other.remove_tag("v1")
        assert not await other.remove_tag("v1")
        assert await names.naming(["s2"], 9) == [NamedStore("s2", OCI, "lib/net", "d1", "manifest")]
        found = await one.of_store("s")
        assert found is not None
        assert found.digest == "d1"

    _run(catalogue, work)


def test_removal_of_a_manifest_takes_its_tags_and_no_other(catalogue: str) -> None:
    async def work(one: ArtifactTable, other: ArtifactTable, database: Database) -> None:
        hook = Webhook("h", "team", "ci", "https://hooks.example", (), 0.0, b"secret")
        await WebhookRecords(database).put(hook)
        for _round in range(4):
            await one.put_manifest(_manifest("d1"), ["v1", "v2"])
            moved, gone = await asyncio.gather(one.put_manifest(_manifest("d2"), ["v1"]), other.remove_manifest("d1"))
            assert (moved, gone) == (None, True)
            found = await one.manifest(tag="v1")
            assert found is not None
            assert found.digest == "d2"
            assert await one.manifest(tag="v2") is None
        assert not await one.remove_manifest("d1")
        assert (await held(database))[0] == 2
        letters = await LetterTable(database).page("h", dead=False, limit=99)
        assert letters[-1].event["data"] in (
            {"repository": "lib/net", "tag": tag, "digest": digest} for tag, digest in (("v1", "d2"), ("v2", "d1"))
        )

    _run(catalogue, work)


def test_of_pushes_at_once_all_make_one_repository(catalogue: str) -> None:
    async def work(one: ArtifactTable, other: ArtifactTable, database: Database) -> None:
        await asyncio.gather(*((one, other)[n % 2].put_manifest(_manifest(f"d{n}"), ["v1"]) for n in range(8)))
        repositories = RepositoryTable(database, Account("team"), OCI)
        assert await repositories.names("", limit=9, after=None) == (["lib/net"], False)
        assert len(await one.known([f"d{n}" for n in range(8)])) == 8
        assert (await held(database))[0] == 16

    _run(catalogue, work)


def test_manifest_that_all_push_at_once_is_counted_once(catalogue: str) -> None:
    async def work(one: ArtifactTable, other: ArtifactTable, database: Database) -> None:
        before, rounds = (await held(database))[0], 20
        for round in range(rounds):
            pushes = ((one, other)[n % 2].put_manifest(_manifest(f"d{round}"), ["v1"]) for n in range(4))
            await asyncio.gather(*pushes)
        assert (await held(database))[0] - before == rounds * len(b"{}")

    _run(catalogue, work)


def test_blob_is_moved_by_who_saw_its_latest_place(catalogue: str) -> None:
    async def work(one: ArtifactTable, other: ArtifactTable, _: Database) -> None:
        wanted = KeptFile(size=0, wanted=True)
        done = await asyncio.gather(
            *(each.change_blob("b", wanted, None) for each in (one, other)), return_exceptions=True
        )
        assert [type(each) for each in done if each is not None] == [FileMoved]
        seen = await one.blob("b")
        assert seen is not None
        assert seen.wanted
        assert not seen.has_come
        places = [KeptFile(size=1, upload=f"u{n}") for n in range(8)]
        moves = [(one, other)[n % 2].change_blob("b", place, seen.version) for n, place in enumerate(places)]
        done = await asyncio.gather(*moves, return_exceptions=True)
        assert sum(isinstance(each, FileMoved) for each in done) == 7, done
        found = await one.blob("b")
        assert found is not None
        assert replace(found, version=b"") in places
        await one.put_blobs({"b": KeptFile(size=1, store="s", path="p"), "c": KeptFile(size=2, store="s", path="q")})
        with pytest.raises(FileMoved):
            await one.change_blob("b", places[0], found.version)
        assert await one.remove_blob("b")
        assert not await one.remove_blob("b")

    _run(catalogue, work)


def test_rows_of_a_store_that_was_removed_are_refused(catalogue: str) -> None:
    async def work(one: ArtifactTable, _: ArtifactTable, __: Database) -> None:
        for change in (
            one.put_manifest(_manifest("d", "none"), ["v"]),
            one.put_blobs({"b": KeptFile(size=1, store="none", path="p")}),
            one.change_blob("b", KeptFile(size=1, store="none", path="p"), None),
        ):
            with pytest.raises(Conflict, match="removed in the meantime"):
                await change
        assert (await one.known(["d"]), await one.blob("b"), await one.tags(9, "")) == ({}, None, [])

    _run(catalogue, work)


def test_referrers_are_paged_by_digest(catalogue: str) -> None:
    async def work(one: ArtifactTable, _: ArtifactTable, __: Database) -> None:
        for digest in ("d3", "d1", "d2"):
            await one.put_manifest(_manifest(digest, subject="s", referrer=f'"{digest}"'), [])
        await one.put_manifest(_manifest("d4", subject="other", referrer="{}"), [])
        assert await one.referrers("s", 2, "") == [("d1", 4), ("d2", 4)]
        assert await one.referrers("s", 2, "d2") == [("d3", 4)]
        assert await one.descriptors(["d3", "none", "d1"]) == ['"d3"', '"d1"']

    _run(catalogue, work)
