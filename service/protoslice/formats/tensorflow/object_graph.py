"""Object graph of a checkpoint: the names that a program gave its variables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import schema

GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the string tensor that holds the graph."""
_ATTRIBUTE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"


def plain_key(key: str) -> str:
    """`key` without the common suffix of variables' keys."""
    return key.removesuffix(_ATTRIBUTE)


def full_names(graph: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """Key and full name of each variable in the serialized `graph`; names may repeat. Empty if malformed."""
    try:
        message: Any = schema.parsed(schema.bundled().message_class("tensorflow.TrackableObjectGraph"), b"".join(graph))
    except DecodeError:
        return
    for node in message.nodes:
        for attribute in node.attributes:
            if attribute.full_name:
                yield attribute.checkpoint_key, attribute.full_name
