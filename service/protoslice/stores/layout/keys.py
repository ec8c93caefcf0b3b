"""Keys of all objects in a storage: layout 3.

protoslice.json                     the layout's version
stores/<id>                         a store's manifest: written last, in one step; with it the store exists
objects/<attempt>/claim             a writer is at work, or a manifest needs the attempt (claims.py)
objects/<attempt>/of-<place>-<n>-…  the store may name objects of this and n - 1 other attempts (references.py)
objects/<attempt>/file-<n>          file <n> of an upload, as it came; small files share the object of the first of them
objects/<attempt>/file-<n>.sums     its block sums, of an object of more than 16 MiB; others lie with its location
objects/<attempt>/side  side.sums   records of a chunked proto that had to be decoded; a text in its binary form
objects/<attempt>/index             the index of the root proto
objects/<attempt>/plan              its chunks
objects/<attempt>/image             a chunked proto merged: a rope over its root file and the side object
objects/<attempt>/schema            the descriptor set of the root's type and all it reaches
objects/<attempt>/part-<random>     some bytes of a resumable upload, whose id is the attempt; its sums beside it
objects/<attempt>/state-<random>    what is known of its first bytes
objects/<attempt>/xorb-<hash>-<size>  of an upload that is a session of Xet: where the chunks of a xorb lie, and end
objects/<attempt>/records-<framing> where its first records lie, once somebody reads them while they arrive
derived/<id>/<name>                 large facts that can be computed again, such as the digests of pieces
tags/<name>                         a tag: the id it points to
removed/<id>/<time>-<random>        the manifest and the tags of a store removed then, until its objects are collected
indexes/time/<place>=<tag>=<tag>…   a store, newer ones first, with the tags that it was sent with; a place is the time
                                    upside down, and the id. In storages of layout 2 the place alone
indexes/type/<type>/<place>=…       a store of a type; both entries hold the attempt of its manifest
indexes/time/<place>+  …/<place>+   the entry may be wrong: the store has got other tags, or is being removed
indexes/name/<tag>!<place>          such a mark for each tag that the entry bears; all marks hold the attempt
indexes/tag/<id>/<name>             a tag set later than its store was sent; holds a random text
indexes/file/<sha256>/<place>-<attempt>  a file whose bytes came with the store; holds the location of its objects
indexes/piece/<sha256>/<place>      a piece of the store, one of a few; holds a random text
usage                               the quota of the space, and what it holds (quotas/)
probe/<random>                      written and removed when a storage is opened, to see whether it keeps its promises
spaces/<space>/…                    all of the above once more, for a space of its own

An attempt is one upload. Its name begins with the time it began at, so that a collector can tell how old it is.
`indexes/` holds nothing that cannot be made anew from manifests and tags.
"""

from __future__ import annotations

import hashlib
import secrets
import time

from protoslice.storage import ObjectKey, quote, unquote
from protoslice.storage.keys import MAX_SEGMENT_BYTES

MARKER = ObjectKey("protoslice.json")
STORES = ObjectKey("stores")
OBJECTS = ObjectKey("objects")
DERIVED = ObjectKey("derived")
TAGS = ObjectKey("tags")
REMOVED = ObjectKey("removed")
SPACES = ObjectKey("spaces")
LEDGER = ObjectKey("usage")
BY_TIME = ObjectKey("indexes/time")
BY_TYPE = ObjectKey("indexes/type")
BY_STORE = ObjectKey("indexes/tag")
BY_FILE = ObjectKey("indexes/file")
BY_PIECE = ObjectKey("indexes/piece")
BY_NAME = ObjectKey("indexes/name")
TALLY = ObjectKey("tally/last")


def new_attempt() -> str:
    """A name for an upload that begins now."""
    return f"{int(time.time()):010x}-{secrets.token_hex(10)}"


def began_at(attempt: str) -> float:
    """Time at which an attempt began, in seconds since the epoch; 0 for a name without one."""
    try:
        return float(int(attempt.partition("-")[0], 16))
    except ValueError:
        return 0.0


def space(name: str) -> ObjectKey:
    """The folder of a space, a storage of its own."""
    return SPACES / name


def store(store_id: str) -> ObjectKey:
    """The manifest of a store."""
    return STORES / store_id


def new_removed(store_id: str) -> ObjectKey:
    """Key of a new tombstone; each removal of a store has its own, as the store may come again."""
    return REMOVED / store_id / new_attempt()


def claim(attempt: str) -> ObjectKey:
    """The claim of an attempt."""
    return OBJECTS / attempt / "claim"


def reference(attempt: str, about: str) -> ObjectKey:
    """The note in an attempt that a store may name its objects; see `references.Reference`."""
    return OBJECTS / attempt / f"of-{about}"


def is_reference(key: ObjectKey) -> bool:
    """True when an object is the note of a store in an attempt."""
    return key.segments[0] == "objects" and key.segments[-1].startswith("of-")


def is_note(key: ObjectKey) -> bool:
    """True for a claim or a reference, which hold no content of an upload."""
    return key.segments[-1] == "claim" or is_reference(key)


def by_type(type_name: str) -> ObjectKey:
    """The folder of the stores of a type; the name of one that is too long for a key is hashed."""
    quoted = quote(type_name)
    return BY_TYPE / (quoted if len(quoted) <= 200 else f"=sha256-{hashlib.sha256(type_name.encode()).hexdigest()}")


def by_digest(sha256: str) -> ObjectKey:
    """The folder of the entries of files of a digest, in hex."""
    return BY_FILE / sha256


def by_piece(sha256: str) -> ObjectKey:
    """The folder of the entries of stores that have a piece of a digest, in hex."""
    return BY_PIECE / sha256


def by_store(store_id: str, tag_name: str) -> ObjectKey:
    """The entry of a tag among those of the store it points at."""
    return BY_STORE / store_id / quote(tag_name)


def by_name(tag_name: str, place: str) -> ObjectKey:
    """The mark of a store that was sent with a tag."""
    # Before all letters of tags, so that marks are in the order of tags.
    return BY_NAME / f"{quote(tag_name)}!{place}"


def object_key(attempt: str, name: str) -> ObjectKey:
    """An object of an upload."""
    return OBJECTS / attempt / name


def new_object(attempt: str, what: str) -> ObjectKey:
    """A place in an upload where nothing lies yet, whoever else writes."""
    return object_key(attempt, f"{what}-{secrets.token_hex(8)}")


def sums_of(key: ObjectKey) -> ObjectKey:
    """The block sums of an object."""
    return ObjectKey(f"{key}.sums")


def derived(store_id: str, name: str) -> ObjectKey:
    """Something made from a store."""
    return DERIVED / store_id / name


def tag(name: str) -> ObjectKey:
    """The record of a tag."""
    return TAGS / quote(name)


def before_tags(prefix: str, folder: ObjectKey = TAGS) -> ObjectKey | None:
    """A key in `folder` directly before those of the tags that begin with `prefix`; None for an empty one.

    Names of tags are their own key segments.
    """
    if not prefix:
        return None
    # No name has as many of the last letter that names have.
    last = max(chr(letter) for letter in range(ord(prefix[-1])) if chr(letter) != "/")
    return folder / (prefix[:-1] + last).ljust(MAX_SEGMENT_BYTES, "~")


def name_of(key: ObjectKey) -> str:
    """The name of the record that lies at `key`."""
    return unquote(key.segments[-1])
