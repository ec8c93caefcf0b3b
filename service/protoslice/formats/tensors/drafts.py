"""Tensors under construction: an error in one of them becomes its Fault and spares the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from protoslice import _core, schema
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, ProtosliceError
from protoslice.formats.model import Data, Fault, RootProto, Tensor
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.sources.ropes import Rope

_MOST_ENDS: Final = 4 << 20
"""Bytes of the inputs and outputs of a model or a meta graph: they are parsed in memory."""


def parsed(message_class: type[Message], found: _core.Finding) -> Any:
    """`found` parsed without its large fields; `CorruptModel` if it does not parse as `message_class`."""
    try:
        return schema.parsed(message_class, found.skeleton)
    except DecodeError as error:
        raise CorruptModel(f"A {found.type} does not parse: {error}", path=found.path) from error


def parsed_ends(proto: RootProto, type_name: str, path: str, fields: Sequence[str], about: str) -> tuple[Any, int]:
    """Return the message at `path` with those `fields` alone, which declare inputs and outputs, and their bytes.

    Raise `LimitExceeded` beyond 4 MiB, and `CorruptModel` if they do not parse; errors are about the path `about`.
    """
    _, _, core = proto.document.view(path, fields)
    check_ends(core.size, about)
    try:
        message = schema.bundled().message_class(type_name)
        return schema.parsed(message, Rope(core, proto.sources).read()), core.size
    except DecodeError as error:
        raise CorruptModel(f"The inputs and outputs do not parse: {error}", path=about) from error


def check_ends(size: int, about: str = "") -> None:
    """Raise `LimitExceeded` for inputs and outputs of more than 4 MiB."""
    if size > _MOST_ENDS:
        raise LimitExceeded(
            f"The inputs and outputs have {size} bytes, but at most {_MOST_ENDS} are listed", path=about
        )


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
