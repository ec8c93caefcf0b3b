"""Mistakes on the command line: each one gives a line that names it, and its exit code.

Every verb is run with every option where an extra's packages are not installed, and prints no traceback. Addresses and
credentials of the command line need not be typed twice, and secrets need not be typed at all.
"""

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
VERBS: dict[str, list[str]] = {
    "info": ["{}"],
    "tree": ["{}"],
    "chunks": ["{}"],
    "cat": ["{}", "1"],
    "split": ["{}", "out"],
    "merge": ["{}", "out.pb"],
    "tensor": ["{}"],
    "verify": ["{}"],
    "diff": ["good.pb", "{}"],
    "push": ["{}"],
}
MISTAKES = {
    "missing.pb": 4,
    "dangling.pb": 4,
    "circle.pb": 6,
    "good.pb/below": 6,
    "bad.pb": 3,
    "empty": 2,
    "http://127.0.0.1:1/v1/stores/any": 6,
    "http://127.0.0.1:1/v1/store/any": 6,
    "http://127.0.0.1:1": 2,
    "@": 2,
    "@absent": 4,
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with files for mistakes."""
    (tmp_path / "good.pb").write_bytes(b"\x0a\x03abc\x10\x07")
    (tmp_path / "bad.pb").write_bytes(b"\xff" * 40)
    (tmp_path / "empty").mkdir()
    (tmp_path / "dangling.pb").symlink_to("nowhere.pb")
    (tmp_path / "circle.pb").symlink_to("circle.pb")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# A file that is no proto is no mistake for `push`, because a store needs no proto.
@pytest.mark.parametrize(
    ("verb", "name"), [(verb, name) for verb in VERBS for name in MISTAKES if (verb, name) != ("push", "bad.pb")]
)
def test_a_mistake_is_a_line_that_names_it(call: Any, place: Path, verb: str, name: str) -> None:
    code = _code(verb, name)
    told = call(verb, *(each.format(name) for each in VERBS[verb]), code=code).stderr
    assert told.startswith("protoslice: ")
    assert told.count("\n") == 1
    assert name.removeprefix("@").removesuffix("/v1/stores/any").rpartition("/")[2] in told
    assert sorted(each.name for each in place.iterdir()) == ["bad.pb", "circle.pb", "dangling.pb", "empty", "good.pb"]


def _code(verb: str, name: str) -> int:
    """Return the exit code of a mistake, which shows who must act."""
    store = (name.startswith(("@", "http")) and MISTAKES[name] != 6) or name.endswith("/v1/stores/any")
    if store and verb == "split":
        return 3
    if store and verb == "push":
        return 2
    if name in {"circle.pb", "good.pb/below"} and verb == "push":
        return 4
    return MISTAKES[name]


@pytest.mark.parametrize("verb", ["info", "tree", "chunks", "cat", "split", "merge"])
def test_a_folder_stands_for_its_root(call: Any, place: Path, verb: str) -> None:
    (place / "folder").mkdir()
    (place / "good.pb").rename(place / "folder" / "good.pb")
    (place / "circle.pb").rename(place / "folder" / "circle.pb")
    call(verb, *(each.format("folder") for each in VERBS[verb]), *(["-o", "-"] if verb == "cat" else []))


def test_only_the_second_is_blamed_for_what_is_wrong_with_it(call: Any, place: Path) -> None:
    assert "good.pb" not in call("diff", "good.pb", "bad.pb", code=3).stderr


def test_a_stream_is_no_model_of_several_files(call: Any, place: Path) -> None:
    os.mkfifo(place / "pipe")
    for verb, args in (("tensor", ["pipe"]), ("tensor", ["-"]), ("diff", ["good.pb", "pipe"])):
        assert "is a stream" in call(verb, *args, code=3).stderr
    assert "Cannot resume an upload" in call("push", "-", code=3).stderr
    assert "Cannot push" in call("push", "pipe", code=2).stderr


@pytest.mark.parametrize(
    "arguments", [["cat", "good.pb", "1", "-o", "/dev/full"], ["cat", "good.pb", "1", "-o", "-"], ["tree", "good.pb"]]
)
def test_a_full_disk_is_named(place: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    where = "/dev/full" if "/dev/full" in arguments else "standard output"
    assert (done.returncode, done.stderr) == (6, f"protoslice: {where}: No space left on device\n")


SCRIPT = """
import json, sys
from datetime import datetime
from enum import Enum

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in sys.argv[1].split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import typer.main
from click.testing import CliRunner
from protoslice.cli.app import app

def value(param):
    kind = param.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, Enum):
        return str(next(iter(kind)).value)
    return {int: "1", float: "1", datetime: "2030-01-01"}.get(kind, "x")

