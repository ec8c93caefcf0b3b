"""The id of a store, a digest of what decides which bytes its views give; and the versions of what may come to differ.

The URL of a view that the id decides about alone may be kept for ever. What gives the other views may be mended in a
later program: its version is part of their entity tags, and of the names of facts kept about a store. Whoever changes
what one of these gives raises its version; `tests/versions` compares what they give with what their versions gave.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["CPB", "PIECES", "READERS", "RENDERING", "Policy", "is_id_of", "store_id"]

READERS: Final = 1
"""What formats make of a model: its tensors, their elements in every form, safetensors files and references."""

CPB: Final = 1
"""Chunked files, as they are written of a store."""

RENDERING: Final = 1
"""Messages in JSON and as text; the version of the protobuf runtime and the bundled types count beside it."""

PIECES: Final = 1
"""Where files are cut to be compared. A client of another version cuts otherwise: it finds less, and nothing wrong."""

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
