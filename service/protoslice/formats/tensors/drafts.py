"""Tensors under construction: an error in one of them becomes its Fault and spares the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError, Message

from protoslice import _core, schema
from protoslice.errors import OF_MODELS, CorruptModel, ProtosliceError
from protoslice.formats.model import Data, Fault, Tensor
from protoslice.formats.tensors.dtypes import Dtype


def parsed(message_class: type[Message], found: _core.Finding) -> Any:
    """`found` parsed without its large fields; `CorruptModel` if it does not parse as `message_class`."""
    try:
        return schema.parsed(message_class, found.skeleton)
    except DecodeError as error:
        raise CorruptModel(f"A {found.type} does not parse: {error}", path=found.path) from error


@dataclass(slots=True)
class TensorDraft:
    """Facts so far about the tensor at `path`."""

    name: str
    path: str
    holder: str
    file: str | None
    dtype: Dtype | None = None
    shape: tuple[int, ...] | None = None
    details: Callable[[], Mapping[str, object]] | None = None

    def tensor(self, find: Callable[[TensorDraft], Data]) -> Tensor:
        """The finished tensor, with data from `find`, which may fill in the draft; an error becomes a Fault."""
        try:
            data = find(self)
        except OF_MODELS as error:
            error.path = error.path or self.path
            data = Fault(error)
        return self._finished(data)

    def fault(self, error: ProtosliceError) -> Tensor:
        """The finished tensor with `error` for data."""
        return self._finished(Fault(error))

    def _finished(self, data: Data) -> Tensor:
        return Tensor(
            self.name, f"path:{self.path}", self.dtype, self.shape, self.holder, self.file, data, self.details
        )
