"""Operations of a commit: lines of JSON, of which one is in memory at a time."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.json_text import parse_json

INLINE_BYTES: Final = 10 << 20
"""Bytes of the largest file that comes within a commit."""
_LINE_BYTES: Final = INLINE_BYTES // 3 * 4 + (64 << 10)
_MOST: Final = 2 * MAX_FILES


@dataclass(frozen=True, slots=True)
class CommitHeader:
    """First line of a commit."""

    summary: str = ""
    description: str = ""
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class InlineFile:
    """New file, with its bytes."""

    path: str
    content: bytes


@dataclass(frozen=True, slots=True)
class KnownFile:
    """New file whose bytes the repository has, by their SHA-256."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Deletion:
    """Deletion of a file, or of a folder."""

    path: str
    folder: bool


Operation = CommitHeader | InlineFile | KnownFile | Deletion


async def operations_of(pieces: AsyncIterator[bytes]) -> AsyncIterator[Operation]:
    """Operations in order; raises for a line that is too long or does not parse, and for too many."""
    count = 0
    async for line in _lines(pieces):
        count += 1
        if count > _MOST:
            raise LimitExceeded(f"Too many operations in one commit (at most {_MOST}): split the commit")
        try:
            yield _operation(parse_json(line))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InvalidInput(f"Line {count} of the commit is not a valid operation") from None


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    held = bytearray()
    async for piece in pieces:
        *whole, rest = piece.split(b"\n")
        for end in whole:
            held += end
            _check(held)
            if held.strip():
                yield bytes(held)
            held.clear()
        held += rest
        _check(held)
    if held.strip():
        yield bytes(held)


def _check(line: bytearray) -> None:
    if len(line) > _LINE_BYTES:
        raise LimitExceeded(
            f"A line of the commit is too long (at most {_LINE_BYTES} bytes): upload files of more than "
            f"{INLINE_BYTES} bytes before the commit"
        )


def _operation(raw: Any) -> Operation:
    key, value = raw["key"], raw["value"]
    match key:
        case "header":
            return CommitHeader(
                str(value.get("summary") or ""), str(value.get("description") or ""), _text(value.get("parentCommit"))
            )
        case "file":
            encoded = value.get("encoding", "base64") == "base64"
            content = value["content"]
            data = b64decode(content, validate=True) if encoded else content.encode()
            return InlineFile(_path(value), data)
        case "lfsFile" if value.get("algo", "sha256") == "sha256":
            return KnownFile(_path(value), str(value["oid"]))
        case "deletedFile" | "deletedFolder":
            return Deletion(_path(value), key == "deletedFolder")
    raise ValueError(f"Unknown operation {key!r}")


def _path(value: dict[str, Any]) -> str:
    path = value["path"]
    if not isinstance(path, str):
        raise TypeError("Invalid path: use a string")
    return path


def _text(value: object) -> str | None:
    return None if value is None else str(value)
