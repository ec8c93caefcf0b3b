"""Message types: bundled, from descriptor sets, and detected in files."""

from protoslice.schema.detection import Detection, candidates, detect, detect_message
from protoslice.schema.parsing import check_text_size, serialized
from protoslice.schema.strings import parsed, text_of
from protoslice.schema.types import MessageTypes, TypeSchema, bundled, find, from_descriptor_set

__all__ = [
    "Detection",
    "MessageTypes",
    "TypeSchema",
    "bundled",
    "candidates",
    "check_text_size",
    "detect",
    "detect_message",
    "find",
    "from_descriptor_set",
    "parsed",
    "serialized",
    "text_of",
]
