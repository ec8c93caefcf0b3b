"""Records of a store: an index is made once, stored for other replicas, and bounded."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import pytest
from tests.support.catalogues import catalogue_of
from tests.support.golden import GOLDEN
from tests.support.stores import derived_in, in_memory, opened, read, upload
from tests.support.streams import FRAMED, example

import protoslice
from protoslice import _core
from protoslice.errors import InvalidInput, LimitExceeded, NotFound
from protoslice.riegeli import RecordWriter
from protoslice.storage import MemoryStorage
from protoslice.storage.wrappers import Call, MeteredStorage
from protoslice.stores import Stores
from protoslice.streams.selection import KeyIndex, RecordChoice
from protoslice.views import records
from protoslice.views.records import RecordsRequest

EXAMPLES = [example(n) for n in range(2000)]
STREAM = FRAMED["delimited"](EXAMPLES)
ANY = RecordsRequest()


async def kept(storage: MemoryStorage) -> dict[str, bytes]:
    """Return the saved indexes in the catalogue that belongs to `storage`."""
    return {name: data for name, data in (await derived_in(storage)).items() if "/records-" in name}


async def test_an_index_is_kept_for_others_and_made_anew_when_it_is_damaged(
    stores: Stores, storage: MemoryStorage
) -> None:
    made = (await upload(stores, {"train": STREAM})).store
    await records.one((await stores.view(made.id)), 0, ANY)
    made_first = await kept(storage)
    assert len(made_first) == 1
    for damaged in (False, True):
        if damaged:
            await catalogue_of(storage).write(lambda tx: tx.run("UPDATE derived SET data = :data", data=b"damaged"))
        calls: list[Call] = []
        async with opened(MeteredStorage(storage, calls.append)) as others:
            store = await others.view(made.id)
            calls.clear()
            view = await records.one(store, 1999, ANY)
            assert await read(view) == EXAMPLES[1999]
            assert (sum(call.bytes_read for call in calls) > len(STREAM)) == damaged
        assert await kept(storage) == made_first


async def test_records_are_extents_of_the_file(stores: Stores) -> None:
    store = await stores.view((await upload(stores, {"train": STREAM})).store.id)
    one, all_ = await records.one(store, 7, ANY), await records.several(store, RecordChoice(), "delimited", ANY)
    assert [type(piece) for piece in one.rope.pieces()] == [tuple]
    assert all_.rope.pieces() == [(0, 0, len(STREAM))]
    again = await records.several(store, RecordChoice("7:8"), "u32le", ANY)
    assert await read(again) == FRAMED["u32le"](EXAMPLES[7:8])
    assert len({one.etag, all_.etag, again.etag}) == 3


@pytest.mark.parametrize("options", ["uncompressed", "zstd,chunk_size:2k", "transpose,brotli:1"])
async def test_records_of_a_riegeli_file(
    stores: Stores, options: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("riegeli") / "train.riegeli"
    with RecordWriter(path, options=options) as writer:
        writer.write_records(EXAMPLES)
    store = await stores.view((await upload(stores, {path.name: path.read_bytes()})).store.id)
    assert [await read(await records.one(store, n, ANY)) for n in (0, 700, 1999)] == [
        EXAMPLES[n] for n in (0, 700, 1999)
    ]
    part = await records.several(store, RecordChoice("1000:1500", (3,)), "tfrecord", ANY)
    assert await read(part) == FRAMED["tfrecord"]([*EXAMPLES[1000:1500], EXAMPLES[3]])


async def test_records_of_a_compressed_file_are_indexed_once(stores: Stores, storage: MemoryStorage) -> None:
    data = gzip.compress(FRAMED["tfrecord"](EXAMPLES * 10), 1)
    made = (await upload(stores, {"train.tfrecord.gz": data})).store
    assert await read(await records.one((await stores.view(made.id)), 7, ANY)) == EXAMPLES[7]
    calls: list[Call] = []
    async with opened(MeteredStorage(storage, calls.append)) as others:
        store = await others.view(made.id)
        calls.clear()
        part = await records.several(store, RecordChoice("19000:19010", (3,)), "u32le", ANY)
        assert await read(part) == FRAMED["u32le"]([*EXAMPLES[1000:1010], EXAMPLES[3]])
    assert [call.name for call in calls].count("put") == 0


async def test_records_of_an_array_record_file(stores: Stores) -> None:
    path = GOLDEN / "array_record" / "transposed.array_record"
    whole = list(protoslice.records(path))
    store = await stores.view((await upload(stores, {path.name: path.read_bytes()})).store.id)
    assert await read(await records.one(store, 99, ANY)) == whole[99]
    part = await records.several(store, RecordChoice("10:50"), "delimited", ANY)
    assert await read(part) == FRAMED["delimited"](whole[10:50])


def shards(count: int, name: str = "train") -> dict[str, bytes]:
    """Return the examples in `count` shards; the first shard is empty."""
    step = -(-len(EXAMPLES) // (count - 1))
    parts = [EXAMPLES[max(0, at) : at + step] if at >= 0 else [] for at in range(-step, len(EXAMPLES), step)]
    return {f"{name}-{n:05}-of-{count:05}": FRAMED["delimited"](part) for n, part in enumerate(parts)}


async def test_shards_are_one_stream(stores: Stores, storage: MemoryStorage) -> None:
    made = (await upload(stores, shards(7) | shards(12, "eval") | shards(3, "test") | {"readme": b"no records"})).store
    calls: list[Call] = []
    async with opened(MeteredStorage(storage, calls.append)) as others:
        store = await others.view(made.id)
        of_train = RecordsRequest("train@7")
        whole = await records.several(store, RecordChoice(), "delimited", of_train)
        assert await read(whole) == STREAM
        assert [type(piece) for piece in whole.rope.pieces()] == [tuple] * 6
        some = await records.several(store, RecordChoice("300:1700", (5, 1999)), "u32le", of_train)
        assert await read(some) == FRAMED["u32le"]([*EXAMPLES[300:1700], EXAMPLES[5], EXAMPLES[1999]])
        assert await read(await records.one(store, 700, of_train)) == EXAMPLES[700]
        assert (await records.one(store, 700, RecordsRequest("train@*"))).etag == (
            await records.one(store, 700, of_train)
        ).etag
        labelled = RecordChoice(key='features.feature["label"].int64_list.value[0]', values=("1234",))
        found = await records.several(store, labelled, "delimited", of_train)
        assert await read(found) == FRAMED["delimited"]([EXAMPLES[1234]])
        everywhere = RecordChoice(key='features.feature["weights"].float_list.value[0]', values=("1.5",))
        everything = await records.several(store, everywhere, "delimited", RecordsRequest("eval@12"))
        assert await read(everything) == STREAM
        assert len(await kept(storage)) == 7 + 12
        with pytest.raises(InvalidInput, match="several sets of shards: choose one of eval@12, test@3, train@7"):
            await records.one(store, 0, ANY)
        with pytest.raises(NotFound, match="train@9 is missing 9 of its shards"):
            await records.one(store, 0, RecordsRequest("train@9"))


async def test_a_store_of_shards_alone_is_their_stream(stores: Stores) -> None:
    files = shards(5)
    store = await stores.view((await upload(stores, files)).store.id)
    assert await read(await records.one(store, 1999, ANY)) == EXAMPLES[1999]
    del files["train-00003-of-00005"]
    store = await stores.view((await upload(stores, files)).store.id)
    with pytest.raises(NotFound, match="is missing 1 of its shards: train-00003-of-00005"):
        await records.one(store, 0, ANY)


def test_passes_for_several_fields_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that looks up many fields at once makes the service read the stream for one field at a time."""
    under_way, most = set[int](), 0

    def steps(self: KeyIndex) -> Iterator[None]:
        nonlocal most
        under_way.add(id(self))
        for _ in range(5):
            most = max(most, len(under_way))
            yield
        under_way.discard(id(self))

    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, {"train": STREAM})).store.id)
        choices = [RecordChoice(key=f"{number}", values=("x",)) for number in range(1, 9)]
        with suppress(NotFound):
            await asyncio.gather(*(records.several(store, choice, "delimited", ANY) for choice in choices))

    monkeypatch.setattr(KeyIndex, "steps", steps)
    in_memory(work)
    assert most == 1


