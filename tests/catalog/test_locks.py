"""Each lock of a statement prevents a wrong result, shown with two transactions on real PostgreSQL connections.

Two concurrent transactions must leave the same result as when they run one after the other, in either order. Without
the lock, they leave another result, for at least one statement at which the first waits for the second.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from tests.support.postgres import TestServer
from tests.support.rows import ACCOUNT, SPACE, an_upload, history_of, own, put_store, reserved
from tests.support.stepping import NEVER, Actor, Unlocked

import protoslice.catalog
from protoslice.catalog import open_database
from protoslice.catalog.abandoned import purge_commits, purge_repositories
from protoslice.catalog.artifacts import ArtifactTable, StoredManifest
from protoslice.catalog.collector import CollectorTable
from protoslice.catalog.derived import DerivedTable
from protoslice.catalog.erasing import Eraser
from protoslice.catalog.histories import Commit, History, Ref
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.labels import HUB
from protoslice.catalog.mlflow import MlflowTable, folder_version
from protoslice.catalog.objects import OwnObject
from protoslice.catalog.repositories import RepositoryTable
from protoslice.catalog.schemas import SchemaTable
from protoslice.catalog.spaces import Quota, SpaceTable
from protoslice.catalog.stores import StoreTable
from protoslice.catalog.syntax import Digest
from protoslice.catalog.tags import TagTable
from protoslice.catalog.uploads import ObjectChanges, UploadTable, XorbRow
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable
from protoslice.database import Database
from protoslice.database.transactions import ACTOR, NOBODY

FOLDER: Final = Path(protoslice.catalog.__file__).parent
LOCK: Final = re.compile(r"\s+FOR (?:(?:NO KEY )?UPDATE|(?:KEY )?SHARE)(?: SKIP LOCKED)?\b")
MANIFEST: Final = StoredManifest(Digest.of(b"12345"), "m", b"12345")
HOOK: Final = Webhook("h", SPACE, "hook", "https://example.org", (), 0, b"secret")
UPLOAD: Final = an_upload("u")
FACTS: Final = (
    "SELECT digest, deleted IS NULL, tags, description FROM stores",
    "SELECT sum(stored_bytes), sum(stores), sum(logical_bytes), sum(entries) FROM usage",
    "SELECT kind, name, store, manifest FROM names",
    "SELECT name FROM repositories",
    "SELECT digest FROM manifests",
    "SELECT name, size FROM kept_files",
    "SELECT name FROM schemas",
    "SELECT name, quota_stores FROM spaces",
    "SELECT name, url FROM webhooks",
    """
    SELECT due IS NULL, unpublished IS NULL, EXISTS (SELECT 1 FROM derived d WHERE d.object = o.id),
        EXISTS (SELECT 1 FROM upload_objects u WHERE u.object = o.id) FROM objects o""",
    "SELECT id, state FROM uploads",
    "SELECT name FROM xorbs",
    "SELECT count(*) FROM trash",
    "SELECT dead FROM deliveries",
    "SELECT what, subject FROM audit",
)
"""The compared facts: everything except random ids and times."""

Act: TypeAlias = Callable[[Database], Awaitable[Any]]


@dataclass(frozen=True)
class Race:
    """Two transactions; the first executes the statement with the lock, or waits for a statement that has the lock."""

    prepare: Act
    first: Act
    second: Act


async def nothing(database: Database) -> None:
    """Prepare nothing."""


def both(prepare: Act, act: Act) -> Race:
    """Return a race of a transaction with another one of the same kind."""
    return Race(prepare, act, act)


async def a_space_of_one(database: Database) -> None:
    await SpaceTable(database).put(SPACE, Quota(stores=1))


async def an_empty_space(database: Database) -> None:
    await SpaceTable(database).create(SPACE)


def requesting(act: Act) -> Act:
    """Return a race's action that is a request."""

    async def request(database: Database) -> Any:
        ACTOR.set(NOBODY)
        return await act(database)

    return request


async def remove_space(database: Database) -> None:
    await SpaceTable(database).remove(SPACE, with_stores=False)


async def a_store(database: Database) -> None:
    await put_store(database, "old")


async def two_tagged_stores(database: Database) -> None:
    await put_store(database, "old", tags=["tag"])
    await put_store(database, "new")
    await database.write(lambda tx: tx.run("UPDATE names SET version = 'seen'"))


