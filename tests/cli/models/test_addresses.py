"""Addresses and credentials of the command line: nothing has to be typed twice, and no secret at all."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.support.protos.writer import varint
from tests.support.wire import Relay, in_a_thread
from typer.testing import CliRunner

from protoslice.cli import app as program
from protoslice.cli.commands import probes

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
SECRET = "Bearer of-good-news"


@contextmanager
def guarded(upstream: str) -> Iterator[str]:
    """A proxy that lets nobody through who does not say who they are."""

    class Guard(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            body = self.rfile.read(length if length < 1 << 20 else 0)
            if self.headers.get("authorization") != SECRET:
                self._say(401, {"www-authenticate": "Bearer"}, b"")
                return
            place = urlsplit(upstream)
            connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=20)
            connection.request(self.command, self.path, body or None, dict(self.headers.items()))
            answer = connection.getresponse()
            headers = {name.lower(): text for name, text in answer.getheaders()}
            self._say(answer.status, headers, answer.read())
            connection.close()

        do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_GET  # noqa: N815 - as the library asks for them

        def _say(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name not in {"transfer-encoding", "connection", "content-length"}:
                    self.send_header(name, value)
            self.send_header("content-length", headers.get("content-length", str(len(body))))
            self.end_headers()
            self.wfile.write(body)

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with in_a_thread(ThreadingHTTPServer(("127.0.0.1", 0), Guard)) as address:
        yield f"http://{address}"


def test_who_we_are_is_told_by_the_environment(
    service: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with guarded(service) as url:
        monkeypatch.setenv("PROTOSLICE_URL", url)
        refused = CliRunner().invoke(program.app, ["info", store])
        assert refused.exit_code == 6
        assert refused.stderr.count("\n") == 1
        assert "PROTOSLICE_AUTHORIZATION" in refused.stderr
        monkeypatch.setenv("PROTOSLICE_AUTHORIZATION", SECRET)
        for verb in (["info", store], ["pull", store, str(tmp_path / "out.pb")], ["verify", store]):
            done = CliRunner().invoke(program.app, verb)
            assert done.exit_code == 0, (verb, done.stderr, done.stdout)
            assert "good-news" not in done.stdout + done.stderr
        monkeypatch.setattr(probes, "PAUSE_SECONDS", 0.2)
        output = json.loads(CliRunner().invoke(program.app, ["doctor", "--json", "--store", store[1:]]).stdout)
        assert {check["check"] for check in output["checks"] if check["found"]} <= {
            "uploads are streamed",  # here they do not
            "chunked uploads are streamed",
        }


def test_a_token_goes_to_no_other_service_than_its_own(
    service: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROTOSLICE_AUTHORIZATION", SECRET)
    with guarded(service) as url:
        name = f"{url}/v1/stores/{store[1:]}"
        monkeypatch.setenv("PROTOSLICE_URL", service)
        for verb in (
            ["info", name],
            ["ls", "--url", url],
            ["pull", name, str(tmp_path / "out.pb")],
            ["diff", name, name],
        ):
            refused = CliRunner().invoke(program.app, verb)
            assert refused.exit_code == 6, (verb, refused.stderr)
            assert "PROTOSLICE_URL to this service" in refused.stderr
        for known in (url, f"{url.upper().replace('HTTP', 'http')}/spaces/team", ""):
            monkeypatch.setenv("PROTOSLICE_URL", known)
            assert CliRunner().invoke(program.app, ["info", name]).exit_code == 0, known


def test_a_header_that_is_none_is_told(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_AUTHORIZATION", "a\nb")
    assert "PROTOSLICE_AUTHORIZATION" in call("ls", code=2).stderr


def test_a_push_is_told_what_is_there(call: Any, store: str, tmp_path: Path) -> None:
    large = os.urandom(9 << 20)
    for name, content in (("one.pb", large), ("two.pb", large + b"\x08\x01")):
        (tmp_path / name).write_bytes(b"\x0a" + varint(len(large)) + content)
    call("push", tmp_path / "one.pb", "--tag", "base:1")
    output = call("push", tmp_path / "two.pb", "--base", "@base:1").stderr
    assert re.search(r"reused", output)


def test_a_pull_that_is_interrupted_says_what_is_kept(service: str, tmp_path: Path) -> None:
    script = (
        "import time\nfrom protoslice.cli import main\nfrom protoslice.client.client import Client\n"
        "def stall(*args, **options):\n    print('pulling', flush=True)\n    time.sleep(60)\n"
        "Client.download = stall\nmain()\n"
    )
    command = [sys.executable, "-c", script, "pull", f"{service}/v1/stores/any:1", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "pulling\n"
        process.send_signal(signal.SIGINT)
        _, output = process.communicate(timeout=30)
    assert process.returncode == 130
    assert output.count("\n") == 1
    assert "Partial download kept; run the same command again" in output


def test_nobody_waits_for_a_silent_line_who_wants_to_leave(call: Any, service: str, tmp_path: Path) -> None:
    """Neither where one connection is used, nor where several are."""
    (tmp_path / "large.pb").write_bytes(b"\x0a\x80\x80\x80\x14" + os.urandom(40 << 20))
    call("push", tmp_path / "large.pb", "--tag", "silent:1")
    for at in (3 << 20, 30 << 20):
        with Relay(service, down=at, holds=True) as relay:
            command = [*PROGRAM, "pull", f"{relay.url}/v1/stores/silent:1", str(tmp_path / "out")]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                assert relay.reached.wait(60)
                process.send_signal(signal.SIGINT)
                _, output = process.communicate(timeout=20)  # the line would be given up after 30
        assert process.returncode == 130
        assert output.count("\n") == 1
