"""Manifests: stores as they lie in storage, with the place of every object they need."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from protoslice.errors import IntegrityError
from protoslice.facts import UNKNOWN, File, Store
from protoslice.identity import Policy, store_id
from protoslice.stores.envelope import seal, unseal

__all__ = ["Manifest", "ObjectLocation", "stored_as_dict", "stored_from_dict", "upgraded"]

_VERSION: Final = 2
_FILE_WEIGHT: Final = 120
"""Bytes of JSON for a file, beside its path."""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """Where an object lies: under a key of ours with block sums, in several parts of that kind, or at a URI, pinned."""

    size: int
    key: str | None = None
    uri: str | None = None
    etag: str | None = None
    parts: tuple[ObjectLocation, ...] = ()
    """What follows each other to make it up, where it is not one object."""
    at: int = 0
    """Where in its parts it begins: other small files may lie before it, and behind it."""

    @classmethod
    def joined(cls, parts: Sequence[ObjectLocation]) -> ObjectLocation:
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
    files: tuple[File, ...]
    objects: tuple[ObjectLocation, ...]
    """Where each of the files lies, in their order."""
    side: ObjectLocation | None = None
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
    def weight(self) -> int:
        """Bytes of its JSON form, about."""
        return _FILE_WEIGHT * (1 + len(self.files)) + sum(len(file.path) for file in self.files) + len(self.why or "")

    def as_store(self, tags: Sequence[str] = ()) -> Store:
        """The store as listings and answers show it, with `tags`."""
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
            why=self.why,
        )

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


def stored_as_dict(stored: ObjectLocation) -> dict[str, Any]:
    """The JSON form, which `stored_from_dict` reads."""
    fields: dict[str, Any] = {"size": stored.size, "key": stored.key, "uri": stored.uri, "etag": stored.etag}
    fields["parts"] = [stored_as_dict(part) for part in stored.parts] or None
    fields["at"] = stored.at or None
    return {name: value for name, value in fields.items() if value is not None}


def stored_from_dict(raw: dict[str, Any]) -> ObjectLocation:
    """What `stored_as_dict` gave."""
    return ObjectLocation(**(raw | {"parts": tuple(stored_from_dict(part) for part in raw.get("parts", ()))}))


def _from_dict(raw: dict[str, Any]) -> dict[str, Any]:
    raw["created"] = datetime.fromisoformat(raw["created"])
    raw["files"] = tuple(File(*file) for file in raw["files"])
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
