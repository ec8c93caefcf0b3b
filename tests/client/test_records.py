"""Records of a store as a sequence: the client reads them by few requests, and verifies all."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from inspect import isawaitable
from pathlib import Path
from threading import Barrier
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from tests.support.serve import LiveServer
from tests.support.streams import FRAMED, example

import protoslice
from protoslice._core import shuffled
from protoslice.client import AsyncClient, Client
from protoslice.client.asynchronous import AsyncRecords
from protoslice.client.records import RemoteRecords
from protoslice.errors import IntegrityError, InvalidInput, NotFound, Unsupported
from protoslice.facts import RecordsSummary
from protoslice.sources.files import BytesSource

EXAMPLES = [example(n) for n in range(3000)]


@pytest.fixture(scope="module")
def stored(client: Client) -> str:
    """Return the id of a store of a stream, which has the tag `train`."""
    return client.push(FRAMED["tfrecord"](EXAMPLES), filename="train.tfrecord", tags=["train"]).store.id


def test_a_stream_on_a_service_is_a_sequence(client: Client, stored: str) -> None:
    for ref in (stored, "train"):
        records = client.records(ref)
        assert (len(records), records.type) == (3000, "tensorflow.Example")
        assert records.summary.framing == "tfrecord"
        assert records[7] == EXAMPLES[7]
        assert records[-1] == EXAMPLES[-1]
        assert list(records[100:103]) == EXAMPLES[100:103]
        assert list(records[::1000]) == EXAMPLES[::1000]
        assert list(records) == EXAMPLES


def test_shards_are_a_sequence_too(client: Client, tmp_path: Path) -> None:
    for shard in range(4):
        path = tmp_path / f"train-{shard:05}-of-00004"
        path.write_bytes(FRAMED["tfrecord"](EXAMPLES[shard * 100 : shard * 100 + 100]))
    ref = client.push(tmp_path).store.id
    for file in (None, "train@4"):
        records = client.records(ref, file=file)
        assert (records.summary.file, len(records), records.type) == ("train@4", 400, "tensorflow.Example")
        assert list(records) == EXAMPLES[:400]
        assert records[[399, 0, 250]] == [EXAMPLES[399], EXAMPLES[0], EXAMPLES[250]]
    assert client.merge(ref, "records[250]", file="train@4") == EXAMPLES[250]


def test_a_shuffled_batch_is_one_request(client: Client, stored: str) -> None:
    records = client.records(stored)
    numbers = [random.Random(1).randrange(3000) for _ in range(256)]
    asked: list[Sequence[tuple[str, str]]] = []
    records._ask = noting(asked, records._ask)
    assert records.__getitems__(numbers) == [EXAMPLES[n] for n in numbers]
    assert len(asked) == 1
    assert records[[5, 5, 5]] == [EXAMPLES[5]] * 3
    assert records[[]] == []
    many = random.Random(2).sample(range(3000), 1500)
    asked.clear()
    assert records[many] == [EXAMPLES[n] for n in many]
    assert len(asked) == 3
    assert all(len(urlencode(params)) < 4000 for params in asked)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("key", [np.s_[500:2500], np.s_[::7], np.s_[2900:10:-1], np.s_[::-3], np.s_[5:5], np.s_[-9:]])
def test_a_slice_reads_nothing_before_it_is_asked(client: Client, stored: str, key: slice, local: bool) -> None:
    data = Counting(FRAMED["tfrecord"](EXAMPLES)) if local else None
    records: Any = protoslice.records(data) if data is not None else client.records(stored)
    asked: list[Any] = [] if data is None else data.asked
    if data is None:
        records._ask = noting(asked, records._ask)
    asked.clear()
    part, due = records[key], EXAMPLES[key]
    assert len(part) == len(due)
    assert asked == []
    assert list(part) == due
    assert list(part[3:50:2]) == due[3:50:2]
    assert part[::5][[1, 0]] == [due[5], due[0]] if due else part[::5][[]] == []
    if not local:
        assert [record for batch in part.batches(9) for record in batch] == due
        shuffled = [record for batch in part.batches(9, shuffle=True, window=1 << 16) for record in batch]
        assert sorted(shuffled) == sorted(due)
    with pytest.raises(IndexError, match=f"there are {len(due)}"):
        part[len(due)]


def test_a_slice_has_parts_but_no_keys(client: Client, stored: str) -> None:
    part = client.records(stored)[100:200]
    label = 'features.feature["label"].int64_list.value[0]'
    assert part.parts(10, 13, label) == [b"110", b"111", b"112"]
    for call, values in ((part.matching, (label, "7")), (part.sample, (3,)), (part[::2].parts, (0, 3))):
        with pytest.raises(InvalidInput, match="slice"):
            call(*values)


class Counting(BytesSource):
    """Bytes that record each read."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.asked: list[Any] = []

    def read(self, offset: int, length: int, /) -> bytes:
        self.asked.append((offset, length))
        return super().read(offset, length)


