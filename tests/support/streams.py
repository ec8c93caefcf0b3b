"""Streams of records in every framing, written in the simplest way."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from protoslice import schema
from protoslice._core import crc32c

Framed = Callable[[Sequence[bytes]], bytes]


def example(number: int) -> bytes:
    """Return a serialized `tensorflow.Example` with a label, a weight and an image of some bytes."""
    message = schema.bundled().message_class("tensorflow.Example")()
    features = message.features.feature  # type: ignore[attr-defined]
    features["label"].int64_list.value.append(number)
    features["image"].bytes_list.value.append(b"\xff\x00\x7f" * (number % 37))
    features["weights"].float_list.value.extend([1.5, number])
    return message.SerializeToString(deterministic=True)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282_EAD8) & 0xFFFF_FFFF)


def _tfrecord(record: bytes) -> bytes:
    length = struct.pack("<Q", len(record))
    return length + _masked(length) + record + _masked(record)


def _delimited(record: bytes) -> bytes:
    length, head = len(record), b""
    while length >= 0x80:
        head, length = head + bytes([length & 0x7F | 0x80]), length >> 7
    return head + bytes([length]) + record


def _fixed(form: str) -> Framed:
    return lambda records: b"".join(struct.pack(form, len(record)) + record for record in records)


FRAMED: Final[dict[str, Framed]] = {
    "tfrecord": lambda records: b"".join(map(_tfrecord, records)),
    "delimited": lambda records: b"".join(map(_delimited, records)),
    "u32le": _fixed("<I"),
    "u32be": _fixed(">I"),
    "u64le": _fixed("<Q"),
    "u64be": _fixed(">Q"),
}
"""For each framing's name, the function that makes a stream from records."""
