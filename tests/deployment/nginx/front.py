"""nginx with one of our files on the loopback, and functions that send requests and compare answers."""

from __future__ import annotations

import getpass
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

FILES = ("nginx.conf", "nginx-cache.conf")
ONE, SEVERAL = "server 127.0.0.1:8000;", "nginx-replicas.conf"
FOLDER = Path(__file__).parents[3] / "docker"


def free_port() -> int:
    """Return a port that no program listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Wait until a condition holds."""
    for _ in range(int(seconds * 100)):
        if condition():
            return
        time.sleep(0.01)
    raise TimeoutError("it did not come to pass")


def listening(port: int) -> bool:
    """Return True if a server listens on `port` of the loopback."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


Edit = Callable[[str], str]


def adapted(name: str, folder: Path, port: int, upstreams: Sequence[int], edit: Edit = str) -> Path:
    """Return the file `name` with replaced addresses and folders, and with the changes of `edit`.

    A file for one service gets the servers of the file for several services.
    """
    text = edit((FOLDER / name).read_text())
    first, second = upstreams
    if name != SEVERAL:
        assert ONE in text
        text = text.replace(
            ONE, "\n".join(re.findall("least_conn;|server protoslice.*;", (FOLDER / SEVERAL).read_text()))
        )
    for old, new in [
        ("protoslice-1:8000", f"127.0.0.1:{first}"),
        ("protoslice-2:8000", f"127.0.0.1:{second}"),
        ("listen 8080", f"listen 127.0.0.1:{port}"),
        ("/dev/stdout", str(folder / "access.log")),
        ("/tmp/nginx", str(folder / "nginx")),
    ]:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text.replace("/var/cache/nginx", str(folder)))
    return path


class Nginx:
    """nginx with the configuration `name`, in front of the replicas at `upstream` and `other`.

    Without `other`, the second replica is down.
    """

    def __init__(self, name: str, folder: Path, upstream: int, edit: Edit = str, *, other: int | None = None) -> None:
        self.port = free_port()
        config = adapted(name, folder, self.port, [free_port() if other is None else other, upstream], edit)
        program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
        assert program, "nginx is not installed"
        own = f"daemon off; user {getpass.getuser()};"
        self._command = [program, "-c", str(config), "-p", str(folder), "-e", "stderr", "-g", own]
        self._running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start nginx, and return when it listens."""
        self._running = subprocess.Popen(self._command, start_new_session=True)
        wait_for(lambda: listening(self.port))

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End nginx by a signal; SIGKILL also goes to its workers, which would otherwise continue to listen."""
        assert self._running is not None
        if how is signal.SIGKILL:
            os.killpg(self._running.pid, how)
        else:
            self._running.send_signal(how)
        self._running.wait(timeout=30)


@contextmanager
def nginx(name: str, folder: Path, upstream: int, edit: Edit = str, *, other: int | None = None) -> Iterator[int]:
    """Run an `Nginx` and yield its port."""
    running = Nginx(name, folder, upstream, edit, other=other)
    running.start()
    try:
        yield running.port
    finally:
        running.end()


@dataclass(frozen=True)
class Answer:
    """A complete answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def ask(port: int, path: str, method: str = "GET", **headers: str) -> Answer:
    """Return the answer of the server at `port`; underscores in names of headers are replaced by hyphens."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        said = [(name.lower(), value) for name, value in response.getheaders()]
        vary = [value for name, value in said if name == "vary"]  # a list, which may come in several lines
        pairs = {each for each in said if each[0] != "vary"} | ({("vary", ", ".join(vary))} if vary else set())
        kept = dict(pairs)
        assert len(kept) == len(pairs)  # no header comes in two forms
        return Answer(response.status, kept, response.read())


# Headers about nginx and the connection, not about the representation.
OWN = {"server", "date", "connection", "keep-alive", "cache-status", "x-request-id", "transfer-encoding"}
# Headers that the cache must send, by status, where it builds the answer from pieces of the service's answers.
DUE = {
    200: {"etag", "cache-control", "vary", "content-length", "content-type", "accept-ranges"},
    206: {"etag", "cache-control", "vary", "content-length", "content-type", "content-range"},
    304: {"etag", "cache-control", "vary"},
    412: {"content-type"},
    416: {"content-range"},
}


def same(answer: Answer, direct: Answer, cache: bool) -> None:
    """Fail unless an answer from nginx is as good as the service's answer."""
    due = DUE[direct.status] if cache else {*direct.headers, *answer.headers} - OWN
    if direct.status >= 400:
        due = due - {"content-length"}  # problems name their request, and ids differ in length
    kept, wanted = ({name: of.headers.get(name) for name in due} for of in (answer, direct))
    assert (answer.status, kept) == (direct.status, wanted)
    if not (cache and answer.status == 416):  # nginx knows the length then, and sends a different page with status 416
        assert _said(answer) == _said(direct)


def _said(answer: Answer) -> object:
    if not answer.body or answer.headers.get("content-type") != "application/problem+json":
        return answer.body
    problem = json.loads(answer.body)
    return {name: value for name, value in problem.items() if name != "request_id"}
