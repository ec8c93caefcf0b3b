"""Objects behind a URI scheme."""

from protoslice.storage.files import FileStorage
from protoslice.storage.interface import (
    INTERFACE,
    Abilities,
    Buffer,
    ObjectStat,
    OpenFile,
    Page,
    Span,
    Storage,
    Writer,
)
from protoslice.storage.keys import ObjectKey, quote, unquote
from protoslice.storage.memory import MemoryStorage
from protoslice.storage.prefix import PrefixStorage

__all__ = [
    "INTERFACE",
    "Abilities",
    "Buffer",
    "FileStorage",
    "MemoryStorage",
    "ObjectKey",
    "ObjectStat",
    "OpenFile",
    "Page",
    "PrefixStorage",
    "Span",
    "Storage",
    "Writer",
    "quote",
    "unquote",
]
