"""The parser for URIs of storages and objects."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

from protoslice.errors import InvalidInput

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
"""The beginning of a URI. A scheme has at least two letters, because a single letter is a drive of Windows."""
USER_INFO: Final = re.compile(r"(?<=://)[^/@]*@")
"""The user and password in a URI."""
_WEB_PORTS: Final = {"http": ":80", "https": ":443"}
_WEB_AUTHORITY: Final = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")
_PORT: Final = re.compile(r":([0-9]+)$")
# Schemes whose paths are percent-encoded, without a query. Keys in buckets are used unchanged.
_ENCODED: Final = frozenset({"file", *_WEB_PORTS})
_UNENCODED: Final = "!$&'()*+,;=:@"
"""Punctuation that a path segment may contain unencoded (RFC 3986, pchar)."""


@dataclass(frozen=True, slots=True)
class Location:
    """A parsed storage URI. Two locations are equal if and only if their URIs name the same place."""

    scheme: str
    authority: str
    segments: tuple[str, ...]

    @property
    def uri(self) -> str:
        """The canonical URI of the location."""
        encoded = self.scheme in _ENCODED
        parts = [quote(each, safe=_UNENCODED) if encoded else each for each in self.segments]
        return f"{self.scheme}://{self.authority}/{'/'.join(parts)}"

    @property
    def path(self) -> str:
        """The absolute path of a location with the scheme `file`."""
        return "/" + "/".join(self.segments)

    @property
    def is_web(self) -> bool:
        """True if the scheme is `http` or `https`."""
        return self.scheme in _WEB_PORTS

    @property
    def host(self) -> str:
        """The host of a web URI; an IPv6 address is returned without brackets."""
        return _PORT.sub("", self.authority).strip("[]")

    @property
    def port(self) -> int | None:
        """The port of a web URI, or None for the scheme's default port."""
        match = _PORT.search(self.authority)
        return None if match is None else int(match[1])


def parse_location(uri: str) -> Location:
    """Parse a URI.

    Raise `InvalidInput` for an unsafe URI. Such a URI has empty segments, the segments `.` or `..`, or credentials.
    """
    scheme, mark, rest = uri.partition("://")
    scheme = scheme.lower()
    authority, _, path = rest.partition("/")
    if not mark or not scheme.isascii() or not uri.isprintable() or "\\" in uri:
        raise InvalidInput("Invalid storage URI: use scheme://path, or a path that starts with / or ./")
    if scheme in _ENCODED and ("?" in uri or "#" in uri):
        raise InvalidInput(
            f"Invalid storage URI: the scheme {scheme} allows no query or fragment (write ? as %3F and # as %23)"
        )
    segments = tuple(_decode(part) if scheme in _ENCODED else part for part in path.split("/")) if path else ()
    if any(segment in {"", ".", ".."} for segment in segments):
        raise InvalidInput("Invalid storage URI: the path must not contain empty segments, '.' or '..'")
    return Location(scheme, _authority(scheme, authority), segments)


def parse_root(uri: str) -> Location:
    """Parse the URI of a folder. One slash at its end is ignored."""
    if uri.lower() == "file://":
        raise InvalidInput("Invalid file URI: use file:// and an absolute path on this machine")
    return parse_location(uri.removesuffix("/"))


def is_uri(name: object) -> bool:
    """Return True for a text such as `s3://bucket/key`, unless a local file has this name."""
    return isinstance(name, str) and _URI.match(name) is not None and not os.path.lexists(name)


def local_path(uri: str) -> str | None:
    """Return the path that a `file://` URI names, or None for other schemes.

    Raise `InvalidInput` for a malformed `file://` URI.
    """
    if not uri.lower().startswith("file://"):
        return None
    return parse_root(uri).path


def _authority(scheme: str, authority: str) -> str:
    if scheme == "file":
        if authority.lower() not in {"", "localhost"}:
            raise InvalidInput("a file URI must be file:// and an absolute path on this machine")
        return ""
    if not authority or "@" in authority:
        raise InvalidInput("Invalid storage URI: give a host or bucket, without credentials")
    return web_authority(scheme, authority) if scheme in _WEB_PORTS else authority


def web_authority(scheme: str, authority: str) -> str:
    """Return host and port of a web URL in lower case, without the scheme's default port.

    Raise `InvalidInput` for another scheme, and for an invalid host or port.
    """
    if scheme not in _WEB_PORTS:
        raise InvalidInput("Invalid web URI: use http:// or https://")
    authority = authority.lower().removesuffix(_WEB_PORTS[scheme])
    if not _WEB_AUTHORITY.fullmatch(authority):
        raise InvalidInput("Invalid web URI: give an ASCII host, and optionally a port")
    return authority


def _decode(segment: str) -> str:
    try:
        text = unquote_to_bytes(segment).decode()
    except UnicodeDecodeError:
        text = "/"
    if "/" in text or not text.isprintable() or "\\" in text:
        raise InvalidInput("Invalid storage URI: segments must decode to UTF-8 without slashes or control characters")
    return text
