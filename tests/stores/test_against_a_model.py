"""The stores behave like a few dicts, for calls in any order, including crashes and restarts."""

import asyncio
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from datetime import datetime
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.support.stores import (
    assert_whole,
    collect_garbage,
    objects_in,
    onnx,
    open_stores,
    read,
    upload,
    visible,
)

from protoslice.errors import Conflict, CorruptModel, InvalidInput, NotFound
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores

T = TypeVar("T")
CONTENTS = {seed: onnx(10, 70_000, seed=seed) for seed in range(4)}
NAMES = st.sampled_from(["a", "b:1", "A"])
SEEDS = st.sampled_from(sorted(CONTENTS))


class StoresMachine(RuleBasedStateMachine):
    """The real stores next to their model: ids with their content, and tags with their targets."""

    refs: Bundle[str] = Bundle("refs")
    etags: Bundle[tuple[str, str]] = Bundle("etags")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.stack = ExitStack()
        self.storage = self.new_storage()
        self.stores = self.run(open_stores(self.storage))
        self.abandoned: list[Stores] = []
        self.contents: dict[str, int] = {}
        self.tags: dict[str, tuple[str, str]] = {}
        self.created: dict[str, datetime] = {}
        self.removed: dict[str, list[tuple[int, datetime, list[str]]]] = {}
        """The content of removed stores, the latest removal last, with their times and their tags."""

    def new_storage(self) -> Storage:
        return MemoryStorage()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        for stores in [self.stores, *self.abandoned]:
            self.run(stores.close())
        self.run(self.storage.close())
        self.loop.close()
        self.stack.close()

    @initialize(target=refs)
    def nothing(self) -> str:
        return "0" * 64

    @rule(target=refs, seed=SEEDS, names=st.sets(NAMES, max_size=2))
    def upload(self, seed: int, names: set[str]) -> str:
        created = self.run(upload(self.stores, CONTENTS[seed], IngestRequest(tags=tuple(sorted(names)))))
        store_id = created.store.id
        assert created.created == (store_id not in self.contents)
        if created.created:
            self.created[store_id] = created.store.created
        self.contents[store_id] = seed
        for name in names:
            self.tags[name] = (store_id, self.run(self.stores.tags.get(name)).etag)
        return store_id

    @rule(seed=SEEDS)
    def upload_what_is_broken(self, seed: int) -> None:
        with pytest.raises(CorruptModel):
            self.run(upload(self.stores, CONTENTS[seed][:-50]))

    @rule(seed=SEEDS)
    def leave_an_upload(self, seed: int) -> None:
        async def leave() -> None:
            async with await self.stores.ingest(IngestRequest()) as ingest:
                sink = await ingest.file("model.onnx")
                await sink.write(CONTENTS[seed])
                if seed % 2:
                    await sink.close()

        self.run(leave())

    @rule(target=etags, name=NAMES, ref=refs)
    def tag(self, name: str, ref: str) -> Any:
        if ref not in self.contents:
            with pytest.raises(NotFound):
                self.run(self.stores.put_tag(name, ref))
            return multiple()
        tag, new = self.run(self.stores.put_tag(name, ref))
        assert new == (name not in self.tags)
        self.tags[name] = (ref, tag.etag)
        return name, tag.etag

    @rule(name=NAMES, ref=refs)
    def tag_anew(self, name: str, ref: str) -> None:
        put = self.stores.put_tag(name, ref, if_none_match=True)
        if ref not in self.contents:
            with pytest.raises(NotFound):
                self.run(put)
        elif name in self.tags:
            with pytest.raises(Conflict):
                self.run(put)
        else:
            self.tags[name] = (ref, self.run(put)[0].etag)

    @rule(target=etags, known=consumes(etags), ref=refs)
    def move_a_tag(self, known: tuple[str, str], ref: str) -> Any:
        name, etag = known
        put = self.stores.put_tag(name, ref, if_match=etag)
        if ref not in self.contents:
            with pytest.raises(NotFound):
                self.run(put)
        elif self.tags.get(name, ("", ""))[1] != etag:
            with pytest.raises(Conflict):
                self.run(put)
        else:
            tag, new = self.run(put)
            assert not new
            self.tags[name] = (ref, tag.etag)
            return name, tag.etag
        return multiple()

    @rule(name=NAMES)
    def drop_a_tag(self, name: str) -> None:
        if name not in self.tags:
            with pytest.raises(NotFound):
                self.run(self.stores.tags.remove(name))
        else:
            self.run(self.stores.tags.remove(name))
            del self.tags[name]

    @rule(ref=refs)
    def delete(self, ref: str) -> None:
        if ref not in self.contents:
            with pytest.raises(NotFound):
                self.run(self.stores.delete(ref))
            return
        names = sorted(name for name, tag in self.tags.items() if tag[0] == ref)
        assert self.run(self.stores.delete(ref)).tags == tuple(names)
        self.removed.setdefault(ref, []).append((self.contents.pop(ref), self.created.pop(ref), names))
        self.tags = {name: tag for name, tag in self.tags.items() if tag[0] != ref}

    @rule(ref=refs, other=refs, name=NAMES)
    def remove_for_a_while(self, ref: str, other: str, name: str) -> None:
        """Remove a store and restore it; in between, a tag, perhaps one of the store's, is set to another store."""
        self.delete(ref)
        self.tag(name, other)
        self.restore(ref)

    @rule(ref=refs)
    def restore(self, ref: str) -> None:
        if ref not in self.contents and not self.removed.get(ref):
            with pytest.raises(NotFound):
                self.run(self.stores.restore(ref))
            return
        names: list[str] = []
        if self.removed.get(ref):
            seed, created, names = self.removed[ref].pop()
            if ref in self.contents:  # the store was sent again, and gets only the tags
                self.removed[ref].append((seed, created, []))
            else:
                self.contents[ref], self.created[ref] = seed, created
        event(f"restored, of {len(names)} tags some are taken: {any(name in self.tags for name in names)}")
        restored = self.run(self.stores.restore(ref))
        assert restored.store.id == ref
        taken = [name for name in names if name in self.tags and self.tags[name][0] != ref]
        assert restored.tags_taken == tuple(taken)
        for name in names:
            if name not in self.tags:
                self.tags[name] = (ref, self.run(self.stores.tags.get(name)).etag)

    @rule()
    def collect_what_is_old(self) -> None:
        before = self.run(self.needed())
        self.run(collect_garbage(self.storage, grace_seconds=3600))
        assert self.run(self.needed()) == before

    @rule()
    def collect_everything(self) -> None:
        time.sleep(0.002)  # a store that was removed in this microsecond would stay
        self.run(collect_garbage(self.storage, grace_seconds=0))
        self.removed.clear()
        assert len(self.run(objects_in(self.storage))) == len(self.contents) + self.run(self.abandoned_objects())

    async def needed(self) -> set[str]:
        """Return the keys of the objects of stores, including removed ones."""
        sql = "SELECT o.key FROM objects o JOIN store_objects r ON r.space = o.space AND r.object = o.id"
        rows = await self.stores.database.read(lambda tx: tx.all(sql))
        return {key for (key,) in rows} & {*await objects_in(self.storage)}

    async def abandoned_objects(self) -> int:
        """Return the number of objects that a crashed process was writing less than a day ago."""
        rows = await self.stores.database.read(
            lambda tx: tx.all("SELECT key FROM objects WHERE unpublished IS NOT NULL")
        )
        return len({key for (key,) in rows} & {*await objects_in(self.storage)})

    @rule()
    def crash(self) -> None:
        self.abandoned.append(self.stores)
        self.stores = self.run(open_stores(self.storage))

    @rule()
    def restart(self) -> None:
        self.run(self.stores.close())
        self.stores = self.run(open_stores(self.storage))

    @rule(ref=refs, start=st.integers(0, 60_000), length=st.integers(0, 60_000))
    def read(self, ref: str, start: int, length: int) -> None:
        if ref not in self.contents:
            with pytest.raises(NotFound):
                self.run(self.stores.view(ref))
            return
        content = CONTENTS[self.contents[ref]]
        view = self.run(self.stores.view(ref)).file("model.onnx")
        end = min(start + length, view.size)
        assert self.run(read(view, start, end)) == content[start:end]

    @rule(ref=refs)
    def read_all(self, ref: str) -> None:
        if ref in self.contents:
            views = self.run(assert_whole(self.stores, self.run(self.stores.get(ref))))
            assert views["merge"] == CONTENTS[self.contents[ref]]

    @rule(name=NAMES)
    def read_by_tag(self, name: str) -> None:
        if name in self.tags:
            assert self.run(self.stores.view(name)).info.id == self.tags[name][0]
        else:
            with pytest.raises(NotFound):
                self.run(self.stores.view(name))

    @rule(ref=refs, length=st.integers(12, 63))
    def find(self, ref: str, length: int) -> None:
        found = [store_id for store_id in self.contents if store_id.startswith(ref[:length])]
        try:
            assert [self.run(self.stores.get(ref[:length])).id] == found
        except NotFound:
            assert not found
        except InvalidInput:
            assert len(found) > 1

    @invariant()
    def shows_what_there_is(self) -> None:
        found = self.run(visible(self.stores))
        assert list(found) == sorted(self.contents, key=lambda store: self.created[store], reverse=True)
        for store_id, info in found.items():
            names = sorted(name for name, tag in self.tags.items() if tag[0] == store_id)
            assert info.tags == tuple(names)
        tags = self.run(self.stores.tags.page(1000))[0]
        assert {tag.name: (tag.store, tag.etag) for tag in tags} == self.tags


class StoresInFiles(StoresMachine):
    def new_storage(self) -> Storage:
        return FileStorage(self.stack.enter_context(TemporaryDirectory()))


TestInMemory = StoresMachine.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=40)
TestInFiles = StoresInFiles.TestCase
TestInFiles.settings = settings(max_examples=6, stateful_step_count=30)
