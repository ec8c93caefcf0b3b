"""The ids of stores, and the versions of the code that derives data from stores.

The id of a store is a digest of everything that determines the bytes of its views. Views that depend only on the id
have URLs that may be cached for ever. The output of other views may change if a later release corrects their code.
Therefore, the version of that code is part of their entity tags and of the names of cached artifacts. A change of
output needs a higher version. `tests/versions` compares the output with the recorded output of each version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

READERS: Final = 9
"""Version of the code that reads models: lists of tensors, elements in every form, safetensors files, references."""

CPB: Final = 1
"""Version of the code that writes chunked files."""

RENDERING: Final = 3
"""Version of the code that renders messages as JSON and text.

The protobuf runtime and the bundled types have separate versions.
"""

RECORDS: Final = 1
"""Version of the code that indexes streams and writes records in every framing."""

ARCHIVES: Final = 1
"""Version of the code that writes tar archives of stores."""

ONNX_FILES: Final = 2
"""Version of the code that writes ONNX models, or parts of them, with external data or in one file."""

PIECES: Final = 2
"""Version of the code that cuts files into pieces.

A client of another version finds fewer equal pieces, but never a wrong piece.
"""

_SCHEME: Final = "protoslice store 2"
_FIRST: Final = "protoslice store 1"
"""Id scheme of stores that were created in the first storage layout. These stores keep their ids after an upgrade."""

FileFacts = tuple[str, int, str | Sequence[str | None]]
"""The path, size in bytes, and hexadecimal SHA-256 of a file.

For an external file, its URI and entity tag replace the digest.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The facts that determine the bytes of a store's views, apart from the files."""

    root: str | None
    type: str | None
    """Full name of the root's message type, or None for an unknown type, which the API calls `unknown`."""
    min_chunk: int
    max_chunk: int
    schema: str | None
    """Fingerprint of the schema with which the root is read, or None for a root without a schema."""
    planner: int | None
    """Version of the planner that divided the root into chunks, or None without a planned root."""
    rules: Sequence[str] = ()
    """Split rules of the plan, in canonical form."""


def store_id(files: Iterable[FileFacts], policy: Policy) -> str:
    """Return the hexadecimal id of a store of `files` under `policy`. The order of the files does not matter.

    The id is the SHA-256 of an ASCII JSON text without blanks: `["protoslice store 2", files, [root, type, min_chunk,
    max_chunk], schema, planner]`. The files are sorted by path in code points, and each is `[path, size, sha256]`. If
    there are rules, a list of the rules follows as one more member.
    """
    return _digest(_current(_parts(files, policy), policy))


def is_id_of(store: str, files: Iterable[FileFacts], policy: Policy) -> bool:
    """Return True if `store` is the id of `files` under `policy`, according to the current or the first scheme."""
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
