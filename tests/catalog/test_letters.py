"""Letters of webhooks: written with their change, taken by one replica at a time."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from protoslice.catalog import Database, Transaction
from protoslice.catalog.database import ACTOR, Actor
from protoslice.catalog.letters import LetterTable, tell
from protoslice.catalog.spaces import SpaceTable
from protoslice.catalog.webhooks import Webhook, WebhookRecords

LATER = 1e10


@pytest.fixture
async def hook(database: Database) -> Webhook:
    """Return a webhook for the event `tag.set`."""
    hook = Webhook("h", "team", "ci", "https://hooks.example", ("tag.set",), 0.0, b"secret")
    await WebhookRecords(database).put(hook)
    return hook


def _tell(tx: Transaction, event: str = "tag.set", space: str = "team") -> None:
    tell(tx, space, event, "subject", {"a": "b"})


async def test_tell_writes_to_webhooks_of_the_space_that_want_the_event(database: Database, hook: Webhook) -> None:
    for event, space in (("tag.set", "team"), ("tag.set", "elsewhere"), ("tag.removed", "team")):
        await database.write(partial(_tell, event=event, space=space))
    (letter,) = await LetterTable(database).page(hook.id, dead=False, limit=9)
    assert (letter.event["type"], letter.event["source"]) == ("protoslice.tag.set", "/spaces/team")
    assert letter.due == pytest.approx(time.time(), abs=60)


@pytest.mark.usefixtures("hook")
async def test_tell_records_who_changed_what(database: Database) -> None:
    for space in ("team", "elsewhere"):
        await SpaceTable(database).create(space)
    ACTOR.set(Actor("1", "ann"))
    await database.write(_tell)
    await database.write(partial(_tell, event="tag.removed", space="elsewhere"))
    rows = await database.read(
        lambda tx: tx.all("SELECT who, space, what, subject, detail, change FROM audit WHERE who = 'ann'")
    )
    assert [row[:5] for row in rows] == [
        ("ann", "team", "tag.set", "subject", '{"a":"b"}'),
        ("ann", "elsewhere", "tag.removed", "subject", '{"a":"b"}'),
    ]
    changes = await database.read(lambda tx: tx.all("SELECT id FROM changes"))
    assert {bytes(row[5]) for row in rows} <= {bytes(id) for (id,) in changes}


async def test_letter_of_a_change_that_is_rolled_back_is_never_written(database: Database, hook: Webhook) -> None:
    def failing(tx: Transaction) -> None:
        _tell(tx)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await database.write(failing)
    assert await LetterTable(database).page(hook.id, dead=False, limit=9) == []


@pytest.mark.usefixtures("hook")
async def test_take_gives_a_letter_to_one_replica_at_a_time(database: Database, replica: Database) -> None:
    table = LetterTable(database)
    for _number in range(20):
        await database.write(_tell)
    taken = await asyncio.gather(*(LetterTable(each).take(LATER, LATER + 1) for each in (database, replica)))
    assert len({letter.id for letters in taken for letter in letters}) == sum(map(len, taken)) == 20
    assert await table.take(LATER, LATER + 1) == []
    again = await table.take(LATER + 2, LATER + 3)
    assert len(again) == 20
    await table.change(taken[0][0] if taken[0] else taken[1][0], again[0].failed("late", 0.0))
    assert await table.take(LATER, LATER + 1) == [], "a replica whose lease had ended changed a letter"


async def test_dead_letters_are_bounded_and_revived(database: Database, hook: Webhook) -> None:
    table = LetterTable(database)
    for _number in range(4):
        await database.write(_tell)
    for letter in await table.take(LATER, LATER + 1):
        await table.give_up(letter.failed("status 410", LATER), most=3)
    dead = await table.page(hook.id, dead=True, limit=9)
    assert [letter.error for letter in dead] == ["status 410"] * 3
    assert await table.page(hook.id, dead=True, limit=9, after=dead[0].id) == dead[1:]
    assert await table.take(LATER + 2, LATER + 3) == []
    assert await table.revive(hook.id, LATER) == 3
    assert [letter.attempts for letter in await table.take(LATER, LATER + 1)] == [0] * 3
    assert await table.trim(hook.id, 1) == 2
    assert [letter.id for letter in await table.page(hook.id, dead=False, limit=9)] == [dead[-1].id]


async def test_letters_go_with_their_webhook_and_none_comes_later(database: Database, hook: Webhook) -> None:
    table = LetterTable(database)
    await database.write(_tell)
    (letter,) = await table.take(LATER, LATER + 1)
    await WebhookRecords(database).remove(hook)
    await database.write(_tell)
    await table.give_up(letter, most=1)
    assert await database.read(lambda tx: tx.all("SELECT 1 FROM letters")) == []


@pytest.mark.parametrize(
    "body",
    [
        "{",
        "[]",
        "{}",
        '{"event": {"type": "x"}, "written": 1, "hook": "h"}',
        '{"event": {"type": "x"}, "written": 1, "attempts": "1"}',
        '{"event": [1], "written": 1}',
        "[" * 100_000,
    ],
    ids=["cut", "list", "empty", "extra", "attempts", "event", "deep"],
)
async def test_a_damaged_letter_becomes_dead_and_stops_no_other(database: Database, hook: Webhook, body: str) -> None:
    await database.write(_tell)
    await database.write(
        lambda tx: tx.run("INSERT INTO letters (hook, id, dead, due, body) VALUES ('h', '0', 0, 1, :body)", body=body)
    )
    table = LetterTable(database)
    (taken,) = await table.take(LATER, LATER + 1)
    assert taken.event["type"] == "protoslice.tag.set"
    (dead,) = await table.page(hook.id, dead=True, limit=9)
    assert (dead.id, dead.event, "damaged" in dead.error) == ("0", {}, True)
    assert await table.revive(hook.id, LATER) == 0
