"""The id of a store: a digest of everything that decides which bytes its views give."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Policy", "is_id_of", "store_id"]

_SCHEME: Final = "protoslice store 2"
_FIRST: Final = "protoslice store 1"
"""The scheme of stores that were made in the first layout and upgraded: they keep their ids."""

FileFacts = tuple[str, int, str | Sequence[str | None]]
"""Path, size, and SHA-256 in hexadecimal; for a file registered in place, URI and entity tag stand for the digest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The facts beside the files that decide which bytes the views of a store give."""

    root: str | None
    type: str | None
    """The full name of the root's message type; None where it is not known, which the API calls `unknown`."""
    min_chunk: int
    max_chunk: int
    schema: str | None
    """The fingerprint of the schema that the root is read by; None for a root without one."""
    planner: int | None
    """The version of the planner that made the chunks; None where no root was planned."""


def store_id(files: Iterable[FileFacts], policy: Policy) -> str:
    """The id of the store of `files` under `policy`, in hexadecimal; the order of the files is no matter.

    It is the SHA-256 of a JSON text without blanks, in ASCII: `["protoslice store 2", files, [root, type, min_chunk,
    max_chunk], schema, planner]`, with the files by path in the order of code points, each `[path, size, sha256]`.
    """
    return _digest([_SCHEME, *_parts(files, policy), policy.schema, policy.planner])


def is_id_of(store: str, files: Iterable[FileFacts], policy: Policy) -> bool:
    """Whether `store` is the id of these files under `policy`, by this scheme or by the first one."""
    parts = _parts(files, policy)
    return store in {_digest([_SCHEME, *parts, policy.schema, policy.planner]), _digest([_FIRST, *parts])}


def _parts(files: Iterable[FileFacts], policy: Policy) -> list[object]:
    parts = sorted(([path, size, content] for path, size, content in files), key=lambda part: str(part[0]))
    return [parts, [policy.root, policy.type, policy.min_chunk, policy.max_chunk]]


def _digest(identity: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(identity, separators=(",", ":")).encode()).hexdigest()
