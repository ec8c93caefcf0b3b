"""Calls in C that get or give many bytes, told to whoever counts steps."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

Add = Callable[[int], None]

_PARSED: Final = 16
"""Bytes of JSON that take as long as a line of Python."""
_MOVED: Final = 256
"""Bytes that are copied, hashed or compared meanwhile."""


def weigh(engine: ModuleType, add: Add) -> None:
    """Have `add` told the steps that each call of the engine, and of `json`, counts as."""
    json.loads, json.dumps = _weighed(json.loads, add, _PARSED), _weighed(json.dumps, add, _PARSED)
    for name, found in list(vars(engine).items()):
        if isinstance(found, type):
            _weigh_methods(found, add)
        elif callable(found) and not name.startswith("_"):
            setattr(engine, name, _weighed(found, add))


def _weigh_methods(kind: type, add: Add) -> None:
    for name, found in list(vars(kind).items()):
        if isinstance(found, staticmethod) and not name.startswith("_"):
            setattr(kind, name, staticmethod(_weighed(getattr(kind, name), add)))
        elif callable(found) and not name.startswith("_"):
            setattr(kind, name, _weighed(found, add))


def _weighed(call: Callable[..., Any], add: Add, size: int = _MOVED) -> Callable[..., Any]:
    @functools.wraps(call)
    def weighed(*given: Any, **named: Any) -> Any:
        found = call(*given, **named)
        add(sum(_steps(value, size) for value in (*given, found)))
        return found

    return weighed


def _steps(value: object, size: int) -> int:
    """A step for every `size` bytes; an element of a list is one too."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return len(value) // size
    return len(value) if isinstance(value, list | tuple) else 0
