"""The memory of a serving process, which hardly grows for protos of any size (`make soak` tries 6 GiB)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.support.chunked import chunked
from tests.support.protos.writer import varint
from tests.support.serve import ServiceProcess, service_process
from tests.support.stores import field, onnx

PIECE = 1 << 20
STRIDE = 65537
"""An odd number, so that the first 2²⁰ pieces all begin at different offsets of the noise."""

Buffer = bytes | memoryview


@cache
def _noise() -> memoryview:
    return memoryview(Random(PIECE).randbytes(2 * PIECE))


@dataclass(frozen=True, slots=True)
class LargeGraph:
    """A `tensorflow.GraphDef` of `count` constants of `each` bytes, a multiple of a mebibyte."""

    count: int
    each: int

    TYPE = "tensorflow.GraphDef"

    @property
    def size(self) -> int:
        """The size of the proto in bytes."""
        return sum(len(self.node_head(number)) + self.each for number in range(self.count))

    def pieces(self) -> Iterator[Buffer]:
        """Yield the whole proto in pieces."""
        for number in range(self.count):
            yield from self.node(number)

    def node(self, number: int) -> Iterator[Buffer]:
        """Return the field `node[number]`, with its tag and length."""
        yield self.node_head(number)
        yield from self.content(number)

    def tensor(self, number: int) -> Iterator[Buffer]:
        """Return the message `node[number].attr["value"].tensor`."""
        yield self._tensor_head()
        yield from self.content(number)

    def content(self, number: int) -> Iterator[memoryview]:
        """Return the `tensor_content` of `node[number]`."""
        first = number * (self.each // PIECE)
        for serial in range(first, first + self.each // PIECE):
            start = serial * STRIDE % PIECE
            yield _noise()[start : start + PIECE]

    def content_range(self, number: int, start: int, end: int) -> bytes:
        """Return the bytes of that content from `start` up to `end`."""
        first, last = start // PIECE, -(-end // PIECE)
        serials = range(number * (self.each // PIECE) + first, number * (self.each // PIECE) + last)
        whole = b"".join(_noise()[serial * STRIDE % PIECE :][:PIECE] for serial in serials)
        return whole[start - first * PIECE : end - first * PIECE]

    def node_head(self, number: int) -> bytes:
        """Return the bytes of `node[number]` in front of its content, which is at its end."""
        tensor = self._tensor_head()
        value = b"\x42" + varint(len(tensor) + self.each) + tensor
        entry = field(1, b"value") + b"\x12" + varint(len(value) + self.each) + value
        node = field(1, b"c%07d" % number) + field(2, b"Const") + b"\x2a" + varint(len(entry) + self.each) + entry
        return b"\x0a" + varint(len(node) + self.each) + node

    def _tensor_head(self) -> bytes:
        return b"\x08\x01\x22" + varint(self.each)


SIZE = int(os.environ.get("PROTOSLICE_SOAK_BYTES", 256 << 20))
SECONDS = float(os.environ.get("PROTOSLICE_SOAK_SECONDS", "0"))
BOUND = 128 << 20 if SIZE >= 1 << 30 else SIZE // 4
STRETCH = 64 << 20
READERS = 256
WINDOWS = 3
READ = 64 << 10
SLACK = 16 << 20
DOC_STRING = 6
GRAPH = LargeGraph(8, SIZE // 8 >> 20 << 20)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    """Run a service that has already served, so that imports and first-time setup do not count as growth."""
    storage: Path = tmp_path_factory.mktemp("storage")
    settings = {"PROTOSLICE_LOG_LEVEL": "error", "PROTOSLICE_SPACE_WATERMARK_BYTES": "0"}
    with service_process("--storage", storage.as_uri(), settings=settings) as running:
        small = LargeGraph(2, 4 << 20)
        store = upload(running, small)["id"]
        for view in ("files/graph.pb", "chunks/1", "cpb", "merge?omit_larger_than=1KiB"):
            assert httpx.get(f"{running.url}/v1/stores/{store}/{view}").status_code == 200
        shown = httpx.get(f"{running.url}/v1/stores/{store}/chunks/0", headers={"accept": "application/json"})
        assert shown.status_code == 200
        yield running


@pytest.fixture(scope="module")
def stored(service: ServiceProcess) -> dict[str, Any]:
    """Return facts about the large proto; the process must grow by less than the bound during its upload."""
    service.forget_peak()
    before = service.peak()
    store = upload(service, GRAPH)
    report("in", service.peak() - before)
    assert store["size"] == GRAPH.size
    assert store["files"][0]["sha256"] == digest(GRAPH.pieces())
    assert service.peak() - before < BOUND
    return store


def upload(service: ServiceProcess, graph: LargeGraph) -> dict[str, Any]:
    """Upload `graph` in chunks as it is made; return the store."""
    headers = {"transfer-encoding": "chunked", "content-type": "application/protobuf"}
    url = f"/v1/stores?filename=graph.pb&type={graph.TYPE}"
    with closing(HTTPConnection(service.server.host, service.server.port, timeout=600)) as connection:
        connection.request("POST", url, body=graph.pieces(), headers=headers, encode_chunked=True)
        answer = connection.getresponse()
        made: dict[str, Any] = json.load(answer)
    assert answer.status == 201, made
    return made


def digest(pieces: Iterable[bytes | memoryview]) -> str:
    sha = hashlib.sha256()
    for piece in pieces:
        sha.update(piece)
    return sha.hexdigest()


def report(what: str, grown: int) -> None:
    print(f"{GRAPH.size >> 20} MiB {what}: grown by {grown / (1 << 20):.1f} MiB")


@dataclass(slots=True)
class Reader:
    """A reader over one connection that reads a mebibyte at a time."""

    connection: HTTPConnection

    def get(self, path: str, headers: dict[str, str], expected: int) -> Iterator[bytes]:
        self.connection.request("GET", path, headers=headers)
        answer = self.connection.getresponse()
        assert answer.status == expected, answer.read(1000)
        left = int(answer.headers["content-length"])
        while piece := answer.read(1 << 20):
            left -= len(piece)
            yield piece
        assert left == 0


@pytest.fixture
def reader(service: ServiceProcess) -> Iterator[Reader]:
    with closing(HTTPConnection(service.server.host, service.server.port, timeout=600)) as connection:
        yield Reader(connection)


def test_a_descriptor_set_of_countless_parts(service: ServiceProcess) -> None:
    """Two bytes in a body may take a hundred times as much memory once parsed."""
    headers = {"content-type": "application/protobuf"}
    for body in (b"\x0a\x00" * (4 << 20), b"\x0a\x80\x80\x80\x04" + b"\x22\x00" * (4 << 20)):
        service.forget_peak()
        before = service.peak()
        answer = httpx.put(f"{service.url}/v1/schemas/countless", content=body, headers=headers, timeout=60)
        assert answer.status_code == 413, answer.text
        assert service.peak() - before < 4 * len(body)


@pytest.mark.parametrize("codec", ["brotli", "zstd"])
def test_a_compressed_chunk_is_decoded_in_pieces(service: ServiceProcess, codec: str) -> None:
    model = chunked([onnx(2 << 20), bytes(240 << 20)], 0, ([DOC_STRING], 1), options=codec)
    url = f"{service.url}/v1/stores?filename={codec}.cpb"
    service.forget_peak()
    before = service.peak()
    answer = httpx.put(url, content=model, timeout=120)
    assert answer.status_code == 201, answer.text
    grown = service.peak() - before
    print(f"240 MiB decoded from {codec}: grown by {grown / (1 << 20):.1f} MiB")
    assert grown < 64 << 20


def test_out_whole_by_ranges_and_in_part(service: ServiceProcess, stored: dict[str, Any], reader: Reader) -> None:
    views = f"/v1/stores/{stored['id']}"
    service.forget_peak()
    before = service.peak()

    def whole() -> Iterator[bytes]:
        return reader.get(f"{views}/files/graph.pb", {}, 200)

    def by_ranges() -> Iterator[bytes]:
        for start in range(0, GRAPH.size, STRETCH):
            last = min(start + STRETCH, GRAPH.size) - 1
            yield from reader.get(f"{views}/merge", {"range": f"bytes={start}-{last}"}, 206)

    assert digest(whole()) == digest(by_ranges()) == stored["files"][0]["sha256"]

    def merged(query: str) -> str:
        return digest(reader.get(f"{views}/merge?{query}", {}, 200))

    assert merged("fields=" + quote("node[2:5]")) == digest(piece for n in (2, 3, 4) for piece in GRAPH.node(n))
    assert merged("path=" + quote('node[7].attr["value"].tensor')) == digest(GRAPH.tensor(7))
    assert merged("path=" + quote("node[1]") + "&omit_larger_than=1KiB") == digest([outline(1)])
    report("out", service.peak() - before)
    assert service.peak() - before < BOUND


def outline(number: int) -> bytes:
    """Return the message `node[number]` without its content."""
    name, data_type = b"\x0a\x08c%07d\x12\x05Const" % number, b"\x42\x02\x08\x01"
    entry = b"\x0a\x05value\x12" + bytes([len(data_type)]) + data_type
    return name + b"\x2a" + bytes([len(entry)]) + entry


async def test_a_crowd_of_readers(service: ServiceProcess, stored: dict[str, Any]) -> None:
    """After a first window, the peak of each further window is no higher: nothing accumulates."""
    counts, peaks = [], []
    for window in range(WINDOWS + 1):
        service.forget_peak()
        counts.append(await crowd(service, f"/v1/stores/{stored['id']}/chunks/1", seed=window))
        peaks.append(service.peak())
    shown = ", ".join(f"{peak / (1 << 20):.1f}" for peak in peaks)
    print(f"{READERS} readers, {counts} ranges of 64 KiB in each window, peaks in MiB: {shown}")
    assert max(peaks[1:]) < peaks[0] + SLACK


async def crowd(service: ServiceProcess, path: str, seed: int) -> int:
    """Return the number of ranges that the crowd read; each is compared with the expected bytes."""
    until = monotonic() + SECONDS / WINDOWS
    return sum(await asyncio.gather(*(reads(service, path, Random(seed * READERS + n), until) for n in range(READERS))))


async def reads(service: ServiceProcess, path: str, random: Random, until: float) -> int:
    """Read at least four ranges over one connection, and more until the stop; return their number."""
    source, sink = await asyncio.open_connection(service.server.host, service.server.port, limit=4 * READ)
    count = 0
    while count < 4 or monotonic() < until:
        start = random.randrange(GRAPH.each - READ)
        sink.write(
            f"GET {path} HTTP/1.1\r\nhost: localhost\r\nrange: bytes={start}-{start + READ - 1}\r\n\r\n".encode()
        )
        head = await source.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206 "), head
        assert await source.readexactly(READ) == GRAPH.content_range(0, start, start + READ)
        count += 1
    sink.close()
    await sink.wait_closed()
    return count


def test_the_measure_sees_what_grows(service: ServiceProcess) -> None:
    """A worker holds a message that is shown as JSON several times over, and that must count."""
    graph = LargeGraph(1, 16 << 20)
    url = f"{service.url}/v1/stores/{upload(service, graph)['id']}/merge"
    service.forget_peak()
    before = service.peak()
    assert httpx.get(url, headers={"accept": "application/json"}).status_code == 200
    assert service.peak() - before > graph.size
