"""What the use cases speak in: stores, tags, pages, and what makes a store the same as another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Generic, TypeVar

from protoslice.errors import IntegrityError, InvalidInput
from protoslice.identity import Policy, store_id
from protoslice.stores.layout.envelope import seal, unseal

__all__ = [
    "TAGS_AT_ONCE",
    "TAGS_OF_A_STORE",
    "UNKNOWN",
    "Created",
    "FileInfo",
    "IngestRequest",
    "Manifest",
    "Page",
    "PageRoom",
    "Removed",
    "Restored",
    "SchemaInfo",
    "StoreInfo",
    "Stored",
    "Tag",
    "place_of",
    "upgraded",
]

MIN_CHUNK = 1 << 20
MAX_CHUNK = 1 << 30
_WEIGHT: Final = 120
"""Bytes of JSON beside the path of a file."""
UNKNOWN = "unknown"
"""What a root without a type is called, in answers and in requests that want no schema to be used."""
_VERSION = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of many things, and the cursor that goes on behind them; none at the end."""

    items: Sequence[T]
    next: str | None = None


PAGE_BYTES: Final = 1 << 20
"""About as many bytes of JSON as the items of one page take."""


class PageRoom:
    """Room for the items of one page: a number of them, and of bytes. The first item always has room."""

    def __init__(self, items: int, size: int = PAGE_BYTES) -> None:
        self._items = items
        self._size = size
        self._empty = True

    @property
    def left(self) -> int:
        """How many items more, as far as bytes allow."""
        return self._items if self._size > 0 or self._empty else 0

    def takes(self, weight: int) -> bool:
        """Whether an item of about `weight` bytes has room; it is counted then."""
        if self._items <= 0 or (weight > self._size and not self._empty):
            self._items = 0
            return False
        self._items -= 1
        self._size -= weight
        self._empty = False
        return True


def place_of(cursor: str | None) -> int:
    """The number of the thing a page begins with, where cursors count."""
    if cursor is None:
        return 0
    if not cursor.isascii() or not cursor.isdigit() or len(cursor) > 18:
        raise InvalidInput("this cursor was not given by this service")
    return int(cursor)


TAGS_AT_ONCE: Final = 64
"""Tags that one request may set."""
TAGS_OF_A_STORE: Final = 1000
"""Tags that a store may bear: one page of a listing, and all of them go when the store is removed."""


