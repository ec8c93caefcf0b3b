"""Objects as range sources: exact, pinned, and by few requests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.support.counted import CountedBucket, counted_bucket

from protoslice.errors import Conflict, CorruptModel, InvalidInput, NotFound
from protoslice.sources.remote import ObjectSource, open_object
from protoslice.storage import ObjectKey

BLOCK = 64 << 10
DATA = os.urandom(48 << 20)


@pytest.fixture
def bucket() -> Iterator[CountedBucket]:
    with counted_bucket() as found:
        found.fill({"folder/a": DATA, "empty": b""})
        yield found


@pytest.fixture
def source(bucket: CountedBucket) -> Iterator[ObjectSource]:
    with open_object(f"{bucket.uri}/folder/a") as opened:
        bucket.requests.clear()
        yield opened


@pytest.mark.parametrize(
    ("offset", "length"),
    [(0, 0), (0, 1), (BLOCK - 1, 2), (BLOCK, BLOCK), (5, 9 << 20), (len(DATA) - 1, 1), (len(DATA), 0), (0, len(DATA))],
)
def test_reads_are_exact(source: ObjectSource, offset: int, length: int) -> None:
    for _ in range(2):
        assert source.read(offset, length) == DATA[offset : offset + length]


def test_a_range_beyond_the_end_is_refused(source: ObjectSource) -> None:
    with pytest.raises(CorruptModel, match=r"folder/a has only \d+ bytes"):
        source.read(len(DATA), 1)
    with pytest.raises(InvalidInput):
        source.read(-1, 1)


def test_opening_costs_one_request_and_no_bytes(bucket: CountedBucket) -> None:
    with open_object(f"{bucket.uri}/folder/a") as opened:
        assert opened.size == len(DATA)
    assert bucket.requests == [("stat", 0)]
    assert bucket.closed == 1


def test_a_small_read_costs_two_blocks_once(source: ObjectSource, bucket: CountedBucket) -> None:
    for offset in (3 * BLOCK, 3 * BLOCK + 5000, 5 * BLOCK - 10):
        source.read(offset, 10)
    assert bucket.requests == [("get", 2 * BLOCK)]


def test_scattered_reads_ask_for_their_blocks_and_one_more(source: ObjectSource, bucket: CountedBucket) -> None:
    for offset in range(0, len(DATA), 4 << 20):
        source.read(offset, 100)
    assert bucket.requests == [("get", 2 * BLOCK)] * 12


def test_sequential_reads_ask_for_ever_more_and_at_most_twice_what_was_read(
    source: ObjectSource, bucket: CountedBucket
) -> None:
    for offset in range(0, 2 << 20, 1000):
        source.read(offset, 1000)
    assert len(bucket.requests) <= 6
    assert bucket.bytes_read <= 4 << 20


def test_a_long_read_goes_in_bounded_requests(source: ObjectSource, bucket: CountedBucket) -> None:
    source.read(0, (40 << 20) - BLOCK)
    assert len(bucket.requests) == 10
    assert max(size for _, size in bucket.requests) == 4 << 20


def test_threads_share_a_source(source: ObjectSource) -> None:
    places = [(at * 77_777, 10_000) for at in range(200)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda place: source.read(*place), places))
    assert found == [DATA[at : at + length] for at, length in places]


async def test_a_replaced_object_is_noticed(source: ObjectSource, bucket: CountedBucket) -> None:
    source.read(0, 10)
    await bucket.objects.put(ObjectKey("folder/a"), DATA[::-1])
    with pytest.raises(Conflict):
        source.read(10 << 20, 10)


def test_an_empty_object(bucket: CountedBucket) -> None:
    with open_object(f"{bucket.uri}/empty") as opened:
        assert (opened.size, opened.read(0, 0)) == (0, b"")


def test_a_closed_source_says_so(bucket: CountedBucket) -> None:
    opened = open_object(f"{bucket.uri}/folder/a")
    opened.close()
    opened.close()
    assert bucket.closed == 1
    with pytest.raises(InvalidInput, match="closed"):
        opened.read(0, 1)


def test_nothing_there(bucket: CountedBucket) -> None:
    with pytest.raises(NotFound, match=f"No object {bucket.uri}/folder/b"):
        open_object(f"{bucket.uri}/folder/b")
    assert bucket.closed == 1


def test_a_child_process_is_told_to_open_anew(source: ObjectSource) -> None:
    source.read(0, 1)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            source.read(20 << 20, 1)
        except InvalidInput as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert "before a fork" in told.read()