def test_a_reader_that_stops_leaves_no_thread(client: Client, stored: str) -> None:
    records = client.records(stored)
    records._ask = noting([], records._ask)
    reading = iter(records)
    assert next(reading) == EXAMPLES[0]
    reading.close()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "protoslice-records"]


def test_a_number_that_is_none_is_an_index_error(client: Client, stored: str) -> None:
    records = client.records(stored)
    for number in (3000, -3001):
        with pytest.raises(IndexError, match="there are 3000"):
            records[number]


def test_a_file_a_framing_and_a_type_can_be_named(client: Client) -> None:
    ref = client.push(b"\x02\x08\x07", filename="any").store.id
    assert client.records(ref, file="any", framing="delimited", type="onnx.ModelProto").type == "onnx.ModelProto"
    with pytest.raises(NotFound, match="no file"):
        client.records(ref, file="other")
    with pytest.raises(Unsupported, match="framing"):
        client.records(client.push(b"\x89PNG\r\n\x1a\n", filename="x.png").store.id)


def test_an_answer_of_too_few_records_is_not_believed() -> None:
    summary = RecordsSummary(file="f", framing="delimited", type=None, count=10, size=100, fault=None)
    records = RemoteRecords(summary, lambda _: b"\x01a", lambda: records, 1)
    with pytest.raises(IntegrityError, match="1 records instead of 2"):
        list(records[0:2])


class Awaited:
    """The records of an asynchronous client, with the methods of `RemoteRecords`."""

    def __init__(self, url: str, ref: str) -> None:
        self._url, self._ref = url, ref

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            async def work() -> Any:
                async with AsyncClient(self._url) as ours:
                    made = getattr(await ours.records(self._ref), name)(*args, **options)
                    return await made if isawaitable(made) else [item async for item in made]

            return asyncio.run(work())

        return call

    @property
    def facts(self) -> tuple[RecordsSummary, str | None, int]:
        async def work() -> tuple[RecordsSummary, str | None, int]:
            async with AsyncClient(self._url) as ours:
                records = await ours.records(self._ref)
                return records.summary, records.type, len(records)

        return asyncio.run(work())

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.__aiter__())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_both_clients_have_the_same_calls(service: LiveServer, client: Client, stored: str, asynchronous: bool) -> None:
    own = client.records(stored)
    records: Any = Awaited(service.url, stored) if asynchronous else own
    facts = records.facts if asynchronous else (own.summary, own.type, len(own))
    assert facts == (own.summary, "tensorflow.Example", 3000)
    read = records.read if asynchronous else records.__getitems__
    assert read([9, 3]) == [EXAMPLES[9], EXAMPLES[3]]
    assert list(records) == EXAMPLES
    assert [len(batch) for batch in records.batches(1000)] == [1000] * 3
    mixed = [record for batch in records.batches(256, shuffle=True, seed=5, window=1 << 16) for record in batch]
    assert mixed == [record for batch in own.batches(256, shuffle=True, seed=5, window=1 << 16) for record in batch]
    assert sorted(mixed) == sorted(EXAMPLES)
    label = 'features.feature["label"].int64_list.value[0]'
    assert records.matching(label, "7", "2999") == [EXAMPLES[7], EXAMPLES[2999]]
    with pytest.raises(NotFound, match="'3000'"):
        records.matching(label, "3000")
    assert records.sample(5, seed=3) == own.sample(5, seed=3) != own.sample(5, seed=4)
    assert records.parts(10, 13, label) == [b"10", b"11", b"12"]
    assert records.parts(10, 11, fields=["features"]) == EXAMPLES[10:11]
    with pytest.raises(InvalidInput, match="at least 1 record"):
        list(records.batches(0))


