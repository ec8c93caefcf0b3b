"""The records of a store as a sequence, which is a data source for Grain and a dataset for PyTorch."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from random import Random
from typing import Final, overload

from protoslice._core import shuffled
from protoslice.client.threads import DaemonPool
from protoslice.defaults import CONNECTIONS
from protoslice.errors import IntegrityError, InvalidInput, named_options
from protoslice.facts import RecordsSummary
from protoslice.streams import open_records
from protoslice.streams.framing import DECODED
from protoslice.streams.selection import RecordChoice, RecordPart

_BYTES: Final = 15 << 16
"""Approximate number of bytes that one request reads, estimated by the mean record size.

The response may be slightly longer, and still has a digest.
"""
_NUMBERS: Final = 500
"""Maximum number of records in a request that lists record numbers in its URL."""
WINDOW: Final = 64 << 20
"""Default number of bytes in the records that are shuffled together."""
_RUNS: Final = 16
"""Minimum number of runs of consecutive records in a window. Windows of more than 15 MiB have more runs."""

Params = Sequence[tuple[str, str]]
Ask = Callable[[Params], bytes]


@named_options
class RemoteRecords(Sequence[bytes]):
    """Read the records of a store, or a slice of the records, as a sequence. `Client.records` returns such an object.

    Threads may share the object. Large reads use several concurrent requests. The object can be pickled for workers of
    data loaders; the pickle includes the client's token.

    Examples:
        >>> stored = client.push(bytes([3]) + b"abc" + bytes([2]) + b"de", filename="words.pb").store
        >>> records = client.records(stored.id, framing="delimited")
        >>> len(records), list(records), records[[1, 0]]
        (2, [b'abc', b'de'], [b'de', b'abc'])
    """

    def __init__(
        self, summary: RecordsSummary, ask: Ask, again: Callable[[], RemoteRecords], parallel: int = CONNECTIONS
    ) -> None:
        """Create the sequence.

        `ask` returns the verified bytes of the records that query parameters select. `again` opens the same records in
        another process, and has to be picklable.
        """
        self.summary = summary
        """The stream's framing, message type, number of records, size in bytes, and damage."""
        self._ask = ask
        self._again = again
        self._parallel = parallel
        self._numbers = range(summary.count)

    @property
    def type(self) -> str | None:
        """Full name of the records' message type, or None if it is unknown."""
        return self.summary.type

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, key: int) -> bytes: ...
    @overload
    def __getitem__(self, key: slice) -> RemoteRecords: ...
    @overload
    def __getitem__(self, key: Sequence[int]) -> list[bytes]: ...
    def __getitem__(self, key: int | slice | Sequence[int]) -> bytes | RemoteRecords | list[bytes]:
        if isinstance(key, slice):
            return self._only(self._numbers[key])
        if isinstance(key, Sequence):
            return self.__getitems__(key)
        return self.__getitems__([key])[0]

    def __getitems__(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the records with these numbers, in the order of `numbers`.

        The number of concurrent requests is limited. A record whose number occurs twice is fetched once.
        """
        wanted = [self._number(number) for number in numbers]
        numbered = sorted(set(wanted))
        found = dict(zip(numbered, chain.from_iterable(self._each(self._parts(numbered))), strict=True))
        return [found[number] for number in wanted]

    def __iter__(self) -> Generator[bytes, None, None]:
        """Yield the records in order. Some records are requested before the caller needs them."""
        for records in self.runs():
            yield from records

    def runs(self) -> Generator[list[bytes], None, None]:
        """Yield all records in order, in lists of about a mebibyte.

        Some lists are requested before the caller needs them.

        Returns:
            A generator of lists.

        Examples:
            >>> stored = client.push(bytes([3]) + b"abc" + bytes([2]) + b"de", filename="words.pb").store
            >>> list(client.records(stored.id, framing="delimited").runs())
            [[b'abc', b'de']]
        """
        return self._each(self._parts(self._numbers))

    def batches(
        self, size: int, *, shuffle: bool = False, seed: int = 0, window: int = WINDOW
    ) -> Iterator[list[bytes]]:
        """Return the records in lists of `size` records; the last list may be shorter.

        With `shuffle`, runs of consecutive records are drawn at random from the whole stream. Runs with a total of
        about `window` bytes are shuffled together. A smaller window has shorter runs. Some records are requested
        before the caller needs them.

        Args:
            size: Records in each list.
            shuffle: Return the records in random order.
            seed: Seed of the random order.
            window: Bytes that are shuffled together. The default is 64 MiB.

        Returns:
            An iterator of lists.

        Raises:
            InvalidInput: `size` or `window` is less than 1.

        Examples:
            >>> stored = client.push(bytes([3]) + b"abc" + bytes([2]) + b"de", filename="words.pb").store
            >>> list(client.records(stored.id, framing="delimited").batches(1))
            [[b'abc'], [b'de']]
        """
        if size < 1 or window < 1:
            raise InvalidInput(
                f"Invalid sizes: a batch needs at least 1 record and a window at least 1 byte, not {size} and {window}"
            )
        runs = self._windows(Random(seed), window) if shuffle else self.runs()
        return _regrouped(runs, size)

    def _windows(self, random: Random, window: int) -> Iterator[list[bytes]]:
        """Yield shuffled lists of records. Each list joins several random runs of consecutive records."""
        step = self._records_in(min(_BYTES, window // _RUNS))
        step = step if abs(self._numbers.step) == 1 else min(_NUMBERS, step)
        starts = list(range(0, len(self), step))
        random.shuffle(starts)
        runs = self._each(self._numbers[start : start + step] for start in starts)
        while near := list(chain.from_iterable(islice(runs, max(1, self._records_in(window) // step)))):
            yield shuffled(near, random.getrandbits(64))

    def matching(self, key: str, *values: str) -> list[bytes]:
        """Return the records in which a field has one of `values`, in the order of `values`.

        The first search for a field may be slow, because the service reads the whole stream.

        Args:
            key: Path of the field.
            *values: Values to look for.

        Returns:
            The records.

        Raises:
            NotFound: No record has one of the values.
            InvalidInput: This object is a slice.

        Examples:
            >>> named = bytes([10, 2]) + b"m1"  # a serialized onnx.NodeProto with this input
            >>> stored = client.push(bytes([4]) + named, filename="nodes.pb").store
            >>> records = client.records(stored.id, framing="delimited", type="onnx.NodeProto")
            >>> len(records.matching("input[0]", "m1"))
            1
        """
        self._check_whole("matching")
        return self._records(RecordChoice(key=key, values=values).params())

    def sample(self, count: int, seed: int = 0) -> list[bytes]:
        """Return a random sample of the records, in the order of the stream.

        Args:
            count: Number of records to draw, at most 10 000. If the stream is shorter, all its records are returned.
            seed: Seed of the random choice.

        Returns:
            The records.

        Raises:
            InvalidInput: This object is a slice, or `count` is too large.

        Examples:
            >>> stored = client.push(bytes([3]) + b"abc" + bytes([2]) + b"de", filename="words.pb").store
            >>> client.records(stored.id, framing="delimited").sample(2)
            [b'abc', b'de']
        """
        self._check_whole("sample")
        return self._records(RecordChoice(sample=count, seed=seed).params())

    def parts(self, start: int, stop: int, path: str = "", fields: Sequence[str] = ()) -> list[bytes]:
        """Return one part of each record from `start` up to `stop`, or empty bytes for a record without this part.

        Args:
            start: Number of the first record.
            stop: Number after the last record.
            path: Path of the part, or empty for the whole record.
            fields: Paths below `path` to keep, or empty for all.

        Returns:
            The serialized parts, one for each record.

        Raises:
            NotFound: None of the records has the part.
            InvalidInput: This object is a slice with a step.

        Examples:
            >>> named = bytes([10, 2]) + b"m1"  # a serialized onnx.NodeProto with this input
            >>> stored = client.push(bytes([4]) + named, filename="nodes.pb").store
            >>> client.records(stored.id, framing="delimited", type="onnx.NodeProto").parts(0, 1, "input[0]")
            [b'm1']
        """
        numbers = self._numbers[start:stop]
        if numbers.step != 1:
            raise InvalidInput("Only parts of consecutive records can be read: use a slice without a step")
        choice = RecordChoice(range=f"{numbers.start}:{numbers.stop}")
        return self._records([*choice.params(), *RecordPart(path, tuple(fields)).params()])

    def __reduce__(self) -> tuple[Callable[..., RemoteRecords], tuple[object, ...]]:
        """Pickle the client's options, including credentials, so that a data loader's worker can open the records."""
        return _opened, (self._again, self._numbers)

    def _only(self, numbers: range) -> RemoteRecords:
        """Return a sequence of the stream's records with these `numbers`."""
        part = RemoteRecords(self.summary, self._ask, self._again, self._parallel)
        part._numbers = numbers
        return part

    def _check_whole(self, call: str) -> None:
        if self._numbers != range(self.summary.count):
            raise InvalidInput(f"A slice of records has no `{call}`: call `{call}` on the whole sequence of the store")

    def __repr__(self) -> str:
        return f"<{len(self)} records of {self.type or 'unknown type'}, {self.summary.framing}, on a service>"

    @property
    def _framing(self) -> str:
        """Framing to request from the service.

        With the stream's own framing, the service copies the bytes unchanged. If the service has to decode the stream's
        framing, the records are requested as `delimited`.
        """
        return "delimited" if self.summary.framing in DECODED else self.summary.framing

    def _records_in(self, size: int) -> int:
        """Return the number of records that have about `size` bytes in total, at least 1."""
        return max(1, size * self.summary.count // max(1, self.summary.size))

    def _number(self, index: int) -> int:
        try:
            return self._numbers[index]
        except IndexError:
            raise IndexError(f"No record {index}: there are {len(self)} records") from None

    def _parts(self, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
        """Split `numbers`, which are in ascending or descending order, into one part for each request."""
        step = self._records_in(_BYTES)
        step = step if _consecutive(numbers) else min(_NUMBERS, step)
        yield from (numbers[at : at + step] for at in range(0, len(numbers), step))

    def _each(self, parts: Iterator[Sequence[int]]) -> Generator[list[bytes], None, None]:
        """Yield the records of each part, in order. A bounded number of parts is requested in advance."""
        with DaemonPool(self._parallel, "protoslice-records") as pool:
            coming = deque(pool.submit(partial(self._read, part)) for part in islice(parts, 2 * self._parallel))
            while coming:
                yield coming.popleft().result()
                coming.extend(pool.submit(partial(self._read, part)) for part in islice(parts, 1))

    def _read(self, numbers: Sequence[int]) -> list[bytes]:
        """Fetch the records of `numbers` with one request; the numbers are in ascending or descending order."""
        if numbers[0] > numbers[-1]:
            return self._read(numbers[::-1])[::-1]
        near = _consecutive(numbers)
        asked = ("range", f"{numbers[0]}:{numbers[-1] + 1}") if near else ("n", ",".join(map(str, numbers)))
        records = self._split(self._ask([asked, ("format", self._framing)]), self._framing)
        if len(records) != len(numbers):
            raise IntegrityError(f"The service returned {len(records)} records instead of {len(numbers)}")
        return records

    def _records(self, params: Params) -> list[bytes]:
        return self._split(self._ask(params), "delimited")

    def _split(self, data: bytes, framing: str) -> list[bytes]:
        return open_records(data, self.type or "unknown", framing=framing).all()


def _opened(again: Callable[[], RemoteRecords], numbers: range) -> RemoteRecords:
    return again()._only(numbers)


def _regrouped(runs: Iterable[list[bytes]], size: int) -> Iterator[list[bytes]]:
    """Yield the records of all `runs` in lists of `size` records; the last list may be shorter."""
    rest: list[bytes] = []
    for run in runs:
        rest += run
        whole = len(rest) - len(rest) % size
        yield from (rest[at : at + size] for at in range(0, whole, size))
        rest = rest[whole:]
    if rest:
        yield rest


def _consecutive(numbers: Sequence[int]) -> bool:
    return len(numbers) > 0 and numbers[-1] - numbers[0] == len(numbers) - 1
