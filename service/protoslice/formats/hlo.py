"""XLA's HLO messages: constants of programs, arguments and results of snapshots, and constants of GPU executables."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import Any, Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.messages import ProtoFormat, TensorBuilder, content, numbers, parsed
from protoslice.formats.uses import Fields, Look, by_graph, kinds_in
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import checked, stored_size
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Deferred, Encoding, Model, RootProto, Stored, Strided, Tensor, Use

_LITERAL: Final = "xla.LiteralProto"
_CONSTANT: Final = "xla.gpu.GpuExecutableProto.ConstantInfoProto"
_CONTENT: Final = "xla.gpu.DenseDataIntermediateProto"
_NAMED: Final = ("xla.HloComputationProto", "xla.HloInstructionProto")
_INSTRUCTION: Final = _NAMED[1]
_WITHOUT_DATA: Final = frozenset({13, 17})
"""The types of literals without elements: tuples and tokens. The members of a tuple are separate literals."""
_SMALL_FIELD: Final = 1024

_BYTES: Final = {
    2: ("I8", 15), 3: ("I16", 17), 6: ("U8", 3), 7: ("U16", 16), 10: ("F16", 11), 16: ("BF16", 13),
    19: ("F8_E5M2", 19), 20: ("F8_E4M3FN", 20), 23: ("F8_E4M3B11FNUZ", 23), 24: ("F8_E5M2FNUZ", 24),
    25: ("F8_E4M3FNUZ", 25), 28: ("F8_E4M3", 28), 29: ("F8_E3M4", 29), 33: ("F8_E8M0FNU", 33),
    21: ("I4", 21), 22: ("U4", 22), 26: ("I2", 26), 27: ("U2", 27), 30: ("I1", 30), 31: ("U1", 31),
    32: ("F4_E2M1", 32),
}  # fmt: skip
"""A map from XLA's element types to the dtype and the number of the bytes field with the elements."""
_NUMBERS: Final = {
    1: ("BOOL", 2, Encoding.VARINT), 4: ("I32", 4, Encoding.VARINT), 5: ("I64", 5, Encoding.VARINT),
    8: ("U32", 6, Encoding.VARINT), 9: ("U64", 7, Encoding.VARINT), 11: ("F32", 8, Encoding.PLAIN),
    12: ("F64", 9, Encoding.PLAIN), 15: ("C64", 12, Encoding.PLAIN), 18: ("C128", 18, Encoding.PLAIN),
}  # fmt: skip
"""A map from XLA's element types to the dtype, the numeric field with the elements, and their encoding."""


def dtype_of(element_type: int) -> Dtype | None:
    """Return the dtype of an XLA element type; None for a type that no tensor has."""
    name, *_ = _BYTES.get(element_type) or _NUMBERS.get(element_type) or [None]
    return None if name is None else DTYPES[name]


