"""Ids of stores, digests of everything that decides the bytes of their views; versions of derived data.

Views that depend only on the id have URLs that may be cached for ever. Later releases may correct the code of other
views: the version of that code is part of their entity tags and of the names of cached artifacts. A change of output
needs a higher version; `tests/versions` compares the output with that of the recorded version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

READERS: Final = 9
"""Version of the readers of models: tensors, elements in every form, safetensors files, references."""

CPB: Final = 1
"""Version of chunked files, as written from a store."""

RENDERING: Final = 3
"""Version of messages as JSON and text; protobuf's runtime and the bundled types have their own."""

RECORDS: Final = 1
"""Version of indexes of streams, and of records in every framing."""

ARCHIVES: Final = 1
"""Version of tar archives of stores."""

ONNX_FILES: Final = 2
"""Version of ONNX models as files: with external data, in one file, and parts of them."""

PIECES: Final = 2
"""Version of the cuts between pieces.

A client of another version finds fewer equal pieces, and no wrong ones.
"""

_SCHEME: Final = "protoslice store 2"
_FIRST: Final = "protoslice store 1"
"""Scheme of stores made in the first layout and upgraded, which keep their ids."""

FileFacts = tuple[str, int, str | Sequence[str | None]]
"""Path, size in bytes, hexadecimal SHA-256; for an external file, URI and entity tag instead of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Facts besides the files that decide the bytes of a store's views."""

    root: str | None
    type: str | None
    """Full name of the root's message type; None where unknown, which the API calls `unknown`."""
    min_chunk: int
    max_chunk: int
    schema: str | None
    """Fingerprint of the schema that the root is read by; None for a root without one."""
    planner: int | None
    """Version of the planner that made the chunks; None where no root was planned."""
    rules: Sequence[str] = ()
    """Rules of the plan, in canonical form."""


def store_id(files: Iterable[FileFacts], policy: Policy) -> str:
    """Return the hexadecimal id of the store of `files` under `policy`; the order of the files does not matter.

    The id is the SHA-256 of a JSON text without blanks, in ASCII: `["protoslice store 2", files, [root, type,
    min_chunk, max_chunk], schema, planner]`, with the files sorted by path in code points, each `[path, size, sha256]`.
    The rules follow as one more member, a list, where there are any.
    """
    return _digest(_current(_parts(files, policy), policy))


def is_id_of(store: str, files: Iterable[FileFacts], policy: Policy) -> bool:
    """Return True when `store` is the id of these files under `policy`, by the current or the first scheme."""
    parts = _parts(files, policy)
    return store == _digest(_current(parts, policy)) or (not policy.rules and store == _digest([_FIRST, *parts]))


def _current(parts: Sequence[object], policy: Policy) -> list[object]:
    rules = [list(policy.rules)] if policy.rules else []
    return [_SCHEME, *parts, policy.schema, policy.planner, *rules]


def _parts(files: Iterable[FileFacts], policy: Policy) -> list[object]:
    parts = sorted(([path, size, content] for path, size, content in files), key=lambda part: str(part[0]))
    return [parts, [policy.root, policy.type, policy.min_chunk, policy.max_chunk]]


def _digest(identity: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(identity, separators=(",", ":")).encode()).hexdigest()
