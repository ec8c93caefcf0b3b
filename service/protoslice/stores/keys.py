"""Where everything lies in a storage.

protoslice.json                     the layout's version
stores/<id>                         a store's manifest: written last, in one step; with it the store exists
objects/<attempt>/file-<n>          file <n> of an upload, as it came; small files share the object of the first of them
objects/<attempt>/file-<n>.sums     its block sums
objects/<attempt>/side  side.sums   records of a chunked proto that had to be decoded; a text in its binary form
objects/<attempt>/index             the index of the root proto
objects/<attempt>/plan              its chunks
objects/<attempt>/image             a chunked proto merged: a rope over its root file and the side object
objects/<attempt>/schema            the descriptor set of a type that is not bundled
objects/<attempt>/part-<random>     some bytes of a resumable upload, whose id is the attempt; its sums beside it
objects/<attempt>/state-<random>    what is known of its first bytes
uploads/<attempt>                   the record of a resumable upload: which parts make it up so far
derived/<id>/<name>                 what can be made anew: digests of chunks and pieces, and the reads that find tensors
tags/<name>                         a tag: the id it points to
schemas/<name>                      an uploaded descriptor set
removed/<time>-<random>             the manifest of a store removed then, until its objects are collected
probe/<random>                      written and removed when a storage is opened, to see whether it keeps its promises

An attempt is one upload. Its name begins with the time it began at, so that a collector can tell how old it is.
"""

from __future__ import annotations

import secrets
import time

from protoslice.storage import ObjectKey, quote, unquote

__all__ = [
    "DERIVED",
    "MARKER",
    "OBJECTS",
    "REMOVED",
    "SCHEMAS",
    "STORES",
    "TAGS",
    "UPLOADS",
    "began_at",
    "derived",
    "name_of",
    "new_attempt",
    "new_object",
    "new_removed",
    "object_key",
    "schema",
    "store",
    "sums_of",
    "tag",
    "upload",
]

MARKER = ObjectKey("protoslice.json")
STORES = ObjectKey("stores")
OBJECTS = ObjectKey("objects")
DERIVED = ObjectKey("derived")
TAGS = ObjectKey("tags")
SCHEMAS = ObjectKey("schemas")
REMOVED = ObjectKey("removed")
UPLOADS = ObjectKey("uploads")


def new_attempt() -> str:
    """A name for an upload that begins now."""
    return f"{int(time.time()):010x}-{secrets.token_hex(10)}"


def began_at(attempt: str) -> float:
    """When an attempt began, in seconds since the epoch; 0 for a name that tells nothing."""
    try:
        return float(int(attempt.partition("-")[0], 16))
    except ValueError:
        return 0.0


def store(store_id: str) -> ObjectKey:
    """The manifest of a store."""
    return STORES / store_id


def new_removed() -> ObjectKey:
    """Where the manifest of a store goes that is removed now: it may come again and be removed again."""
    return REMOVED / new_attempt()


def object_key(attempt: str, name: str) -> ObjectKey:
    """An object of an upload."""
    return OBJECTS / attempt / name


def new_object(attempt: str, what: str) -> ObjectKey:
    """A place in an upload where nothing lies yet, whoever else writes."""
    return object_key(attempt, f"{what}-{secrets.token_hex(8)}")


def upload(upload_id: str) -> ObjectKey:
    """The record of a resumable upload."""
    return UPLOADS / upload_id


def sums_of(key: ObjectKey) -> ObjectKey:
    """The block sums of an object."""
    return ObjectKey(f"{key}.sums")


def derived(store_id: str, name: str) -> ObjectKey:
    """Something made from a store."""
    return DERIVED / store_id / name


def tag(name: str) -> ObjectKey:
    """A tag."""
    return TAGS / quote(name)


def schema(name: str) -> ObjectKey:
    """An uploaded descriptor set."""
    return SCHEMAS / quote(name)


def name_of(key: ObjectKey) -> str:
    """The name of the tag or schema that lies at `key`."""
    return unquote(key.segments[-1])
