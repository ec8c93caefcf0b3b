"""Letters of webhooks: an event for each webhook that wants it, written in the transaction of the change."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from protoslice.catalog.audit import record
from protoslice.catalog.database import SECOND, Database, Row, Transaction

_WEEK: Final = 7 * 86_400 * SECOND
_ERROR_CHARACTERS: Final = 200
_TAKEN: Final = 32
"""Letters that a replica takes at a time: so many are delivered, or have failed, before others may take them."""


@dataclass(frozen=True, slots=True)
class Letter:
    """One event on its way to one webhook."""

    hook: str
    """Id of the webhook."""
    id: str
    event: Mapping[str, Any]
    """The CloudEvent that is sent; empty if its row is damaged."""
    written: float
    due: float
    """Time of the next attempt, in seconds since the epoch; until then one replica has the letter."""
    attempts: int = 0
    error: str = ""
    """Reason of the last failure; empty before the first attempt."""

    def failed(self, error: str, due: float) -> Letter:
        """Return a copy after one more attempt in vain."""
        return replace(self, attempts=self.attempts + 1, error=error[:_ERROR_CHARACTERS], due=due)

    @property
    def values(self) -> dict[str, Any]:
        """Values of the columns."""
        body = {name: value for name, value in asdict(self).items() if name not in {"hook", "id", "due"}}
        return {"hook": self.hook, "id": self.id, "due": int(self.due * SECOND), "body": json.dumps(body)}

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the letter in a row; one that is damaged has no event."""
        hook, id, due, body = row
        try:
            letter = cls(hook=hook, id=id, due=due / SECOND, **json.loads(body))
        except (ValueError, TypeError, RecursionError):
            letter = cls(hook, id, {}, due / SECOND, due / SECOND)
        types = (letter.event, dict), (letter.written, float | int), (letter.attempts, int), (letter.error, str)
        if letter.event and all(isinstance(value, wanted) for value, wanted in types):
            return letter
        return cls(hook, id, {}, due / SECOND, due / SECOND, error="The stored event is damaged and cannot be sent")


def new_letter_id() -> str:
    """Return an id that sorts behind those of older letters, to a microsecond or so."""
    return f"{time.time_ns() // 1000:014x}-{secrets.token_hex(8)}"


