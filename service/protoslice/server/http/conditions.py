"""Conditional requests (RFC 9110, section 13), as pure functions of headers and validators.

A malformed list of entity tags never admits a request that a correct list could stop: If-Match fails, and If-None-Match
fails for a method that changes something, but is ignored for a method that reads. Representations have no modification
date: If-Modified-Since and If-Unmodified-Since are ignored, and a date in If-Range never matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.http.headers import HeaderMap

_GZIPPED: Final = "-gzip"
"""End of strong tags of compressed representations."""
_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9!#$&'*+\-./:;=?@^_`|~]+")
"""Characters escaped in a storage's tag: any not allowed in entity tags, the escape, separators."""
_LIST: Final = re.compile(r'[ \t,]*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"(?:[ \t]*,[ \t,]*|[ \t]*\Z))*+')
"""Longest valid prefix of a list of entity tags, in one match: 64 KiB of header may hold 16,000 tags."""


@dataclass(frozen=True, slots=True)
class EntityTag:
    """Entity tag: the text between the quotes, and whether the tag is weak."""

    opaque: str
    weak: bool = False

    @classmethod
    def of(cls, version: str) -> EntityTag:
        """Return the strong tag for a storage's version text; different versions have different tags.

        Buckets name versions by entity tags with quotes, so characters that are not allowed in a tag are
        percent-encoded.
        """
        return cls(_ESCAPED.sub(_escape, version))

    def __str__(self) -> str:
        return f'{"W/" if self.weak else ""}"{self.opaque}"'

    @property
    def gzipped(self) -> EntityTag:
        """Tag of the compressed form; a weak tag is valid for both forms."""
        return self if self.weak else EntityTag(self.opaque + _GZIPPED)

    def matches_strongly(self, other: EntityTag) -> bool:
        """Return True when both tags are strong and equal (section 8.8.3.2)."""
        return not self.weak and not other.weak and self.opaque == other.opaque


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """Values of If-Match and If-None-Match; several lines of one header are joined by commas."""

    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, fields: HeaderMap) -> Preconditions:
        """Take the two values from the headers of a request."""
        return cls(if_match=fields.get(b"if-match"), if_none_match=fields.get(b"if-none-match"))


class Verdict(Enum):
    """Outcome of the preconditions."""

    PROCEED = auto()
    NOT_MODIFIED = auto()
    """304: the client has the current representation already."""
    FAILED = auto()
    """412: a precondition is false."""


def evaluate(headers: Preconditions, current: EntityTag | None, *, reads: bool) -> Verdict:
    """Evaluate the preconditions in the order of section 13.2.2.

    `current` is None when no representation exists yet; `reads` is True for GET and HEAD. For a write, the tag of the
    compressed form is accepted too.
    """
    if_match, if_none_match = headers.if_match, headers.if_none_match
    if not reads:
        if_match, if_none_match = map(_uncompressed, (if_match, if_none_match))
    if if_match is not None and (current is None or not _is_named(if_match, current)):
        return Verdict.FAILED
    if if_none_match is None or not _is_listed(if_none_match, current, malformed=not reads):
        return Verdict.PROCEED
    return Verdict.NOT_MODIFIED if reads else Verdict.FAILED


def failure(headers: Preconditions) -> str:
    """Return why the preconditions failed: a list of entity tags is malformed, or the resource has another version."""
    for name, tags in (("If-Match", headers.if_match), ("If-None-Match", headers.if_none_match)):
        try:
            _ = tags is None or _pairs(tags)
        except InvalidInput as error:
            return f"{name}: {error}"
    return "The resource has changed, or does not meet If-Match or If-None-Match"


def range_applies(if_range: str | None, current: EntityTag) -> bool:
    """Return True if Range applies (section 13.1.5): If-Range is absent or names this representation."""
    if if_range is None:
        return True
    match = _TAG.fullmatch(if_range.strip(" \t"))
    return match is not None and _tag(match).matches_strongly(current)


def _uncompressed(tags: str | None) -> str | None:
    return None if tags is None else tags.replace(f'{_GZIPPED}"', '"')


def _is_named(header: str, etag: EntityTag) -> bool:
    """Return True when If-Match names the tag."""
    try:
        pairs = _pairs(header)
    except InvalidInput:
        return False
    return pairs is None or (not etag.weak and ("", etag.opaque) in pairs)


def _is_listed(header: str, current: EntityTag | None, *, malformed: bool) -> bool:
    """Return True when If-None-Match lists the representation.

    A list that does not parse counts as `malformed`.
    """
    try:
        pairs = _pairs(header)
    except InvalidInput:
        return malformed
    if current is None:
        return False
    return pairs is None or any((weak, current.opaque) in pairs for weak in ("", "W/"))


def _tag(match: re.Match[str]) -> EntityTag:
    return EntityTag(match[2], match[1] is not None)


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _pairs(header: str) -> list[tuple[str, str]] | None:
    """Return each tag of a list as `W/` or an empty text, and its opaque text; None for `*`."""
    if header.strip(" \t") == "*":
        return None
    listed = _LIST.match(header)
    end = 0 if listed is None else listed.end()
    if end < len(header):
        raise InvalidInput("Invalid entity tags: put each in double quotes and separate them by commas", offset=end)
    pairs = _TAG.findall(header)
    if not pairs:
        raise InvalidInput("The header contains no entity tag")
    return pairs
