"""A source that reads byte ranges of one view from a service, and verifies the bytes.

Callers that read a whole view compare the SHA-256 of the view, if the service knows it. All other reads arrive in
responses of at most a mebibyte, and each response has its own digest.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import Final

import httpx

from protoslice.client.http.connection import Connection, FailuresInRow, Params
from protoslice.client.http.ranges import ObjectInfo, RangeResponse, check_range
from protoslice.client.threads import Transfer, in_order
from protoslice.defaults import CONNECTIONS
from protoslice.errors import IntegrityError, InvalidInput, ProtosliceError, StorageUnavailable

PART: Final = 8 << 20
"""Number of bytes that each request reads while several requests run concurrently."""
SINGLE_STREAM_RATE: Final = 256 << 20
"""Rate in bytes per second at which one connection suffices. More connections would only cost processor time."""
SINGLE_STREAM_STEPS: Final = (4 << 20, 64 << 20)
"""Numbers of bytes of the first and of the longest request while a transfer uses a single connection."""
DIGESTED: Final = 1 << 20
"""Maximum number of bytes in a response with a Content-Digest."""
_PROGRESS: Final = 64 << 10
"""Minimum number of received bytes that count as progress. Progress resets the number of failures in a row."""


class Remote:
    """Read a view of a store by byte ranges.

    `Client.source` returns such an object, and `protoslice.open` accepts it.

    Args:
        connection: Connection to the service.
        path: URL path of the view.
        params: Query parameters, as pairs.
        size: Expected size in bytes, if known.
        sha256: Expected SHA-256 in hex, if known.
        lean: Fetch only the bytes that are read. By default, the first request fetches a mebibyte.
        parallel: Maximum number of concurrent requests of one read.

    Examples:
        >>> source = client.source("demo:1", "files/model.onnx")
        >>> with protoslice.open(source) as proto:
        ...     proto.type
        'onnx.ModelProto'
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        params: Params = (),
        *,
        size: int | None = None,
        sha256: str | None = None,
        lean: bool = False,
        parallel: int = CONNECTIONS,
    ) -> None:
        self.received = 0
        """Number of content bytes received from the service."""
        self._connection = connection
        self._path = path
        self._params = params
        self._expected = size, sha256
        self._lean = lean
        self._parallel = parallel
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._head = b""
        self._facts: ObjectInfo | None = None
        self._ranged = True

    def __reduce__(self) -> tuple[Callable[[], Remote], tuple[()]]:
        """Pickle the arguments, including the connection's headers and token. Unpickling creates a new source."""
        size, sha256 = self._expected
        again = partial(Remote, self._connection, self._path, self._params, lean=self._lean, parallel=self._parallel)
        return partial(again, size=size, sha256=sha256), ()

    @property
    def facts(self) -> ObjectInfo:
        """Size, entity tag, digest and headers of the view.

        The first use makes a request: for the first mebibyte of the view, or, with `lean`, only for its headers.
        """
        with self._lock:
            if self._facts is None:
                begin = self._look if self._lean else self._read_head
                self._facts = self._connection.retries.run(begin)
            return self._facts

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.facts.size

    @property
    def name(self) -> str:
        """Last segment of the path. `protoslice.open` detects the type from this name."""
        return self._path.rpartition("/")[2]

    def read(self, offset: int, length: int, /) -> bytes:
        """Return `length` verified bytes at `offset`.

        Args:
            offset: Offset of the first byte.
            length: Number of bytes.

        Returns:
            Exactly `length` bytes.

        Raises:
            InvalidInput: The range is not within the view.
            IntegrityError: The bytes do not match their digest.

        Examples:
            >>> client.source("demo:1", "merge").read(0, 2).hex()
            '080a'
        """
        end = offset + length
        if offset < 0 or length < 0 or end > self.size:
            raise InvalidInput(f"Bytes {offset} to {end} are out of range: the size is {self.size}")
        if end <= len(self._head):
            return self._head[offset:end]
        if length <= DIGESTED:
            return b"".join(self._transfer(offset, end, True, threading.Event()))
        return b"".join(in_order(self._transfers(offset, end, DIGESTED, digested=True), self._parallel))

    def read_unverified(self, offset: int, length: int) -> bytes:
        """Return `length` bytes at `offset`, and check only their number. The caller has to verify the digest.

        Args:
            offset: Offset of the first byte.
            length: Number of bytes.

        Returns:
            Exactly `length` unverified bytes.

        Examples:
            >>> client.source("demo:1", "merge").read_unverified(0, 2).hex()
            '080a'
        """
        return b"".join(self._transfer(offset, offset + length, False, threading.Event()))

    def parts(self, start: int, parallel: int) -> Generator[bytes, None, None]:
        """Yield all bytes from `start` to the end, in order.

        If the SHA-256 of the whole view is known, the parts are not verified. Then the caller has to compare the
        SHA-256.

        Args:
            start: Offset of the first byte.
            parallel: Maximum number of concurrent requests. If one connection is fast enough, only that one is used.

        Returns:
            A generator of bytes.

        Examples:
            >>> sum(map(len, client.source("demo:1", "merge").parts(0, 4)))
            37000421
        """
        facts = self.facts
        if not self._ranged:
            yield from self._transfer(start, facts.size, False, threading.Event())
            return
        if start < len(self._head):
            yield self._head[start:]
            start = len(self._head)
        if facts.sha256 is None:
            yield from in_order(self._transfers(start, facts.size, DIGESTED, digested=True), parallel)
            return
        start = yield from self._while_fast(start)
        yield from in_order(self._transfers(start, facts.size, PART, digested=False), parallel)

    def _while_fast(self, start: int) -> Generator[bytes, None, int]:
        """Yield bytes from `start` over one connection while it is fast enough; return the offset reached."""
        at, (step, longest) = start, SINGLE_STREAM_STEPS
        while at < self.size:
            end, waited, asked = min(self.size, at + step), 0.0, perf_counter()
            for piece in self._transfer(at, end, False, threading.Event()):
                waited += perf_counter() - asked
                yield piece
                asked = perf_counter()  # the time that the consumer takes does not count
            if end - at < SINGLE_STREAM_RATE * waited:
                return end
            at, step = end, min(2 * step, longest)
        return at

    def _transfers(self, start: int, end: int, step: int, *, digested: bool) -> Iterator[Transfer]:
        for at in range(start, end, step):
            yield partial(self._transfer, at, min(end, at + step), digested)

    def _transfer(self, start: int, end: int, digested: bool, stop: threading.Event) -> Iterator[bytes]:
        """Yield the bytes from `start` up to `end`. Resume after a failure; give up after several failures in a row."""
        at, failures = start, FailuresInRow(self._connection.retries)
        while at < end:
            before = at
            try:
                for piece in self._brought(at, end, digested):
                    at += len(piece)
                    yield piece
                    if stop.is_set():
                        raise StorageUnavailable("The transfer was stopped")
            except ProtosliceError as error:
                if at - before >= _PROGRESS:
                    failures.progressed()
                pause = failures.pause(error)
                if pause is None or stop.wait(pause):
                    raise

    def _brought(self, start: int, end: int, digested: bool) -> Iterator[bytes]:
        """Yield the bytes of one response in pieces. With `digested`, yield one piece after checking its digest."""
        with self._answer(start, end, self.facts, digested) as (validated, pieces):
            if digested:
                data = b"".join(pieces)
                _compare(data, validated.digest)
                yield data
            else:
                yield from pieces

    @contextmanager
    def _answer(
        self, start: int, end: int, known: ObjectInfo | None, digested: bool
    ) -> Iterator[tuple[RangeResponse, Iterator[bytes]]]:
        headers = {"range": f"bytes={start}-{end - 1}"}
        if digested:
            headers["want-content-digest"] = "sha-256=1"
        with self._connection.stream("GET", self._path, params=self._params, headers=headers) as answer:
            validated = check_range(answer.status_code, answer.headers, start, end, known)
            yield validated, self._wanted(answer, validated, start, end)

    def _wanted(self, answer: httpx.Response, validated: RangeResponse, start: int, end: int) -> Iterator[bytes]:
        """Yield those bytes of a response's body that are between the offsets `start` and `end`.

        The body may contain more: a proxy may ignore the requested range and return the whole view.
        """
        at, due = validated.start, min(end, validated.facts.size)
        for piece in answer.iter_raw():
            with self._counting:
                self.received += len(piece)
            wanted = piece[max(0, start - at) : max(0, due - at)]
            at += len(piece)
            if wanted:
                yield wanted
            if at >= due:
                return
        if at < due:
            raise StorageUnavailable("The service closed the connection in the middle of a response: try again")

    def _look(self) -> ObjectInfo:
        with self._connection.stream("HEAD", self._path, params=self._params) as answer:
            facts = check_range(answer.status_code, answer.headers, 0, 0, None).facts
        self._check(facts)
        return facts

    def _read_head(self) -> ObjectInfo:
        with self._answer(0, DIGESTED, None, True) as (validated, pieces):
            head, facts = b"".join(pieces), validated.facts
        self._check(facts)
        self._ranged = validated.end <= DIGESTED
        if self._ranged and head:
            _compare(head, facts.sha256 if len(head) == facts.size and facts.sha256 else validated.digest)
            self._head = head
        if not self._ranged and facts.sha256 is None:
            raise IntegrityError(
                "A proxy drops the Range header, and the response has no checksum: connect without the proxy"
            )
        return facts

    def _check(self, facts: ObjectInfo) -> None:
        """Raise `IntegrityError` if the facts contradict the expected size or digest."""
        size, sha256 = self._expected
        if size is not None and facts.size != size:
            raise IntegrityError(f"The service reports {facts.size} bytes instead of {size}")
        if sha256 is not None and facts.sha256 is not None and facts.sha256.hex() != sha256:
            raise IntegrityError("The service reports a different checksum than it listed")


def _compare(data: bytes, expected: bytes | None) -> None:
    if expected is None:
        raise IntegrityError("A response has no checksum, so it cannot be verified")
    if hashlib.sha256(data).digest() != expected:
        raise IntegrityError("A response does not match its checksum: try again")
