"""The verb `database upgrade`."""

from __future__ import annotations

import json
from typing import Any

from tests.support.postgres import TestServer

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
