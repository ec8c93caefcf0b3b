"""A storage that records the methods called, and a check that a wrapper forwards each of them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from io import BytesIO
from typing import Any, cast

from protoslice.storage.interface import (
    PAGE,
    Abilities,
    Buffer,
    ObjectContent,
    ObjectStat,
    OpenFile,
    Page,
    Span,
    Storage,
    Writer,
)
from protoslice.storage.keys import ObjectKey


def assert_forwards(wrap: Callable[[Storage], Storage]) -> None:
    """Raise `AssertionError` unless each method of Storage and Writer reaches the same method inside.

    A wrapper that forgets a method with a default, such as `open_file`, fails silently otherwise.
    """
    asyncio.run(_assert_forwards(wrap))


async def _assert_forwards(wrap: Callable[[Storage], Storage]) -> None:
    seen: list[str] = []
    wrapper = wrap(RecordingStorage(seen))
    for name in _methods(Storage):
        await _reach(getattr(wrapper, name), seen, name)
    writer = await wrapper.writer(ObjectKey("a"))
    for name in _methods(Writer):
        await _reach(getattr(writer, name), seen, f"writer.{name}")
    _ = wrapper.abilities, writer.size
    for name in ("abilities", "writer.size"):
        if name not in seen:
            raise AssertionError(f"{name} does not reach the storage inside")


def _methods(interface: type) -> list[str]:
    """Public methods, without final ones, which call other methods."""
    functions = {name: member for name, member in vars(interface).items() if inspect.isfunction(member)}
    return [name for name, member in functions.items() if not (name.startswith("_") or hasattr(member, "__final__"))]


async def _reach(method: Callable[..., Any], seen: list[str], name: str) -> None:
    del seen[:]
    result = method(*_arguments(method))
    if inspect.isasyncgen(result):
        _ = [piece async for piece in result]
    else:
        await result
    if seen != [name]:
        raise AssertionError(f"{name} reaches {seen or 'nothing'} of the storage inside")


def _arguments(method: Callable[..., Any]) -> list[object]:
    needed = (p for p in inspect.signature(method).parameters.values() if p.default is p.empty)
    samples = {
        "key": ObjectKey("a"),
        "start": 0,
        "end": 1,
        "spans": [(0, 1)],
        "data": b"x",
        "piece": b"x",
        "etag": "tag",
        "other": "another tag",
    }
    return [samples[parameter.name] for parameter in needed]


class RecordingStorage(Storage):
    """Appends the name of each method called to `seen` and returns a minimal result."""

    def __init__(self, seen: list[str]) -> None:
        self._note = seen.append

    @property
    def abilities(self) -> Abilities:
        self._note("abilities")
        return Abilities()

    async def stat(self, key: ObjectKey) -> ObjectStat:
        self._note("stat")
        return ObjectStat(key, 1, "tag", datetime.fromtimestamp(0, UTC))

    async def get(self, key: ObjectKey) -> ObjectContent:
        self._note("get")
        return ObjectContent(ObjectStat(key, 1, "tag", datetime.fromtimestamp(0, UTC)), b"x")

    async def get_range(self, key: ObjectKey, start: int, end: int, *, if_etag: str | None = None) -> bytes:
        self._note("get_range")
        return b"x"

    async def get_ranges(self, key: ObjectKey, spans: Sequence[Span], *, if_etag: str | None = None) -> Sequence[bytes]:
        self._note("get_ranges")
        return [b"x"]

    async def stream(
        self, key: ObjectKey, start: int = 0, end: int | None = None, *, if_etag: str | None = None
    ) -> AsyncGenerator[Buffer, None]:
        self._note("stream")
        yield b"x"

    async def put(self, key: ObjectKey, data: Buffer) -> str:
        self._note("put")
        return "tag"

    async def writer(self, key: ObjectKey) -> Writer:
        self._note("writer")
        return _RecordingWriter(self._note)

    async def list(self, prefix: ObjectKey | None = None, *, after: ObjectKey | None = None, limit: int = PAGE) -> Page:
        self._note("list")
        return Page((), None)

    async def delete(self, key: ObjectKey) -> None:
        self._note("delete")

    async def open_file(self, key: ObjectKey) -> OpenFile:
        """See `Storage.open_file`; returns a `BytesIO` in place of a file."""
        self._note("open_file")
        return cast(OpenFile, BytesIO())

    async def free_bytes(self) -> int:
        self._note("free_bytes")
        return 1

    async def collect_garbage(self, older_than_seconds: float = 86400) -> int:
        self._note("collect_garbage")
        return 0

    async def close(self) -> None:
        self._note("close")


class _RecordingWriter(Writer):
    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    @property
    def size(self) -> int:
        self._note("writer.size")
        return 0

    async def write(self, piece: Buffer) -> None:
        self._note("writer.write")

    async def commit(self) -> str:
        self._note("writer.commit")
        return "tag"

    async def abort(self) -> None:
        self._note("writer.abort")
