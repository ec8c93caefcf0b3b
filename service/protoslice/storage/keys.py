"""Object keys, validated when constructed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from protoslice.errors import InvalidInput

MAX_KEY_BYTES: Final = 768
MAX_SEGMENT_BYTES: Final = 255
MAX_SEGMENTS: Final = 32
RESERVED: Final = ".protoslice"

_PORTABLE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-:@+~")
_ESCAPE = re.compile(rb"=([0-9A-F]{2})")


@dataclass(frozen=True, slots=True, order=True)
class ObjectKey:
    """The name of one object: segments joined by `/`. Keys sort by their UTF-8 bytes.

    The constructor raises `InvalidInput` for any text that breaks these rules:

    - No segment is empty, `.` or `..`, or contains a control character or a backslash.
    - The first segment is not `.protoslice`, which is reserved for backends.
    - A key has at most 768 bytes and 32 segments, and a segment at most 255 bytes. The strictest backend allows a
      little more, which leaves some bytes for a prefix.
    """

    text: str

    def __post_init__(self) -> None:
        segments = self.text.split("/")
        if len(_encode(self.text)) > MAX_KEY_BYTES or len(segments) > MAX_SEGMENTS:
            raise InvalidInput(f"an object key may have at most {MAX_KEY_BYTES} bytes and {MAX_SEGMENTS} segments")
        if segments[0] == RESERVED:
            raise InvalidInput(f"object keys under {RESERVED!r} are reserved")
        for segment in segments:
            _check_segment(segment)

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, more: str | ObjectKey) -> ObjectKey:
        return ObjectKey(f"{self.text}/{more}")

    @property
    def segments(self) -> tuple[str, ...]:
        """The segments of the key, at least one."""
        return tuple(self.text.split("/"))

    def is_below(self, prefix: ObjectKey | None) -> bool:
        """Return True when this key is inside the folder `prefix`, or when `prefix` is None."""
        return prefix is None or self.text.startswith(prefix.text + "/")


def quote(text: str) -> str:
    """Encode non-empty text as one key segment of letters, digits, `._-:@+~` and `=XX`; `unquote` decodes it.

    Different texts give different segments. No segment begins with a dot, so a client's name never becomes a hidden
    file or `..`.
    """
    quoted = "".join(chr(byte) if byte in _PORTABLE else f"={byte:02X}" for byte in _encode(text))
    return "=2E" + quoted[1:] if quoted.startswith(".") else quoted


def unquote(segment: str) -> str:
    """Decode a segment that `quote` has made; raise `InvalidInput` for any other segment."""
    raw = _ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), _encode(segment))
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if quote(text) != segment:
        raise InvalidInput(f"{segment!r} is not a correctly encoded name")
    return text


def _check_segment(segment: str) -> None:
    if segment in {"", ".", ".."}:
        raise InvalidInput(f"an object key must not have the segment {segment!r}")
    if len(_encode(segment)) > MAX_SEGMENT_BYTES:
        raise InvalidInput(f"a segment of an object key may have at most {MAX_SEGMENT_BYTES} bytes")
    # isprintable() rejects control characters, lone surrogates and all separators but the space.
    if "\\" in segment or not segment.isprintable():
        raise InvalidInput(f"an object key must not contain control characters or backslashes: {segment!r}")


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{text!r} is not Unicode text") from None
