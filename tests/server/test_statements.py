"""Warm range reads execute no statements in the catalogue."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from tests.support.serve import serve

from protoslice.database.sqlite import SqliteDatabase
from protoslice.database.transactions import Work
from protoslice.server.app import create_app
from protoslice.server.settings import Settings


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[SqliteDatabase, str]]:
    """Databases and functions of the transactions of this process, in which other tests' services may still run."""
    log = list[tuple[SqliteDatabase, str]]()
    for name in ("_read", "_write"):
        plain = getattr(SqliteDatabase, name)

        async def counted(self: SqliteDatabase, work: Work[Any], *, plain: Any = plain, **options: Any) -> Any:
            log.append((self, work.__qualname__))
            return await plain(self, work, **options)

        monkeypatch.setattr(SqliteDatabase, name, counted)
    return log


@pytest.mark.parametrize("auth", ["open", "tokens"])
@pytest.mark.parametrize("named", ["id", "tag"])
def test_warm_range_read_executes_no_statement(
    auth: Literal["open", "tokens"], named: str, transactions: list[tuple[SqliteDatabase, str]], tmp_path: Path
) -> None:
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, auth=auth, trust_seconds=60)
    app = create_app(settings)
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        if app.services.initial_admin_token is not None:
            client.headers["authorization"] = f"Bearer {app.services.initial_admin_token.text}"
        data = bytes(range(256)) * 64
        made = client.put("/v1/stores?filename=a.bin&tag=m:1", content=data)
        assert made.status_code == 201, made.text
        ref = made.json()["id"] if named == "id" else "m:1"
        database = app.services.database

        def executed() -> list[str]:
            return [name for used, name in transactions if used is database]

        assert executed()

        def read(start: int) -> None:
            part = client.get(f"/v1/stores/{ref}/files/a.bin", headers={"range": f"bytes={start}-{start + 4095}"})
            assert (part.status_code, part.content) == (206, data[start : start + 4096])

        read(0)
        before = executed()
        for number in range(1, 20):
            read(number * 256)
        assert executed() == before