def option(param):
    return [param.opts[0]] if param.is_flag else [param.opts[0], value(param)]

def calls(words, command):
    if hasattr(command, "commands"):
        for name, each in command.commands.items():
            yield from calls([*words, name], each)
        return
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    few, many = [p for p in arguments if p.required], [p for p in arguments if p.name != "rest"]
    options = [p for p in command.params if p.param_type_name == "option" and "--help" not in p.opts]
    needed = [word for p in options if p.required for word in option(p)]
    every = [word for p in options if not p.required and p.name == "every_space" for word in option(p)]
    for given in (few, many):
        begin = [*words, *[value(p) for p in given], *needed]
        yield begin
        for p in options:
            if not p.required:
                yield [*begin, *option(p)]
                yield [*begin, *every, *option(p)]

failed, hints, tried = [], set(), 0
command = typer.main.get_command(app)
for call in calls([], command):
    done = CliRunner().invoke(command, call)
    tried += 1
    if not isinstance(done.exception, SystemExit | None) or done.exit_code == 1:
        failed.append(f"{call}: {done.exception!r} {done.output[-200:]}")
    if "install the extra" in done.output:
        hints.add((" ".join(call[:2]), done.output.split("install the extra ")[1].split("'")[1]))
print(json.dumps({"failed": failed, "hints": sorted(hints), "tried": tried}))
"""
PACKAGES = {
    "server": "pydantic_settings,fastapi,uvicorn,prometheus_client,joserfc,orjson,httptools,uvloop",
    "client": "httpx,urllib3,fsspec",
}


@pytest.mark.parametrize("extra", PACKAGES)
def test_no_verb_fails_by_a_traceback_without_an_extra(extra: str, tmp_path: Path) -> None:
    # Missing packages are reported early, before the service is called or starts.
    early = {
        "server": {"PROTOSLICE_URL": ""},
        "client": {"PROTOSLICE_URL": "http://127.0.0.1:9", "PROTOSLICE_LOG_LEVEL": "x"},
    }
    environment = {"PATH": "", "XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path), **early[extra]}
    command = [sys.executable, "-c", SCRIPT, PACKAGES[extra]]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] == []
    assert found["tried"] > 300
    advised = {verb for verb, named in found["hints"] if named == extra}
    expected = {"server": {"config", "serve", "token create"}, "client": {"ls"}}[extra]
    assert expected <= advised


SECRET = "Bearer of-good-news"


@contextmanager
def guarded(upstream: str) -> Iterator[str]:
    """Run a proxy that refuses clients without credentials."""

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
            "uploads are streamed",  # these two do not
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
    """The same holds for one connection and for several."""
    (tmp_path / "large.pb").write_bytes(b"\x0a\x80\x80\x80\x14" + os.urandom(40 << 20))
    call("push", tmp_path / "large.pb", "--tag", "silent:1")
    for at in (3 << 20, 30 << 20):
        with Relay(service, down=at, holds=True) as relay:
            command = [*PROGRAM, "pull", f"{relay.url}/v1/stores/silent:1", str(tmp_path / "out")]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
                assert relay.reached.wait(60)
                process.send_signal(signal.SIGINT)
                _, output = process.communicate(timeout=20)  # the connection would be given up after 30 seconds
        assert process.returncode == 130
        assert output.count("\n") == 1
