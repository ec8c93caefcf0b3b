"""The audit: a record of each change and who made it, written in the same transaction as the change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from protoslice.database.transactions import SECOND, Actor, Database, Row, Transaction
from protoslice.errors import SpaceRemoved

EVERY_SPACE: Final = "*"
"""Name that stands for all spaces, in grants that are valid in all spaces and in audit entries about all spaces."""
_COLUMNS: Final = "at, change, n, who, who_id, what, subject, detail"
_TIMES: Final = {"since": ">=", "until": "<"}
_NEWEST: Final = "ORDER BY at DESC, change DESC, n DESC"
_WALKED: Final = 5000
"""Largest number of index rows that one page of the audit reads."""
Place: TypeAlias = tuple[int, bytes, int]
"""Position in the audit's order: the time of a row, the id of its transaction, and its number in the transaction."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A change: `who` did `what` to `subject`. The time `at` is in microseconds since the epoch."""

    at: int
    change: bytes
    """Id of the transaction, which all its rows share."""
    n: int
    who: Actor
    """Token or account that made the change; empty for the service itself, and for a service without authentication."""
    what: str
    subject: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """A filter for changes; `since` and `until` are in microseconds since the epoch."""

    subject: str | None = None
    who: str | None = None
    what: str | None = None
    since: int | None = None
    until: int | None = None


def record(tx: Transaction, space: str, what: str, subject: str, detail: Mapping[str, Any]) -> None:
    """Add a change to the audit; raise `SpaceRemoved` if a request changes a space that was removed.

    The row of the space is locked, so that no one can remove the space before the transaction ends.
    """
    values = ":now, :change, :n, :space, :who, :who_id, :what, :subject, :detail"
    row = (
        f"SELECT {values} FROM spaces WHERE name = :space AND removed IS NULL FOR KEY SHARE"
        if tx.of_request and space != EVERY_SPACE
        else f"VALUES ({values})"
    )
    recorded = tx.run(
        f"INSERT INTO audit (at, change, n, space, who, who_id, what, subject, detail) {row}",
        now=tx.now,
        change=tx.change,
        n=tx.recorded,
        space=space,
        who=tx.actor.name,
        who_id=tx.actor.id,
        what=what,
        subject=subject,
        detail=json.dumps(dict(detail), ensure_ascii=False, separators=(",", ":")),
    )
    if not recorded:
        raise _gone(space)
    tx.recorded += 1


def require_space(tx: Transaction, space: str) -> None:
    """Raise `SpaceRemoved` if a request changes a removed space; used for changes that are not audited."""
    if (
        tx.of_request
        and tx.first("SELECT 1 FROM spaces WHERE name = :space AND removed IS NULL FOR KEY SHARE", space=space) is None
    ):
        raise _gone(space)


def _gone(space: str) -> SpaceRemoved:
    return SpaceRemoved(f"The space {space!r} was removed")


class AuditTable:
    """The audited changes of one space."""

    def __init__(self, database: Database, space: str) -> None:
        self._database = database
        self._space = space

    async def page(
        self, query: AuditQuery, *, limit: int, after: Place | None = None
    ) -> tuple[list[AuditRow], Place | None]:
        """Return at most `limit` changes that follow the position `after`, newest first.

        Also return the position at which the next page begins, or None if all changes were examined.
        """
        given = [name for name in ("subject", "who", "what") if getattr(query, name) is not None]
        equal = [f"{name} = :{name}" for name in given]
        times = [f"at {sign} :{name}" for name, sign in _TIMES.items() if getattr(query, name) is not None]
        behind = [] if after is None else ["(at, change, n) < (:at, :change, :n)"]
        where = " AND ".join(["space = :space", *equal[:1], *times, *behind])
        walk = f"SELECT {_COLUMNS} FROM audit WHERE {where} {_NEWEST} LIMIT :walked"
        found = f"SELECT * FROM ({walk}) w WHERE {' AND '.join(equal) or '1 = 1'} {_NEWEST} LIMIT :limit"
        last = f"SELECT at, change, n FROM ({walk}) w {_NEWEST} LIMIT 1 OFFSET :walked - 1"
        at, change, n = after or (0, b"", 0)
        values = asdict(query) | {
            "space": self._space, "walked": max(_WALKED, limit) if len(equal) > 1 else limit, "limit": limit, "at": at,
            "change": change, "n": n,
        }  # fmt: skip

        def work(tx: Transaction) -> tuple[list[AuditRow], Place | None]:
            rows = [_row(row) for row in tx.planned(found, **values)]
            if len(rows) >= limit:
                return rows, (rows[-1].at, rows[-1].change, rows[-1].n)
            end = tx.first(last, **values)
            return rows, None if end is None else (end[0], bytes(end[1]), end[2])

        return await self._database.read(work)


async def purge_audit(database: Database, seconds: float, most: int) -> None:
    """Delete changes older than `seconds`; of each space, keep only the newest `most` changes. 0 means no limit."""
    after = 0

    def work(tx: Transaction, limit: int) -> int:
        sql = "SELECT number, at FROM audit WHERE number > :after ORDER BY number LIMIT :limit"
        rows = tx.all(sql, after=after, limit=limit)
        old = [number for number, at in rows if at < tx.now - int(seconds * SECOND)]
        tx.many("DELETE FROM audit WHERE number = :number", [{"number": number} for number in old])
        # The walk does not stop at rows with a time in the future: a wrong clock may have put them before older rows.
        return int(rows[-1][0]) if old or any(at > tx.now for _, at in rows) else 0

    if seconds:
        async for last in database.write_in_batches(work):
            after = last
    space: str | None = None
    while most and (space := await database.read(partial(_next_space, space), background=True)) is not None:
        await _keep_newest(database, space, most)


def _next_space(space: str | None, tx: Transaction) -> str | None:
    """Return the first space after `space` that has changes, with one look-up in the index."""
    where = "" if space is None else "WHERE space > :space"
    row = tx.first(f"SELECT space FROM audit {where} ORDER BY space LIMIT 1", space=space)
    return None if row is None else str(row[0])


async def _keep_newest(database: Database, space: str, most: int) -> None:
    sql = "SELECT at FROM audit WHERE space = :space ORDER BY at DESC LIMIT 1 OFFSET :most"
    oldest = await database.read(lambda tx: tx.first(sql, space=space, most=most), background=True)
    if oldest is None:
        return
    old = "SELECT number FROM audit WHERE space = :space AND at <= :at ORDER BY at LIMIT :limit"
    delete = f"DELETE FROM audit WHERE number IN ({old})"
    async for _ in database.write_in_batches(lambda tx, limit: tx.run(delete, space=space, at=oldest[0], limit=limit)):
        pass


def _row(row: Row) -> AuditRow:
    at, change, n, who, who_id, what, subject, detail = row
    return AuditRow(at, bytes(change), n, Actor(who_id, who), what, subject, json.loads(detail))
