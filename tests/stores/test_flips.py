"""A bit flipped anywhere in stored data is noticed by every reader, and never served.

`PROTOSLICE_FLIPS=500` runs the long version (`make soak`).
"""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from random import Random

import pytest
from tests.support.golden import CHUNKED
from tests.support.stores import (
    every_view,
    in_files,
    in_memory,
    keys_in,
    keys_of,
    onnx,
    opened,
    read,
    records_apart,
    upload,
)

from protoslice.database import Database
from protoslice.database.transactions import Transaction
from protoslice.errors import IntegrityError, Unsupported
from protoslice.serving import StoreOptions
from protoslice.storage import Buffer, FileStorage, MemoryStorage, ObjectKey, Span
from protoslice.stores import IngestRequest, Stores
from protoslice.views import chunks, documents

FLIPS = int(os.environ.get("PROTOSLICE_FLIPS", "60"))
UPLOADS = (
    {"model.onnx": onnx(100, 70_000, 90_000), "notes": b"a text"},
    {"x.cpb": (CHUNKED / "savedmodel_plain.max4000.cpb").read_bytes()},
    {"x.cpb": (CHUNKED / "graph_large_constants.max100000.uncompressed.cpb").read_bytes()},
)
Truth = dict[str, dict[str, bytes]]


async def everything(stores: Stores, tags: dict[str, str], truth: Truth | None = None) -> Truth:
    """Read all bytes of all views of all stores, by tag, and compare them with the truth piece by piece."""
    found: Truth = {}
    for tag, store_id in tags.items():
        store = await stores.view(tag)
        assert store.info.id == store_id
        found[tag] = {}
        async for name, view in every_view(store):
            whole = bytearray()
            async for piece in view.pieces(0, view.size):
                whole += piece
                assert truth is None or truth[tag][name].startswith(whole), (
                    f"wrong bytes of {name} of {tag} were served"
                )
            found[tag][name] = bytes(whole)
        if store.info.chunks:
            digests = [info.sha256 or "" for info in (await chunks.chunks(store, limit=1000, cursor=None)).items]
            found[tag]["digests"] = "\n".join(digests).encode()
    return found


def flip(path: Path, random: Random) -> None:
    """Flip a bit of a file without changing the file's time, as a disk does, and not a writer."""
    facts = path.stat()
    data = bytearray(path.read_bytes())
    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    path.write_bytes(data)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


async def flip_manifest(database: Database, store: str, random: Random) -> bytes:
    """Flip a bit of a manifest in the catalogue; return the original manifest."""

    def work(tx: Transaction) -> bytes:
        before = bytes(tx.all("SELECT manifest FROM stores WHERE digest = :store", store=store)[0][0])
        data = bytearray(before)
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        tx.run("UPDATE stores SET manifest = :data WHERE digest = :store", data=bytes(data), store=store)
        return before

    return await database.write(work)


async def test_every_flipped_bit_is_noticed_and_none_is_served(tmp_path: Path) -> None:
    random = Random(FLIPS)
    async with FileStorage(str(tmp_path)) as storage:
        async with opened(storage) as stores:
            request = IngestRequest(min_chunk=5000, max_chunk=50_000)
            tags = {}
            for number, files in enumerate(UPLOADS):
                tags[f"t{number}"] = (await upload(stores, files, request)).store.id
                await stores.put_tag(f"t{number}", tags[f"t{number}"])
            truth = await everything(stores, tags)
            sql = "SELECT o.key FROM objects o JOIN derived d ON d.space = o.space AND d.object = o.id"
            facts = {key for (key,) in await stores.database.read(lambda tx: tx.all(sql))}
        paths = [tmp_path / key for key in await keys_in(storage)]
        paths = [path for path in paths if path.stat().st_size]
        assert len(paths) >= 5
        noticed = anew = 0
        while noticed < FLIPS:
            path = random.choice(paths)
            original = path.read_bytes()
            flip(path, random)
            try:
                async with opened(storage) as fresh:
                    assert await everything(fresh, tags, truth) == truth
                # Derived facts can be computed again.
                assert path.relative_to(tmp_path).as_posix() in facts, f"a flip in {path} was not noticed"
                anew += 1
            except IntegrityError:
                noticed += 1
            except Unsupported:
                noticed += path.name == "protoslice.json"
                assert path.name == "protoslice.json"
            path.write_bytes(original)
        async with opened(storage) as fresh:
            assert await everything(fresh, tags) == truth
        print(f"{noticed} flips noticed, and {anew} in facts that are made anew")


