"""The messages of proto_splitter's metadata, from our own descriptor pool."""

from __future__ import annotations

from functools import cache
from typing import Any

from protoslice import schema


@cache
def _class(name: str) -> Any:
    return schema.bundled().message_class(f"tensorflow.proto_splitter.{name}")


def chunk_metadata() -> Any:
    """A new `ChunkMetadata`."""
    return _class("ChunkMetadata")()


def chunked_message() -> Any:
    """A new `ChunkedMessage`."""
    return _class("ChunkedMessage")()


def field_index() -> Any:
    """A new `FieldIndex`."""
    return _class("FieldIndex")()


def version_def() -> Any:
    """A new `VersionDef` as TensorFlow's Python splitters fill it in."""
    return _class("VersionDef")(splitter_version=1, join_version=0)
