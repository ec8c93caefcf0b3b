"""Manifests: the records of stores, with the location of every object that a store needs."""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from protoslice.catalog.objects import LARGEST_SUMLESS, object_id
from protoslice.database.transactions import NOBODY, Actor
from protoslice.errors import IntegrityError
from protoslice.facts import UNKNOWN, File, Store
from protoslice.storage import ObjectKey
from protoslice.versions import Policy, store_id

_DIGEST = 65  # a line feed and 64 hex digits


def with_digest(data: bytes) -> bytes:
    """Return `data` followed by its SHA-256, with which `checked` detects damage."""
    return data + b"\n" + hashlib.sha256(data).hexdigest().encode()


def checked(stored: bytes, what: str) -> bytes:
    """Return the data without the digest that `with_digest` appended.

    Raise `IntegrityError`, whose message names `what`, if the data does not match the digest.
    """
    data = stored[:-_DIGEST]
    if len(stored) < _DIGEST or with_digest(data) != stored:
        raise IntegrityError(f"{what} is damaged: it does not match its digest")
    return data


_VERSION: Final = 2
_FILE_WEIGHT: Final = 120
"""Approximate number of bytes that a file adds to the JSON, in addition to its path."""
LARGEST_INLINE: Final = 16 << 10
"""Largest size in bytes of a record that is part of the manifest; a larger record is an object."""
LARGEST_INLINE_SUMS: Final = 4 * LARGEST_SUMLESS // (64 << 10)
"""Largest size in bytes of the block checksums that are part of a location.

This is the size of the checksums of 16 MiB of data, the amount that one request to a bucket writes.
"""
LARGEST_HELD: Final = 4 << 10
"""Largest total size in bytes of a store's files that are part of the manifest.

Lists read manifests, and a page of a hundred stores then reads at most half a mebibyte of files.
"""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A location of bytes: an object of the storage, an external URI, or several consecutive parts.

    A location of an object of the storage may include its block checksums. An external URI is fixed to one version by
    its entity tag. A location may also hold the bytes of a small file itself.
    """

    size: int
    key: str | None = None
    uri: str | None = None
    etag: str | None = None
    parts: tuple[ObjectLocation, ...] = ()
    """Consecutive locations that together contain the bytes, if the bytes are not exactly one object."""
    at: int = 0
    """Offset of the bytes in the first part, whose object may also hold bytes of other files."""
    sums: bytes | None = None
    """Block checksums of an object of the storage, or None if they are a separate object."""
    held: bytes | None = None
    """Bytes of a small file, which are part of the manifest, or None."""

    @classmethod
    def joined(cls, parts: Sequence[ObjectLocation]) -> ObjectLocation:
        """Return the location of consecutive parts; a single part is returned unchanged."""
        return parts[0] if len(parts) == 1 else cls(sum(part.size for part in parts), parts=tuple(parts))

    def extents(self, start: int = 0, end: int | None = None) -> Iterator[ObjectExtent]:
        """Yield the parts of objects that contain the bytes from `start` to `end`, in order."""
        end = self.size if end is None else end
        if not self.parts:
            if start < end:
                yield ObjectExtent(self, start, end)
            return
        at = -self.at
        for part in self.parts:
            low, high = max(start - at, 0), min(end - at, part.size)
            if low < high:
                yield from part.extents(low, high)
            at += part.size

    @property
    def objects(self) -> Iterator[ObjectLocation]:
        """The locations of single objects in this location, in order."""
        if not self.parts:
            yield self
        for part in self.parts:
            yield from part.objects

    @property
    def is_held(self) -> bool:
        """True if the manifest itself holds some of the bytes."""
        return any(each.held is not None for each in self.objects)

    @property
    def keys(self) -> Iterator[str]:
        """The keys of the objects at this location that are in the storage."""
        if self.key is not None:
            yield self.key
        for part in self.parts:
            yield from part.keys

    @property
    def object_ids(self) -> set[int]:
        """The ids of the objects at this location that are in the storage."""
        return {object_id(key) for key in self.keys}


@dataclass(frozen=True, slots=True)
class ObjectExtent:
    """The bytes of one object from `start` to `end`."""

    object: ObjectLocation
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start

    @property
    def location(self) -> ObjectLocation:
        """The location of exactly these bytes."""
        whole = self.start == 0 and self.end == self.object.size
        return self.object if whole else ObjectLocation(self.size, parts=(self.object,), at=self.start)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record of a store, with its options, its files and their locations."""

    id: str
    type: str | None
    root: str | None
    """Path of the root proto, or None for a store without a root; `why` then has the reason."""
    chunks: int
    min_chunk: int
    max_chunk: int
    created: datetime
    source: str
    files: tuple[File, ...]
    objects: tuple[ObjectLocation, ...]
    """Location of each file, in the order of `files`."""
    side: ObjectLocation | None = None
    indexed: bool = True
    """False if the root is no proto but, for example, a text or the table of a tensor bundle."""
    chunked: bool = False
    """True if the store keeps an image (the root in serialized form), because the root is a chunked proto or a text."""
    schema: str | None = None
    """Fingerprint of the schema with which the root is read; None for a root without a type or an index."""
    planner: int | None = None
    """Version of the planner that made the chunks, or None for a root without an index."""
    why: str | None = None
    """One sentence that explains the missing root, or None if there is a root."""
    stream: str | None = None
    """Path of the file that most likely consists of records, or None."""
    rules: tuple[str, ...] = ()
    """Rules by which the root was split into chunks, in canonical form."""
    inline: Mapping[str, bytes] = field(default_factory=dict)
    """Small records of the root, by name; they save durable writes, and reads when the store is opened."""
    beside: Mapping[str, str] = field(default_factory=dict)
    """Keys of the objects that hold the larger records of the root, by the records' names."""
    row: int = field(default=0, compare=False)
    """Id of the store's row in the catalogue; it changes if the store is removed and uploaded again."""

    def encode(self) -> bytes:
        """Serialize the manifest to JSON, and append a digest."""
        data = {"version": _VERSION} | _as_dict(self)
        return with_digest(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())

    @classmethod
    def decode(cls, data: bytes, row: int = 0) -> Manifest:
        """Parse the output of `encode`, which a row of the catalogue holds.

        Raise `IntegrityError` for other or damaged data.
        """
        try:
            raw = json.loads(checked(data, "a store's manifest"))
            if raw.pop("version") != _VERSION:
                raise IntegrityError("the manifest of a store has an unsupported version")
            return cls(**_from_dict(raw), row=row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("the manifest of a store does not parse") from error

    def named(self) -> Manifest:
        """Return a copy whose `id` is the digest of the files and of the options for reading and splitting the root."""
        files = [
            (file.path, file.size, file.sha256 or (stored.uri, stored.etag))
            for file, stored in zip(self.files, self.objects, strict=True)
        ]
        policy = Policy(
            root=self.root,
            type=self.type,
            min_chunk=self.min_chunk,
            max_chunk=self.max_chunk,
            schema=self.schema,
            planner=self.planner,
            rules=self.rules,
        )
        return replace(self, id=store_id(files, policy))

    @property
    def weight(self) -> int:
        """Approximate size of the manifest's JSON form, in bytes."""
        paths = sum(len(file.path) for file in self.files)
        records = 2 * sum(map(len, self.inline.values())) + 2 * sum(len(each.held or b"") for each in self.objects)
        texts = len(self.why or "") + len(self.stream or "") + sum(map(len, self.rules))
        return _FILE_WEIGHT * (1 + len(self.files)) + paths + texts + records

    def as_store(self, tags: Sequence[str] = (), uploader: Actor = NOBODY, description: str = "") -> Store:
        """Return the store in the form in which lists and responses show it."""
        return Store(
            id=self.id,
            type=self.shown_type,
            root=self.root,
            size=sum(file.size for file in self.files),
            chunks=self.chunks,
            min_chunk=self.min_chunk,
            max_chunk=self.max_chunk,
            created=self.created,
            tags=tuple(tags),
            files=self.files,
            source=self.source,
            schema=self.schema,
            planner=self.planner,
            rules=self.rules,
            why=self.why,
            records_file=self.stream,
            uploader=uploader.name or None,
            uploader_id=uploader.id or None,
            description=description,
        )

    @property
    def shown_type(self) -> str | None:
        """The root's type as the API shows it, or None for a store without a root."""
        return None if self.root is None else self.type or UNKNOWN

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records that are needed to read the root, whether they are inline or objects."""
        kept = {"index": self.indexed, "plan": self.indexed, "image": self.chunked, "schema": self.schema is not None}
        return tuple(name for name, there in kept.items() if there)

    @property
    def stored(self) -> tuple[ObjectLocation, ...]:
        """The locations of the files, and of the side object (decoded bytes of the root) if the store has one."""
        return (*self.objects, *([self.side] if self.side else []))

    @property
    def object_ids(self) -> set[int]:
        """The ids of all objects that the store needs."""
        keys = {key for each in self.stored for key in each.keys}
        return {object_id(key) for key in keys.union(self.beside.values())}


def sums_of(key: ObjectKey) -> ObjectKey:
    """Return the key of the object that holds an object's block checksums."""
    return ObjectKey(f"{key}.sums")


def _as_dict(manifest: Manifest) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(manifest, name) for name in Manifest.__slots__}
    data["created"] = manifest.created.isoformat()
    data["files"] = [[file.path, file.size, file.sha256] for file in manifest.files]
    data["objects"] = [_without_sums(stored) for stored in manifest.objects]
    data["side"] = _without_sums(manifest.side) if manifest.side else None
    data |= _sums_as_dict(manifest.stored)
    if not manifest.rules:
        del data["rules"]
    if manifest.stream is None:
        del data["stream"]
    del data["row"]
    data["beside"] = dict(manifest.beside)
    data["inline"] = {name: b64encode(record).decode() for name, record in manifest.inline.items()}
    return data


