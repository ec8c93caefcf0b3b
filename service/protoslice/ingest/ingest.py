"""The ingest of one store: files arrive as streams, and the manifest is written last, when all else is durable."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing, suppress
from types import TracebackType
from typing import Self, TypeVar

from protoslice.catalog.manifest import ObjectLocation
from protoslice.catalog.requests import Created, FilePaths, IngestRequest, check_request
from protoslice.concurrency.gather import map_concurrently
from protoslice.database.transactions import ACTOR
from protoslice.detection import HEAD
from protoslice.errors import ChecksumMismatch, Conflict, IntegrityError, InvalidInput, LimitExceeded, NotFound
from protoslice.facts import File
from protoslice.ingest.file_writer import OTHER_DIGEST, FileWriter, IngestedFile, PackWriter, PendingLocation
from protoslice.ingest.inspection import Inspection
from protoslice.ingest.publishing import drafted, find_existing, policy_of, publish
from protoslice.ingest.root import (
    DecodedBytes,
    HeldFile,
    NotAModel,
    Opened,
    Root,
    RootRecords,
    choose_root,
    prepare_root,
)
from protoslice.ingest.sharing import Sharing, worth_sharing
from protoslice.serving.finding import FileRef
from protoslice.serving.joined import open_file_objects
from protoslice.serving.schemas import Types
from protoslice.serving.shared import Space
from protoslice.serving.stored import StoredFile, StoredObject, open_object
from protoslice.storage import ObjectKey
from protoslice.versions import store_id

T = TypeVar("T")

_DAMAGED = "Another store's copy of this file is damaged: send the file without its digest"


class Ingest:
    """One ingest, used as a context manager. If it is not committed, it leaves only garbage, to be collected later."""

    def __init__(self, space: Space, request: IngestRequest, types: Types) -> None:
        self._space = space
        self._options = space.shared.options
        self._worker = space.worker
        self._request = request
        self._types = types
        self._objects = space.new_objects()
        self._packs = PackWriter(self._objects, space.worker)
        self._files: list[IngestedFile] = []
        self._paths = FilePaths()
        self._writer: FileWriter | None = None
        self._left = self._options.max_upload_bytes
        self._sharing = Sharing()
        actor = ACTOR.get()
        self._looks = actor is None or actor.reads
        """False for a caller who may not read; then the ingest writes all bytes, so that it reveals no stored files."""

    @classmethod
    async def begin(cls, space: Space, request: IngestRequest) -> Self:
        """Return a new ingest; raise `QuotaExceeded` or `StorageFull` if the space accepts no store."""
        await space.quotas.check(stores=1)
        await space.shared.check_free_space()
        return cls(space, request, await space.schemas.types(request.type))

    async def __aenter__(self) -> Self:
        check_request(self._request)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self.abort()
        finally:
            self._objects.end()

    async def file(self, path: str, *, expected_sha256: bytes | None = None) -> FileWriter:
        """Begin the next file; raise `InvalidInput` for a bad path, or while another file is open.

        If the client sent the SHA-256, a file of 1 MiB or more is not written if it is already stored.
        """
        self._begin(path)
        sha256 = expected_sha256 if self._looks else None
        self._writer = FileWriter(
            path,
            self._objects,
            self._packs,
            self._sharing,
            worker=self._worker,
            inspection=Inspection(path, self.wanted_type(path), self._types),
            limit=self._left,
            find_existing=None if sha256 is None else lambda: self._shareable(sha256.hex()),
        )
        return self._writer

    @property
    def room(self) -> int:
        """The number of bytes that may still arrive."""
        return self._left

    def wanted_type(self, path: str) -> str | None:
        """Return the type that the request names for the file at `path`.

        Return None when the request names no type, or when it names another file as the root.
        """
        return self._request.type if self._request.root in {None, path} else None

    def adopt(self, file: IngestedFile) -> None:
        """Add a file that is already in the storage."""
        self._begin(file.info.path)
        self._files.append(file)

    async def take(self, files: Mapping[str, FileRef]) -> None:
        """Add files of other stores by path. Only their first bytes are read, and nothing is written.

        Files whose objects are not worth sharing are copied instead. Raise `LimitExceeded` beyond the ingest's limit.
        Raise `Conflict` when an object is missing or damaged.
        """
        shared = await self._worker.run(lambda: _shared(files))  # a commit may name ten thousand files
        try:
            await self._share_all(shared)
            for path in (path for path in files if path not in shared):
                await self._copy(path, files[path])
        except IntegrityError as error:
            raise Conflict(_DAMAGED) from error

    async def commit(self, *, expected_sha256: bytes | None = None) -> Created:
        """Create the store unless it exists.

        `expected_sha256` is the digest of the only file; raise `ChecksumMismatch` if the file has another digest. If
        the digest is given, nothing is written for a small file whose store already exists: only that store's manifest
        is read.
        """
        self._take_over()
        try:
            return await self._commit(expected_sha256)
        except IntegrityError as error:
            if any(file.is_shared for file in self._files):
                raise Conflict(_DAMAGED) from error
            raise

    async def _commit(self, expected_sha256: bytes | None) -> Created:
        if expected_sha256 is not None and [file.info.sha256 for file in self._files] != [expected_sha256.hex()]:
            raise ChecksumMismatch(OTHER_DIGEST)
        root = None
        if expected_sha256 is not None and self._looks and not self._objects.has_written:
            root = await self._root()
            # A root that had to be decoded has been written by now.
            written = self._objects.has_written
            found = None if written else await find_existing(self._space, self._id(root), self._request)
            if found is not None:
                return found
        if all(file.place.stored is None for file in self._files):  # files in objects are read in another way
            self._packs.keep_inline()
        await self._packs.commit()
        root = root or await self._root()
        draft = await drafted(self._request, self._files, root, objects=self._objects, worker=self._worker)
        return await publish(self._space, draft, self._request, self._objects)

    async def _root(self) -> Root:
        return await choose_root(
            self._files, self._request, opened=self._file, worker=self._worker, prepare=self._prepare
        )

    def _id(self, root: Root) -> str:
        """Return the id of the store that consists of the files and this root."""
        files = [(file.info.path, file.info.size, file.info.sha256 or "") for file in self._files]
        return store_id(files, policy_of(self._request, root))

    async def abort(self) -> None:
        """Discard the open file and pack; durable objects become garbage, because no manifest names them."""
        writer, self._writer = self._writer, None
        try:
            if writer is not None and writer.ingested is None:
                await writer.abort()
        finally:
            await self._packs.abort()

    def _begin(self, path: str) -> None:
        self._take_over()
        self._paths.add(path)

    def _take_over(self) -> None:
        """Add the file that was written last; raise `InvalidInput` while it is open."""
        writer = self._writer
        if writer is None:
            return
        if writer.ingested is None:
            raise InvalidInput("A file of the upload is still open: close it first")
        self._writer = None
        self._left -= writer.ingested.info.size
        self._files.append(writer.ingested)

    async def _share_all(self, files: Mapping[str, FileRef]) -> None:
        """Add files of other stores and share all their bytes."""
        for path, ref in files.items():
            self._begin(path)
            self._left -= ref.size
            if self._left < 0:
                raise LimitExceeded(f"The upload is too large: no room for the file {path!r}")
        opened = await open_file_objects([ref.location for ref in files.values()], self._open_object)
        try:
            self._files += await map_concurrently(
                lambda each: self._taken(*each), zip(files, files.values(), opened, strict=True)
            )
        finally:
            for source in opened:
                source.close()

    async def _shareable(self, sha256: str) -> FileRef | None:
        """Return a complete file with this SHA-256 that is worth sharing, or None if no such file is known."""
        found = await self._space.files_by_digest.find(sha256)
        there = found is not None and _shared({"": found}) and await self._has_all(found.location)
        return found if there else None

    async def _has_all(self, location: ObjectLocation) -> bool:
        """Return True when no object is missing or truncated."""
        sizes = {each.key: each.size for each in location.objects if each.key is not None}
        with suppress(NotFound):
            stats = await map_concurrently(lambda key: self._space.storage.stat(ObjectKey(key)), sizes)
            return [stat.size for stat in stats] == [*sizes.values()]
        return False

    async def _copy(self, path: str, ref: FileRef) -> None:
        """Write a copy of another store's file."""
        writer = await self.file(path)
        source = await self._opened(ref.location)
        try:
            async with aclosing(source.stream(0, ref.size)) as pieces:
                async for piece in pieces:
                    await writer.write(piece)
        finally:
            source.close()
        await writer.close()

    async def _taken(self, path: str, ref: FileRef, source: StoredFile) -> IngestedFile:
        """Return another store's file after an inspection of its first bytes."""
        inspection = Inspection(path, self.wanted_type(path), self._types)
        size = min(HEAD, ref.size)
        head = (await source.fetch([source.covering((0, size))]))[0][:size] if size else b""
        detection, scan = await self._worker.run(lambda: inspection.look(head))
        return IngestedFile(
            File(path, ref.size, ref.sha256), PendingLocation(ref.location), detection, scan, is_shared=True
        )

    async def _prepare(self, root: IngestedFile) -> tuple[RootRecords | None, ObjectLocation | None]:
        options = self._options
        if root.detection.kind == "refused" and self._request.type is None:
            raise NotAModel(root.detection.why)
        # Decoded bytes count towards the limit, like uploaded bytes.
        room = max(0, options.max_upload_bytes - sum(file.info.size for file in self._files))
        side = DecodedBytes(self._space.storage, self._objects, self._worker, room=room, verify=options.verify_reads)
        source = await self._file(root)
        try:
            prepared = await self._worker.run(
                lambda: prepare_root(
                    source, root, side, self._types, self._request, kept_rules=options.rules, texts=True
                )
            )
            return prepared, side.stored
        finally:
            source.close()
            await side.close()

    async def _file(self, file: IngestedFile) -> Opened:
        """Open a file that has arrived; it is in memory until bytes of its pack are written."""
        held = self._packs.held(file.place)
        return await self._opened(file.stored) if held is None else HeldFile(held)

    async def _opened(self, stored: ObjectLocation) -> StoredFile:
        return (await open_file_objects([stored], self._open_object))[0]

    async def _open_object(self, stored: ObjectLocation) -> StoredObject:
        sums, verify = self._objects.sums(stored.key), self._options.verify_reads
        return await open_object(self._space.storage, stored, self._worker, verify=verify, sums=sums)


def _shared(files: Mapping[str, FileRef]) -> dict[str, FileRef]:
    """Return the files whose objects are all worth sharing, except files inside a manifest."""
    worth = worth_sharing(ref.location for ref in files.values())
    return {
        path: ref for path, ref in files.items() if worth.issuperset(ref.location.keys) and not ref.location.is_held
    }
