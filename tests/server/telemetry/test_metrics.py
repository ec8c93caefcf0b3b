"""Metrics of a service as operators see them: of requests, storage, database and catalogue."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from pathlib import Path

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.test_sessions import JSON, OWN
from tests.support.catalogues import InlineDatabase
from tests.support.serve import ask, open_app
from tests.support.stores import onnx, open_stores, upload

from protoslice.database import Database, Transaction
from protoslice.database.snapshots import last_snapshots
from protoslice.database.transactions import Work
from protoslice.errors import DatabaseUnavailable
from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.context import RequestContext
from protoslice.server.telemetry.metrics import Metrics
from protoslice.storage import Call, MemoryStorage
from protoslice.stores import IngestRequest
from protoslice.stores.backups import back_up, dump_daily
from protoslice.stores.collection import collect_garbage


async def value(app: Application, name: str, headers: dict[str, str] | None = None) -> float | None:
    """Return the value of a sample; None without it."""
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
        shown = (await ask(app, "GET", "/metrics", b"", {})).text  # once: background work uses connections too
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


def _value(text: str, metric: str, **labels: str) -> float:
    wanted = {f'{name}="{value}"' for name, value in labels.items()}
    for found in re.finditer(rf"^{metric}{{(.*)}} (\S+)$", text, re.MULTILINE):
        if set(found[1].split(",")) == wanted:
            return float(found[2])
    return 0.0


REQUESTS = [
    ("/v1/stores", "GET", 200, 0.0005, 0, 70),
    ("/v1/stores", "GET", 200, 0.00051, 0, 7),
    ("/v1/stores", "PUT", 201, 2.5, 1 << 40, 300),
    ('/a"', "GET", 404, 700.0, 0, 0),
]


def test_requests_count_by_route_method_and_status() -> None:
    metrics = Metrics()
    for route, method, status, seconds, bytes_in, bytes_out in REQUESTS:
        context = RequestContext(None, method=method)
        context.route, context.status, context.bytes_in, context.bytes_out = route, status, bytes_in, bytes_out
        metrics.record(context, seconds)
    text = metrics.render().decode()
    read = {"route": "/v1/stores", "method": "GET", "status": "200"}
    assert _value(text, "protoslice_requests_total", **read) == 2
    assert _value(text, "protoslice_sent_bytes_total", **read) == 77
    assert _value(text, "protoslice_request_seconds_sum", **read) == pytest.approx(0.00101)
    buckets = [_value(text, "protoslice_request_seconds_bucket", **read, le=le) for le in ("0.0005", "0.001", "+Inf")]
    assert buckets == [1, 2, 2]
    written = {"route": "/v1/stores", "method": "PUT", "status": "201"}
    assert _value(text, "protoslice_received_bytes_total", **written) == 1 << 40
    assert _value(text, "protoslice_request_seconds_bucket", **written, le="2.5") == 1
    slow = {"route": r"/a\"", "method": "GET", "status": "404"}
    assert [_value(text, "protoslice_request_seconds_bucket", **slow, le=le) for le in ("600.0", "+Inf")] == [0, 1]


@pytest.mark.parametrize(("seconds", "bound"), [(0.0004, "0.0005"), (3.0, "10.0"), (1e6, "+Inf")])
def test_a_call_counts_in_its_bucket_and_all_above(seconds: float, bound: str) -> None:
    metrics = Metrics()
    metrics.record_call(Call("get_range", seconds, 100, None))
    metrics.record_call(Call("get_range", seconds, 20, None))
    text = metrics.render().decode()
    bucket = {"operation": "get_range", "le": bound}
    assert _value(text, "protoslice_storage_call_seconds_bucket", **dict(sorted(bucket.items()))) == 2
    assert _value(text, "protoslice_storage_call_seconds_count", operation="get_range") == 2
    assert _value(text, "protoslice_storage_read_bytes_total", operation="get_range") == 120
    assert "protoslice_storage_errors_total{" not in text


def test_errors_count_by_their_class() -> None:
    metrics = Metrics()
    for error in ("StorageUnavailable", "StorageUnavailable", "CancelledError", None):
        metrics.record_call(Call("put", 0.01, 0, error))
    text = metrics.render().decode()
    assert _value(text, "protoslice_storage_errors_total", operation="put", error="StorageUnavailable") == 2
    assert _value(text, "protoslice_storage_errors_total", operation="put", error="CancelledError") == 1
    assert _value(text, "protoslice_storage_call_seconds_count", operation="put") == 4


def failing(_: Transaction) -> None:
    raise DatabaseUnavailable("away")


async def test_transactions_are_counted_by_kind_and_error() -> None:
    metrics, database = Metrics(), InlineDatabase()
    database.observer = metrics.record_transaction

    def counted(name: str, **labels: str) -> float:
        return metrics.registry.get_sample_value(name, labels) or 0.0

    await database.read(lambda tx: tx.now)
    await database.write(lambda tx: tx.now)
    for call in (database.read, database.write, database.write):
        with pytest.raises(DatabaseUnavailable):
            await call(failing)
    assert counted("protoslice_database_transaction_seconds_count", kind="read") == 2
    assert counted("protoslice_database_transaction_seconds_count", kind="write") == 3
    assert counted("protoslice_database_errors_total", kind="read", error="DatabaseUnavailable") == 1
    assert counted("protoslice_database_errors_total", kind="write", error="DatabaseUnavailable") == 2


def samples(metrics: Metrics) -> dict[str, float]:
    """Return the values by name."""
    return {sample.name: sample.value for metric in metrics.shared.collect() for sample in metric.samples}


async def counted(metrics: Metrics, database: Database) -> None:
    """Let the metrics count the totals once."""
    following = asyncio.create_task(metrics.watch_totals(database))
    await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


class Away(InlineDatabase):
    """A database that does not answer."""

    async def _read(self, work: Work[object], *, background: bool) -> object:  # type: ignore[override]
        raise DatabaseUnavailable("away")


def test_bytes_that_wait_for_deletion_and_the_last_copies_are_known() -> None:
    async def work() -> None:
        storage, database, metrics = MemoryStorage(), InlineDatabase(), Metrics()
        stores = await open_stores(storage, database=database)
        await counted(metrics, database)
        found = samples(metrics)
        copies = [found[f"protoslice_last_{each}_timestamp_seconds"] for each in ("backup", "dump")]
        assert (found["protoslice_trash_objects"], found["protoslice_trash_bytes"], copies) == (0, 0, [0, 0])
        store = (await upload(stores, onnx(20_000), IngestRequest())).store
        before = time.time() - 1
        await back_up(storage, database, MemoryStorage(), keep=1)
        dumping = asyncio.create_task(dump_daily(database, storage, keep=1, first_seconds=0))
        while not (await last_snapshots(database))[1]:
            await asyncio.sleep(0.01)
        await stores.delete(store.id)
        report = await collect_garbage(storage, database, grace_seconds=0, delay_seconds=600)
        assert report.bytes >= store.size
        await counted(metrics, database)
        dumping.cancel()
        found = samples(metrics)
        assert (found["protoslice_trash_objects"], found["protoslice_trash_bytes"]) == (report.objects, report.bytes)
        copies = [found[f"protoslice_last_{each}_timestamp_seconds"] for each in ("backup", "dump")]
        assert all(before <= each <= time.time() + 1 for each in copies)
        await collect_garbage(storage, database, grace_seconds=0, delay_seconds=0)
        await stores.close()

    asyncio.run(work())


def test_counts_are_those_of_the_catalogue() -> None:
    async def work() -> None:
        storage, database, metrics = MemoryStorage(), InlineDatabase(), Metrics()
        assert "protoslice_stores" not in samples(metrics)
        stores = await open_stores(storage, database=database)
        store = (await upload(stores, onnx(20_000), IngestRequest(tags=("a", "b")))).store
        await counted(metrics, database)
        found = samples(metrics)
        assert (found["protoslice_stores"], found["protoslice_tags"]) == (1, 2)
        assert found["protoslice_logical_bytes"] == store.size <= found["protoslice_stored_bytes"]
        await counted(metrics, Away())
        assert samples(metrics) == found, "without an answer the last counts stay"
        await stores.close()

    asyncio.run(work())
