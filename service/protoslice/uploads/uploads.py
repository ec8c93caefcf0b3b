"""Resumable uploads: creating, appending, joining, removing, and making stores from them.

A new request for an upload ends the previous request, which may be waiting on a dead connection; see `UploadLocks`.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

from protoslice.catalog.manifest import ObjectExtent, ObjectLocation
from protoslice.catalog.requests import Created, IngestRequest, check_request
from protoslice.catalog.uploads import Failure, Upload, UploadTable, new_upload_id
from protoslice.concurrency.gather import map_concurrently
from protoslice.database.transactions import now
from protoslice.errors import (
    AlreadyComplete,
    ChecksumMismatch,
    ClientLimit,
    Conflict,
    InconsistentLength,
    InvalidInput,
    JoinedUpload,
    LimitExceeded,
    ProtosliceError,
    SpaceRemoved,
    StorageError,
    TooMany,
    WrongOffset,
)
from protoslice.facts import File
from protoslice.file_names import check_file_path
from protoslice.ingest.file_writer import IngestedFile, PendingLocation
from protoslice.ingest.ingest import Ingest
from protoslice.ingest.inspection import Inspection
from protoslice.serving.finding import FileRef
from protoslice.serving.schemas import Types
from protoslice.serving.shared import Space
from protoslice.uploads.append import Appender
from protoslice.uploads.arriving import Arriving
from protoslice.uploads.body import Body, Superseded
from protoslice.uploads.parts import Composer, bytes_of, change, compact, feed_parts, resumed_inspection


class LockHolder:
    """A request that holds the lock of one upload."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self._task = asyncio.current_task()
        self._preempted = False
        self._reading = False

    def preempt(self) -> None:
        """Take the lock away: immediately if the holder is waiting for its client, otherwise before its next piece."""
        if not self._preempted and self._reading and self._task is not None:
            self._task.cancel()
        self._preempted = True

    def _was_preempted(self) -> bool:
        """Return True if only the next holder, and nothing else such as a shutdown, cancelled this task."""
        return self._preempted and self._task is not None and self._task.uncancel() == 0

    async def pieces(self, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield the pieces of `body`; raise `Superseded` once the holder is preempted."""
        while True:
            if self._preempted:
                raise Superseded
            self._reading = True
            try:
                piece = await anext(body, None)
            except asyncio.CancelledError:
                if self._was_preempted():
                    raise Superseded from None
                raise
            finally:
                self._reading = False
            if piece is None:
                return
            yield piece


class UploadLocks:
    """The locks of all uploads within this process.

    Between processes, compare-and-set of records prevents conflicts.
    """

    def __init__(self) -> None:
        self._holders: dict[str, LockHolder] = {}

    @asynccontextmanager
    async def acquire(self, upload_id: str) -> AsyncIterator[LockHolder]:
        """Acquire the lock of an upload: preempt the previous holder and wait until it has cleaned up."""
        while (before := self._holders.get(upload_id)) is not None:
            before.preempt()
            await before.released.wait()
        holder = self._holders[upload_id] = LockHolder()
        try:
            yield holder
        finally:
            del self._holders[upload_id]
            holder.released.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """A request to begin an upload."""

    length: int | None = None
    path: str | None = None
    """The name of the file; None if it is not known yet."""
    request: IngestRequest = field(default_factory=IngestRequest)
    partial: bool = False
    """True for an upload that will be joined with others and does not make a store by itself."""
    sha256: bytes | None = None
    """The expected SHA-256 of the whole upload."""
    client_metadata: str = ""
    """The value of `Upload-Metadata`, which is returned unchanged."""
    client: str = ""
    """The client whose limit the upload counts towards, if clients are limited; it is never shown."""
    composed: bool = False
    """True if the bytes will be extents of stored objects.

    The quota is then not checked, because these bytes are already counted.
    """


class Uploads:
    """The resumable uploads of one space."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self.options = space.shared.options.uploads
        self._records = UploadTable(space.database, space.quotas.usage)
        self.arriving = Arriving(space.storage, space.worker, self._records, space.shared.results)
        """The records of uploads, including running uploads."""
        self._locks = UploadLocks()

    def begun_by(self, client: str | None) -> Uploads:
        """Return the uploads that `client` created and can see, or all uploads if `client` is None."""
        if client is None:
            return self
        seen = copy.copy(self)
        seen._records = UploadTable(self._space.database, self._space.quotas.usage, client)
        return seen

    async def create(self, wanted: NewUpload) -> Upload:
        """Create an upload; an upload of length 0 is completed immediately."""
        await self._check(wanted)
        await self._check_open(wanted.client)
        held = await self._records.create(self._new(wanted), keep_seconds=self.options.kept_seconds(begun=False))
        return await self._completed(held)

    async def get(self, upload_id: str) -> Upload:
        """Return the upload's current state, after ending a running request of the upload.

        If the upload has all its bytes, complete it first.
        """
        return await self._current(upload_id)

    async def append(self, upload_id: str, body: Body) -> Upload:
        """Append `body`, or as much of it as arrives; once the upload is complete, make a store from it.

        Raise `WrongOffset`, `AlreadyComplete`, `JoinedUpload`, `InconsistentLength`, `LimitExceeded`,
        `ChecksumMismatch` or `Superseded`.
        """
        async with self._acquire(upload_id) as holder:
            held = await self._records.take(upload_id)
            length = self._check_place(held, body)
            if held.state != "open":
                async for _ in holder.pieces(body.pieces):
                    raise AlreadyComplete("This upload is complete: it accepts no more bytes")
                return held
            if length != held.length:
                held = await change(self._space, self._records, held, replace(held, length=length))
            return await self._completed(await self._append(held, holder, body))

    async def compose(self, upload_id: str, extents: Sequence[ObjectExtent], expires: datetime) -> Upload:
        """Complete an upload that has a known SHA-256 from extents of objects, and set its expiry to `expires`.

        All bytes are read once, and small extents are copied. Raise `ChecksumMismatch` if the bytes have another
        digest.
        """
        async with self._acquire(upload_id):
            held = await self._records.read(upload_id)
            if held.state != "open":
                return held
            inspection = await self._inspection(held)
            assert inspection is not None, "an upload that is composed has a path"
            objects = self._space.new_objects()
            try:
                composer = Composer(self._space, objects, held, inspection, extents)
                done = replace(await composer.compose(), state="complete", expires=expires)
                return await self._records.change(held, done, objects=objects)
            finally:
                objects.end()

    async def renew(self, upload_id: str) -> Upload:
        """Return a complete upload, after extending its expiry if less than half of its lifetime is left.

        The xorbs of an upload that is a session expire together with it.
        """
        held = await self._finished(upload_id)
        if held.expires > now() + timedelta(seconds=self.options.lifetime_seconds / 2):
            return held
        return await change(self._space, self._records, held, held)

    async def remove(self, upload_id: str) -> None:
        """Remove an upload; stores that were made from it stay."""
        async with self._acquire(upload_id):
            held = await self._records.take(upload_id)
            await self._records.change(held, replace(held, state="gone", parts=(), saved=None))

    async def join(self, upload_ids: Sequence[str], wanted: NewUpload) -> Upload:
        """Join consecutive complete uploads to one upload, from which a store is made."""
        await self._check(replace(wanted, length=None))
        await self._check_open(wanted.client)
        found = await self._all_finished(upload_ids)
        parts = [found[upload_id] for upload_id in upload_ids]
        new = self._new(wanted)
        made = await make_store(self._space, {new.filename: parts}, new.request, digests_of(new))
        await self._note_use(found.values())
        length = sum(part.offset for part in parts)
        done = replace(new, joined=tuple(upload_ids), length=length, state="stored", store=made.store.id)
        return await self._records.create(done, keep_seconds=self.options.kept_seconds(begun=True))

    async def assemble(
        self,
        files: Mapping[str, Sequence[str]],
        request: IngestRequest,
        digests: Mapping[str, str] | None = None,
        taken: Mapping[str, FileRef] = MappingProxyType({}),
    ) -> Created:
        """Create a store of several files, each made of one upload or of consecutive uploads.

        The files in `taken` are shared with other stores. `digests` maps paths to the expected SHA-256 of their files.
        """
        check_request(request)
        found = await self._all_finished([upload_id for upload_ids in files.values() for upload_id in upload_ids])
        parts = {check_file_path(path): [found[each] for each in upload_ids] for path, upload_ids in files.items()}
        made = await make_store(self._space, parts, request, digests or {}, taken)
        await self._note_use(found.values())
        return made

    async def fill(self, ingest: Ingest, path: str, upload_ids: Sequence[str], sha256: str) -> None:
        """Add a file made of one upload or of consecutive uploads to an ingest; `sha256` is the expected digest."""
        found = await self._all_finished(upload_ids)
        uploads = [found[each] for each in upload_ids]
        await fill(self._space, ingest, {path: uploads}, IngestRequest(), {path: sha256})
        await self._note_use(found.values())

    async def put_part(self, mark: str, pieces: AsyncIterator[bytes], client: str, *, size: int | None = None) -> str:
        """Save a part of a file and return its id; parts may arrive in any order and repeatedly.

        The protocol that sends the part recognizes it by `mark`, which becomes the part's metadata. The part must be
        used before it expires.
        """
        # With a path, compaction and joining find a saved state of the inspection, as for any file.
        wanted = NewUpload(length=size, path="part", partial=True, client=client, client_metadata=mark)
        upload = await self.create(wanted)
        await self.append(upload.id, Body(pieces=pieces, offset=0, last=True))
        await self.set_aside(upload.id)  # a file may have thousands of parts, which must not count as open uploads
        return upload.id

    async def set_aside(self, upload_id: str) -> None:
        """Stop counting a complete upload as open, because a protocol keeps it for later use."""
        held = await self._finished(upload_id)
        if not held.used:
            await self._note_use([held])

    async def content(self, upload_id: str) -> AsyncGenerator[bytes]:
        """Yield the bytes of a complete upload, without changing the upload."""
        upload = await self._finished(upload_id)
        async with aclosing(bytes_of(self._space, upload.parts)) as pieces:
            async for piece in pieces:
                yield piece

    def _new(self, wanted: NewUpload) -> Upload:
        return Upload(
            id=new_upload_id(),
            path=wanted.path,
            request=wanted.request,
            created=now(),
            expires=now() + timedelta(seconds=self.options.kept_seconds(begun=False)),
            client=wanted.client,
            length=wanted.length,
            partial=wanted.partial,
            sha256=wanted.sha256.hex() if wanted.sha256 else None,
            client_metadata=wanted.client_metadata,
        )

    async def _check(self, wanted: NewUpload) -> None:
        """Raise every error that can be detected before any byte has arrived."""
        check_request(wanted.request)
        if wanted.path is not None:
            check_file_path(wanted.path)
        if not wanted.partial:
            await self._space.schemas.types(wanted.request.type)
        self.options.check_size(wanted.length or 0)
        written = 0 if wanted.composed else wanted.length or 0
        await self._space.quotas.check(stored_bytes=written, stores=0 if wanted.partial else 1)

    def _check_place(self, upload: Upload, body: Body) -> int | None:
        """Return the total length if it is known with this body, or None; raise an error if the body does not fit."""
        if upload.joined:
            raise JoinedUpload("This upload joins other uploads and accepts no bytes: start a new upload")
        if body.offset != upload.offset:
            error = WrongOffset(f"The upload continues at byte {upload.offset}, not {body.offset}")
            error.expected, error.provided = upload.offset, body.offset
            raise error
        length = upload.length if body.length is None else body.length
        if length is not None and length != upload.length:
            if upload.length is not None:
                raise InconsistentLength(
                    f"The upload has a declared length of {upload.length} bytes, but this request says {length}"
                )
            self.options.check_size(length)
            if length < upload.offset:
                raise InconsistentLength(f"The upload already has {upload.offset} bytes: it cannot end at {length}")
        if body.size is not None and upload.state == "open":
            self._check_end(body, upload.offset + body.size, length)
        return length

    def _check_end(self, body: Body, end: int, length: int | None) -> None:
        """Raise an error unless the upload may reach byte `end` with this body."""
        most = self.options.max_bytes if length is None else length
        if end > most:
            raise LimitExceeded(f"The body continues after byte {most}, where the upload ends")
        if body.last and length is not None and end != length:
            raise InconsistentLength(f"The upload should have {length} bytes, but ends at {end}")

    async def _append(self, held: Upload, holder: LockHolder, body: Body) -> Upload:
        upload = held
        async with self._records.unless_changed(held):
            inspection = await self._inspection(upload)
        watch = body.checksum.update if body.checksum is not None else None
        appender = Appender(self._space, self._records, held, inspection, watch=watch, apart=body.is_checked)
        try:
            size = await self._take(appender, holder, upload, body)
            if body.is_checked:
                await appender.flush()
                body.compare(inspection.sha256 if inspection is not None else None)
            held = await appender.finish(length=upload.offset + size if body.last else None)
        finally:
            await appender.abort()
        # A complete upload is never compacted, because any replica may be making a store of its parts.
        return held if held.is_whole else await compact(self._space, self._records, held)

    async def _inspection(self, upload: Upload) -> Inspection | None:
        """Return the inspection of the bytes so far.

        Return None for a partial upload without a path, because it is never a whole file.
        """
        if upload.path is None and upload.partial:
            return None
        types = await self._space.schemas.types(upload.wanted_type)
        found = await resumed_inspection(self._space, upload, types, path=upload.filename, wanted=upload.wanted_type)
        await feed_parts(self._space, found, upload.parts)
        return found

    async def _take(self, appender: Appender, holder: LockHolder, upload: Upload, body: Body) -> int:
        """Append the pieces of the body and return their size.

        After an interruption, keep the bytes that have arrived.
        """
        room = (self.options.max_bytes if upload.length is None else upload.length) - upload.offset
        size = 0
        try:
            async for piece in holder.pieces(body.pieces):
                if size + len(piece) > room:
                    self._check_end(body, upload.offset + size + len(piece), upload.length)
                await appender.add(piece)
                await appender.stay()
                size += len(piece)
        except BaseException:
            if not body.is_checked and appender.sound:
                await appender.finish()
            raise
        self._check_end(body, upload.offset + size, upload.length)
        return size

    async def _completed(self, held: Upload) -> Upload:
        """Complete an upload that has all its bytes.

        After an error of the storage, the upload stays open and can be retried.
        """
        upload = held
        if upload.state != "open" or not upload.is_whole:
            return held
        done = replace(upload, state="complete") if upload.partial else await stored(self._space, upload)
        try:
            held = await change(self._space, self._records, held, done)
        except Conflict:
            found = await self._records.read(upload.id)
            if found.state != "open":
                return found  # another replica completed the upload
            held = await change(
                self._space, self._records, found, done
            )  # the other request has only read the upload, which was complete before
        return held

    async def _current(self, upload_id: str) -> Upload:
        """Return the record of an upload; see `get`."""
        held = await self._records.read(upload_id)
        if held.state != "open":
            return held
        async with self._acquire(upload_id):
            return await self._completed(await self._records.take(upload_id))

    @asynccontextmanager
    async def _acquire(self, upload_id: str) -> AsyncIterator[LockHolder]:
        """Hold the lock of an upload; only requests of the client that created the upload may interrupt its holder."""
        await self._records.check(upload_id)
        async with self._locks.acquire(upload_id) as holder:
            yield holder

    async def _all_finished(self, upload_ids: Sequence[str]) -> dict[str, Upload]:
        """Return the records of complete uploads by id; an id that occurs several times is read once."""
        found, size = dict[str, Upload](), 0
        for upload_id, times in Counter(upload_ids).items():
            found[upload_id] = await self._finished(upload_id)
            size += times * found[upload_id].offset
            self.options.check_size(size)
        return found

    async def _finished(self, upload_id: str) -> Upload:
        """Return the record of a complete upload that may be joined.

        If the upload has failed, raise its failure. Raise `InvalidInput` when the upload is incomplete or was joined
        from other uploads.
        """
        held = await self._current(upload_id)
        upload = held
        if upload.failure is not None:
            raise upload.failure.error()
        if not upload.is_whole or upload.joined:
            raise InvalidInput(f"Upload {upload_id} cannot be joined: it is incomplete, or already joins other uploads")
        return held

    async def _note_use(self, uploads: Iterable[Upload]) -> None:
        """Record that a store was made from these uploads; they stay, because a client may repeat the request."""

        async def note(held: Upload) -> None:
            with suppress(ProtosliceError):  # on failure, the upload counts as open until it expires
                await self._records.change(held, replace(held, used=True))

        await map_concurrently(note, [held for held in uploads if held.state == "complete" and not held.used])

    async def _check_open(self, client: str) -> None:
        """Raise `TooMany`, `ClientLimit` or `SpaceLimit` if `client` may not create an upload.

        Concurrent requests may exceed the limits, because each of them may see the same free place.
        """
        found = await self._records.open_by_client()
        most, each = self.options.max_open, self.options.max_open_per_client
        if sum(found.values()) >= most:
            raise TooMany(f"The service has {most} open uploads, its limit: finish some, or wait until they expire")
        if each and client and found.get(client, 0) >= each:
            raise ClientLimit(f"This client has {each} open uploads, its limit: finish some, or wait until they expire")
        self._space.quotas.check_open_uploads(sum(found.values()))


async def stored(space: Space, upload: Upload) -> Upload:
    """Return the upload as `stored` with its store, or as `failed` with the reason.

    Errors that may be temporary are raised instead.
    """
    try:
        made = await make_store(space, {upload.filename: [upload]}, upload.request, digests_of(upload))
    except (StorageError, Conflict, SpaceRemoved):  # a removed space may be restored
        raise
    except ProtosliceError as error:
        return replace(upload, state="failed", failure=Failure.of(error))
    return replace(upload, state="stored", store=made.store.id, saved=None)


async def make_store(
    space: Space,
    files: Mapping[str, Sequence[Upload]],
    request: IngestRequest,
    digests: Mapping[str, str],
    taken: Mapping[str, FileRef] = MappingProxyType({}),
) -> Created:
    """Create a store of `files`, each made of consecutive uploads, and of files `taken` from other stores.

    `digests` maps paths to the expected SHA-256 of their files.
    """
    space.shared.options.uploads.check_size(sum(upload.offset for uploads in files.values() for upload in uploads))
    async with await Ingest.begin(space, request) as ingest:
        if taken:
            await ingest.take(taken)
        await fill(space, ingest, files, request, digests)
        return await ingest.commit()


async def fill(
    space: Space,
    ingest: Ingest,
    files: Mapping[str, Sequence[Upload]],
    request: IngestRequest,
    digests: Mapping[str, str],
) -> None:
    """Add files, each made of consecutive uploads, to an ingest; see `make_store`."""
    types = await space.schemas.types(request.type)
    for path, uploads in files.items():
        if any(upload.offset for upload in uploads):
            received = await _received(space, path, ingest.wanted_type(path), types, uploads)
            ingest.adopt(received)
            info = received.info
        else:
            info = await (await ingest.file(path)).close()
        if info.sha256 != digests.get(path, info.sha256):
            error = ChecksumMismatch(f"{path!r} does not match its digest: nothing was stored")
            error.slug = error.upload_slug
            raise error


async def _received(
    space: Space, path: str, wanted: str | None, types: Types, uploads: Sequence[Upload]
) -> IngestedFile:
    """Return a file made of consecutive uploads; its inspection resumes from the first upload's saved state."""
    inspection = await resumed_inspection(space, uploads[0], types, path=path, wanted=wanted)
    parts = [part for upload in uploads for part in upload.parts]
    await feed_parts(space, inspection, parts)
    inspected = await space.worker.run(inspection.finish)
    info = File(path, inspection.size, inspected.sha256.hex())
    return IngestedFile(info, PendingLocation(ObjectLocation.joined(parts)), inspected.detection, inspected.scan)


def digests_of(upload: Upload) -> dict[str, str]:
    """Return the expected SHA-256 of an upload's file by path, or an empty dict if the client sent none."""
    return {upload.filename: upload.sha256} if upload.sha256 else {}
