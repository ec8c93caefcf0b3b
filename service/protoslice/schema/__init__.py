"""Message types: the bundled types, and types from uploaded descriptor sets."""

from importlib import import_module
from typing import Any, Final

from protoslice.schema.parsing import check_text_size, serialized
from protoslice.schema.strings import parsed, text_of
from protoslice.schema.types import MessageTypes, TypeSchema, bundled, find, from_descriptor_set

__all__ = [
    "MessageTypes",
    "TypeSchema",
    "bundled",
    "check_text_size",
    "find",
    "from_descriptor_set",
    "parsed",
    "serialized",
    "text_of",
]

_MOVED: Final = ("Detection", "candidates", "detect", "detect_message")
"""The names of `protoslice.detection` that can also be imported from this package until 0.3.

They are looked up lazily, because `protoslice.detection` imports this package.
"""


def __getattr__(name: str) -> Any:
    if name not in _MOVED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("protoslice.detection"), name)
