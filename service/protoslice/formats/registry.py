"""Which formats there are: ours by a table, others' by the entry-point group `protoslice.formats`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import entry_points
from itertools import accumulate
from typing import Final

from protoslice.errors import Unsupported
from protoslice.formats.anything import Anything
from protoslice.formats.caffe import Caffe
from protoslice.formats.cntk import Cntk
from protoslice.formats.coreml.models import CoreMl
from protoslice.formats.hlo import Hlo
from protoslice.formats.model import Format, Model, Tensor, Tensors
from protoslice.formats.onnx import Onnx
from protoslice.formats.outputs.listing import items
from protoslice.formats.paddle.models import Paddle
from protoslice.formats.selection import naming
from protoslice.formats.tensorflow.bundle import Bundle
from protoslice.formats.tensorflow.protos import TensorFlow
from protoslice.formats.tensorflow.warmup import Warmup

__all__ = ["formats_of", "tensors_of"]

GROUP: Final = "protoslice.formats"

_BUILT_IN: Final[tuple[Format, ...]] = (
    Bundle(),
    TensorFlow(),
    Warmup(),
    Onnx(),
    CoreMl(),
    Caffe(),
    Cntk(),
    Hlo(),
    Paddle(),
)

_OTHERWISE: Final[Format] = Anything()


def tensors_of(model: Model) -> Tensors:
    """The tensors of `model`; `Unsupported` where no format knows such a model."""
    formats = formats_of(model)
    if not formats:
        known = ", ".join(each.name for each in _all())
        raise Unsupported(f"no format knows the tensors of {model.type or 'such a file'}; there are: {known}")
    found = [each.tensors(model) for each in formats]
    return found[0] if len(found) == 1 else Joined(found)


def formats_of(model: Model) -> Sequence[Format]:
    """The formats that `model` is of; where there is none, the one for anything whose type is known."""
    found = [each for each in _all() if each.wants(model)]
    return found or [each for each in (_OTHERWISE,) if each.wants(model)]


@cache
def _all() -> tuple[Format, ...]:
    others: list[Format] = [point.load()() for point in entry_points(group=GROUP)]
    return (*_BUILT_IN, *others)


class Joined:
    """The tensors of several formats, one after the other."""

    def __init__(self, parts: Sequence[Tensors]) -> None:
        self._parts = parts
        self._starts = [0, *accumulate(len(part) for part in parts)]

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, number: int, /) -> Tensor:
        if not 0 <= number < len(self):
            raise IndexError(number)
        part = bisect_right(self._starts, number) - 1
        return self._parts[part][number - self._starts[part]]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def called(self, number: int) -> tuple[str, str]:
        """The name and the address of tensor `number`."""
        part = bisect_right(self._starts, number) - 1
        return naming(self._parts[part])(number - self._starts[part])

    def items(self, start: int, limit: int, dtype: str | None = None) -> tuple[bytes, int, int]:
        """As `listing.items`."""
        texts: list[bytes] = []
        number, left = start, limit
        while left > 0 and number < len(self):
            part = bisect_right(self._starts, number) - 1
            first = self._starts[part]
            text, count, after = items(self._parts[part], number - first, left, dtype)
            texts += [text] if count else []
            number, left = first + after, left - count
        return b",".join(texts), limit - left, number

    def numbers(self, name_or_address: str) -> Sequence[int]:
        """The tensors of that name, or the one of that address."""
        found = zip(self._starts, self._parts, strict=False)
        return [start + number for start, part in found for number in part.numbers(name_or_address)]
