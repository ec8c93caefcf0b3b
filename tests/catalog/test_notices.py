"""The audit: its records are filtered and paged on each engine, and purged.

Deliveries to webhooks: they are written with their change, and taken by one replica at a time.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest

from protoslice.catalog.audit import AuditQuery, AuditRow, AuditTable, Place, purge_audit, record
from protoslice.catalog.spaces import SpaceTable
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable, emit
from protoslice.database import Database, Transaction, snapshots
from protoslice.database.transactions import ACTOR, AUDITED, NOBODY, UNAUDITED, Actor, Work

DAY = 86_400_000_000


def _insert(tx: Transaction, rows: list[dict[str, Any]]) -> None:
    sql = """
        INSERT INTO audit (at, change, n, space, who, what, subject, detail)
        VALUES (:at, :change, :n, :space, :who, :what, :subject, '{}')"""
    tx.many(sql, [{"change": b"c", "n": n, **row} for n, row in enumerate(rows)])


async def _pages(table: AuditTable, query: AuditQuery, limit: int) -> list[AuditRow]:
    found, after = list[AuditRow](), None
    for _ in range(500):
        rows, after = await table.page(query, limit=limit, after=after)
        found += rows
        if after is None:
            return found
    raise AssertionError("the list does not end")


@pytest.mark.parametrize("walked", [5000, 3])
async def test_changes_are_filtered_newest_first(
    database: Database, walked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("protoslice.catalog.audit._WALKED", walked)
    chosen = random.Random(1)
    rows: list[dict[str, Any]] = [
        {"at": chosen.randrange(20), "who": chosen.choice("ab"), "what": chosen.choice(("x.y", "z")),
         "subject": chosen.choice(("s", "t")), "space": chosen.choice(("team", "other"))}
        for _ in range(80)
    ]  # fmt: skip
    await database.write(partial(_insert, rows=rows))
    options = product((None, "a"), (None, "x.y"), (None, "s", "none"), (None, 5), (None, 12))
    for number, (who, what, subject, since, until) in enumerate(options):
        query = AuditQuery(who=who, what=what, subject=subject, since=since, until=until)
        found = await _pages(AuditTable(database, "team"), query, 1 + number % 7)
        expected = [
            (row["at"], row["who"], row["what"], row["subject"])
            for row in sorted(rows, key=lambda row: row["at"], reverse=True)
            if row["space"] == "team" and who in {None, row["who"]} and what in {None, row["what"]}
            and subject in {None, row["subject"]} and (since or 0) <= row["at"] < (until or 99)
        ]  # fmt: skip
        assert sorted((each.at, each.who.name, each.what, each.subject) for each in found) == sorted(expected)
        places: list[Place] = [(each.at, each.change, each.n) for each in found]
        assert places == sorted(places, reverse=True)


async def test_old_changes_are_deleted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.database.transactions.BATCH", 4)
    now = await database.read(lambda tx: tx.now)
    old = {"who": "", "what": "w", "subject": "s", "space": "team"}
    ages = [9, 9, 9, 9, 9, 8, 1, 7, 0]
    await database.write(partial(_insert, rows=[old | {"at": now - age * DAY - DAY // 2} for age in ages]))
    await purge_audit(database, 0, 0)
    rows, _ = await AuditTable(database, "team").page(AuditQuery(), limit=99)
    assert len(rows) == len(ages), "0 days keep all"
    await purge_audit(database, 5 * 86_400, 0)
    rows, _ = await AuditTable(database, "team").page(AuditQuery(), limit=99)
    assert [(now - row.at) // DAY for row in rows] == [0, 1]


async def test_a_space_keeps_its_newest_changes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.database.transactions.BATCH", 4)
    now = await database.read(lambda tx: tx.now)
    for space, count in (("full", 20), ("other", 3), ("*", 7)):
        made = [{"who": "", "what": "w", "subject": str(n), "space": space, "at": now + n} for n in range(count)]
        await database.write(partial(_insert, rows=made))
    await purge_audit(database, 0, 5)
    for space, kept in (("full", range(19, 14, -1)), ("other", range(2, -1, -1)), ("*", range(6, 1, -1))):
        rows, _ = await AuditTable(database, space).page(AuditQuery(), limit=99)
        assert [int(row.subject) for row in rows] == list(kept)


async def test_change_that_is_rolled_back_is_not_recorded(database: Database) -> None:
    def failing(tx: Transaction) -> None:
        record(tx, "team", "what", "subject", {})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(failing)
    assert await SpaceTable(database).create("team")
    assert not await SpaceTable(database).create("team")
    everywhere, _ = await AuditTable(database, "*").page(AuditQuery(), limit=9)
    assert [(row.what, row.subject) for row in everywhere] == [("space.created", "team")]
    assert (await AuditTable(database, "team").page(AuditQuery(), limit=9))[0] == []


def _load(tx: Transaction) -> None:
    tx.load("spaces", ("name", "created"), [("new", 1)])


UNRECORDED: dict[str, Work[object]] = {
    "run": lambda tx: tx.run("INSERT INTO spaces (name, created) VALUES ('new', 1)"),
    "run with a conflict": lambda tx: tx.run(
        "INSERT INTO spaces (name, created) VALUES ('old', 1) ON CONFLICT (name) DO UPDATE SET created = 2"
    ),
    "update": lambda tx: tx.run("UPDATE spaces SET created = 2 WHERE name = 'old'"),
    "delete": lambda tx: tx.run("DELETE FROM spaces WHERE name = 'old'"),
    "returning": lambda tx: tx.first("DELETE FROM spaces WHERE name = 'old' RETURNING name"),
    "many": lambda tx: tx.many("INSERT INTO spaces (name, created) VALUES (:name, 1)", [{"name": "new"}]),
    "load": _load,
}


@pytest.mark.parametrize("kind", UNRECORDED)
async def test_request_that_records_nothing_is_rolled_back(database: Database, kind: str) -> None:
    def names(tx: Transaction) -> list[Any]:
        return tx.all("SELECT name, created FROM spaces WHERE name IN ('old', 'new')")

    def recorded(tx: Transaction) -> None:
        record(tx, "default", "what", "subject", {})
        UNRECORDED[kind](tx)

    await database.write(lambda tx: tx.run("INSERT INTO spaces (name, created) VALUES ('old', 1)"))
    ACTOR.set(NOBODY)
    with pytest.raises(RuntimeError, match="changed spaces and recorded nothing"):
        await database.write(UNRECORDED[kind])
    assert await database.read(names) == [("old", 1)]
    await database.write(recorded)
    assert await database.read(names) != [("old", 1)]


async def test_request_that_changes_no_rows_records_nothing(database: Database) -> None:
    ACTOR.set(NOBODY)
    await database.write(lambda tx: tx.run("DELETE FROM spaces WHERE name = 'none'"))
    await database.write(lambda tx: tx.all("SELECT 1 FROM spaces FOR UPDATE"))
    await database.write(lambda tx: tx.run("DELETE FROM holds"))


def test_every_table_is_audited_or_not() -> None:
    assert {table for table, _ in snapshots.tables()} | {"changes", "holds", "processes"} == AUDITED | UNAUDITED
    assert not AUDITED & UNAUDITED


LATER = 1e10


@pytest.fixture
async def hook(database: Database) -> Webhook:
    """Return a webhook for the event `tag.set`."""
    hook = Webhook("h", "team", "ci", "https://hooks.example", ("tag.set",), 0.0, b"secret")
    await WebhookTable(database).put(hook)
    return hook


def _emit(tx: Transaction, event: str = "tag.set", space: str = "team") -> None:
    emit(tx, space, event, "subject", {"a": "b"})


async def test_emit_writes_to_webhooks_of_the_space_that_want_the_event(database: Database, hook: Webhook) -> None:
    for event, space in (("tag.set", "team"), ("tag.set", "elsewhere"), ("tag.removed", "team")):
        await database.write(partial(_emit, event=event, space=space))
    (delivery,) = await DeliveryTable(database).page(hook.id, dead=False, limit=9)
    event = json.loads(delivery.event)
    assert (event["type"], event["source"]) == ("protoslice.tag.set", "/spaces/team")
    assert delivery.due == delivery.written == pytest.approx(time.time() * 1e6, abs=60e6)


@pytest.mark.usefixtures("hook")
async def test_emit_records_who_changed_what(database: Database) -> None:
    for space in ("team", "elsewhere"):
        await SpaceTable(database).create(space)
    ACTOR.set(Actor("1", "ann"))
    await database.write(_emit)
    await database.write(partial(_emit, event="tag.removed", space="elsewhere"))
    rows = await database.read(
        lambda tx: tx.all("SELECT who, space, what, subject, detail, change FROM audit WHERE who = 'ann'")
    )
    assert [row[:5] for row in rows] == [
        ("ann", "team", "tag.set", "subject", '{"a":"b"}'),
        ("ann", "elsewhere", "tag.removed", "subject", '{"a":"b"}'),
    ]
    assert len({bytes(row[5]) for row in rows}) == 2


async def test_delivery_of_a_change_that_is_rolled_back_is_never_written(database: Database, hook: Webhook) -> None:
    def failing(tx: Transaction) -> None:
        _emit(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(failing)
    assert await DeliveryTable(database).page(hook.id, dead=False, limit=9) == []


@pytest.mark.usefixtures("hook")
async def test_take_gives_a_delivery_to_one_replica_at_a_time(database: Database, replica: Database) -> None:
    table = DeliveryTable(database)
    for _number in range(20):
        await database.write(_emit)
    taken = await asyncio.gather(*(DeliveryTable(each).take(LATER, LATER + 1) for each in (database, replica)))
    assert len({delivery.id for deliveries in taken for delivery in deliveries}) == sum(map(len, taken)) == 20
    assert await table.take(LATER, LATER + 1) == []
    again = await table.take(LATER + 2, LATER + 3)
    assert len(again) == 20
    await table.postpone(taken[0][0] if taken[0] else taken[1][0], "late", 0.0)
    assert await table.take(LATER, LATER + 1) == [], "a replica changed a delivery that another one had taken"


async def test_dead_deliveries_are_bounded_and_made_again(database: Database, hook: Webhook) -> None:
    table = DeliveryTable(database)
    for _number in range(4):
        await database.write(_emit)
    for delivery in await table.take(LATER, LATER + 1):
        await table.mark_dead(delivery, "status 410", most=3)
    dead = await table.page(hook.id, dead=True, limit=9)
    assert [delivery.error for delivery in dead] == ["status 410"] * 3
    assert await table.page(hook.id, dead=True, limit=9, after=dead[0].id) == dead[1:]
    assert await table.take(LATER + 2, LATER + 3) == []
    assert await table.redeliver(hook.id, LATER) == 3
    assert [delivery.attempts for delivery in await table.take(LATER, LATER + 1)] == [0] * 3
    assert await table.trim(hook.id, 1) == 2
    assert [delivery.id for delivery in await table.page(hook.id, dead=False, limit=9)] == [dead[-1].id]


async def test_deliveries_go_with_their_webhook_and_none_comes_later(database: Database, hook: Webhook) -> None:
    table = DeliveryTable(database)
    await database.write(_emit)
    (delivery,) = await table.take(LATER, LATER + 1)
    await WebhookTable(database).remove(hook)
    await database.write(_emit)
    await table.mark_dead(delivery, "", most=1)
    assert await database.read(lambda tx: tx.all("SELECT 1 FROM deliveries")) == []


async def test_failed_attempts_are_counted(database: Database, hook: Webhook) -> None:
    table = DeliveryTable(database)
    await database.write(_emit)
    (taken,) = await table.take(LATER, LATER + 1)
    await table.postpone(taken, "x" * 300, LATER + 9)
    (waiting,) = await table.page(hook.id, dead=False, limit=9)
    assert waiting == replace(taken, attempts=1, error="x" * 200, due=int((LATER + 9) * 1e6))
    assert await table.take(LATER + 8, LATER + 10) == []
    (again,) = await table.take(LATER + 9, LATER + 10)
    await table.mark_dead(again, "status 410", most=9)
    (dead,) = await table.page(hook.id, dead=True, limit=9)
    assert (dead.event, dead.written, dead.attempts, dead.error) == (taken.event, taken.written, 2, "status 410")
