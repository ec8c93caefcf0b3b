"""The processes that use a catalogue; each renews a row, so that no upgrade starts while other processes run."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from protoslice.build import build
from protoslice.concurrency.chores import keep_running
from protoslice.database.transactions import SECOND, Database, Outdated, Transaction
from protoslice.errors import Conflict, ProtosliceError

FIRST_SCHEMA: Final = 11
"""First schema in which processes have rows."""
SEEN_SECONDS: Final = 60
"""Seconds for which a process counts as running after the last renewal of its row."""
_RENEW_SECONDS: Final = 20
_KEPT_SECONDS: Final = 86_400
"""Seconds without a renewal after which a row is deleted, because its process must have been killed."""
_log = logging.getLogger(__name__)


@asynccontextmanager
async def registered(database: Database) -> AsyncIterator[None]:
    """Keep a row for this process while the context lasts.

    Raise `Outdated` if the schema has changed since the process opened the database.
    """
    database.process = uuid.uuid4().bytes
    await _renew(database)
    ended = asyncio.Event()
    renew = partial(_renew_until, ended, database)
    renewing = asyncio.create_task(keep_running("the heartbeat of this process in the database", renew))
    try:
        yield
    finally:
        ended.set()
        await renewing  # a running renewal must end before the deletion, or it would insert the row again
        with suppress(ProtosliceError):  # a remaining row is soon ignored, and later deleted by another process
            sql = "DELETE FROM processes WHERE id = :id"
            await database.write(lambda tx: tx.run(sql, id=database.process), background=True)


async def _renew_until(ended: asyncio.Event, database: Database) -> None:
    while True:
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), _RENEW_SECONDS)
            return
        try:
            await _renew(database)
        except Outdated as error:
            _log.error("%s", error)
        except ProtosliceError:  # the next renewal follows soon
            pass


async def _renew(database: Database) -> None:
    row = {
        "id": database.process,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "version": build(),
        "schema": database.schema,
        "secrets": database.process_secrets,
    }

    def work(tx: Transaction) -> None:
        if tx.run("UPDATE processes SET seen = :now WHERE id = :id", id=database.process, now=tx.now) == 0:
            tx.run("DELETE FROM processes WHERE seen < :before", before=tx.now - _KEPT_SECONDS * SECOND)
            names = ", ".join(row)
            marks = ", ".join(f":{name}" for name in row)
            tx.run(f"INSERT INTO processes ({names}, seen) VALUES ({marks}, :now)", **row, now=tx.now)

    await database.write(work, background=True)


async def settle_secrets(database: Database, own: Sequence[str]) -> None:
    """Record the fingerprints of the secrets with which this process signs (the first secret) and verifies (all).

    Raise `Conflict` if another process cannot verify the signatures of this process, or this process cannot verify
    those of the other process. Log other differences, which are normal during a rotation of secrets.
    """

    def work(tx: Transaction) -> list[tuple[str, list[str]]]:
        if database.dialect == "postgresql":  # of two processes that start at the same time, the second sees the first
            tx.run("LOCK TABLE processes IN SHARE ROW EXCLUSIVE MODE")
        tx.run("UPDATE processes SET secrets = :own WHERE id = :id", own=" ".join(own), id=database.process)
        others = [] if tx.is_alone else _others(tx, database.process)
        found = [(name, secrets.split()) for name, secrets in others if secrets is not None]
        refused = [name for name, secrets in found if own[0] not in secrets or secrets[0] not in own]
        if refused:
            raise Conflict(
                "PROTOSLICE_SIGNING_SECRET: the first secret of each process must be among the secrets of all others, "
                f"but this process and {'; '.join(refused)} differ. Use the same secrets everywhere. To replace "
                "a secret while processes run, first add the new one as the last line for all processes. Then make it "
                "the first line, and then remove the old one. A killed process may be counted for another minute"
            )
        return found

    for name, secrets in await database.write(work):
        if secrets != own:
            _log.warning("PROTOSLICE_SIGNING_SECRET differs from that of %s: give all processes the same secrets", name)
    database.process_secrets = " ".join(own)


def running(tx: Transaction, own: bytes) -> list[str]:
    """Return descriptions of the other processes that were active in the last minute."""
    return [name for name, _ in _others(tx, own)]


def _others(tx: Transaction, own: bytes) -> list[tuple[str, str | None]]:
    """Return descriptions of the other processes that were active lately, with fingerprints of their secrets."""
    rows = tx.all(
        "SELECT host, pid, version, seen, secrets FROM processes WHERE seen > :since AND id <> :own ORDER BY host, pid",
        since=tx.now - SEEN_SECONDS * SECOND,
        own=own,
    )
    return [
        (f"process {pid} on {host} (version {version}, seen {max(0, tx.now - seen) // SECOND} s ago)", secrets)
        for host, pid, version, seen, secrets in rows
    ]


def refuse_running(found: Sequence[str], what: str) -> None:
    """Raise `Conflict` if `found` names any processes; `what` is the action that they prevent."""
    if found:
        raise Conflict(
            f"Cannot {what} while other processes use the database: {'; '.join(found)}. Stop them and try again. A "
            "killed process may be counted for another minute"
        )
