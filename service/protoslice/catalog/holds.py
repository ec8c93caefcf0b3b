"""Holds: while a backup or a check runs, no bytes are deleted, and no other one begins."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Final

from protoslice.database.transactions import SECOND, Database, Transaction
from protoslice.errors import Conflict, DatabaseUnavailable

HOLD_SECONDS: Final = 300.0
"""Seconds for which no bytes are deleted after a hold was renewed."""


class Hold:
    """Keeps bytes from being deleted while a backup is made, and other backups from beginning."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owner = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Hold:
        sql = "INSERT INTO holds (id, owner, expires) VALUES ('backup', :owner, :expires) ON CONFLICT DO NOTHING"

        def work(tx: Transaction) -> int:
            far = tx.now + int(2 * HOLD_SECONDS * SECOND)  # of a clock that was ahead
            tx.run("DELETE FROM holds WHERE expires < :now OR expires > :far", now=tx.now, far=far)
            return tx.run(sql, owner=self._owner, expires=_end(tx))

        if not await self._database.write(work, background=True):
            raise Conflict(
                f"Another backup or check is running: try again when it has ended, or after {HOLD_SECONDS / 60:.0f} "
                "minutes if it was killed"
            )
        self._renewing = asyncio.create_task(self._renew())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        sql = "DELETE FROM holds WHERE owner = :owner"
        await self._database.write(lambda tx: tx.run(sql, owner=self._owner), background=True)

    def check(self) -> None:
        """Raise if the hold is lost: bytes may have been deleted."""
        if self._renewing is not None and self._renewing.done():
            self._renewing.result()

    async def _renew(self) -> None:
        """Renew the hold for ever; raise `Conflict` if it has expired."""
        sql = "UPDATE holds SET expires = :expires WHERE owner = :owner AND expires > :now"
        while True:
            await asyncio.sleep(HOLD_SECONDS / 10)
            with suppress(DatabaseUnavailable):  # the next renewal may be in time
                if not await self._database.write(
                    lambda tx: tx.run(sql, expires=_end(tx), owner=self._owner, now=tx.now), background=True
                ):
                    raise Conflict("The backup was interrupted for too long, and data may be deleted: start it again")


def _end(tx: Transaction) -> int:
    return tx.now + int(HOLD_SECONDS * SECOND)