async def a_removed_store(database: Database) -> None:
    await put_store(database, "old", held=10)
    await StoreTable(database, ACCOUNT).remove("old")
    await database.write(lambda tx: tx.run("UPDATE stores SET deleted = 1 WHERE deleted IS NOT NULL"))


async def a_repository(database: Database) -> None:
    await RepositoryTable(database, ACCOUNT, HUB).create("a")


async def a_removed_repository(database: Database) -> None:
    await put_store(database, "old", of_commits=True)
    history = await history_of(database, "a")
    await history.move(await history.ref("heads", "main"), Commit(place="c", store="old"))
    await RepositoryTable(database, ACCOUNT, HUB).remove("a")


COMMIT: Final = Commit(place="c")


async def an_unreached_commit(database: Database) -> None:
    history = await history_of(database, "a")
    await history.move(Ref("heads", "old", Commit()), COMMIT)
    await history.remove("heads", "old")


async def purge_commits_of_a(database: Database) -> None:
    await purge_commits(database)


async def name_commit(database: Database) -> None:
    await (await history_of(database, "a")).create(Ref("heads", "side", COMMIT))


async def the_seventh_repository(database: Database) -> None:
    await a_repository(database)
    await database.write(lambda tx: tx.run("UPDATE repositories SET id = 7"))


async def set_ref(database: Database) -> None:
    await History(database, ACCOUNT, 7, "a").create(Ref("heads", "main", Commit()))


async def remove_repository(database: Database) -> bool:
    return await RepositoryTable(database, ACCOUNT, HUB).remove("a")


async def purge(database: Database) -> None:
    await purge_repositories(database)


def renaming(new: str) -> Act:
    return lambda database: RepositoryTable(database, ACCOUNT, HUB).rename("a", new)


async def deriving(database: Database) -> None:
    (object,) = await reserved(database, 1)
    (row,) = await database.read(lambda tx: tx.all("SELECT id FROM stores"))
    await DerivedTable(database, SPACE).put(row[0], "fact", None, own=own([object])[0])


def publishing(digest: str) -> Act:
    return lambda database: put_store(database, digest)


def artifacts(database: Database) -> ArtifactTable:
    return ArtifactTable(database, ACCOUNT, "image")


async def an_image(database: Database) -> None:
    await put_image(database)


async def an_empty_image(database: Database) -> None:
    await put_image(database)
    await artifacts(database).remove_manifest(MANIFEST.digest)


async def put_image(database: Database) -> None:
    await artifacts(database).put_manifest(MANIFEST, ["tag"])


async def remove_image(database: Database) -> None:
    await artifacts(database).remove_manifest(MANIFEST.digest)


async def remove_image_tag(database: Database) -> None:
    await artifacts(database).remove_tag("tag")


def putting_schema(name: str) -> Act:
    return lambda database: SchemaTable(database, SPACE).put(name, b"", {})


async def a_hook(database: Database) -> None:
    await put_store(database, "old")
    await WebhookTable(database).put(HOOK)


async def a_delivery(database: Database) -> None:
    await a_hook(database)
    await put_tag(database)


async def put_new_hook(database: Database) -> None:
    await WebhookTable(database).put(HOOK, if_none_match=True)


async def put_other_hook(database: Database) -> None:
    await WebhookTable(database).put(replace(HOOK, id="i", url="https://example.com"), if_none_match=True)


async def limit_seen_space(database: Database) -> None:
    await SpaceTable(database).change_limits(SPACE, {"quota_stores": 2}, if_match=(None, 1, None, None, 0, 0))


async def limit_space(database: Database) -> None:
    await SpaceTable(database).change_limits(SPACE, {"quota_stores": 3})


SEEN: Final[dict[str, str]] = {}
"""The versions of stores before a race."""


async def a_seen_store(database: Database) -> None:
    await put_store(database, "old")
    SEEN["old"] = await StoreTable(database, ACCOUNT).version("old") or ""


async def describe_seen_store(database: Database) -> None:
    await StoreTable(database, ACCOUNT).describe("old", "first", if_match=SEEN["old"])


async def describe_store(database: Database) -> None:
    await StoreTable(database, ACCOUNT).describe("old", "second")


async def put_tag(database: Database) -> None:
    await TagTable(database, ACCOUNT).put(["tag"], "old")


async def put_seen_tag(database: Database) -> None:
    await TagTable(database, ACCOUNT).put(["tag"], "old", if_match=b"seen".hex())


