"""The verbs `database upgrade` and `database access`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.postgres import TestServer
from tests.support.process import service_process

from protoslice.catalog import schema


def test_upgrade_creates_tables_once(call: Any, postgres: TestServer) -> None:
    url, version = postgres.new_database(), len(schema.migrations("sqlite"))
    first = call("database", "upgrade", "--json", PROTOSLICE_DATABASE=url)
    assert json.loads(first.stdout) == {"before": 0, "after": version}
    again = call("database", "upgrade", "--database", url)
    assert again.stdout == f"The database has schema {version} already\n"


def test_upgrade_refuses_a_bucket_without_a_database(call: Any) -> None:
    said = call("database", "upgrade", "--storage", "s3://bucket", code=3).stderr
    assert "set PROTOSLICE_DATABASE to postgresql://" in said


def test_mode_is_changed_by_a_command(call: Any, tmp_path: Path) -> None:
    storage = tmp_path.as_uri()
    room = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", storage, settings=room) as service:
        assert httpx.put(f"{service.url}/v1/stores", content=b"\x0a\x01a").status_code == 201
        refused = call("database", "access", "tokens", "--storage", storage, code=7).stderr
        assert f"process {service.running.pid} on " in refused
    other = service_process("--storage", storage, settings={"PROTOSLICE_AUTH": "tokens"})
    with pytest.raises(RuntimeError, match="protoslice database access tokens"), other:
        pass
    assert json.loads(call("database", "access", "--storage", storage, "--json").stdout) == {"access": "open"}
    assert "use open or tokens" in call("database", "access", "closed", "--storage", storage, code=2).stderr
    assert call("database", "access", "tokens", "--storage", storage).stdout == "access: tokens\n"
    with service_process("--storage", storage, settings=room) as service:
        assert httpx.get(f"{service.url}/v1/stores").status_code == 401
        service.running.terminate()
        assert service.running.stdout is not None
        said = service.running.stdout.read().splitlines()
        assert said[0].startswith("Admin token")
        assert said[-1] == "access: tokens"
        assert '"access: tokens"' in service.log.read_text()
    other = service_process("--storage", storage, settings={"PROTOSLICE_AUTH": "open"})
    with pytest.raises(RuntimeError, match="protoslice database access open"), other:
        pass
