"""Index, split, merge and serve protobufs of any size, part by part."""

from protoslice.errors import ProtosliceError
from protoslice.library import Chunk, Large, Node, Proto, Split, View
from protoslice.library import open_proto as open
from protoslice.ropes import Rope

__all__ = ["Chunk", "Large", "Node", "Proto", "ProtosliceError", "Rope", "Split", "View", "open"]
