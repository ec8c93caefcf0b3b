"""Which file of a model is its root."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

__all__ = ["rank"]

_NAMES: Final = (
    "saved_model.cpb",
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "__model__.json",
)
_PACKAGED: Final = "Data/com.apple.CoreML/model.mlmodel"
_ENDINGS: Final = (".cpb", ".onnx", ".pdmodel", ".mlmodel", ".caffemodel", ".index")
_LOOKS: Final = {"proto": 0, "riegeli": 0, "text": 1, "json": 1, "table": 1}


def rank(path: str, kind: str, size: int, *, declared: Collection[str | None] = ()) -> tuple[int, int, int, str]:
    """What sorts the likeliest root first: known names near the top, then what looks like a proto, then the largest.

    `kind` is what the file was taken for by `schema.detect`; `declared` are the roots that manifests of packages name.
    """
    looks = _LOOKS.get(kind, 2)
    return _named(path, path in declared) if looks < 2 else 100, looks, -size, path


def _named(path: str, declared: bool) -> int:
    """How much its name says that it is the root: less is more."""
    tests = (
        *(_is_called(path, name) for name in _NAMES),
        declared,
        _is_called(path, _PACKAGED),
        *(path.endswith(ending) for ending in _ENDINGS),
        True,
    )
    return tests.index(True)


def _is_called(path: str, name: str) -> bool:
    return path == name or path.endswith("/" + name)
