"""Lines of a commit, bounded in length and number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.server.registries.hub.commits import CommitHeader, Deletion, InlineFile, Operation, operations_of

LINES = (
    b'{"key":"header","value":{"summary":"s","description":"d","parentCommit":"abc"}}\n\n'
    b'{"key":"file","value":{"content":"aGk=","path":"a","encoding":"base64"}}\r\n'
    b'{"key":"file","value":{"content":"hi","path":"b","encoding":"utf-8"}}\n'
    b'{"key":"deletedFolder","value":{"path":"c/"}}'
)


def parsed(pieces: Iterable[bytes]) -> list[Operation]:
    """The operations of a body that comes in these pieces."""

    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def run() -> list[Operation]:
        return [operation async for operation in operations_of(body())]

    return asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 80, 1000])
def test_lines_are_the_same_in_any_pieces(size: int) -> None:
    assert parsed(LINES[at : at + size] for at in range(0, len(LINES), size)) == [
        CommitHeader("s", "d", "abc"),
        InlineFile("a", b"hi"),
        InlineFile("b", b"hi"),
        Deletion("c/", folder=True),
    ]


def test_a_line_without_an_end_is_not_kept() -> None:
    taken = 0

    def endless() -> Iterable[bytes]:
        nonlocal taken
        while True:
            taken += 1 << 20
            yield b"x" * (1 << 20)

    with pytest.raises(LimitExceeded):
        parsed(endless())
    assert taken < 20 << 20


def test_operations_are_counted() -> None:
    with pytest.raises(LimitExceeded):
        parsed(b'{"key":"deletedFile","value":{"path":"a"}}\n' * 1000 for _ in range(1000))


def test_a_mistake_is_told_with_its_line() -> None:
    with pytest.raises(InvalidInput, match="Line 3"):
        parsed([LINES.replace(b'"utf-8"}', b'"utf-8"')])