def stored_as_dict(stored: ObjectLocation) -> dict[str, Any]:
    """Convert a location to a JSON object, which `stored_from_dict` parses."""
    return _without_sums(stored) | _sums_as_dict([stored])


def _sums_as_dict(locations: Iterable[ObjectLocation]) -> dict[str, Any]:
    """Return the checksums of each object once, by the object's key; leave out objects without checksums."""
    sums = {each.key: each.sums for stored in locations for each in stored.objects if each.sums is not None}
    return {"sums": {key: b64encode(each).decode() for key, each in sums.items()}} if sums else {}


def _without_sums(stored: ObjectLocation) -> dict[str, Any]:
    fields: dict[str, Any] = {"size": stored.size, "key": stored.key, "uri": stored.uri, "etag": stored.etag}
    fields["parts"] = [_without_sums(part) for part in stored.parts] or None
    fields["at"] = stored.at or None
    fields["held"] = None if stored.held is None else b64encode(stored.held).decode()
    return {name: value for name, value in fields.items() if value is not None}


def stored_from_dict(raw: dict[str, Any], sums: Mapping[str, bytes] = MappingProxyType({})) -> ObjectLocation:
    """Parse the output of `stored_as_dict`; if `raw` lacks the checksums, `sums` has them, by key."""
    if "sums" in raw:
        sums = _decoded(raw["sums"])
    parts = tuple(stored_from_dict(part, sums) for part in raw.get("parts", ()))
    own = sums.get(raw.get("key", ""))
    held = b64decode(raw["held"], validate=True) if "held" in raw else None
    if held is not None and len(held) != raw["size"]:
        raise ValueError("a file in the manifest has a wrong size")
    return ObjectLocation(**(raw | {"parts": parts, "sums": own, "held": held}))


def _decoded(sums: Mapping[str, str]) -> dict[str, bytes]:
    return {key: b64decode(each, validate=True) for key, each in sums.items()}


def _from_dict(raw: dict[str, Any]) -> dict[str, Any]:
    sums = _decoded(raw.pop("sums", {}))
    raw["created"] = datetime.fromisoformat(raw["created"])
    raw["files"] = tuple(File(*file) for file in raw["files"])
    raw["objects"] = tuple(stored_from_dict(stored, sums) for stored in raw["objects"])
    raw["side"] = stored_from_dict(raw["side"], sums) if raw["side"] else None
    raw["rules"] = tuple(raw.get("rules", ()))
    raw["inline"] = {name: b64decode(record, validate=True) for name, record in raw.get("inline", {}).items()}
    return raw
