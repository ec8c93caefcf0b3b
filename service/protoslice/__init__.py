"""Index, split, merge and serve protobufs of any size, part by part."""

from protoslice.errors import ProtosliceError
from protoslice.library import Chunk, Large, Node, Proto, Split, View
from protoslice.models import LocalModel, open_model
from protoslice.opening import open_proto as open
from protoslice.ropes import Rope

__all__ = [
    "Chunk",
    "Large",
    "LocalModel",
    "Node",
    "Proto",
    "ProtosliceError",
    "Rope",
    "Split",
    "View",
    "open",
    "open_model",
]