@dataclass(frozen=True, slots=True)
class IngestRequest:
    """What an upload asks for."""

    type: str | None = None
    root: str | None = None
    tags: tuple[str, ...] = ()
    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    source: str = "upload"

    @property
    def names_a_root(self) -> bool:
        """Whether it says which file is a proto, or of which type: then a store without one is an error."""
        return self.root is not None or self.type is not None

    def type_or(self, detected: str | None) -> str | None:
        """The type of the root: the one asked for, else the one detected; none for `unknown`, whoever said so."""
        return None if self.type == UNKNOWN else self.type or detected


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a store; the digest of one that was registered in place is not known."""

    path: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class Stored:
    """Where an object lies: under a key of ours with block sums, in several parts of that kind, or at a URI, pinned."""

    size: int
    key: str | None = None
    uri: str | None = None
    etag: str | None = None
    parts: tuple[Stored, ...] = ()
    """What follows each other to make it up, where it is not one object."""
    at: int = 0
    """Where in its parts it begins: other small files may lie before it, and behind it."""

    @classmethod
    def joined(cls, parts: Sequence[Stored]) -> Stored:
        """Parts that follow each other, as one."""
        return parts[0] if len(parts) == 1 else cls(sum(part.size for part in parts), parts=tuple(parts))

    @property
    def keys(self) -> Iterator[str]:
        """The keys of ours that it lies under."""
        if self.key is not None:
            yield self.key
        for part in self.parts:
            yield from part.keys


@dataclass(frozen=True, slots=True)
class Manifest:
    """A store, as it is kept."""

    id: str
    type: str | None
    root: str | None
    """The path of the root proto; None for a store of files alone, of which `why` says why it has none."""
    chunks: int
    min_chunk: int
    max_chunk: int
    created: datetime
    source: str
    attempt: str
    files: tuple[FileInfo, ...]
    objects: tuple[Stored, ...]
    """Where each of the files lies, in their order."""
    side: Stored | None = None
    indexed: bool = True
    """False where the root is no proto: a text, or the table of a tensor bundle."""
    chunked: bool = False
    """Whether an image is kept: of a chunked proto, or of a text."""
    schema: str | None = None
    """The fingerprint of the schema that the root is read by; None for a root without a type, or without an index."""
    planner: int | None = None
    """The version of the planner that made the chunks; None for a root without an index."""
    why: str | None = None
    """One sentence on why there is no root; None where there is one."""

    def encode(self) -> bytes:
        """Its JSON form, which `decode` reads."""
        data = {"version": _VERSION} | _as_dict(self)
        return seal(json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode())

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        """What `encode` gave; an `IntegrityError` for anything else."""
        try:
            raw = json.loads(unseal(data, "a store's manifest"))
            if raw.pop("version") != _VERSION:
                raise IntegrityError("a store's manifest has a version this program does not read")
            return cls(**_from_dict(raw))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("a store's manifest does not parse") from error

    def named(self) -> Manifest:
        """The manifest with the id that its content gives."""
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
        )
        return replace(self, id=store_id(files, policy))

    @property
    def shown_type(self) -> str | None:
        """The type of the root as the API shows it; None for a store without a root."""
        return None if self.root is None else self.type or UNKNOWN

    @property
    def beside(self) -> tuple[str, ...]:
        """The names of the records that lie in its own attempt beside the objects of files."""
        kept = {"index": self.indexed, "plan": self.indexed, "image": self.chunked, "schema": self.schema is not None}
        return tuple(name for name, there in kept.items() if there)

    @property
    def keys(self) -> set[str]:
        """The keys of everything that it needs: objects, their sums, and the records beside them."""
        stored = (*self.objects, *([self.side] if self.side else []))
        objects = {key for each in stored for key in each.keys}
        beside = {f"objects/{self.attempt}/{name}" for name in self.beside}
        return objects | {f"{key}.sums" for key in objects} | beside

    @property
    def attempts(self) -> set[str]:
        """The attempts whose objects it needs: its own, and those of the uploads that its files came by."""
        return {self.attempt} | {key.split("/")[1] for stored in self.objects for key in stored.keys}


def _as_dict(manifest: Manifest) -> dict[str, Any]:
    data: dict[str, Any] = {name: getattr(manifest, name) for name in Manifest.__slots__}
    data["created"] = manifest.created.isoformat()
    data["files"] = [[file.path, file.size, file.sha256] for file in manifest.files]
    data["objects"] = [stored_as_dict(stored) for stored in manifest.objects]
    data["side"] = stored_as_dict(manifest.side) if manifest.side else None
    return data


def stored_as_dict(stored: Stored) -> dict[str, Any]:
    """The JSON form, which `stored_from_dict` reads."""
    fields: dict[str, Any] = {"size": stored.size, "key": stored.key, "uri": stored.uri, "etag": stored.etag}
    fields["parts"] = [stored_as_dict(part) for part in stored.parts] or None
    fields["at"] = stored.at or None
    return {name: value for name, value in fields.items() if value is not None}


def stored_from_dict(raw: dict[str, Any]) -> Stored:
    """What `stored_as_dict` gave."""
    return Stored(**(raw | {"parts": tuple(stored_from_dict(part) for part in raw.get("parts", ()))}))


def _from_dict(raw: dict[str, Any]) -> dict[str, Any]:
    raw["created"] = datetime.fromisoformat(raw["created"])
    raw["files"] = tuple(FileInfo(*file) for file in raw["files"])
    raw["objects"] = tuple(stored_from_dict(stored) for stored in raw["objects"])
    raw["side"] = stored_from_dict(raw["side"]) if raw["side"] else None
    return raw


def upgraded(raw: dict[str, Any], schema: str | None) -> Manifest:
    """The manifest of version 2 for one of version 1, as parsed JSON; `schema` is the fingerprint to read its root by.

    The id stays: it is a name by now, and its URLs have been given out. `schema` counts for an indexed root alone.
    """
    indexed = bool(raw.get("indexed", True))
    facts = {name: value for name, value in raw.items() if name not in {"version", "own_schema"}}
    return Manifest(**_from_dict(facts), schema=schema if indexed else None, planner=1 if indexed else None)


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """A store, as people ask for it."""

    id: str
    type: str | None
    root: str | None
    size: int
    chunks: int
    min_chunk: int
    max_chunk: int
    created: datetime
    tags: tuple[str, ...]
    files: tuple[FileInfo, ...]
    source: str
    schema: str | None
    planner: int | None
    why: str | None = None
    """One sentence on why there is no root; None where there is one."""

    @classmethod
    def of(cls, manifest: Manifest, tags: Sequence[str] = ()) -> StoreInfo:
        """The store of `manifest`, which bears `tags`."""
        size = sum(file.size for file in manifest.files)
        common = {name: getattr(manifest, name) for name in cls.__slots__ if name not in {"size", "tags"}}
        return cls(**common, size=size, tags=tuple(tags))

    @property
    def weight(self) -> int:
        """About how many bytes its JSON takes."""
        texts = sum(len(file.path) for file in self.files) + sum(map(len, self.tags)) + len(self.why or "")
        return _WEIGHT * (1 + len(self.files)) + texts

    @property
    def shown_type(self) -> str | None:
        """The type of the root as the API shows it; None for a store without a root."""
        return None if self.root is None else self.type or UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """The store as the API shows it."""
        data: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        data["type"] = self.shown_type
        data["created"] = format_time(self.created)
        data["tags"] = list(self.tags)
        data["files"] = [{"path": file.path, "size": file.size, "sha256": file.sha256} for file in self.files]
        return data


@dataclass(frozen=True, slots=True)
class Removed:
    """A store that was removed, with the tags that went with it; until `restorable_until` the removal can be undone."""

    id: str
    tags: tuple[str, ...]
    restorable_until: datetime

    def as_json(self) -> dict[str, Any]:
        """The removal as the API shows it."""
        return {"id": self.id, "tags": list(self.tags), "restorable_until": format_time(self.restorable_until)}


@dataclass(frozen=True, slots=True)
class Restored:
    """A store whose removal was undone; `tags_taken` point at other stores by now."""

    store: StoreInfo
    tags_taken: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Created:
    """What an upload came to; `created` is False when the store was there already."""

    store: StoreInfo
    created: bool


@dataclass(frozen=True, slots=True)
class Tag:
    """A name that points at a store; its entity tag changes whenever it is set."""

    name: str
    store: str
    updated: datetime
    etag: str = field(default="")

    def as_json(self) -> dict[str, str]:
        """The tag as the API shows it."""
        return {"name": self.name, "store": self.store, "updated": format_time(self.updated)}


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """An uploaded descriptor set."""

    name: str
    size: int
    messages: int
    updated: datetime
    etag: str

    def as_json(self) -> dict[str, object]:
        """The schema as the API shows it."""
        return {"name": self.name, "size": self.size, "messages": self.messages, "updated": format_time(self.updated)}


def now() -> datetime:
    """The time."""
    return datetime.now(UTC)


def format_time(time: datetime) -> str:
    """A time as the API writes it."""
    return time.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
