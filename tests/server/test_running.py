"""The service as a process: its first line, its health, its end; what it logs and counts."""

from __future__ import annotations

import errno
import io
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from tests.support.serve import assert_problem, read_answer, service_process

import protoslice
from protoslice.server.telemetry.logs import _Lines

ROOM = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}


def test_the_first_line_is_the_address_and_state_survives(tmp_path: Path) -> None:
    for expected in (201, 200):
        with service_process("--storage", tmp_path.as_uri(), settings=ROOM) as service:
            url = service.url
            assert url.startswith("http://127.0.0.1:")
            assert httpx.get(f"{url}/readyz").json() == {"status": "ok"}
            assert httpx.put(f"{url}/v1/stores?tag=kept", content=b"\x0a\x01a").status_code == expected
            assert httpx.get(f"{url}/v1/stores/kept/merge").content == b"\x0a\x01a"
            service.running.terminate()
            service.running.wait(10)


@pytest.mark.parametrize("stdout", [">&-", ">/dev/full"])
def test_an_output_that_takes_nothing_is_a_line_in_the_log(stdout: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = f'exec "{sys.executable}" -m protoslice.cli serve --port 0 --storage memory:// {stdout} 2>"{log}"'
    with subprocess.Popen(["sh", "-c", command]) as running:
        try:
            url = _logged_address(log)
            assert httpx.get(f"{url}/livez").status_code == 200
        finally:
            running.terminate()
    assert running.returncode in {0, -signal.SIGTERM}
    (access, version, line, *requests) = map(json.loads, log.read_text().splitlines())
    assert version["event"].startswith(f"protoslice {protoslice.__version__}, database schema ")
    assert access["event"] == "access: open to everyone who reaches 127.0.0.1"
    assert "could not print" in line["event"]
    assert [request["event"] for request in requests] == ["request"]


def _logged_address(log: Path) -> str:
    for _ in range(300):
        time.sleep(0.1)
        if log.exists() and (found := re.search(r"http://[0-9.:]+", log.read_text())):
            return found[0]
    raise AssertionError(log.read_text())


def test_a_log_that_takes_nothing_does_not_stop_the_service(tmp_path: Path) -> None:
    command = f'exec "{sys.executable}" -m protoslice.cli serve --port 0 --storage memory:// 2>/dev/full'
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        try:
            url = running.stdout.readline().strip()
            for _ in range(3):
                assert httpx.get(f"{url}/v1/stores/nobody").status_code == 404
                time.sleep(0.15)  # lines are written a few times a second
        finally:
            running.terminate()
    assert running.returncode in {0, -signal.SIGTERM}


def test_answers_under_way_end_before_the_process_does(tmp_path: Path, model: bytes) -> None:
    body = b"\x0a" + b"\x80\x80\x80\x08" + bytes(16 << 20)
    settings = {**ROOM, "PROTOSLICE_DRAIN_NOTICE_SECONDS": "1"}
    with service_process("--storage", tmp_path.as_uri(), settings=settings) as service:
        store = httpx.put(f"{service.url}/v1/stores", content=body).json()["id"]
        with service.server.connect() as connection, httpx.Client(base_url=service.url) as kept:
            assert kept.get("/readyz").status_code == 200
            connection.sendall(f"GET /v1/stores/{store}/merge HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert connection.recv(9) == b"HTTP/1.1 "
            service.running.terminate()
            time.sleep(0.4)
            answer = kept.get("/readyz")
            assert_problem(answer.status_code, answer.headers, answer.content, expected=503, slug="not-ready")
            assert kept.get("/livez").status_code == 200
            received = 9
            while more := connection.recv(1 << 20):
                received += len(more)
            assert received > len(body)
        assert service.running.wait(10) in {0, -signal.SIGTERM}


def test_answers_that_take_too_long_are_cut(tmp_path: Path) -> None:
    body = b"\x0a" + b"\x80\x80\x80\x08" + bytes(16 << 20)
    settings = {**ROOM, "PROTOSLICE_DRAIN_SECONDS": "1"}
    with service_process("--storage", tmp_path.as_uri(), settings=settings) as service:
        store = httpx.put(f"{service.url}/v1/stores", content=body).json()["id"]
        with service.server.connect() as connection:
            connection.sendall(f"GET /v1/stores/{store}/merge HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            time.sleep(0.3)
            service.running.terminate()
            service.running.wait(10)
            assert not read_answer(connection).complete


def test_each_request_is_one_line_without_secrets(tmp_path: Path) -> None:
    with service_process("--storage", "memory://") as service:
        url = service.url
        headers = {"x-request-id": "my-request-1", "authorization": "Bearer hush"}
        answer = httpx.get(f"{url}/v1/stores/nobody/merge?path=hush", headers=headers)
        assert answer.headers["x-request-id"] == answer.json()["request_id"] == "my-request-1"
        forged = httpx.get(f"{url}/livez", headers={"x-request-id": "no good"})
        assert len(forged.headers["x-request-id"]) == 24
        service.running.terminate()
        service.running.wait(10)
        errors = service.log.read_text()
    lines = [json.loads(line) for line in errors.splitlines()]
    first, second = (line for line in lines if line["event"] == "request")
    assert first["request_id"] == "my-request-1"
    assert (first["method"], first["route"], first["status"]) == ("GET", "/v1/stores/{ref}/merge", 404)
    assert second["route"] == "/livez"
    assert "hush" not in errors


def test_metrics_go_by_route(client: httpx.Client) -> None:
    store = client.put("/v1/stores", content=b"\x0a\x07metrics").json()["id"]
    client.get(f"/v1/stores/{store}/merge", headers={"range": "bytes=0-3"})
    client.get("/no/such/path")
    text = client.get("/metrics").text
    assert 'protoslice_requests_total{method="GET",route="/v1/stores/{ref}/merge",status="206"} 1.0' in text
    assert 'protoslice_sent_bytes_total{method="GET",route="/v1/stores/{ref}/merge",status="206"} 4.0' in text
    assert 'protoslice_received_bytes_total{method="PUT",route="/v1/stores",status="201"} 9.0' in text
    assert 'protoslice_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert 'protoslice_ingest_stage_seconds_count{stage="commit"} 1.0' in text
    assert "protoslice_loop_lag_seconds" in text
    assert store not in text


@pytest.mark.parametrize("path", ["/", "/docs", "/livez", "/readyz", "/openapi.json"])
def test_pages_for_people_and_probes(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


def test_lines_of_the_last_answers_are_not_lost(tmp_path: Path) -> None:
    body = b"\x0a" + b"\x80\x80\x80\x08" + bytes(16 << 20)
    with service_process("--storage", tmp_path.as_uri(), settings=ROOM) as service:
        store = httpx.put(f"{service.url}/v1/stores", content=body).json()["id"]
        with service.server.connect() as connection:
            connection.sendall(f"GET /v1/stores/{store}/merge HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert connection.recv(9) == b"HTTP/1.1 "
            service.running.terminate()
            time.sleep(0.3)
            while connection.recv(1 << 20):
                pass
        service.running.wait(10)
        errors = service.log.read_text()
    lines = [json.loads(line) for line in errors.splitlines()]
    assert lines[-1]["route"] == "/v1/stores/{ref}/merge"
    assert (lines[-1]["status"], lines[-1]["sent"]) == (200, len(body))


def test_a_line_that_cannot_be_written_is_lost_and_no_failure() -> None:
    class Full(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    lines = _Lines(Full())
    lines.write("lost\n")
    lines.flush()
