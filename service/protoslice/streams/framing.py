"""The framings of record streams, and their detection from a stream's bytes."""

from __future__ import annotations

import zlib
from typing import Final, Literal, get_args

from protoslice import _core
from protoslice.detection import HEAD, magic
from protoslice.errors import InvalidInput, ProtosliceError, Unsupported
from protoslice.sources.files import BytesSource
from protoslice.sources.source import RangeSource

Framing = Literal[
    "tfrecord",
    "delimited",
    "u32le",
    "u32be",
    "u64le",
    "u64be",
    "riegeli",
    "array_record",
    "tfrecord_gzip",
    "tfrecord_zlib",
]

FRAMINGS: Final[tuple[Framing, ...]] = get_args(Framing)

CHUNKED: Final[frozenset[Framing]] = frozenset({"riegeli", "array_record"})
"""The framings that store records in chunks."""

DEFLATED: Final[frozenset[Framing]] = frozenset({"tfrecord_gzip", "tfrecord_zlib"})
"""The framings of compressed files. The service reads them, but does not write them."""

DECODED: Final = CHUNKED | DEFLATED
"""The framings whose records must be decoded before they can be served."""

SUMMED: Final[frozenset[Framing]] = CHUNKED | {"tfrecord"}
"""The framings with checksums of records. Writing them requires reading all records."""

WRITTEN: Final = tuple(framing for framing in FRAMINGS if framing not in DEFLATED)
"""The framings in which records can be served."""

MEDIA_TYPES: Final[dict[str, str]] = {
    "delimited": "application/x-protobuf-delimited",
    "riegeli": "application/x-riegeli",
}
"""The media types of streams by framing. All other framings have `application/octet-stream`."""

# A big-endian length begins with zeros, which look like empty records in a framing with shorter lengths. So framings
# with longer lengths are tried first.
_GUESSED: Final[tuple[Framing, ...]] = ("u64be", "u64le", "u32be", "u32le", "delimited")
_FIRST: Final = 64
"""The number of bytes that are decompressed to recognize a compressed stream."""
_TRIED: Final = 8
"""The number of records that must parse before a framing without checksums is accepted."""


def checked_framing(name: str) -> Framing:
    """Return the framing called `name`; raise `InvalidInput` for any other name."""
    for framing in FRAMINGS:
        if framing == name:
            return framing
    raise InvalidInput(f"Unknown framing {name[:40]!r}; use one of {', '.join(FRAMINGS)}")


def written_framing(framing: Framing) -> Framing:
    """Return the framing in which records of a stream in `framing` are served by default.

    This is `delimited` for chunked framings, `tfrecord` for compressed framings, and otherwise `framing` itself.
    """
    return "delimited" if framing in CHUNKED else "tfrecord" if framing in DEFLATED else framing


def framing_of(source: RangeSource) -> Framing:
    """Detect the framing of `source` from its first 64 KiB and its end.

    Raise `Unsupported` for bytes that fit no framing.
    """
    head = source.read(0, min(source.size, HEAD))
    if magic.is_riegeli(head):
        return "array_record" if _ends_as_array_record(source) else "riegeli"
    if magic.is_tfrecord(head):
        return "tfrecord"
    if magic.is_tfrecord(_inflated(head)):
        return "tfrecord_gzip" if head.startswith(magic.GZIP) else "tfrecord_zlib"
    for framing in _GUESSED:
        if _fits(head, framing, source.size):
            return framing
    raise Unsupported(f"Unknown framing of this record stream: pass one of {', '.join(FRAMINGS)}")


def _ends_as_array_record(source: RangeSource) -> bool:
    last = source.size - magic.RIEGELI_BLOCK
    return last > 0 and magic.is_array_record_end(source.read(last, min(magic.RIEGELI_BLOCK, HEAD)))


def _inflated(head: bytes) -> bytes:
    """Return the first decompressed bytes of a gzip or zlib file that begins with `head`; empty for other files."""
    try:
        # Adding 32 to the window size makes zlib detect gzip or zlib from the header.
        return zlib.decompressobj(zlib.MAX_WBITS + 32).decompress(head, _FIRST)
    except zlib.error:
        return b""


def _fits(head: bytes, framing: Framing, size: int) -> bool:
    """Return True when `head` begins with records in `framing`, and the first records parse as messages."""
    scanner = _core.RecordScanner(framing)
    scanner.feed(head)
    records, source = _core.Records(scanner.finish(len(head))), BytesSource(head)
    places = [records.place(number) for number in range(min(records.count, 8 * _TRIED))]
    full = [(start, end) for _, start, end, _ in places if end > start][:_TRIED]
    # A file that ends within a record may be no stream at all. Several sound records show that it is a cut-off stream.
    least = _TRIED if records.fault is not None and len(head) == size else 1
    return len(full) >= least and all(_is_message(source, start, end) for start, end in full)


def _is_message(source: RangeSource, start: int, end: int) -> bool:
    try:
        _core.index_source([source], _core.Rope([(0, start, end - start)]))
    except ProtosliceError:
        return False
    return True