async def move_tag(database: Database) -> None:
    await TagTable(database, ACCOUNT).put(["tag"], "new")


async def remove_hook(database: Database) -> None:
    await WebhookTable(database).remove(HOOK)


async def take_deliveries(database: Database) -> int:
    return len(await DeliveryTable(database).take(4e9, 5e9))


def uploads(database: Database) -> UploadTable:
    return UploadTable(database, ACCOUNT)


async def a_session(database: Database) -> None:
    await uploads(database).create(UPLOAD, keep_seconds=1000)


async def an_expired_upload(database: Database) -> None:
    await uploads(database).create(UPLOAD, keep_seconds=-1000)


async def add_xorb(database: Database) -> bool:
    (object,) = await reserved(database, 1)
    return await uploads(database).add_xorb("u", "x", XorbRow(10, b""), own([object])[0])


async def end_session(database: Database) -> None:
    row = an_upload("u", state="gone")
    await uploads(database).put(row, kept_parts=0, keep_seconds=None, objects=ObjectChanges())


async def prolong(database: Database) -> None:
    await uploads(database).put(UPLOAD, kept_parts=0, keep_seconds=1000, objects=ObjectChanges())


async def expire_uploads(database: Database) -> None:
    await CollectorTable(database).expire_uploads()


async def a_free_object(database: Database) -> None:
    (object,) = await reserved(database, 1)
    await put_store(database, "old", own=own([object]))
    await StoreTable(database, ACCOUNT).remove("old")
    await CollectorTable(database).purge_stores(-1)


async def some_trash(database: Database) -> None:
    await a_free_object(database)
    await CollectorTable(database).drop_objects(-1)


async def take_trash(database: Database) -> int:
    return sum([len(rows) async for rows in CollectorTable(database).trash()])


async def purge_stores(database: Database) -> None:
    await CollectorTable(database).purge_stores(1000)


async def drop_objects(database: Database) -> None:
    await CollectorTable(database).drop_objects(1000)


async def remove_store(database: Database) -> None:
    await StoreTable(database, ACCOUNT).remove("old")


async def erase_rows(database: Database) -> None:
    await Eraser(database, SPACE).erase_rows("old")


async def a_hidden_store(database: Database) -> None:
    await reserved(database, 1)
    await database.write(lambda tx: tx.run("UPDATE objects SET id = 7"))
    await put_store(database, "old", own=[OwnObject(7, 10)], held=5)
    await StoreTable(database, ACCOUNT).remove("old")
    await database.write(lambda tx: tx.run("UPDATE stores SET deleted = 0"))


async def share_object(database: Database) -> None:
    await put_store(database, "new", shared=[7])


async def restore_store(database: Database) -> None:
    await StoreTable(database, ACCOUNT).restore("old")


def mlflow(database: Database) -> MlflowTable:
    return MlflowTable(database, ACCOUNT)


async def put_loose_file(database: Database) -> None:
    await mlflow(database).put("file", RepositoryFile(size=5, data=b"12345"))


async def a_loose_file_removed(database: Database) -> None:
    await put_loose_file(database)
    await mlflow(database).remove("file")


async def a_folder(database: Database) -> None:
    await put_store(database, "old")
    await put_store(database, "new")
    await mlflow(database).put("run/file", RepositoryFile(size=5, data=b"12345"))
    await database.write(lambda tx: tx.run("UPDATE kept_files SET version = 'one'"))


async def seal_old(database: Database) -> None:
    await mlflow(database).freeze("run", folder_version({"run/file": b"one"}), "old")


async def change_and_seal_new(database: Database) -> None:
    await mlflow(database).put("run/file", RepositoryFile(size=5, data=b"54321"))
    version = folder_version(await mlflow(database).versions("run"))
    await mlflow(database).freeze("run", version, "new")


