"""PaddlePaddle models that are written from scratch, equal to those that its library saves."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any, Final

from protoslice import schema
from protoslice.sources.files import BytesSource
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Model

TYPES: Final = {
    "BOOL": 0, "I16": 1, "I32": 2, "I64": 3, "F16": 4, "F32": 5, "F64": 6, "U8": 20, "I8": 21, "BF16": 22, "C64": 23,
    "C128": 24, "F8_E4M3FN": 32, "F8_E5M2": 33, "U16": 36, "U32": 37, "U64": 38,
}  # fmt: skip
_DENSE: Final = 7
_ROWS: Final = 8


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a model: its name, type, shape and bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes
    levels: tuple[tuple[int, ...], ...] = ()
    """The offsets of sequences among the rows, for each level."""
    rows: tuple[int, ...] | None = None
    """The numbers of the stored rows; None when all rows are stored."""


def filled(name: str, dtype: str = "F32", shape: tuple[int, ...] = (2, 3), **more: Any) -> Parameter:
    """Return a parameter with arbitrary bytes."""
    return Parameter(name, dtype, shape, Random(name).randbytes(DTYPES[dtype].width * prod(shape)), **more)


def in_memory(files: Mapping[str, bytes]) -> Model:
    """Return the model made of `files`; the first file is its root, which is no protobuf."""
    return Model(next(iter(files)), None, {path: BytesSource(data) for path, data in files.items()}, None)


def blob(parameter: Parameter) -> bytes:
    """Return the bytes of a saved parameter."""
    desc: bytes = _desc(parameter).SerializeToString()
    if parameter.rows is not None:
        rows = parameter.rows
        before = struct.pack(f"<IQ{len(rows)}qq", 0, len(rows), *rows, max(rows, default=0) + 1)
    else:
        before = struct.pack("<IQ", 0, len(parameter.levels))
        before += b"".join(struct.pack(f"<Q{len(level)}Q", 8 * len(level), *level) for level in parameter.levels)
    return before + struct.pack("<Ii", 0, len(desc)) + desc + parameter.data


def combined(parameters: Sequence[Parameter]) -> bytes:
    """Return all parameters as one file."""
    return b"".join(blob(parameter) for parameter in sorted(parameters, key=lambda parameter: parameter.name))


def program(parameters: Sequence[Parameter], others: Sequence[Any] = ()) -> bytes:
    """Return a program of two blocks with `parameters` and the further variables `others`."""
    variables = [*map(_variable, parameters), *others]
    blocks = [
        _message("BlockDesc", idx=number, parent_idx=number - 1, vars=part)
        for number, part in enumerate((variables[::2], variables[1::2]))
    ]
    data: bytes = _message("ProgramDesc", blocks=blocks).SerializeToString()
    return data


def variable(name: str, kind: int, **more: Any) -> Any:
    """Return a persistable variable of some kind."""
    return _message("VarDesc", name=name, type=_message("VarType", type=kind, **more), persistable=True)


def json_program(parameters: Sequence[Parameter]) -> bytes:
    """Return a Paddle 3 program with `parameters`; every second one is in an operation with a separate block."""
    operations: list[Any] = []
    for number, parameter in enumerate(parameters):
        operation = {
            "#": "p",
            "A": [0, 1, 1, parameter.name],
            "O": {"%": number, "TT": {"#": "0.t_dtensor", "D": [{"#": _json_type(parameter)}, parameter.shape]}},
        }
        inside = {"#": "1.if", "regions": [{"#": "r", "blocks": [{"#": "b", "args": [], "ops": [operation]}]}]}
        operations.append(inside if number % 2 else operation)
    regions = [{"#": "region_0", "blocks": [{"#": "block_0", "args": [], "ops": operations}]}]
    return json.dumps({"base_code": {"magic": "pir", "version": 4}, "program": {"regions": regions}}).encode()


def _json_type(parameter: Parameter) -> str:
    return "0.t_" + parameter.dtype.lower().replace("u8", "ui8").replace("f8_e4m3fn", "f8e4m3fn")


def _variable(parameter: Parameter) -> Any:
    desc = _desc(parameter)
    if parameter.rows is not None:
        return variable(parameter.name, _ROWS, selected_rows=desc)
    return variable(parameter.name, _DENSE, dense_tensor=_message("VarType.DenseTensorDesc", tensor=desc))


def _desc(parameter: Parameter) -> Any:
    return _message("VarType.TensorDesc", data_type=TYPES[parameter.dtype], dims=parameter.shape)


def _message(name: str, /, **fields: Any) -> Any:
    return schema.bundled().message_class(f"paddle.framework.proto.{name}")(**fields)
