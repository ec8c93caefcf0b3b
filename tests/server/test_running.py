"""The service as a process: its start, or the reason of a failure; its log; its end, in order or at once."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.serve import LiveServer, ServiceProcess, assert_problem, read_answer, service_process
from tests.support.stores import onnx

import protoslice
from protoslice.server.telemetry.logs import _Lines

ROOM = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
SIZE = 8 << 20
SENT = 3 << 20
TUS = {"tus-resumable": "1.0.0"}

CUT = "requests cut off at the end of PROTOSLICE_DRAIN_SECONDS: 1"


def test_what_is_not_to_be_had_is_said_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        cases = [
            (["--port", port], 6, f"127.0.0.1:{port}: Cannot listen on this address: Address already in use"),
            (["--host", "no such name"], 2, "Cannot listen on 'no such name': no such address"),
            (["--storage", "nothing://x"], 2, "No storage backend for 'nothing'; available: "),
            (["--storage", file.as_uri()], 2, f"cannot open storage at '{file}': not a folder"),
            (["--storage", "file:///proc/none"], 4, "cannot open storage at '/proc/none': no such folder"),
            (["--storage", "file:///sys"], 6, "/sys/catalog.sqlite: "),
            ([], 2, "PROTOSLICE_OTEL_ENDPOINT: "),
        ]
        with ThreadPoolExecutor() as pool:
            ends = pool.map(_serve, [arguments for arguments, _, _ in cases])
            for done, (_, code, said) in zip(ends, cases, strict=True):
                assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), done.stderr
                assert done.stderr.startswith(f"protoslice: {said}")


def _serve(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", "--storage", "memory://", *arguments]
    environment = {"PATH": os.environ["PATH"], "PROTOSLICE_OTEL_ENDPOINT": "" if arguments else "collector:4318"}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_start_that_hangs_can_be_given_up(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        options = {"endpoint": endpoint, "allow_http": "true", "access_key_id": "a", "secret_access_key": "b"}
        command = [sys.executable, "-m", "protoslice.cli", "serve", "--port", "0", "--storage", "s3://bucket"]
        environment = {
            "PATH": os.environ["PATH"],
            "PROTOSLICE_STORAGE_OPTIONS": json.dumps(options),
            "PROTOSLICE_DATABASE": f"sqlite:///{tmp_path}/catalog.sqlite",
        }
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        try:
            silent.settimeout(20)
            silent.accept()[0].close()  # the service is calling its storage now
            running.terminate()
            _, said = running.communicate(timeout=10)
        finally:
            running.kill()
    assert (running.returncode, said) == (-signal.SIGTERM, "")


def test_nothing_stays_open_when_the_service_has_ended(tmp_path: Path, serving: Any) -> None:
    with serving(storage=tmp_path.as_uri(), space_watermark_bytes=0) as live:
        assert httpx.put(f"{live.url}/v1/stores", content=b"\x0a\x01a").status_code == 201
        assert httpx.get(f"{live.url}/v1/stores").status_code == 200
        assert _held_below(tmp_path)
    assert not _held_below(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_second_signal_waits_for_nobody(tmp_path: Path, number: signal.Signals) -> None:
    for settings in ({"PROTOSLICE_DRAIN_NOTICE_SECONDS": "60"}, {"PROTOSLICE_DRAIN_SECONDS": "60"}):
        with service_process("--storage", tmp_path.as_uri(), settings={**ROOM, **settings}) as service:
            with _upload(service.server, "PUT /v1/stores", {}):
                _await_bytes(service)
                service.running.send_signal(number)
                _await_draining(service)
                assert service.running.poll() is None
                service.running.send_signal(number)
                assert service.running.wait(10) in {-number, 128 + number}
            # A 503 of /readyz counts as a complaint too: it shows this test that the first signal was received.
            assert [said for said in _complaints(service) if said != "request"] == [CUT]


def test_an_upload_cut_at_the_end_keeps_what_came(tmp_path: Path) -> None:
    settings = {**ROOM, "PROTOSLICE_DRAIN_SECONDS": "1"}
    with service_process("--storage", tmp_path.as_uri(), settings=settings) as service:
        begun = httpx.post(f"{service.url}/v1/uploads", headers={**TUS, "upload-length": str(SIZE)})
        upload = begun.headers["location"]
        more = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
        with _upload(service.server, f"PATCH {upload}", {**TUS, **more}):
            _await_bytes(service)
            service.running.terminate()
            assert service.running.wait(10) == -signal.SIGTERM
        assert _complaints(service) == [CUT]
        (cut,) = [line for line in _lines(service) if line.get("method") == "PATCH"]
    with service_process("--storage", tmp_path.as_uri(), settings=settings) as service:
        assert httpx.head(f"{service.url}{upload}", headers=TUS).headers["upload-offset"] == str(cut["received"])


def test_a_client_that_leaves_an_upload_is_no_error(tmp_path: Path) -> None:
    with service_process("--storage", tmp_path.as_uri(), settings=ROOM) as service:
        with _upload(service.server, "PUT /v1/stores", {}):
            _await_bytes(service)
        service.running.terminate()
        service.running.wait(10)
        (line,) = [line for line in _lines(service) if line.get("method") == "PUT"]
        assert (line["status"], line["level"]) == (499, "info")
        assert _complaints(service) == []


def test_an_answer_that_was_taken_whole_is_no_answer_that_was_left() -> None:
    """Streams of a distant storage are still being closed when the client has the whole answer and leaves."""
    with service_process("--storage", "memory://", settings=ROOM) as service:
        made = httpx.put(f"{service.url}/v1/stores", params={"filename": "m.onnx"}, content=onnx(5 << 20))
        for _ in range(3):
            assert len(httpx.get(f"{service.url}/v1/stores/{made.json()['id']}/files/m.onnx").content) > 5 << 20
        service.running.terminate()
        service.running.wait(10)
        assert [line["status"] for line in _lines(service) if line.get("method") == "GET"] == [200] * 3


@contextmanager
def _upload(server: LiveServer, asks: str, headers: dict[str, str]) -> Iterator[None]:
    """Begin an upload that does not end."""
    said = "".join(f"{name}: {value}\r\n" for name, value in {**headers, "content-length": str(SIZE)}.items())
    with server.connect() as connection:
        connection.sendall(f"{asks} HTTP/1.1\r\nhost: {server.host}\r\n{said}\r\n".encode() + bytes(SENT))
        yield


def _await_draining(service: ServiceProcess) -> None:
    """Wait until the first signal is handled, because a second signal before that would be lost."""
    for _ in range(500):
        try:
            if httpx.get(f"{service.url}/readyz").status_code != 200:
                return
        except httpx.TransportError:
            return
        time.sleep(0.02)
    pytest.fail("the service goes on as if no signal had come")


def _await_bytes(service: ServiceProcess) -> None:
    """Wait until the service has an upload in progress, and has read all bytes sent so far."""
    for _ in range(100):
        if "protoslice_open_uploads 1.0" in httpx.get(f"{service.url}/metrics").text:
            break
        time.sleep(0.02)
    time.sleep(0.3)


def _lines(service: ServiceProcess) -> list[dict[str, Any]]:
    """Return the lines of the log, without those of the audit."""
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    return [line for line in lines if line["event"] != "audit"]


def _complaints(service: ServiceProcess) -> list[str]:
    """Return the events logged above `info`: for each, the text after the last comma."""
    return [line["event"].rpartition(", ")[2] for line in _lines(service) if line["level"] != "info"]


def _held_below(folder: Path) -> list[str]:
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except FileNotFoundError:
            continue
    return [path for path in found if path.startswith(str(folder))]


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
        lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    (last,) = [line for line in lines if line.get("route") == "/v1/stores/{ref}/merge"]
    assert (last["status"], last["sent"]) == (200, len(body)), "no line is lost at the end"


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
    client.post("/v1/stores", content=onnx(20_000))
    store = client.put("/v1/stores", content=b"\x0a\x07metrics").json()["id"]
    client.get(f"/v1/stores/{store}/merge", headers={"range": "bytes=0-3"})
    client.get("/no/such/path")
    text = client.get("/metrics").text
    assert 'protoslice_storage_call_seconds_count{operation="commit"}' in text
    assert 'protoslice_requests_total{method="GET",route="/v1/stores/{ref}/merge",status="206"} 1.0' in text
    assert 'protoslice_sent_bytes_total{method="GET",route="/v1/stores/{ref}/merge",status="206"} 4.0' in text
    assert 'protoslice_received_bytes_total{method="PUT",route="/v1/stores",status="201"} 9.0' in text
    assert 'protoslice_requests_total{method="GET",route="unmatched",status="404"} 1.0' in text
    assert 'protoslice_ingest_stage_seconds_count{stage="commit"} 2.0' in text
    assert "protoslice_loop_lag_seconds" in text
    assert store not in text


def test_a_line_that_cannot_be_written_is_lost_and_no_failure() -> None:
    class Full(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    lines = _Lines(Full())
    lines.write("lost\n")
    lines.flush()