def cloud_event(id: str, space: str, event: str, subject: str, data: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the CloudEvent, version 1.0, in its structured form."""
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


def tell(tx: Transaction, space: str, event: str, subject: str, data: Mapping[str, str | None]) -> None:
    """Record a change in the audit, and write a letter, due now, to each webhook that wants the event."""
    record(tx, space, event, subject, data)
    hooks = tx.all("SELECT id, events FROM webhooks WHERE space = :space", space=space)
    wanted = [hook for hook, events in hooks if not events or event in events.split()]
    if not wanted:
        return
    id = new_letter_id()
    said, now = cloud_event(id, space, event, subject, data), tx.now / SECOND
    for hook in wanted:
        _insert(tx, Letter(hook, id, said, now, now))


class LetterTable:
    """Letters of all webhooks: those that are tried again, and the dead ones, which were given up."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, hook: str, *, dead: bool, limit: int, after: str = "") -> list[Letter]:
        """Return at most `limit` letters of a webhook behind `after`, oldest first."""
        sql = """
            SELECT hook, id, due, body FROM letters WHERE hook = :hook AND dead = :dead AND id > :after
            ORDER BY id LIMIT :limit"""
        values = {"hook": hook, "dead": int(dead), "after": after, "limit": limit}
        return await self._database.read(lambda tx: [Letter.of(row) for row in tx.all(sql, **values)])

    async def take(self, now: float, due: float) -> list[Letter]:
        """Take letters that wait no longer, oldest first, and postpone them, so that no other caller gets them.

        Damaged ones become dead.
        """
        waiting = "SELECT 1 FROM letters WHERE dead = 0 AND due <= :now LIMIT 1"
        values = {"now": int(now * SECOND)}
        if await self._database.read(lambda tx: tx.first(waiting, **values), background=True) is None:
            return []

        def work(tx: Transaction) -> list[Letter]:
            rows = tx.all(
                """
                UPDATE letters SET due = :due WHERE (hook, id) IN (
                    SELECT hook, id FROM letters WHERE dead = 0 AND due <= :now ORDER BY due LIMIT :most
                    FOR UPDATE SKIP LOCKED
                ) RETURNING hook, id, due, body""",
                **values,
                due=int(due * SECOND),
                most=_TAKEN,
            )
            letters = [Letter.of(row) for row in sorted(rows, key=lambda row: str(row[1]))]
            tx.many(
                "UPDATE letters SET dead = 1, due = :due, body = :body WHERE hook = :hook AND id = :id",
                [letter.values for letter in letters if not letter.event],
            )
            return [letter for letter in letters if letter.event]

        return await self._database.write(work, background=True)

    async def change(self, held: Letter, letter: Letter) -> None:
        """Replace a letter, unless another replica has taken it since `held` was taken."""
        sql = """
            UPDATE letters SET due = :due, body = :body
            WHERE hook = :hook AND id = :id AND dead = 0 AND due = :seen"""
        seen = held.values["due"]
        await self._database.write(lambda tx: tx.run(sql, **letter.values, seen=seen), background=True)

    async def give_up(self, letter: Letter, *, most: int) -> None:
        """Make a letter a dead one, and delete the oldest dead ones of its webhook beyond `most`."""
        sql = "UPDATE letters SET dead = 1, due = :due, body = :body WHERE hook = :hook AND id = :id AND dead = 0"
        await self._database.write(lambda tx: tx.run(sql, **letter.values), background=True)
        await self._trim(letter.hook, dead=True, most=most)

    async def revive(self, hook: str, now: float) -> int:
        """Make all dead letters of a webhook due, unless they are damaged; return how many there are."""

        def work(tx: Transaction) -> int:
            rows = tx.all("SELECT hook, id, due, body FROM letters WHERE hook = :hook AND dead = 1", hook=hook)
            letters = [letter for letter in map(Letter.of, rows) if letter.event]
            for letter in letters:
                tx.run(
                    "UPDATE letters SET dead = 0, due = :due, body = :body WHERE hook = :hook AND id = :id",
                    **replace(letter, due=now, attempts=0).values,
                )
            return len(letters)

        return await self._database.write(work)

    async def drop(self, letter: Letter) -> None:
        """Delete a letter; no error if it is gone."""
        sql = "DELETE FROM letters WHERE hook = :hook AND id = :id"
        await self._database.write(lambda tx: tx.run(sql, hook=letter.hook, id=letter.id), background=True)

    async def trim(self, hook: str, most: int) -> int:
        """Delete the oldest letters of a webhook that wait, beyond `most`; return how many there were."""
        return await self._trim(hook, dead=False, most=most)

    async def purge(self) -> None:
        """Delete letters that have been due for a week: no replica delivers any."""
        sql = """
            DELETE FROM letters WHERE (hook, id) IN (
                SELECT hook, id FROM letters WHERE dead = 0 AND due < :before ORDER BY due LIMIT :limit
            ) AND due < :before"""
        async for _ in self._database.write_in_batches(
            lambda tx, limit: tx.run(sql, before=tx.now - _WEEK, limit=limit)
        ):
            pass

    async def _trim(self, hook: str, *, dead: bool, most: int) -> int:
        """Delete the oldest letters, dead or not, beyond `most`; return how many there were."""
        kind = {"hook": hook, "dead": int(dead)}

        def work(tx: Transaction, limit: int) -> int:
            last = "SELECT id FROM letters WHERE hook = :hook AND dead = :dead ORDER BY id DESC LIMIT 1 OFFSET :most"
            oldest = tx.first(last, **kind, most=most)
            if oldest is None:
                return 0
            these = "FROM letters WHERE hook = :hook AND dead = :dead"
            sql = f"DELETE {these} AND id IN (SELECT id {these} AND id <= :oldest ORDER BY id LIMIT :limit)"
            return tx.run(sql, **kind, oldest=oldest[0], limit=limit)

        return sum([count async for count in self._database.write_in_batches(work)])


def _insert(tx: Transaction, letter: Letter) -> None:
    tx.run(
        """
        INSERT INTO letters (hook, id, dead, due, body)
        SELECT id, :id, 0, :due, :body FROM webhooks WHERE id = :hook FOR SHARE""",
        **letter.values,
    )
