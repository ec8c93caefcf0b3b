"""Root of an opened store: its records, loaded into the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from protoslice import _core
from protoslice.concurrency.executor import Worker
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, NotFound
from protoslice.schema import TypeSchema
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.cache import BlockCache
from protoslice.stores.envelope import unseal
from protoslice.stores.manifest import Manifest
from protoslice.stores.objects.stored import StoredFile, recorded
from protoslice.stores.schemas import Schemas


@dataclass(frozen=True, slots=True)
class OpenRoot:
    """Root of a store, loaded into the core."""

    document: _core.Document
    plan: _core.Plan
    sources: Sequence[StoredFile]
    """The root file, then the side object, if there is one."""
    imaged: bool
    """True when the root file is a chunked proto or a text, which an image presents as one proto."""
    read_by: TypeSchema | None = None
    """Schema that the root is read by; None when its type is unknown."""
    weight: int = 0
    """Bytes of the records."""

    @property
    def decoded(self) -> Sequence[StoredFile]:
        """Objects opened for the root beyond the store's files."""
        return self.sources[1:]


async def records_of(
    storage: Storage, manifest: Manifest, worker: Worker, cache: BlockCache | None = None
) -> Mapping[str, bytes]:
    """Records of the root of the store of `manifest`, by name.

    Raises `IntegrityError` for a missing or damaged one.
    """

    async def whole(name: str) -> bytes:
        if name in manifest.inline:
            return manifest.inline[name]
        key = ObjectKey(manifest.beside[name])
        return await recorded(cache, key, lambda: read(name, key))

    async def read(name: str, key: ObjectKey) -> bytes:
        try:
            sealed = (await storage.get(key)).data
        except NotFound as error:
            raise IntegrityError(f"the {name} of store {manifest.id} is missing") from error
        return await worker.run(lambda: unseal(sealed, f"the {name} of store {manifest.id}"))

    return dict(zip(manifest.records, await map_concurrently(whole, manifest.records), strict=True))


async def open_root(
    manifest: Manifest,
    records: Mapping[str, bytes],
    files: Sequence[StoredFile],
    side: Sequence[StoredFile],
    worker: Worker,
    schemas: Schemas,
) -> OpenRoot:
    """Load the root of the store of `manifest`, which is among the opened `files`, from its `records`."""
    root = next(i for i, file in enumerate(manifest.files) if file.path == manifest.root)
    # Bundled types are read by the program's own schema, but the stored one is checked as well: a later program may
    # need it, and damage is best reported while the client still has the files.
    read_by = await schemas.of_store(manifest, records.get("schema", b""))
    index, plan, image = records["index"], records["plan"], records.get("image")
    sources = [files[root], *side]
    return await worker.run(lambda: _proto(index, plan, image, sources, read_by))


def _proto(
    index: bytes, plan: bytes, image: bytes | None, sources: Sequence[StoredFile], read_by: TypeSchema | None
) -> OpenRoot:
    """Decode the records of a root into core objects. Blocks."""
    rope = _core.Rope.decode(image) if image is not None else None
    document = _core.Document(_core.Index(index), read_by.flat if read_by else None, sources, rope)
    weight = sum(map(len, (index, plan, image or b"")))
    return OpenRoot(document, _core.Plan.decode(plan), sources, rope is not None, read_by, weight)
