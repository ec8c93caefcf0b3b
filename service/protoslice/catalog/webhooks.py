"""Webhooks: where each space sends its events."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from typing import Final

from protoslice.catalog.audit import record
from protoslice.catalog.database import SECOND, Database, Row, Transaction, check_unchanged
from protoslice.errors import LimitExceeded, NotFound

MOST_HOOKS: Final = 16
"""Webhooks of a space, each of which costs every change of the space one write more."""
_COLUMNS: Final = "id, space, name, url, events, created, secret"


@dataclass(frozen=True, slots=True)
class Webhook:
    """Webhook of a space. Each POST is signed with its secret."""

    id: str
    space: str
    name: str
    url: str
    events: tuple[str, ...]
    """Events that it is sent; empty for all."""
    created: float
    secret: bytes = field(repr=False)

    def wants(self, event: str) -> bool:
        """Return True for an event of its space that goes to the webhook."""
        return not self.events or event in self.events

    @property
    def secret_text(self) -> str:
        """The secret in the form of Standard Webhooks."""
        return "whsec_" + b64encode(self.secret).decode()


class WebhookRecords:
    """Webhooks of all spaces by name."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[Webhook]:
        """Return the webhooks of all spaces."""
        return await self._database.read(
            lambda tx: [_webhook(row) for row in tx.all(f"SELECT {_COLUMNS} FROM webhooks")], background=True
        )

    async def of(self, space: str) -> list[Webhook]:
        """Return the webhooks of a space, by name."""
        sql = f"SELECT {_COLUMNS} FROM webhooks WHERE space = :space ORDER BY name"
        return await self._database.read(lambda tx: [_webhook(row) for row in tx.all(sql, space=space)])

    async def get(self, space: str, name: str) -> Webhook:
        """Return a webhook; raise `NotFound` if the space has none of that name."""
        sql = f"SELECT {_COLUMNS} FROM webhooks WHERE space = :space AND name = :name"
        row = await self._database.read(lambda tx: tx.first(sql, space=space, name=name))
        if row is None:
            raise NotFound(f"Unknown webhook {name[:80]!r} in this space")
        return _webhook(row)

    async def put(
        self, hook: Webhook, *, if_match: bytes | None = None, if_none_match: bool = False
    ) -> tuple[Webhook, bool]:
        """Create or replace a webhook and return it with the id that it had, and True if it is new.

        Raise `LimitExceeded` if the space has too many, and `Changed` unless the webhook has the secret `if_match`,
        which is another one after each change, or there is none for `if_none_match`.
        """
        sql = "SELECT secret FROM webhooks WHERE space = :space AND name = :name"

        def work(tx: Transaction) -> Row | None:
            tx.all("SELECT one FROM meta FOR UPDATE")  # one webhook at a time: there may be none to lock
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
        assert row is not None  # RETURNING gives the row that was inserted or updated
        return _webhook(row), row[0] == hook.id

    async def remove(self, hook: Webhook, *, if_match: bytes | None = None) -> None:
        """Remove a webhook; no error if it is gone. Raise `Changed` unless it has the secret `if_match`, if given."""

        def work(tx: Transaction) -> None:
            row = tx.first("DELETE FROM webhooks WHERE id = :id RETURNING secret", id=hook.id)
            check_unchanged(f"Webhook {hook.name!r}", row and bytes(row[0]), if_match)
            if row is not None:
                record(tx, hook.space, "webhook.removed", hook.name, {})

        await self._database.write(work)


def _webhook(row: Row) -> Webhook:
    id, space, name, url, events, created, secret = row
    return Webhook(id, space, name, url, tuple(events.split()), created / SECOND, bytes(secret))
