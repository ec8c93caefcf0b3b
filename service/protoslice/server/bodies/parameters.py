"""Parser of Content-Type and Content-Disposition: a word and parameters (RFC 9110 5.6.6, 6266, 8187)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

from protoslice.errors import InvalidInput

_LONGEST: Final = 8192
_WORD: Final = re.compile(r"[ \t]*([!#$%&'*+\-.^_`|~0-9A-Za-z]+(?:/[!#$%&'*+\-.^_`|~0-9A-Za-z]+)?)[ \t]*")
# Values without quotes are taken more widely than the RFC's tokens: real clients leave out the quotes.
_PARAMETER: Final = re.compile(
    r";[ \t]*(?:([!#$%&'*+\-.^_`|~0-9A-Za-z]+)[ \t]*=[ \t]*(?:\"((?:[^\"\\]|\\.)*)\"|([^\s;\",]+))[ \t]*)?"
)
_CHARSETS: Final = {"utf-8", "iso-8859-1"}


def parse_value(text: str, header: str) -> tuple[str, dict[str, str]]:
    """The word, and the parameters by name, both in lower case; `header` is the name in errors."""
    if len(text) > _LONGEST:
        raise InvalidInput(f"{header} is too long: at most {_LONGEST} characters")
    word = _WORD.match(text)
    if word is None:
        raise InvalidInput(
            f"{header} {text[:100]!r} does not start with a type, such as application/protobuf or form-data"
        )
    position, found = word.end(), dict[str, str]()
    while position < len(text):
        match = _PARAMETER.match(text, position)
        if match is None:
            raise InvalidInput(
                f"{header} has an invalid parameter (name=value expected): {text[position : position + 100]!r}"
            )
        position = match.end()
        if match[1] is not None:
            _keep(found, match, header)
    return word[1].lower(), found


def _keep(found: dict[str, str], match: re.Match[str], header: str) -> None:
    name = match[1].lower()
    if name in found:
        raise InvalidInput(f"{header} has the parameter {name!r} twice")
    # Browsers escape nothing but the quote (and that as %22), so a backslash before anything else is a backslash.
    found[name] = match[3] if match[2] is None else re.sub(r'\\(["\\])', r"\1", match[2])


def filename_in(parameters: Mapping[str, str], header: str) -> str | None:
    """The filename that the parameters give; the extended form, with its character set, wins."""
    extended = parameters.get("filename*")
    if extended is None:
        return parameters.get("filename")
    charset, first, rest = extended.partition("'")
    _, second, text = rest.partition("'")
    if not (first and second) or charset.lower() not in _CHARSETS:
        raise InvalidInput(f"filename* of {header} must have the form UTF-8''name: {extended[:100]!r}")
    try:
        return unquote_to_bytes(text).decode(charset)
    except UnicodeDecodeError:
        raise InvalidInput(f"filename* of {header} is not valid {charset}: {text[:100]!r}") from None
