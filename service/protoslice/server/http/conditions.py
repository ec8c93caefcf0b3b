"""Conditional requests (RFC 9110, section 13), as pure functions of headers and validators.

A malformed list of entity tags never admits a request that a correct list could stop. A malformed If-Match fails. A
malformed If-None-Match fails for writes, and is ignored for reads. Representations have no modification date.
If-Modified-Since and If-Unmodified-Since are therefore ignored, and a date in If-Range never matches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.server.http.headers import HeaderMap

_GZIPPED: Final = "-gzip"
"""The suffix of strong entity tags of compressed representations."""
_TAG: Final = re.compile(r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_ESCAPED: Final = re.compile(r"[^A-Za-z0-9!#$&'*+\-./:;=?@^_`|~]+")
"""Characters to escape in a storage's entity tag: the escape character, separators, and characters invalid in tags."""
_LIST: Final = re.compile(r'[ \t,]*(?:(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"(?:[ \t]*,[ \t,]*|[ \t]*\Z))*+')
"""The pattern of the longest valid prefix of a list of entity tags.

A single match finds all tags, even 16,000 of them in 64 KiB.
"""


@dataclass(frozen=True, slots=True)
class EntityTag:
    """An entity tag: the text between the quotes, and whether the tag is weak."""

    opaque: str
    weak: bool = False

    @classmethod
    def of(cls, version: str) -> EntityTag:
        """Return the strong entity tag for a storage's version text. Different versions have different tags.

        Buckets identify versions by entity tags with quotes. Characters that are not allowed in a tag are therefore
        percent-encoded.
        """
        return cls(_ESCAPED.sub(_escape, version))

    def __str__(self) -> str:
        return f'{"W/" if self.weak else ""}"{self.opaque}"'

    @property
    def gzipped(self) -> EntityTag:
        """The entity tag of the compressed form. A weak tag is valid for both forms."""
        return self if self.weak else EntityTag(self.opaque + _GZIPPED)

    def matches_strongly(self, other: EntityTag) -> bool:
        """Return True if both tags are strong and equal (section 8.8.3.2)."""
        return not self.weak and not other.weak and self.opaque == other.opaque


@dataclass(frozen=True, slots=True, kw_only=True)
class Preconditions:
    """The values of If-Match and If-None-Match. Several lines of one header are joined by commas."""

    if_match: str | None = None
    if_none_match: str | None = None

    @classmethod
    def of(cls, fields: HeaderMap) -> Preconditions:
        """Return the two values in the headers of a request."""
        return cls(if_match=fields.get(b"if-match"), if_none_match=fields.get(b"if-none-match"))


class Verdict(Enum):
    """The outcome of the preconditions."""

    PROCEED = auto()
    NOT_MODIFIED = auto()
    """The client has the current representation already; the answer is 304."""
    FAILED = auto()
    """A precondition is false; the answer is 412."""


def evaluate(headers: Preconditions, current: EntityTag | None, *, reads: bool) -> Verdict:
    """Evaluate the preconditions in the order of section 13.2.2.

    `current` is None if no representation exists. `reads` is True for GET and HEAD. A write may also name the entity
    tag of the compressed form.
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
    """Explain why the preconditions failed: a list of entity tags is malformed, or the resource has another version."""
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
    """Return True if If-Match names the tag."""
    try:
        pairs = _pairs(header)
    except InvalidInput:
        return False
    return pairs is None or (not etag.weak and ("", etag.opaque) in pairs)


def _is_listed(header: str, current: EntityTag | None, *, malformed: bool) -> bool:
    """Return True if If-None-Match lists the representation.

    Return `malformed` if the list cannot be parsed.
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
    """Return the entity tags of a list, each as a pair: `W/` or an empty text, and the opaque text.

    Return None for `*`.
    """
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
