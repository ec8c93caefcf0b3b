"""Storage backends: every URI scheme has one, and each keeps objects as named byte strings."""

from protoslice.storage.interface import (
    INTERFACE,
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
from protoslice.storage.keys import ObjectKey, quote, unquote
from protoslice.storage.local import FileStorage
from protoslice.storage.memory import MemoryStorage
from protoslice.storage.registry import open_storage, probe, register, schemes, unregister
from protoslice.storage.wrappers import Call, MeteredStorage, PrefixStorage

__all__ = [
    "INTERFACE",
    "Abilities",
    "Buffer",
    "Call",
    "FileStorage",
    "MemoryStorage",
    "MeteredStorage",
    "ObjectContent",
    "ObjectKey",
    "ObjectStat",
    "OpenFile",
    "Page",
    "PrefixStorage",
    "Span",
    "Storage",
    "Writer",
    "open_storage",
    "probe",
    "quote",
    "register",
    "schemes",
    "unquote",
    "unregister",
]
