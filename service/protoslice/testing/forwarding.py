"""Check that a storage wrapper forwards each method."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from protoslice.storage.interface import Storage, Writer
from protoslice.storage.keys import ObjectKey
from protoslice.testing.recording import RecordingStorage


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
