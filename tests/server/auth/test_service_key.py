"""Key of the service: replicas agree on one, also when one of them dies while making it."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from tests.support.postgres import TestServer

from protoslice.catalog import open_database
from protoslice.database import Database, connect
from protoslice.errors import IntegrityError
from protoslice.server.auth.signatures import SigningKey


async def test_replicas_agree_on_one_key(catalogue: str) -> None:
    async with open_database(catalogue, "memory://") as one, open_database(catalogue, "memory://") as other:
        keys = await asyncio.gather(*(SigningKey(each).get() for each in (one, other) * 4))
        assert len(set(keys)) == 1
        assert len(keys[0]) == 32


async def test_key_of_a_replica_that_dies_before_its_commit_is_not_used(postgres: TestServer) -> None:
    url, lost = postgres.new_catalogue(), b"x" * 32

    async def work() -> None:
        dying, living = connect(url, "memory://"), connect(url, "memory://")
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE meta SET service_key = %s", (lost,))
            waiting = asyncio.create_task(SigningKey(living).get())
            await _until_blocked(dying)
            pid = connection.info.backend_pid
            await dying.write(lambda tx: tx.all("SELECT pg_terminate_backend(:pid)", pid=pid))
            key = await waiting
            connection.close()
        assert key != lost
        assert await dying.read(lambda tx: tx.first("SELECT service_key FROM meta")) == (key,)
        for each in (dying, living):
            await each.close()

    await asyncio.wait_for(work(), 60)


async def _until_blocked(database: Database) -> None:
    """Wait until a statement of another connection waits for a lock on a row of `meta`."""
    blocked = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE meta%'"
    while await database.read(lambda tx: tx.first(blocked)) is None:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("damaged", [b"", b"short"])
async def test_damaged_key_is_refused(catalogue: str, damaged: bytes) -> None:
    async with open_database(catalogue, "memory://") as database:
        await database.write(lambda tx: tx.run("UPDATE meta SET service_key = :key", key=damaged))
        with pytest.raises(IntegrityError, match="service key"):
            await SigningKey(database).get()
