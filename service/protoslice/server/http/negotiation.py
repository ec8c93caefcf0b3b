"""Negotiation of media types by the Accept header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from protoslice.server.problems import NOT_ACCEPTABLE, HttpProblem

MESSAGE: Final = "application/protobuf"
PROTOBUF_JSON: Final = "application/protobuf+json"
JSON: Final = "application/json"
TEXT: Final = "text/plain"
DELIMITED: Final = "application/x-protobuf-delimited"
JSON_LINES: Final = "application/jsonl"
FORMS: Final = {PROTOBUF_JSON: "json", JSON: "json", TEXT: "text"}
"""The media types of rendered messages, with the renderer's name for each."""
FORMS_OF_RECORDS: Final = {JSON_LINES: "jsonl", TEXT: "texts"}
"""The media types of rendered lists of records, with the renderer's name for each."""

_ALIASES: Final = {
    "application/x-protobuf": MESSAGE,
    "application/x-protobuffer": MESSAGE,
    "application/x-ndjson": JSON_LINES,
    "application/x-jsonlines": JSON_LINES,
    "application/vnd.google.protobuf": MESSAGE,
}
_MOST_MEDIA_TYPES: Final = 64


@lru_cache(maxsize=1024)
def choose(accept: str | None, offers: tuple[str, ...]) -> str:
    """Return the offer with the best quality. Of several equal offers, return the first.

    Raise `HttpProblem` 406 if the client accepts none of the offers.
    """
    if accept is None or not accept.strip() or accept.strip() == "*/*":
        return offers[0]
    wanted = [_parse(part) for part in accept.split(",")[:_MOST_MEDIA_TYPES]]
    best = max(offers, key=lambda offer: _quality(offer, wanted))
    if _quality(best, wanted) <= 0:
        raise HttpProblem(
            NOT_ACCEPTABLE, f"No media type in Accept is available: accept {' or '.join(offers)}", offers=list(offers)
        )
    return best


@lru_cache(maxsize=1024)
def takes_gzip(accept_encoding: str) -> bool:
    """Return True if an Accept-Encoding field allows gzip."""
    wanted = dict(_parse(part) for part in accept_encoding.split(",")[:_MOST_MEDIA_TYPES])
    return wanted.get("gzip", wanted.get("*", 0.0)) > 0


def _parse(part: str) -> tuple[str, float]:
    media, *parameters = [text.strip().lower() for text in part.split(";")]
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            quality = _number(value.strip())
    return _ALIASES.get(media, media), quality


def _number(text: str) -> float:
    plain = text.isascii() and text.replace(".", "", 1).isdigit() and len(text) <= 5
    return min(1.0, float(text)) if plain else 0.0


def _quality(offer: str, wanted: list[tuple[str, float]]) -> float:
    """Return the quality of the most specific media range that covers `offer`."""
    media = offer.partition(";")[0]
    major = media.partition("/")[0] + "/*"
    for pattern in (media, major, "*/*"):
        found = [quality for name, quality in wanted if name == pattern]
        if found:
            return max(found)
    return 0.0
