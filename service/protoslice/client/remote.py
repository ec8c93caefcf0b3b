"""One representation on a service, read by ranges: every byte that is given has been verified.

Of a representation whose sha-256 the service knows, whoever reads it whole compares that. Of any other, and of every
read of a part, the bytes come in answers of a mebibyte that carry a digest of their own.
"""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from protoslice.client.connection import Connection, Params
from protoslice.client.parts import Facts, Judged, judge
from protoslice.errors import IntegrityError, InvalidInput, ProtosliceError, StorageUnavailable

__all__ = ["PART", "Remote", "in_order"]

PART: Final = 8 << 20
"""What one request of a long transfer asks for."""
DIGESTED: Final = 1 << 20
"""The longest answer that the service gives a Content-Digest for."""
_PROGRESS: Final = 64 << 10

T = TypeVar("T")


class Remote:
    """A representation. It is a `RangeSource`: `protoslice.open` takes it."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        params: Params = (),
        *,
        size: int | None = None,
        sha256: str | None = None,
        lean: bool = False,
    ) -> None:
        self.stopped = threading.Event()
        """Set it to have what is under way end soon."""
        self.received = 0
        """How many bytes of it have come over the wire."""
        self._connection = connection
        self._path = path
        self._params = params
        self._expected = size, sha256
        self._lean = lean  # so that nothing comes that nobody may want
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._head = b""
        self._facts: Facts | None = None
        self._ranged = True

    @property
    def facts(self) -> Facts:
        """What is known of it; asks for its first mebibyte when nothing is yet."""
        with self._lock:
            if self._facts is None:
                self._facts = self._connection.patience.insist(self._begin)
            return self._facts

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.facts.size

    @property
    def name(self) -> str:
        """The last part of its path, by which types are detected."""
        return self._path.rpartition("/")[2]

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`, verified."""
        end = offset + length
        if offset < 0 or length < 0 or end > self.size:
            raise InvalidInput(f"bytes {offset} to {end} are not in something of {self.size}")
        if end <= len(self._head):
            return self._head[offset:end]
        data = bytearray(length)
        for start in range(offset, end, DIGESTED):
            at = start - offset
            self._span(start, memoryview(data)[at : at + DIGESTED], digested=True)
        return bytes(data)

    def read_unverified(self, offset: int, length: int, buffer: bytearray | None = None) -> memoryview:
        """The `length` bytes at `offset` in one answer, for whoever knows a digest of them: only the length is sure.

        They come in `buffer`, if one is given that is long enough.
        """
        view = memoryview(bytearray(length) if buffer is None else buffer)[:length]
        if length:
            self._span(offset, view, digested=False)
        return view

    def parts(self, start: int, parallel: int) -> Iterator[bytes | memoryview]:
        """All bytes from `start` on, in order, several answers at a time. A part is valid until the next one is taken.

        Where the sha-256 of the whole is known, that is still to be compared; the bytes of any other are verified.
        """
        facts = self.facts
        if not self._ranged:
            yield from self._unranged(start)
            return
        if start < len(self._head):
            yield self._head[start:]
            start = len(self._head)
        # Fresh memory costs as much as what is done with it: buffers are used again.
        spare: SimpleQueue[bytearray] = SimpleQueue()
        step = DIGESTED if facts.sha256 is None else PART
        starts = range(start, facts.size, step)
        jobs = (partial(self._part, at, min(step, facts.size - at), spare, facts.sha256 is None) for at in starts)
        for buffer, size in in_order(jobs, parallel, self.stopped):
            yield memoryview(buffer)[:size]
            spare.put(buffer)

    def _part(self, offset: int, size: int, spare: SimpleQueue[bytearray], digested: bool) -> tuple[bytearray, int]:
        try:
            buffer = spare.get_nowait()
        except Empty:
            buffer = bytearray(size)
        self._span(offset, memoryview(buffer)[:size], digested=digested)
        return buffer, size

    def _begin(self) -> Facts:
        return self._look() if self._lean else self._read_head()

    def _look(self) -> Facts:
        with self._connection.stream("HEAD", self._path, params=self._params) as answer:
            facts = judge(answer.status_code, answer.headers, 0, 0, None).facts
        self._check(facts)
        return facts

    def _read_head(self) -> Facts:
        view = memoryview(bytearray(DIGESTED))
        taken = _Taken(view)
        judged = self._answer(0, DIGESTED, None, True, taken)
        facts, head = judged.facts, bytes(view[: taken.size])
        self._check(facts)
        self._ranged = judged.end <= DIGESTED
        if self._ranged and head:
            _compare(head, facts.sha256 if len(head) == facts.size and facts.sha256 else judged.digest)
            self._head = head
        if not self._ranged and facts.sha256 is None:
            raise IntegrityError("something on the way ignores ranges, and of this no digest is known to verify it by")
        return facts

    def _check(self, facts: Facts) -> None:
        """Raise unless the facts are what is known from elsewhere."""
        size, sha256 = self._expected
        if size is not None and facts.size != size:
            raise IntegrityError(f"the service gives {facts.size} bytes where there should be {size}")
        if sha256 is not None and facts.sha256 is not None and facts.sha256.hex() != sha256:
            raise IntegrityError("the service gives another digest than the one it listed")

    def _span(self, start: int, view: memoryview, *, digested: bool) -> None:
        """Fill `view` from `start` on; goes on where an answer broke off, and gives up when nothing moves."""
        facts, taken, failures = self.facts, _Taken(view), 0
        end = start + view.nbytes
        while not self.stopped.is_set():
            before = taken.size
            try:
                judged = self._answer(start + before, end, facts, digested, taken)
                if digested:
                    _compare(view, judged.digest)
                return
            except ProtosliceError as error:
                failures = 1 if taken.size - before >= _PROGRESS else failures + 1
                if digested:
                    taken.size = 0
                self._wait(failures, error)
        raise StorageUnavailable("the transfer has been stopped")

    def _unranged(self, start: int) -> Iterator[bytes]:
        """All bytes from `start` on in one answer after another, each of which brings the whole."""
        facts, at, failures = self.facts, start, 0
        while at < facts.size:
            before = at
            try:
                for piece in self._whole(at, facts):
                    at += len(piece)
                    yield piece
            except ProtosliceError as error:
                failures = 1 if at - before >= _PROGRESS else failures + 1
                self._wait(failures, error)

    def _wait(self, failures: int, error: ProtosliceError) -> None:
        pause = self._connection.patience.pause(failures, error)
        if pause is None:
            raise error
        self.stopped.wait(pause)

    def _answer(self, start: int, end: int, known: Facts | None, digested: bool, taken: _Taken) -> Judged:
        """Add to `taken` what an answer brings of the bytes from `start` to `end`."""
        headers = {"range": f"bytes={start}-{end - 1}"}
        if digested:
            headers["want-content-digest"] = "sha-256=1"
        with self._connection.stream("GET", self._path, params=self._params, headers=headers) as answer:
            judged = judge(answer.status_code, answer.headers, start, end, known)
            at, due = judged.start, min(end, judged.facts.size)
            for piece in answer.iter_raw():
                taken.add(piece[max(0, start - at) : max(0, due - at)])
                at += len(piece)
                if at >= due or self.stopped.is_set():
                    break
        with self._counting:
            self.received += at - judged.start
        if at < due:
            raise StorageUnavailable("the service broke off in the middle of an answer")
        return judged

    def _whole(self, skip: int, known: Facts) -> Iterator[bytes]:
        with self._connection.stream("GET", self._path, params=self._params) as answer:
            judged = judge(answer.status_code, answer.headers, 0, known.size, known)
            at = judged.start
            for piece in answer.iter_raw():
                self.received += len(piece)
                if at + len(piece) > skip:
                    yield piece[max(0, skip - at) :]
                at += len(piece)


class _Taken:
    """How much of a view has been filled, from its start on."""

    __slots__ = ("_view", "size")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.size = 0

    def add(self, piece: bytes) -> None:
        end = self.size + len(piece)
        self._view[self.size : end] = piece
        self.size = end


def in_order(jobs: Iterable[Callable[[], T]], parallel: int, stopped: threading.Event) -> Iterator[T]:
    """What the jobs give, in their order. At most twice as many as run at a time are begun and not yet taken.

    When one fails, or nobody wants the rest, `stopped` is set, so that those under way need not come to their end.
    """
    waiting: deque[Future[T]] = deque()
    pool = ThreadPoolExecutor(parallel, thread_name_prefix="protoslice-transfer")
    done = False
    try:
        for job in jobs:
            waiting.append(pool.submit(job))
            if len(waiting) >= 2 * parallel:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        done = True
    finally:
        if not done:
            stopped.set()
        pool.shutdown(cancel_futures=True)


def _compare(data: bytes | memoryview, expected: bytes | None) -> None:
    if expected is None:
        raise IntegrityError("an answer came without a digest: it cannot be verified")
    if hashlib.sha256(data).digest() != expected:
        raise IntegrityError("what came does not have the digest it came with")
