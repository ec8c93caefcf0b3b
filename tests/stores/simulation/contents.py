"""The few small stores that all histories are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.support.stores import onnx


@dataclass(frozen=True)
class Content:
    """Files of a store; its id is known once it has been sent."""

    name: str
    files: Mapping[str, bytes]

    @property
    def only(self) -> bytes:
        """The file of a store of one file."""
        (data,) = self.files.values()
        return data


def _bytes(size: int, seed: int) -> bytes:
    return Random(seed).randbytes(size)


CONTENTS: Final = (
    Content("held", {"a.bin": _bytes(30, 1)}),
    Content("small", {"a.bin": _bytes(90, 2)}),
    Content("long", {"a.bin": _bytes(400, 3)}),
    Content("model", {"model.onnx": onnx(150, 60, seed=4)}),
    Content("pair", {"a.bin": _bytes(400, 3), "b.bin": _bytes(33, 5)}),
    Content("kin", {"b.bin": _bytes(210, 6), "c.bin": _bytes(400, 3), "d.bin": _bytes(70, 7)}),
    Content("other", {"a.bin": _bytes(300, 8)}),
)
