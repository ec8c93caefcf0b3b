"""Parameters declared by a Paddle program, in protobuf or in the JSON of Paddle 3."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from protoslice import schema
from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.model import Model
from protoslice.formats.paddle.blobs import dtype_of
from protoslice.formats.tensors.drafts import parsed
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.sources.source import RangeSource

PROGRAM: Final = "paddle.framework.proto.ProgramDesc"

_VARIABLE: Final = "paddle.framework.proto.VarDesc"
_SMALL_FIELD: Final = 1 << 16
_MOST_JSON: Final = 16 << 20
_MOST_DEEP: Final = 50

_DENSE, _ROWS = 7, 8
_NOT_SAVED: Final = frozenset({9, 10, 15, 17})
"""Kinds of persistable variables that no file holds: feeds, fetches, readers and raw state."""

_JSON_TYPES: Final = {
    "bool": "BOOL", "i8": "I8", "ui8": "U8", "i16": "I16", "i32": "I32", "i64": "I64", "f16": "F16", "bf16": "BF16",
    "f32": "F32", "f64": "F64", "c64": "C64", "c128": "C128",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variable:
    """A parameter as declared by its program."""

    name: str
    path: str
    """Path of the declaration in the program."""
    dtype: Dtype | None
    """Data type; None where the program has none, or an unknown one."""
    shape: tuple[int, ...] | None
    """Lengths per dimension, -1 for any; None where the program has no shape."""
    rows: bool = False
    """True for selected rows: a tensor of which only some rows are stored."""
    odd: int | None = None
    """Paddle's number for a kind that is no tensor; None for tensors."""


def variables(model: Model) -> list[Variable]:
    """The parameters of the program at the root of `model`, sorted by name, as combined files order them."""
    declared = _of_json(model.beside(model.root)) if model.proto is None else _of_proto(model)
    first: dict[str, Variable] = {}
    for variable in declared:
        first.setdefault(variable.name, variable)
    return [first[name] for name in sorted(first)]


def is_json_program(source: RangeSource) -> bool:
    """True when `source` begins like a program in the JSON of Paddle 3."""
    head = source.read(0, min(source.size, 256))
    return head.lstrip()[:1] == b"{" and b'"base_code"' in head and b'"pir"' in head


def _of_proto(model: Model) -> Iterator[Variable]:
    if model.proto is None:
        return
    message_class = schema.bundled().message_class(_VARIABLE)
    for found in model.proto.document.find([_VARIABLE], small=_SMALL_FIELD):
        message = parsed(message_class, found)
        if message.persistable and message.type.type not in _NOT_SAVED:
            yield _declared(message, found.path)


def _declared(message: Any, path: str) -> Variable:
    kind = message.type.type
    if kind == _DENSE:
        desc = message.type.dense_tensor.tensor
        return Variable(message.name, path, dtype_of(desc.data_type), tuple(desc.dims))
    if kind == _ROWS:
        desc = message.type.selected_rows
        return Variable(message.name, path, dtype_of(desc.data_type), (-1, *desc.dims[1:]), rows=True)
    return Variable(message.name, path, None, None, odd=kind)


def _of_json(source: RangeSource) -> Iterator[Variable]:
    if source.size > _MOST_JSON:
        raise LimitExceeded(f"A JSON program of {source.size} bytes is too large: at most {_MOST_JSON} allowed")
    try:
        program = json.loads(source.read(0, source.size))
        yield from _in_regions(program["program"], "program", 0)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptModel(f"Not a program in Paddle 3's JSON format: {error!r:.200}") from error


def _in_regions(holder: Any, path: str, depth: int) -> Iterator[Variable]:
    """Parameters in the regions of a program or an operation, and of all operations nested in them."""
    if depth > _MOST_DEEP:
        raise ValueError("its blocks are nested too deeply")
    for i, region in enumerate(holder.get("regions", ())):
        for j, block in enumerate(region["blocks"]):
            for k, operation in enumerate(block["ops"]):
                at = f"{path}.regions[{i}].blocks[{j}].ops[{k}]"
                if operation["#"] == "p":
                    yield _parameter(operation, at)
                yield from _in_regions(operation, at, depth + 1)


def _parameter(operation: Any, path: str) -> Variable:
    *_, name = operation["A"]
    kind, shape, *_ = operation["O"]["TT"]["D"]
    if not isinstance(name, str) or not all(isinstance(length, int) for length in shape):
        raise TypeError(f"{path} has no name or no shape")
    return Variable(name, path, DTYPES.get(_JSON_TYPES.get(kind["#"].removeprefix("0.t_"), "")), tuple(shape))