RACES: Final = {
    "abandoned.purge_commits": Race(an_unreached_commit, name_commit, purge_commits_of_a),
    "abandoned.remove_stores": Race(a_removed_repository, purge, put_tag),
    "artifacts.ArtifactTable.put_manifest#1": both(an_empty_image, put_image),
    "artifacts.ArtifactTable.put_manifest#2": Race(an_image, put_image, remove_image),
    "artifacts.ArtifactTable.put_manifest#3": Race(an_image, put_image, remove_image_tag),
    "artifacts.ArtifactTable.remove_manifest#1": both(an_image, remove_image),
    "artifacts.ArtifactTable.remove_manifest#2": Race(an_image, remove_image, remove_image_tag),
    "audit.record": Race(an_empty_space, requesting(publishing("a")), remove_space),
    "audit.require_space": Race(an_empty_space, requesting(a_session), remove_space),
    "spaces.SpaceTable.remove": Race(an_empty_space, requesting(publishing("a")), remove_space),
    "collector.CollectorTable.trash": both(some_trash, take_trash),
    "collector._drop": both(a_free_object, drop_objects),
    "collector._purge": both(a_removed_store, purge_stores),
    "derived.DerivedTable.put": both(a_store, deriving),
    "mlflow.MlflowTable._lock": both(a_loose_file_removed, put_loose_file),
    "mlflow.MlflowTable.freeze": Race(a_folder, seal_old, change_and_seal_new),
    "erasing.Eraser._drop": Race(a_hidden_store, erase_rows, share_object),
    "erasing.Eraser._erase_rows": both(a_hidden_store, erase_rows),
    "webhooks.DeliveryTable.take": both(a_delivery, take_deliveries),
    "webhooks.emit": Race(a_hook, remove_hook, put_tag),
    "live_stores.lock_store": Race(a_store, put_tag, remove_store),
    "live_stores.lock_repository": Race(the_seventh_repository, set_ref, remove_repository),
    "repositories.RepositoryTable.rename": Race(a_repository, renaming("b"), renaming("c")),
    "schemas.SchemaTable.put": Race(nothing, putting_schema("a"), putting_schema("b")),
    "spaces.Usage.check": Race(a_space_of_one, publishing("a"), publishing("b")),
    "spaces._change": Race(a_space_of_one, limit_seen_space, limit_space),
    "stores.StoreTable.restore": both(a_removed_store, restore_store),
    "stores._version": Race(a_seen_store, describe_seen_store, describe_store),
    "tags._locked": Race(two_tagged_stores, put_seen_tag, move_tag),
    "uploads.UploadTable.add_xorb": Race(a_session, add_xorb, end_session),
    "uploads.expire_uploads": Race(an_expired_upload, prolong, expire_uploads),
    "webhooks.WebhookTable.put": Race(nothing, put_new_hook, put_other_hook),
}
"""The races by the function of the statement, with a number if a function has several statements."""


def test_every_lock_has_a_race() -> None:
    assert sorted(_locks()) == sorted(RACES)


@pytest.mark.parametrize("lock", RACES)
def test_a_lock_prevents_a_wrong_result(postgres: TestServer, lock: str) -> None:
    scene = Scene.of(postgres, RACES[lock])
    right = [scene.in_turn(order) for order in ((0, 1), (1, 0))]
    wrong = next((stop for stop, result in scene.at_once(lock) if result not in right), None)
    assert wrong is not None, "nothing goes wrong without this lock: remove it"
    assert scene.stopped_at(wrong, None) in right


async def remove_seen_space(database: Database) -> None:
    await SpaceTable(database).remove(SPACE, with_stores=True, if_match=(None, None, None, None, 0, 0))


async def limit_seen_usage(database: Database) -> None:
    seen = (None, None, None, None, 0, 0)
    await SpaceTable(database).change_limits(SPACE, {"quota_stores": 9}, if_match=seen)


def test_a_space_that_is_seen_empty_is_not_removed_with_a_store(postgres: TestServer) -> None:
    scene = Scene.of(postgres, Race(an_empty_space, requesting(publishing("a")), remove_seen_space))
    for stop, (done, facts) in scene.at_once(None):
        removed = done[1] is None  # else the name of the error
        assert removed is ("'space.removed'" in str(facts))
        assert removed is not ("'store.created'" in str(facts)), (stop, done, facts)


def test_limits_of_a_space_are_not_set_by_a_tag_of_other_usage(postgres: TestServer) -> None:
    scene = Scene.of(postgres, Race(an_empty_space, publishing("a"), limit_seen_usage))
    assert "'space.changed'" not in str(scene.in_turn((0, 1)))
    assert "'space.changed'" in str(scene.in_turn((1, 0)))


