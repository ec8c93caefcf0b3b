"""Changes of stores and tags for events, recognised by the write to the storage that makes each.

Changes of stores and of tags become visible by one write of one object, whichever room makes it. Changes in the
database write their letters themselves, in the same transaction (`protoslice.catalog.letters.tell`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from protoslice.catalog.letters import Proof
from protoslice.errors import IntegrityError, NotFound
from protoslice.storage import ObjectKey, Storage, unquote
from protoslice.storage.interface import Buffer
from protoslice.stores.catalog.manifests import is_retired
from protoslice.stores.catalog.named_records import is_removed
from protoslice.stores.envelope import unseal
from protoslice.stores.names import DEFAULT_SPACE

Facts = Mapping[str, str | None]
_IN_A_THREAD: Final = 256 << 10
"""Bytes whose digest takes longer than a thread costs."""


@dataclass(frozen=True, slots=True)
class SpaceChange:
    """Change of a space: the type of its event, the name of its subject, and facts."""

    event: str
    subject: str
    facts: Facts


def space_changed(key: ObjectKey) -> str | None:
    """The space that a write at `key` changes visibly; None for objects that no event tells of."""
    space, segments = _place(key)
    match segments:
        case ("stores" | "tags", _):
            return space
    return None


async def change_at(storage: Storage, key: ObjectKey, data: bytes | None) -> SpaceChange | None:
    """The change that takes place when `data` is written at a key of `space_changed`.

    Data that is None removes the object. None for a record that does not parse.
    """
    names = [unquote(name) for name in _place(key)[1]]
    gone = data is None or is_removed(data) or is_retired(data)
    if names[0] == "stores":
        return SpaceChange("store.removed" if gone else "store.created", names[1], {"store": names[1]})
    with suppress(IntegrityError, NotFound, ValueError, KeyError, TypeError):
        record = (await storage.get(key)).data if data is None or gone else data
        return _change_of_tag(names[1], unseal(record, key.text), gone=gone)
    return None


async def proof_of(key: ObjectKey, data: bytes | None, replaces: str | None) -> Proof:
    """The proof of a change: the object as it is to be.

    `replaces` is the entity tag that the write depends on, or None.
    """
    if data is None or is_removed(data) or is_retired(data):
        return Proof(key.text, None, replaces)
    return Proof(key.text, await _digest(data), replaces)


async def took_place(storage: Storage, proof: Proof, *, strictly: bool) -> bool:
    """True when the storage shows that a change took place.

    Unless `strictly`, a change in doubt counts too: its writer died, and the object has been given another content
    since, so that nobody can tell.
    """
    try:
        found = await storage.get(ObjectKey(proof.key))
    except NotFound:
        return proof.sha256 is None
    if proof.sha256 is None:
        return is_removed(found.data) or is_retired(found.data)
    if await _digest(found.data) == proof.sha256:
        return True
    return not strictly and found.stat.etag != proof.replaces


def _place(key: ObjectKey) -> tuple[str, Sequence[str]]:
    """The space of a key, and its segments there."""
    if key.segments[0] == "spaces" and len(key.segments) > 2:
        return key.segments[1], key.segments[2:]
    return DEFAULT_SPACE, key.segments


def _change_of_tag(name: str, record: bytes, *, gone: bool) -> SpaceChange:
    """The change of a tag, from its record: the new one, or the last one."""
    facts: Facts = {"tag": name, "store": json.loads(record)["store"]}
    return SpaceChange("tag.removed" if gone else "tag.set", name, facts)


async def _digest(data: Buffer) -> str:
    if len(data) > _IN_A_THREAD:
        return (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
    return hashlib.sha256(data).hexdigest()
