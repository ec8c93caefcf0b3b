"""Deliveries to webhooks: written with their change, taken by one replica at a time."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from functools import partial

import pytest

from protoslice.catalog.spaces import SpaceTable
from protoslice.catalog.webhooks import DeliveryTable, Webhook, WebhookTable, emit
from protoslice.database import Database, Transaction
from protoslice.database.transactions import ACTOR, Actor

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