class Hlo(ProtoFormat):
    """The format of XLA's messages with literals, such as modules, snapshots and executables."""

    name = "hlo"
    package = "xla."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all literals that have elements, and the constants of GPU executables."""
        found = proto.document.find([_LITERAL, _CONSTANT, _CONTENT], small=_SMALL_FIELD)
        make = _Maker(model, proto, found)
        numbers = array("I", filter(make.has_elements, range(len(found))))
        return Tensors(
            len(numbers), lambda number: make.tensor(numbers[number]), lambda number: make.called(numbers[number])
        )

    def uses(self, model: Model, found: Tensors) -> Look:
        """Return a function that finds a constant's role and kind from the instructions that use the constant.

        Arguments and results are never weights.
        """
        fields = Fields(name=[1], op=[2], inputs=[36], outputs=[35], numbers=True)
        constants = kinds_in(model.proto, _INSTRUCTION, fields).constants

        def use(tensor: Tensor) -> Use:
            if tensor.holder != "constant":
                return Use("other", "other")
            instruction = tensor.address.removeprefix("path:").rpartition(".literal")[0]
            return by_graph(constants.get(instruction), tensor, weight=False)

        return use


class _Maker:
    """A builder that makes tensors from the messages that a search found in one model.

    The number of a message is its position among these messages.
    """

    def __init__(self, model: Model, proto: RootProto, found: _core.Findings) -> None:
        self._file = model.root
        self._proto = proto
        self._literal = schema.bundled().message_class(_LITERAL)
        self._constant = schema.bundled().message_class(_CONSTANT)
        self._found = found

    def has_elements(self, number: int) -> bool:
        """Return True when the message `number` is a tensor: a literal with elements, or the content of a constant."""
        found = self._found[number]
        if found.type == _CONTENT:
            return self._symbol(number) is not None and content(self._proto, found, 1) is not None
        if found.type != _LITERAL:
            return False
        try:
            return parsed(self._literal, found).shape.element_type not in _WITHOUT_DATA
        except CorruptModel:
            return True  # listed, so that clients see the error as `Unreadable` data

    def called(self, number: int) -> tuple[str, str]:
        """Return the name and address of the tensor in the message `number`."""
        found = self._found[number]
        if found.type == _LITERAL:
            return _name(found), f"path:{found.path}"
        return self._symbol(number) or found.path, f"path:{found.path}.data"

    def tensor(self, number: int) -> Tensor:
        """Return the tensor in the message `number`."""
        found = self._found[number]
        if found.type == _CONTENT:
            return self._of_bytes(number)
        builder = TensorBuilder(_name(found), found.path, _kind(found.path), self._file)
        try:
            shape = parsed(self._literal, found).shape
        except CorruptModel as error:
            return builder.unreadable(error)
        return builder.tensor(lambda builder: self._elements(builder, found, shape))

    def _symbol(self, number: int) -> str | None:
        """Return the symbol of the constant whose content is the message `number`.

        Return the path of a constant without a symbol. Return None if the message is not the content of a constant.
        """
        found = self._found[number]
        # The search lists a constant directly before the content of the constant.
        constant = self._found[number - 1] if number else found
        if constant.type != _CONSTANT or found.path != f"{constant.path}.content":
            return None
        try:
            name: str = parsed(self._constant, constant).symbol_name
        except CorruptModel:
            return None
        return name or constant.path

    def _elements(self, builder: TensorBuilder, found: _core.Finding, shape: Any) -> Data:
        count = element_count(shape.dimensions)
        builder.shape = tuple(shape.dimensions)
        kind = shape.element_type
        if kind in _BYTES:
            name, field = _BYTES[kind]
            builder.dtype = DTYPES[name]
            data: Stored | Deferred[Stored] = _as_bytes(content(self._proto, found, field), builder.dtype, count)
        elif kind in _NUMBERS:
            name, field, encoding = _NUMBERS[kind]
            builder.dtype = DTYPES[name]
            data = _as_numbers(numbers(self._proto, found, field, encoding), builder.dtype, count)
        else:
            raise Unsupported(f"Literals of element type {kind} are not supported")
        if isinstance(data, Stored):
            checked(data, builder.dtype, builder.shape)
        return _laid_out(data, builder.shape, shape.layout.minor_to_major)

    def _of_bytes(self, number: int) -> Tensor:
        found, name = self._found[number], self.called(number)[0]
        data = content(self._proto, found, 1) or Rope.joined(())
        builder = TensorBuilder(name, f"{found.path}.data", "constant", self._file, DTYPES["U8"], (data.size,))
        return builder.tensor(lambda _: Stored(data))


def _as_bytes(data: Rope | None, dtype: Dtype, count: int) -> Stored:
    """Return `data` with its encoding. For dtypes narrower than a byte, the encoding follows from the data's size."""
    data = data or Rope.joined(())
    if not dtype.narrow:
        return Stored(data)
    # XLA writes one element of a narrow type per byte; older versions packed several into a byte.
    packed = data.size != count and data.size == stored_size(dtype, count, Encoding.PACKED)
    return Stored(data, Encoding.PACKED if packed else Encoding.BYTE_PER_ELEMENT)


def _as_numbers(data: Stored | Deferred[Stored] | None, dtype: Dtype, count: int) -> Stored | Deferred[Stored]:
    if data is None:
        return Stored(Rope.joined(()))
    if dtype.name == "BOOL" and isinstance(data, Stored) and data.bytes.size == count:
        return Stored(data.bytes)  # each varint takes one byte, so the varints are the elements
    return data


def _laid_out(data: Stored | Deferred[Stored], shape: Sequence[int], minor_to_major: Sequence[int]) -> Data:
    """Return `data` with strides that follow `minor_to_major`, whose first dimension changes fastest."""
    rank = len(shape)
    if not minor_to_major:
        return data
    if sorted(minor_to_major) != list(range(rank)):
        raise CorruptModel(f"The layout {list(minor_to_major)[:16]} does not fit a tensor of rank {rank}")
    if [number for number in minor_to_major if shape[number] != 1] == [
        number for number in range(rank - 1, -1, -1) if shape[number] != 1
    ]:
        return data
    steps = accumulate((shape[number] for number in minor_to_major), mul, initial=1)
    strides = tuple(step for _, step in sorted(zip(minor_to_major, steps, strict=False)))
    if isinstance(data, Deferred):
        return Deferred(lambda: Strided(data.locate(), strides))
    return Strided(data, strides)


def _kind(path: str) -> str:
    """Return `argument`, `result`, `constant` or `literal`, depending on the field that holds the literal."""
    outer = path.partition(".tuple_literals")[0].rpartition(".")[2].partition("[")[0]
    return {"arguments": "argument", "result": "result", "literal": "constant"}.get(outer, "literal")


def _name(found: _core.Finding) -> str:
    """Return the name `COMPUTATION/INSTRUCTION` of a literal, or its path if no named message contains it.

    For a member of a tuple, the member's number follows the name.
    """
    names = [schema.text_of(name) for kind, name in found.names if kind in _NAMED]
    if not names:
        return found.path.replace(".tuple_literals", "")
    return "/".join(names[-2:]) + found.path.rpartition(".literal")[2].replace(".tuple_literals", "")
