"""Which file of a model is its root."""

from __future__ import annotations

from typing import Final

__all__ = ["rank"]

_NAMES: Final = (
    "saved_model.cpb",
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "__model__.json",
    "Data/com.apple.CoreML/model.mlmodel",
)
_ENDINGS: Final = (".cpb", ".onnx", ".pdmodel", ".mlmodel", ".caffemodel", ".index")
_LOOKS: Final = {"proto": 0, "riegeli": 0, "text": 1, "json": 1, "table": 1}


def rank(path: str, kind: str, size: int) -> tuple[int, int, int, str]:
    """What sorts the likeliest root first: known names near the top, then what looks like a proto, then the largest.

    `kind` is what the file was taken for by `schema.detect`.
    """
    named = next((i for i, name in enumerate(_NAMES) if path == name or path.endswith("/" + name)), None)
    if named is None:
        ending = next((i for i, ending in enumerate(_ENDINGS) if path.endswith(ending)), None)
        named = len(_NAMES) + (len(_ENDINGS) if ending is None else ending)
    looks = _LOOKS.get(kind, 2)
    return named if looks < 2 else 100, looks, -size, path
