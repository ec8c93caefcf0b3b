"""The few little files that all histories are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.support.stores import onnx


@dataclass(frozen=True)
class Content:
    """The files of a store, and which of them is its root."""

    name: str
    files: Mapping[str, bytes]
    root: str

    def __repr__(self) -> str:
        return self.name

    @property
    def data(self) -> bytes:
        """The file that is the root."""
        return self.files[self.root]


_SMALL, _OTHER, _LONG = onnx(20, seed=1), onnx(30, 40, seed=2), onnx(150, 200, seed=3)
_LINES = b"one\ntwo\nthree\n" * 9

CONTENTS = (
    Content("tiny", {"model.onnx": onnx(seed=4)}, "model.onnx"),
    Content("small", {"model.onnx": _SMALL}, "model.onnx"),
    Content("other", {"model.onnx": _OTHER}, "model.onnx"),
    Content("long", {"model.onnx": _LONG}, "model.onnx"),
    Content("folder", {"root.onnx": _LONG, "vocab.txt": _LINES, "zero.bin": b""}, "root.onnx"),
    Content("alike", {"root.onnx": _LONG, "vocab.txt": _LINES + b"four\n"}, "root.onnx"),
    Content("kin", {"root.onnx": _OTHER, "vocab.txt": _LINES, "more.txt": _LINES + b"four\n"}, "root.onnx"),
)
FAMILY = CONTENTS[4:]
"""Contents that have files in common."""