def test_no_call_of_one_client_is_missing_in_the_other() -> None:
    assert {name for name in vars(RemoteRecords) if name[0] != "_"} - {"runs"} <= {*vars(AsyncRecords), "type"}


async def test_an_asynchronous_reader_that_stops_leaves_no_thread(service: LiveServer, stored: str) -> None:
    async with (
        AsyncClient(service.url) as ours,
        aclosing((await ours.records(stored)).batches(10)) as batches,  # type: ignore[type-var]
    ):
        assert await anext(batches) == EXAMPLES[:10]
    assert not [thread.name for thread in threading.enumerate() if thread.name == "protoslice-records"]


def noting(
    asked: list[Sequence[tuple[str, str]]], ask: Callable[[Sequence[tuple[str, str]]], bytes]
) -> Callable[[Sequence[tuple[str, str]]], bytes]:
    def run(params: Sequence[tuple[str, str]]) -> bytes:
        asked.append(params)
        return ask(params)

    return run


def test_records_in_order_are_asked_for_side_by_side_in_the_framing_of_the_stream(
    client: Client, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, together = client.records(stored), Barrier(4)
    ask, asked = records._ask, list[Sequence[tuple[str, str]]]()

    def waiting(params: Sequence[tuple[str, str]]) -> bytes:
        asked.append(params)
        together.wait(10)  # raises an error where a request waits for another request's answer
        return ask(params)

    monkeypatch.setattr("protoslice.client.records._BYTES", -(-records.summary.size // 8))
    records._ask, records._parallel = waiting, 4
    assert list(records) == EXAMPLES
    assert len(asked) == 8
    assert all(("format", "tfrecord") in params for params in asked)


def test_a_reader_that_stands_still_is_not_run_ahead_of(
    client: Client, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, asked = client.records(stored), list[Sequence[tuple[str, str]]]()
    monkeypatch.setattr("protoslice.client.records._BYTES", records.summary.size // 300)
    records._ask, records._parallel = noting(asked, records._ask), 2
    reading = iter(records)
    assert next(reading) == EXAMPLES[0]
    assert len(asked) <= 4
    assert [EXAMPLES[0], *reading] == EXAMPLES


def test_batches_come_in_order_or_shuffled_by_a_seed(client: Client, stored: str) -> None:
    records = client.records(stored)
    assert [len(batch) for batch in records.batches(256)] == [256] * 11 + [184]
    assert [record for batch in records.batches(256) for record in batch] == EXAMPLES
    one, same, other = (list(records.batches(256, shuffle=True, seed=seed)) for seed in (1, 1, 2))
    assert one == same != other
    flat = [record for batch in one for record in batch]
    assert flat != EXAMPLES
    assert sorted(flat) == sorted(EXAMPLES)
    with pytest.raises(InvalidInput, match="at least 1 record"):
        records.batches(0)


def test_every_order_is_as_likely() -> None:
    drawn = Counter(tuple(shuffled([0, 1, 2], seed)) for seed in range(6000))
    assert len(drawn) == 6
    assert all(800 < times < 1200 for times in drawn.values()), "a fair draw: 1000 ± 7 deviations"
    items = [object() for _ in range(1000)]
    mixed = shuffled(items, 1 << 63)
    assert sorted(map(id, mixed)) == sorted(map(id, items))
    assert mixed != items == [*items]
    assert (shuffled([], 1), shuffled([7], 1)) == ([], [7])


def test_a_shuffled_window_is_drawn_from_all_over_the_stream_and_bounded(client: Client, stored: str) -> None:
    records, asked = client.records(stored), list[Sequence[tuple[str, str]]]()
    records._ask, records._parallel = noting(asked, records._ask), 1
    batches = records.batches(10, shuffle=True, window=records.summary.size // 10)
    first = [EXAMPLES.index(record) for record in next(batches)]
    assert len(asked) <= 16 + 3  # a window, and records requested in advance
    assert max(first) - min(first) > 1000
    assert len({number // 18 for number in first}) > 3  # runs have 18 records, and records of several runs are mixed


def test_a_stream_without_records_has_no_batches(client: Client) -> None:
    records = client.records(client.push(b"", filename="none", type="").store.id, framing="delimited")
    assert list(records) == []
    assert list(records.batches(3)) == list(records.batches(3, shuffle=True)) == []
