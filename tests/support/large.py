"""A proto of any size that is never held: made as it is read, and known at every place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from tests.support.protos.writer import varint
from tests.support.stores import field

PIECE = 1 << 20
STRIDE = 65537
"""Odd, so that the first 2²⁰ pieces all begin at another place of the noise."""

Buffer = bytes | memoryview


@cache
def _noise() -> memoryview:
    return memoryview(Random(PIECE).randbytes(2 * PIECE))


@dataclass(frozen=True, slots=True)
class LargeGraph:
    """A `tensorflow.GraphDef` of `count` constants of `each` bytes, a multiple of a mebibyte."""

    count: int
    each: int

    TYPE = "tensorflow.GraphDef"

    @property
    def size(self) -> int:
        """Size of the proto in bytes."""
        return sum(len(self.node_head(number)) + self.each for number in range(self.count))

    def pieces(self) -> Iterator[Buffer]:
        """All of it."""
        for number in range(self.count):
            yield from self.node(number)

    def node(self, number: int) -> Iterator[Buffer]:
        """The field `node[number]`, with its tag and length."""
        yield self.node_head(number)
        yield from self.content(number)

    def tensor(self, number: int) -> Iterator[Buffer]:
        """The message `node[number].attr["value"].tensor`."""
        yield self._tensor_head()
        yield from self.content(number)

    def content(self, number: int) -> Iterator[memoryview]:
        """The `tensor_content` of `node[number]`."""
        first = number * (self.each // PIECE)
        for serial in range(first, first + self.each // PIECE):
            start = serial * STRIDE % PIECE
            yield _noise()[start : start + PIECE]

    def content_range(self, number: int, start: int, end: int) -> bytes:
        """The bytes of that content from `start` up to `end`."""
        first, last = start // PIECE, -(-end // PIECE)
        serials = range(number * (self.each // PIECE) + first, number * (self.each // PIECE) + last)
        whole = b"".join(_noise()[serial * STRIDE % PIECE :][:PIECE] for serial in serials)
        return whole[start - first * PIECE : end - first * PIECE]

    def node_head(self, number: int) -> bytes:
        """Bytes of `node[number]` in front of its content, which is at its end."""
        tensor = self._tensor_head()
        value = b"\x42" + varint(len(tensor) + self.each) + tensor
        entry = field(1, b"value") + b"\x12" + varint(len(value) + self.each) + value
        node = field(1, b"c%07d" % number) + field(2, b"Const") + b"\x2a" + varint(len(entry) + self.each) + entry
        return b"\x0a" + varint(len(node) + self.each) + node

    def _tensor_head(self) -> bytes:
        return b"\x08\x01\x22" + varint(self.each)
