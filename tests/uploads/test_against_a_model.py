"""Uploads behave like a dict of bytes, for requests in any order, including restarts and losses."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from tests.support.stores import assert_whole, collect_garbage, onnx, open_stores

from protoslice.errors import ChecksumMismatch, CorruptModel, Gone, InvalidInput, LimitExceeded, WrongOffset
from protoslice.serving import StoreOptions
from protoslice.storage import FileStorage, MemoryStorage, Storage
from protoslice.stores import IngestRequest, Stores
from protoslice.uploads import Body, Checksum, NewUpload, Upload, UploadOptions

T = TypeVar("T")
CONTENTS = [onnx(70_000, 300, seed=1), onnx(10, seed=2), onnx(200_000, seed=3)[:-7], b""]
OPTIONS = StoreOptions(uploads=UploadOptions(part_bytes=1 << 16))
SHARES = st.sampled_from([0.0, 0.001, 0.2, 0.5, 1.0])


class Lost(Exception):
    """The error that the client has disconnected."""


async def pieces(data: bytes, *, lost: bool = False) -> AsyncIterator[bytes]:
    for at in range(0, len(data), 20_000):
        yield data[at : at + 20_000]
    if lost:
        raise Lost


class UploadsMachine(RuleBasedStateMachine):
    """The real uploads next to their model: each upload's expected content, and its received length."""

    uploads: Bundle[str] = Bundle("uploads")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = TemporaryDirectory()
        self.storage = self.new_storage()
        self.stores = self.run(open_stores(self.storage, OPTIONS))
        self.left: list[Stores] = []
        self.content: dict[str, bytes] = {}
        self.offset: dict[str, int] = {}
        self.partial: set[str] = set()
        self.gone: set[str] = set()
        self.told: set[str] = set()

    def new_storage(self) -> Storage:
        return MemoryStorage()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        for stores in [self.stores, *self.left]:
            self.run(stores.close())
        self.run(self.storage.close())
        self.loop.close()
        self.folder.cleanup()

    def append(self, upload: str, body: Body) -> Upload:
        return self.run(self.stores.uploads.append(upload, body))

    @rule(target=uploads, number=st.sampled_from(range(len(CONTENTS))), partial=st.booleans(), deferred=st.booleans())
    def create(self, number: int, partial: bool, deferred: bool) -> str:
        content = CONTENTS[number]
        length = None if deferred else len(content)
        path = None if partial and len(content) % 2 else "model.onnx"
        made = self.run(self.stores.uploads.create(NewUpload(length=length, path=path, partial=partial)))
        self.content[made.id], self.offset[made.id] = content, 0
        self.partial |= {made.id} if partial else set()
        self.told |= set() if deferred else {made.id}
        return made.id

    @rule(upload=uploads, share=SHARES, lost=st.booleans())
    def append_some(self, upload: str, share: float, lost: bool) -> None:
        if upload in self.gone:
            with pytest.raises(Gone):
                self.append(upload, Body(pieces=pieces(b""), offset=0))
            return
        content, offset = self.content[upload], self.offset[upload]
        end = offset + int((len(content) - offset) * share)
        body = Body(pieces=pieces(content[offset:end], lost=lost), offset=offset, length=len(content))
        self.told.add(upload)
        try:
            found = self.append(upload, body)
            assert not lost
            assert found.offset == end
        except Lost:
            assert lost
        self.offset[upload] = end

    @rule(upload=uploads, wrong=st.sampled_from([-1, 1, 1 << 50]))
    def append_elsewhere(self, upload: str, wrong: int) -> None:
        with pytest.raises((WrongOffset, Gone)) as raised:
            self.append(upload, Body(pieces=pieces(b"x"), offset=self.offset[upload] + wrong))
        if isinstance(raised.value, WrongOffset):
            assert raised.value.expected == self.offset[upload]

    @rule(upload=uploads)
    def append_too_much(self, upload: str) -> None:
        content, offset = self.content[upload], self.offset[upload]
        body = Body(pieces=pieces(content[offset:] + b"x"), offset=offset, length=len(content))
        with pytest.raises((LimitExceeded, InvalidInput, Gone)):
            self.append(upload, body)
        self.told.add(upload)
        if upload not in self.gone:
            self.offset[upload] = self.run(self.stores.uploads.get(upload)).offset
            assert offset <= self.offset[upload] <= len(content)

    @rule(upload=uploads, share=SHARES, right=st.booleans())
    def append_with_a_checksum(self, upload: str, share: float, right: bool) -> None:
        content, offset = self.content[upload], self.offset[upload]
        end = offset + int((len(content) - offset) * share)
        if upload in self.gone or offset == end:
            return
        given = hashlib.sha256(content[offset:end] if right else b"something else").digest()
        body = Body(
            pieces=pieces(content[offset:end]),
            offset=offset,
            length=len(content),
            checksum=Checksum(hashlib.sha256(), given),
        )
        self.told.add(upload)
        if right:
            self.append(upload, body)
            self.offset[upload] = end
        else:
            with pytest.raises(ChecksumMismatch):
                self.append(upload, body)

    @rule(upload=consumes(uploads))
    def remove(self, upload: str) -> None:
        if upload not in self.gone:
            self.run(self.stores.uploads.remove(upload))
        self.gone.add(upload)

    @rule(one=uploads, other=uploads)
    def join(self, one: str, other: str) -> None:
        ready = self.is_ready(one) and self.is_ready(other)
        whole = self.content[one] + self.content[other]
        wanted = NewUpload(path="joined.bin", request=IngestRequest(type="unknown"))
        joining = self.stores.uploads.join([one, other], wanted)
        broken = CONTENTS[2] in {self.content[one], self.content[other]}
        if not ready:
            # If one upload is corrupt and another one is not ready, the error may name either.
            with pytest.raises((InvalidInput, CorruptModel) if broken else InvalidInput):
                self.run(joining)
            return
        try:
            found = self.run(joining)
        except CorruptModel:
            assert broken
            return
        store = self.run(self.stores.view(found.store or ""))
        assert self.run(assert_whole(self.stores, store.info))["file joined.bin"] == whole

    def is_ready(self, upload: str) -> bool:
        """Return True if the upload may be joined with others: it is complete, and no store of it has failed."""
        whole = self.offset[upload] == len(self.content[upload]) and upload in self.told
        broken = upload not in self.partial and self.content[upload] == CONTENTS[2]
        return whole and not broken and upload not in self.gone

    @rule()
    def restart(self) -> None:
        self.left.append(self.stores)
        self.stores = self.run(open_stores(self.storage, OPTIONS))

    @rule()
    def collect(self) -> None:
        self.run(collect_garbage(self.storage, grace_seconds=0))

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        for upload, offset in self.offset.items():
            if upload in self.gone:
                continue
            found = self.run(self.stores.uploads.get(upload))
            assert found.offset == offset, upload
            if found.state == "stored":
                store = self.run(self.stores.view(found.store or ""))
                assert store.info.files[0].sha256 == hashlib.sha256(self.content[upload]).hexdigest()
            assert found.state != "open" or found.length is None or offset < found.length


class FileUploadsMachine(UploadsMachine):
    """The same machine over files."""

    def new_storage(self) -> Storage:
        return FileStorage(self.folder.name)


TestInMemory = UploadsMachine.TestCase
TestInMemory.settings = settings(max_examples=40, stateful_step_count=20)
TestInFiles = FileUploadsMachine.TestCase
TestInFiles.settings = settings(max_examples=8, stateful_step_count=15)