def test_passes_are_bounded_in_all_stores_and_for_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def steps(self: KeyIndex) -> Iterator[None]:
        yield
        while not released.is_set():
            yield

    async def work(stores: Stores, _: object) -> None:
        ids = [(await upload(stores, {"train": STREAM + bytes(n)})).store.id for n in range(2)]
        streams = [await stores.view(id) for id in ids]
        given = dict[str, Counter[str]]()

        async def look(client: str, number: int) -> None:
            choice, request = RecordChoice(key=f"{number + 1}", values=("x",)), RecordsRequest(client=client)
            try:
                await records.several(streams[number % 2], choice, "delimited", request)
            except (NotFound, LimitExceeded) as error:
                given.setdefault(client, Counter())[type(error).__name__] += 1

        tasks = []
        for client, first in (("a", 0), ("b", 10), ("c", 20)):
            tasks += [asyncio.create_task(look(client, first + number)) for number in range(6)]
            async with asyncio.timeout(30):
                while sum(given.get(client, Counter()).values()) < 2:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(30):
            while given["c"].total() < 6:
                await asyncio.sleep(0.01)
        assert given == {"a": Counter(ClientLimit=2), "b": Counter(ClientLimit=2), "c": Counter(TooMany=6)}
        released.set()
        await asyncio.gather(*tasks)
        assert given["a"] == given["b"] == Counter(ClientLimit=2, NotFound=4)
        await look("c", 30)
        assert given["c"] == Counter(TooMany=6, NotFound=1)

    monkeypatch.setattr(KeyIndex, "steps", steps)
    in_memory(work)


async def test_callers_share_one_pass(stores: Stores, storage: MemoryStorage) -> None:
    made = (await upload(stores, {"train": STREAM})).store
    calls: list[Call] = []
    async with opened(MeteredStorage(storage, calls.append)) as others:
        store = await others.view(made.id)
        calls.clear()
        await asyncio.gather(*(records.one(store, n, ANY) for n in range(20)))
    assert len(await kept(storage)) == 1
    assert sum(call.bytes_read for call in calls) < 2 * len(STREAM)


def test_an_index_and_an_answer_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, {"train": STREAM})).store.id)
        with pytest.raises(LimitExceeded, match="shards"):
            await records.one(store, 0, ANY)

    async def answer(stores: Stores, _: object) -> None:
        store = await stores.view((await upload(stores, {"train": STREAM})).store.id)
        with pytest.raises(LimitExceeded, match="ask for less"):
            await records.several(store, RecordChoice(":"), "u32le", ANY)
        with pytest.raises(LimitExceeded, match="fewer at a time"):
            await records.several(store, RecordChoice(":"), "tfrecord", ANY)

    monkeypatch.setattr(records, "_LIMITS", _core.Limits(records=100))
    in_memory(work)
    monkeypatch.setattr(records, "_LIMITS", _core.Limits(held=10_000, pieces=1000))
    in_memory(answer)
