"""Recognition of files of weights: safetensors, their indexes, and GGUF."""

from __future__ import annotations

import re
from typing import Final

SAFETENSORS: Final = "protoslice.Safetensors"
"""Message type that the header of a safetensors file is shown as."""
GGUF: Final = "protoslice.Gguf"
"""Message type that the metadata of a GGUF file is shown as."""
INDEX_ENDING: Final = ".safetensors.index.json"
"""Ending of the file that says which shard has which tensor."""
PIPELINE: Final = "model_index.json"
"""Name of the file that lists the components of a pipeline of diffusers."""
GGUF_MAGIC: Final = b"GGUF"

_MAX_HEADER: Final = 100_000_000
_OBJECT: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*(?:["}]|\Z)')


def is_safetensors(head: bytes, size: int | None) -> bool:
    """True when `head` begins a safetensors file: the length of a header, and JSON."""
    length = int.from_bytes(head[:8], "little")
    fits = 2 <= length <= _MAX_HEADER and (size is None or 8 + length <= size)
    return fits and _OBJECT.match(head, 8) is not None


def is_index(name: str, text: str) -> bool:
    """True when JSON `text` in a file called `name` says where the tensors of a model are."""
    return name.endswith(INDEX_ENDING) or (name == PIPELINE and '"_class_name"' in text)
