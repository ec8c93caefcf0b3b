"""Stores as they were made: lasting facts, kept in the records of tags that a store was sent with."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from protoslice.facts import File, Store
from protoslice.stores.layout.indexes import place_of
from protoslice.stores.manifest import Manifest

_LARGEST: Final = 4 << 10
"""Bytes of facts in a tag, about, at most: of stores with more a list reads the manifest."""


@dataclass(frozen=True, slots=True)
class MadeStore:
    """Store as it was made, without tags."""

    store: Store
    place: str
    """Place of its index entries."""
    borne: tuple[str, ...]
    """Tags that its entries bear."""
    at: datetime
    """Time at which the record was written, by the clock of its writer."""


def facts_of(manifest: Manifest, at: datetime) -> dict[str, Any] | None:
    """Facts of a store for the record of a tag, written `at` a time; None for too many facts."""
    store = manifest.as_store()
    texts = sum(len(file.path) for file in store.files) + len(store.why or "") + sum(map(len, store.rules))
    if texts + 120 * len(store.files) > _LARGEST:
        return None
    facts = {name: getattr(store, name) for name in Store.__slots__ if name not in {"id", "size", "names"}}
    files = [[file.path, file.size, file.sha256] for file in store.files]
    return facts | {
        "created": store.created.isoformat(),
        "files": files,
        "tags": manifest.tags,
        "at": at.isoformat(),
    }


def made_store(store_id: str, facts: dict[str, Any]) -> MadeStore:
    """Parse the output of `facts_of`; `TypeError`, `ValueError` or `KeyError` for anything else."""
    files, created = tuple(File(*file) for file in facts["files"]), datetime.fromisoformat(facts["created"])
    size = sum(file.size for file in files)
    rules, borne = tuple(facts["rules"]), tuple(facts["tags"])
    at = datetime.fromisoformat(facts["at"])
    known = facts | {"files": files, "created": created, "tags": (), "rules": rules}
    del known["at"]
    return MadeStore(Store(id=store_id, size=size, **known), place_of(store_id, created), borne, at)