async def test_every_flipped_bit_of_a_manifest_is_noticed(stores: Stores, storage: MemoryStorage) -> None:
    random = Random(FLIPS)
    tags = {f"t{number}": (await upload(stores, files)).store.id for number, files in enumerate(UPLOADS)}
    for tag, store in tags.items():
        await stores.put_tag(tag, store)
    truth = await everything(stores, tags)
    for _ in range(FLIPS):
        store = random.choice([*tags.values()])
        before = await flip_manifest(stores.database, store, random)
        async with opened(storage) as fresh:
            with pytest.raises(IntegrityError):
                await everything(fresh, tags, truth)
        sql = "UPDATE stores SET manifest = :data WHERE digest = :store"
        await stores.database.write(lambda tx: tx.run(sql, data=before, store=store))  # noqa: B023
    assert await everything(stores, tags) == truth


class Lying(MemoryStorage):
    """A storage that returns objects of uploads with one wrong bit."""

    lies = False

    async def get_ranges(self, key: ObjectKey, spans: list[Span], *, if_etag: str | None = None) -> list[bytes]:  # type: ignore[override]
        parts = list(await super().get_ranges(key, spans, if_etag=if_etag))
        if self.lies and parts:
            parts[-1] = _flipped(parts[-1])
        return parts

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        async with aclosing(super().stream(key, start, end, if_etag=if_etag)) as pieces:
            async for piece in pieces:
                yield _flipped(bytes(piece)) if self.lies else piece


def _flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


async def test_damage_is_told_before_the_first_byte_and_in_the_middle() -> None:
    model = onnx(12_000_000)
    storage = Lying()
    async with opened(storage) as stores:
        info = (await upload(stores, model)).store
        store = await stores.view(info.id)
        cpb = await chunks.cpb(store)
        for view in (
            store.file("model.onnx"),
            await documents.merge(store, "graph", None, None),
            await chunks.chunk(store, 0),
            cpb,
        ):
            storage.lies = True
            async with aclosing(view.pieces(0, view.size)) as pieces:
                with pytest.raises(IntegrityError, match=r"objects/\w\w/\w+-\w+"):
                    await anext(pieces)
            storage.lies = False
            assert len(await read(view)) == view.size
        pieces = cpb.pieces(0, cpb.size)
        served = bytes(await anext(pieces))
        storage.lies = True
        with pytest.raises(IntegrityError):
            served += b"".join([bytes(piece) async for piece in pieces])
        storage.lies = False
        assert (await read(cpb)).startswith(served)


@pytest.mark.parametrize("name", ["file-0", "file-0.sums", "index", "plan", "image", "schema", "side", "side.sums"])
@pytest.mark.parametrize("change", ["cut", "emptied", "grown"])
@records_apart()
def test_objects_of_another_length(name: str, change: str) -> None:
    async def work(stores: Stores, storage: FileStorage | MemoryStorage) -> None:
        files = {"x.cpb": (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()}
        info = (await upload(stores, files)).store
        truth = await everything(stores, {info.id: info.id})
        key = (await keys_of(stores, info.id))[name]
        data = await storage.get_range(key, 0, (await storage.stat(key)).size)
        changed = {"cut": data[:-1], "emptied": b"", "grown": data + b"\0"}[change]
        await storage.put(key, changed)
        async with opened(storage) as fresh:
            try:
                found = await everything(fresh, {info.id: info.id})
            except IntegrityError:
                return
            assert found == truth
            assert change == "grown"

    in_memory(work)
    in_files(work)


def test_without_verification_the_disk_is_believed() -> None:
    """Without verification, flips are served: this shows that the other tests could fail."""

    async def work(stores: Stores, storage: FileStorage) -> None:
        info = (await upload(stores, onnx(90_000))).store
        key = (await keys_of(stores, info.id))["file-0"]
        data = bytearray(await storage.get_range(key, 0, info.size))
        data[-100] ^= 1
        await storage.put(key, data)
        async with opened(storage, StoreOptions(verify_reads=False)) as careless:
            assert await read((await careless.view(info.id)).file("model.onnx")) == data
        async with opened(storage) as careful:
            with pytest.raises(IntegrityError):
                await read((await careful.view(info.id)).file("model.onnx"))

    in_files(work)