@dataclass(frozen=True, slots=True)
class Scene:
    """A race and a database that is prepared for it. Each run of the race uses a copy of the database."""

    server: TestServer
    race: Race
    prepared: str

    @classmethod
    def of(cls, server: TestServer, race: Race) -> Scene:
        """Prepare the database of a race."""
        url = server.new_catalogue()

        async def prepare() -> None:
            async with open_database(url, "memory://") as database:
                await race.prepare(database)
                # The steps before this one are not compared.
                await database.write(lambda tx: tx.run("DELETE FROM audit"))

        asyncio.run(prepare())
        return cls(server, race, url)

    def in_turn(self, order: tuple[int, int]) -> Any:
        """Return the result of the two transactions when they run one after the other."""
        url = self.server.new_copy(self.prepared)
        results: list[Any] = [None, None]
        for number in order:
            actor = Actor(url, NEVER, (self.race.first, self.race.second)[number])
            actor.start()
            results[number] = actor.join()
        return self._outcome(url, results)

    def at_once(self, without: str | None) -> Iterator[tuple[int, Any]]:
        """Yield `stopped_at` for each statement of the first transaction."""
        for stop in range(30):
            if (result := self.stopped_at(stop, without)) is None:
                assert stop, "the first transaction has no statement"
                return
            yield stop, result
        raise AssertionError("the first transaction has more statements than are tried")

    def stopped_at(self, stop: int, without: str | None) -> Any:
        """Return the result if the first pauses before a statement until the second has ended or waits for a lock.

        Return None if the first has fewer statements.
        """
        url = self.server.new_copy(self.prepared)
        first, second = (
            Actor(url, at, act, _dropping(without)) for at, act in ((stop, self.race.first), (NEVER, self.race.second))
        )
        first.start()
        paused = first.steps.paused.is_set()
        second.start()
        first.finish()
        result = self._outcome(url, [first.join(), second.join()])
        return result if paused else None

    def _outcome(self, url: str, results: Sequence[Any]) -> Any:
        async def read() -> list[list[str]]:
            async with open_database(url, "memory://") as database:
                return await database.read(lambda tx: [sorted(str(tuple(row)) for row in tx.all(sql)) for sql in FACTS])

        said = [type(each).__name__ if isinstance(each, Exception) else each for each in results]
        facts = asyncio.run(read())
        self.server.drop(url)
        return [each if isinstance(each, bool | int | str) else None for each in said], facts


def _dropping(lock: str | None) -> Unlocked:
    """Return a function that removes a lock from its statement."""
    seen: list[str] = []

    def change(sql: str) -> str:
        if lock is None or LOCK.search(sql) is None:
            return sql
        place, _, number = lock.partition("#")
        if _caller() != place:
            return sql
        seen.append(sql)
        texts = list(dict.fromkeys(seen))
        return LOCK.sub("", sql) if not number or texts.index(sql) == int(number) - 1 else sql

    return change


def _caller() -> str:
    """Return the function of the catalogue that executes a statement."""
    frame = sys._getframe()
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.parent == FOLDER and path.stem not in {"database", "postgres"}:
            return f"{path.stem}.{frame.f_code.co_qualname.partition('.<locals>')[0]}"
        frame = frame.f_back  # type: ignore[assignment]
    raise AssertionError("a statement from nowhere")


def _locks() -> Iterator[str]:
    """Yield each lock's place in the source."""
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem not in {"sqlite", "postgres"}:
            for name, count in _locks_in(ast.parse(path.read_text()), ()).items():
                yield from (
                    [f"{path.stem}.{name}"]
                    if count == 1
                    else [f"{path.stem}.{name}#{number}" for number in range(1, count + 1)]
                )


def _locks_in(node: ast.AST, outer: tuple[str, ...]) -> dict[str, int]:
    """Return the number of locks for each top-level function or class that has locks."""
    found: dict[str, int] = {}
    for child in ast.iter_child_nodes(node):
        inner = outer
        if isinstance(child, ast.ClassDef) or (
            isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not _in_function(node, outer)
        ):
            inner = (*outer, child.name)
        if isinstance(child, ast.Constant) and isinstance(child.value, str) and LOCK.search(child.value):
            name = ".".join(outer)
            found[name] = found.get(name, 0) + len(LOCK.findall(child.value))
        for name, count in _locks_in(child, inner).items():
            found[name] = found.get(name, 0) + count
    return found


def _in_function(node: ast.AST, outer: tuple[str, ...]) -> bool:
    """Return True if a function is nested in another one, whose name then identifies its statements."""
    return bool(outer) and not isinstance(node, ast.ClassDef)
