"""Webhooks, to which spaces send their events, and deliveries of events, which are written together with a change."""

from __future__ import annotations

import json
import secrets
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from protoslice.catalog.audit import record
from protoslice.database.transactions import SECOND, Database, Row, Transaction, check_unchanged
from protoslice.errors import LimitExceeded, NotFound

MOST_HOOKS: Final = 16
"""Largest number of webhooks of a space; each webhook adds one write to every change in the space."""
_COLUMNS: Final = "id, space, name, url, events, created, secret"
_DELIVERY: Final = "hook, id, event, written, due, attempts, error"
_WEEK: Final = 7 * 86_400 * SECOND
_ERROR_CHARACTERS: Final = 200
_TAKEN: Final = 32
"""Largest number of deliveries that a replica takes at a time.

The replica must attempt all of them before they become due again for other replicas.
"""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook of a space; each request to it is signed with its secret."""

    id: str
    space: str
    name: str
    url: str
    events: tuple[str, ...]
    """Names of the events that are sent to the webhook; an empty tuple means all events."""
    created: float
    secret: bytes = field(repr=False)

    def wants(self, event: str) -> bool:
        """Return True if the webhook receives an event of its space."""
        return not self.events or event in self.events

    @property
    def secret_text(self) -> str:
        """The secret in the text form that Standard Webhooks defines."""
        return "whsec_" + b64encode(self.secret).decode()


class WebhookTable:
    """The webhooks of all spaces, by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Webhook]:
        """Return the webhooks of all spaces."""
        return await self._database.read(
            lambda tx: [_webhook(row) for row in tx.all(f"SELECT {_COLUMNS} FROM webhooks")], background=True
        )

    async def of(self, space: str) -> list[Webhook]:
        """Return the webhooks of a space, sorted by name."""
        sql = f"SELECT {_COLUMNS} FROM webhooks WHERE space = :space ORDER BY name"
        return await self._database.read(lambda tx: [_webhook(row) for row in tx.all(sql, space=space)])

    async def get(self, space: str, name: str) -> Webhook:
        """Return a webhook; raise `NotFound` if the space has no webhook of that name."""
        sql = f"SELECT {_COLUMNS} FROM webhooks WHERE space = :space AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=space, name=name))
        if row is None:
            raise NotFound(f"Unknown webhook {name[:80]!r} in this space")
        return _webhook(row)

    async def put(
        self, hook: Webhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook; return it, and True if it is new. A replaced webhook keeps its id.

        Raise `LimitExceeded` if the space has too many webhooks. Raise `Changed` if `if_match` is neither None nor the
        webhook's secret, which each change replaces. If `if_none_match` is True, raise `Changed` if the webhook exists.
        """
        sql = "SELECT secret FROM webhooks WHERE space = :space AND name = :name"

        def work(tx: Transaction) -> Row | None:
            tx.all("SELECT one FROM meta FOR UPDATE")  # a lock for all webhooks: a new webhook has no row to lock
            there = tx.first(sql, space=hook.space, name=hook.name)
            check_unchanged(f"Webhook {hook.name!r}", there and bytes(there[0]), if_match, if_none_match)
            others = "SELECT count(*) FROM webhooks WHERE space = :space AND name <> :name"
            if tx.all(others, space=hook.space, name=hook.name)[0][0] >= MOST_HOOKS:
                raise LimitExceeded(f"A space can have at most {MOST_HOOKS} webhooks: remove one")
            record(tx, hook.space, "webhook.set", hook.name, {"url": hook.url, "events": list(hook.events)})
            return tx.first(
                f"""
                INSERT INTO webhooks ({_COLUMNS})
                VALUES (:id, :space, :name, :url, :events, :created, :secret)
                ON CONFLICT (space, name) DO UPDATE SET
                    url = excluded.url, events = excluded.events, created = excluded.created, secret = excluded.secret
                RETURNING {_COLUMNS}""",
                id=hook.id,
                space=hook.space,
                name=hook.name,
                url=hook.url,
                events=" ".join(hook.events),
                created=int(hook.created * SECOND),
                secret=hook.secret,
            )

        row = await self._database.write(work)
        assert row is not None  # RETURNING yields the row that was inserted or updated
        return _webhook(row), row[0] == hook.id

    async def remove(self, hook: Webhook, *, if_match: bytes | None = None) -> None:
        """Remove a webhook; a webhook that is already removed is no error.

        Raise `Changed` if `if_match` is neither None nor the webhook's secret.
        """

        def work(tx: Transaction) -> None:
            row = tx.first("DELETE FROM webhooks WHERE id = :id RETURNING secret", id=hook.id)
            check_unchanged(f"Webhook {hook.name!r}", row and bytes(row[0]), if_match)
            if row is not None:
                record(tx, hook.space, "webhook.removed", hook.name, {})

        await self._database.write(work)


@dataclass(frozen=True, slots=True)
class Delivery:
    """One event for one webhook; times are in microseconds since the epoch."""

    hook: str
    """Id of the webhook."""
    id: str
    event: str
    """The CloudEvent as JSON, exactly as it is sent."""
    written: int
    due: int
    """Time of the next attempt; until then, the delivery belongs to the replica that took it."""
    attempts: int
    error: str
    """Reason of the last failure, or an empty text before the first failure."""


def emit(tx: Transaction, space: str, event: str, subject: str, data: Mapping[str, str | None]) -> None:
    """Record a change in the audit, and write a delivery, to be sent now, for each webhook that receives the event."""
    record(tx, space, event, subject, data)
    hooks = tx.all("SELECT id, events FROM webhooks WHERE space = :space", space=space)
    wanted = [hook for hook, events in hooks if not events or event in events.split()]
    if not wanted:
        return
    id = f"{time.time_ns() // 1000:014x}-{secrets.token_hex(8)}"  # sorts after ids that are a microsecond older
    text = json.dumps(_cloud_event(id, space, event, subject, data), separators=(",", ":"))
    for hook in wanted:
        tx.run(
            """
            INSERT INTO deliveries (hook, id, event, dead, written, due, attempts, error)
            SELECT id, :id, :event, 0, :now, :now, 0, '' FROM webhooks WHERE id = :hook FOR SHARE""",
            hook=hook, id=id, event=text, now=tx.now,
        )  # fmt: skip


def _cloud_event(id: str, space: str, event: str, subject: str, data: Mapping[str, str | None]) -> dict[str, object]:
    """Return a CloudEvent, version 1.0, in the structured JSON form."""
    return {
        "specversion": "1.0",
        "id": id,
        "source": f"/spaces/{space}",
        "type": f"protoslice.{event}",
        "subject": subject,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "datacontenttype": "application/json",
        "data": dict(data),
    }


class DeliveryTable:
    """The deliveries to all webhooks: they are either waiting, or dead, which means that they are no longer retried."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, hook: str, *, dead: bool, limit: int, after: str = "") -> list[Delivery]:
        """Return at most `limit` deliveries to a webhook, oldest first, from the first id above `after` on."""
        sql = f"""
            SELECT {_DELIVERY} FROM deliveries WHERE hook = :hook AND dead = :dead AND id > :after
            ORDER BY id LIMIT :limit"""
        values = {"hook": hook, "dead": int(dead), "after": after, "limit": limit}
        return await self._database.read(lambda tx: [Delivery(*row) for row in tx.all(sql, **values)])

    async def take(self, now: float, due: float) -> list[Delivery]:
        """Return due deliveries, oldest first, and postpone them to `due`; no other caller takes them until then.

        The times `now` and `due` are in seconds since the epoch.
        """
        waiting = "SELECT 1 FROM deliveries WHERE dead = 0 AND due <= :now LIMIT 1"
        values = {"now": int(now * SECOND)}
        if await self._database.read(lambda tx: tx.first(waiting, **values), background=True) is None:
            return []

        def work(tx: Transaction) -> list[Delivery]:
            rows = tx.all(
                f"""
                UPDATE deliveries SET due = :due WHERE (hook, id) IN (
                    SELECT hook, id FROM deliveries WHERE dead = 0 AND due <= :now ORDER BY due LIMIT :most
                    FOR UPDATE SKIP LOCKED
                ) RETURNING {_DELIVERY}""",
                **values,
                due=int(due * SECOND),
                most=_TAKEN,
            )
            return [Delivery(*row) for row in sorted(rows, key=lambda row: str(row[1]))]

        return await self._database.write(work, background=True)

    async def postpone(self, taken: Delivery, error: str, due: float) -> None:
        """Record a failed attempt and the time of the next one, unless another replica has since taken the delivery."""
        sql = """
            UPDATE deliveries SET due = :due, attempts = attempts + 1, error = :error
            WHERE hook = :hook AND id = :id AND dead = 0 AND due = :seen"""
        values = {"hook": taken.hook, "id": taken.id, "seen": taken.due, "error": error[:_ERROR_CHARACTERS]}
        await self._database.write(lambda tx: tx.run(sql, **values, due=int(due * SECOND)), background=True)

    async def mark_dead(self, delivery: Delivery, error: str, *, most: int) -> None:
        """Record the last failed attempt, and keep only the newest `most` dead deliveries to the webhook."""
        sql = """
            UPDATE deliveries SET dead = 1, attempts = attempts + 1, error = :error
            WHERE hook = :hook AND id = :id AND dead = 0"""
        values = {"hook": delivery.hook, "id": delivery.id, "error": error[:_ERROR_CHARACTERS]}
        await self._database.write(lambda tx: tx.run(sql, **values), background=True)
        await self._trim(delivery.hook, dead=True, most=most)

    async def redeliver(self, hook: str, now: float) -> int:
        """Make all dead deliveries to a webhook due again; return their number."""
        sql = "UPDATE deliveries SET dead = 0, due = :now, attempts = 0 WHERE hook = :hook AND dead = 1"
        return await self._database.write(lambda tx: tx.run(sql, hook=hook, now=int(now * SECOND)))

    async def delete(self, delivery: Delivery) -> None:
        """Delete a delivery; a delivery that is already deleted is no error."""
        sql = "DELETE FROM deliveries WHERE hook = :hook AND id = :id"
        await self._database.write(lambda tx: tx.run(sql, hook=delivery.hook, id=delivery.id), background=True)

    async def trim(self, hook: str, most: int) -> int:
        """Delete the waiting deliveries to a webhook except the newest `most`; return how many were deleted."""
        return await self._trim(hook, dead=False, most=most)

    async def purge(self) -> None:
        """Delete deliveries that have waited for a week, which happens only if no replica makes deliveries."""
        sql = """
            DELETE FROM deliveries WHERE (hook, id) IN (
                SELECT hook, id FROM deliveries WHERE dead = 0 AND due < :before ORDER BY due LIMIT :limit
            ) AND due < :before"""
        async for _ in self._database.write_in_batches(
            lambda tx, limit: tx.run(sql, before=tx.now - _WEEK, limit=limit)
        ):
            pass

    async def _trim(self, hook: str, *, dead: bool, most: int) -> int:
        """Delete the dead or the waiting deliveries except the newest `most`; return how many were deleted."""
        kind = {"hook": hook, "dead": int(dead)}

        def work(tx: Transaction, limit: int) -> int:
            last = "SELECT id FROM deliveries WHERE hook = :hook AND dead = :dead ORDER BY id DESC LIMIT 1 OFFSET :most"
            oldest = tx.first(last, **kind, most=most)
            if oldest is None:
                return 0
            these = "FROM deliveries WHERE hook = :hook AND dead = :dead"
            sql = f"DELETE {these} AND id IN (SELECT id {these} AND id <= :oldest ORDER BY id LIMIT :limit)"
            return tx.run(sql, **kind, oldest=oldest[0], limit=limit)

        return sum([count async for count in self._database.write_in_batches(work)])


def _webhook(row: Row) -> Webhook:
    id, space, name, url, events, created, secret = row
    return Webhook(id, space, name, url, tuple(events.split()), created / SECOND, bytes(secret))
