"""Metrics of a service as operators see them."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.test_sessions import JSON, OWN
from tests.support.asgi import ask
from tests.support.serve import open_app

from protoslice.database import Transaction
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope


async def value(app: Application, name: str, headers: dict[str, str] | None = None) -> float | None:
    """The value of a sample; None without it."""
    text = (await ask(app, "GET", "/metrics", b"", headers or {})).text
    found = re.findall(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    assert len(found) <= 1
    return float(found[0]) if found else None


async def test_credentials_that_are_not_valid_are_counted() -> None:
    async with closed_service() as app:
        assert app.services.initial_admin_token is not None
        admin = bearer(app.services.initial_admin_token.text)
        sample = 'protoslice_failed_logins_total{credential="%s"}'
        assert [await value(app, sample % each, admin) for each in ("token", "signature")] == [0, 0]
        wrong = bearer(f"psl_{'x' * 40}")
        assert (await ask(app, "GET", "/v1/stores", b"", {})).status == 401, "no login"
        right = bearer(await token_for(app, Scope.READ, space="default"))
        assert (await ask(app, "GET", "/v1/stores", b"", right)).status == 200
        assert [await value(app, sample % each, admin) for each in ("token", "signature")] == [0, 0]
        assert (await ask(app, "GET", "/v1/stores", b"", wrong)).status == 401
        assert (await ask(app, "POST", "/session", b'{"token": "wrong"}', JSON | OWN)).status == 401
        assert [await value(app, sample % each, admin) for each in ("token", "signature")] == [2, 0]
        body = json.dumps({"path": "/v1/stores/x/merge"}).encode()
        signed = await ask(app, "POST", "/v1/sign", body, admin | JSON)
        assert signed.status == 201
        target = json.loads(signed.body)["url"].partition("://")[2].partition("/")[2]
        other = target.replace("/x/", "/y/")
        assert (await ask(app, "GET", f"/{other}", b"", {})).status == 401
        assert [await value(app, sample % each, admin) for each in ("token", "signature")] == [2, 1]


async def test_connections_of_the_pools_are_shown(tmp_path: Path) -> None:
    async with open_app(storage=tmp_path.as_uri()) as app:
        database = app.services.database
        assert database is not None
        let_go, begun = threading.Event(), threading.Semaphore(0)

        def work(tx: Transaction) -> bool:
            begun.release()
            return let_go.wait(30)

        reads = [asyncio.create_task(database.read(work)) for _ in range(2)]
        for _ in reads:
            await asyncio.to_thread(begun.acquire)
        shown = (await ask(app, "GET", "/metrics", b"", {})).text  # one look: background work uses connections too
        states = dict(re.findall(r'^protoslice_database_connections\{state="(\w+)"\} (\S+)$', shown, re.MULTILINE))
        busy, free = float(states["busy"]), float(states["free"])
        let_go.set()
        assert await asyncio.gather(*reads) == [True, True]
        assert busy >= 2
        assert busy + free == sum(lane.connections for lane in database.lanes())
        assert await value(app, "protoslice_database_waiting") == 0


async def test_the_free_bytes_of_a_disk_are_shown_and_none_of_memory(tmp_path: Path) -> None:
    async with open_app(storage=tmp_path.as_uri(), space_watermark_bytes=0) as app:
        free = await value(app, "protoslice_storage_free_bytes")
        assert free is not None
        assert free > 0
    async with open_app() as app:
        assert await value(app, "protoslice_storage_free_bytes") is None
