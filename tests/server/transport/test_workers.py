"""Several processes behind one socket: the end of one, the end of all, and metrics in one answer."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.support.serve import ServiceProcess, service_process

from protoslice.server.context import RequestContext

ROOM = {"PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}


@contextmanager
def two_workers(folder: Path) -> Iterator[ServiceProcess]:
    with service_process("--storage", folder.as_uri(), "--workers", "2", settings=ROOM) as service:
        yield service


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Run two workers over a directory."""
    with two_workers(tmp_path_factory.mktemp("stores")) as service:
        yield service


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def soon(true: Callable[[], object]) -> None:
    """Wait until the condition is true, for at most half a minute."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def metric(service: ServiceProcess, name: str, labels: str = "") -> dict[str, float]:
    """Return the values of a metric by worker, for samples with `labels`."""
    text = httpx.get(f"{service.url}/metrics").text
    found = re.findall(rf'^{name}{{worker="(\d)"(?:,[^}}]*)?{labels}[^}}]*}} (\S+)$', text, re.MULTILINE)
    return {worker: float(value) for worker, value in found}


def test_workers_share_a_port_and_one_page_of_metrics(service: ServiceProcess) -> None:
    assert len(children(service.running.pid)) == 2
    name, labels = "protoslice_requests_total", 'route="/v1/tags"'
    asked = 0
    while len(metric(service, name, labels)) < 2 and asked < 2000:
        assert httpx.get(f"{service.url}/v1/tags").status_code == 200
        asked += 1
    assert sum(metric(service, name, labels).values()) == asked, "each worker counts its own"
    text = httpx.get(f"{service.url}/metrics").text
    assert text.count("# TYPE protoslice_requests_total counter") == 1


def test_facts_of_the_service_come_once_and_facts_of_workers_with_their_numbers(service: ServiceProcess) -> None:
    for _ in range(40):  # so that both workers have the space in memory
        assert httpx.put(f"{service.url}/v1/stores", content=b"\x0a\x07storage").status_code < 300
    soon(lambda: "\nprotoslice_stores" in httpx.get(f"{service.url}/metrics").text)
    samples: dict[str, list[str]] = {}
    for line in httpx.get(f"{service.url}/metrics").text.splitlines():
        if not line.startswith("#"):
            samples.setdefault(re.split(r"[{ ]", line)[0], []).append(line)
    page = (Path(__file__).parents[3] / "docs/how-to/operate/monitoring.md").read_text()
    once = set(re.findall(r"`(\w+)`", page.split("| metric | meaning |")[2].split("\n\n")[0]))
    assert {"protoslice_stores", "protoslice_space_stored_bytes", "protoslice_database_log_bytes"} <= once
    for name in once & samples.keys():
        places = [line.rpartition(" ")[0] for line in samples[name]]
        assert len(places) == len(set(places)), name
        assert not [place for place in places if 'worker="' in place], name
    of_workers = {name: lines for name, lines in samples.items() if name not in once}
    assert [name for name, lines in of_workers.items() if not all('worker="' in line for line in lines)] == []
    assert len(samples["process_resident_memory_bytes"]) == 2


def test_a_worker_that_dies_is_replaced_and_others_go_on(service: ServiceProcess) -> None:
    before = children(service.running.pid)
    os.kill(before[1], signal.SIGKILL)
    for _ in range(20):  # each on a separate connection, because none waits for a busy worker
        assert httpx.get(f"{service.url}/livez").status_code == 200
    soon(lambda: len(set(children(service.running.pid)) - set(before)) == 1)
    assert "SIGKILL" in service.log.read_text()
    soon(lambda: len(metric(service, "protoslice_open_requests")) == 2)


def test_signals_to_the_whole_group_drain_all_workers(tmp_path: Path) -> None:
    with two_workers(tmp_path) as service, service.server.connect(timeout_seconds=30) as upload:
        pids = [service.running.pid, *children(service.running.pid)]
        upload.sendall(b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n\x0a\x07")
        soon(lambda: sum(metric(service, "protoslice_open_uploads").values()) == 1)
        for pid in pids:  # like systemd: the workers get the signal, and another one from their supervisor
            os.kill(pid, signal.SIGTERM)
        soon(lambda: _refused(service))
        upload.sendall(b"storage")
        assert upload.recv(100).startswith(b"HTTP/1.1 201")
        assert service.running.wait(20) == -signal.SIGTERM
        assert not any(map(_lives, pids))
        assert "requests cut" not in service.log.read_text()


def test_workers_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    with two_workers(tmp_path) as service:
        pids = children(service.running.pid)
        service.running.kill()
        soon(lambda: not any(map(_lives, pids)))


def _refused(service: ServiceProcess) -> bool:
    try:
        service.server.connect().close()
    except OSError:
        return True
    return False


def _lives(pid: int) -> bool:
    """Return True while the process runs; in a container without an init, an orphan that ended stays as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_storage_of_one_process_has_one_worker() -> None:
    with pytest.raises(RuntimeError) as output, service_process("--storage", "memory://", "--workers", "2"):
        pass
    assert str(output.value).count("This storage works with one process only") == 1


def test_workers_give_requests_ids_of_their_own() -> None:
    (read, write), pid = os.pipe(), os.fork()
    if not pid:
        os.write(write, RequestContext().id)
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    with open(read, "rb") as output:
        assert output.read() != RequestContext().id
