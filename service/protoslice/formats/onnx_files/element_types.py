"""Element types of values in ONNX graphs, by the operators that make them; shapes are not worked out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

_FLOAT, _UINT8, _INT8, _INT32, _INT64, _BOOL = 1, 2, 3, 6, 7, 9

_FIXED: Final[Mapping[str, tuple[int, ...]]] = {
    **dict.fromkeys(("Shape", "Size", "ArgMax", "ArgMin", "NonZero", "NonMaxSuppression"), (_INT64,)),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Xor", "Not"), (_BOOL,)),
    **dict.fromkeys(("IsNaN", "IsInf"), (_BOOL,)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "BitCount"), (_INT32,)),
    "DynamicQuantizeLinear": (_UINT8, _FLOAT, _UINT8),
    "ImageDecoder": (_UINT8,),
}
"""Element types of the outputs of operators that do not depend on their inputs."""
_BY_INPUT: Final[Mapping[str, int]] = {
    "Where": 1, "OneHot": 2, "CastLike": 1, "QuantizeLinear": 2, "DequantizeLinear": 1, "QLinearConv": 7,
    "QLinearMatMul": 7,
}  # fmt: skip
"""Number of the input that has the type of the output, for operators where it is not the first."""
_EQUAL: Final = frozenset({
    "Add", "Sub", "Mul", "Div", "Max", "Min", "Mean", "Sum", "MatMul", "Gemm", "Conv", "ConvTranspose", "PRelu",
    "Concat",
})  # fmt: skip
"""Operators all of whose inputs have the type of the output: any that is known will do."""
_SECOND: Final[Mapping[str, int]] = {"MaxPool": _INT64, "TopK": _INT64, "Dropout": _BOOL, "Unique": _INT64}
"""Element type of the outputs behind the first one."""
_BY_ATTRIBUTE: Final[Mapping[str, tuple[str, int]]] = {
    "Cast": ("to", 0), "RandomNormal": ("dtype", _FLOAT), "RandomUniform": ("dtype", _FLOAT), "EyeLike": ("dtype", 0),
    "RandomNormalLike": ("dtype", 0), "RandomUniformLike": ("dtype", 0), "Bernoulli": ("dtype", 0),
    "Multinomial": ("dtype", _INT32), "HannWindow": ("output_datatype", _FLOAT),
    "HammingWindow": ("output_datatype", _FLOAT), "BlackmanWindow": ("output_datatype", _FLOAT),
    "QuantizeLinear": ("output_dtype", 0), "DequantizeLinear": ("output_dtype", 0),
}  # fmt: skip
"""Attribute with the type of the output, and the type without it; 0 for that of the input."""
_CONSTANTS: Final[Mapping[str, int]] = {
    "value_float": _FLOAT, "value_floats": _FLOAT, "value_int": _INT64, "value_ints": _INT64,
}  # fmt: skip
INNER_OUTPUTS: Final[Mapping[str, int]] = {"If": 0, "Loop": 1, "Scan": 0}
"""Number of the output of the inner graph that is the first output of the node."""
_UNKNOWN: Final = frozenset({"SequenceAt", "SequenceConstruct", "SplitToSequence", "Optional"})
_OURS: Final = frozenset({"", "ai.onnx"})
"""Domains of the operators of the standard."""


class Maker(Protocol):
    """A node of a graph."""

    @property
    def message(self) -> Any:
        """Its NodeProto."""

    @property
    def outputs(self) -> Sequence[str]:
        """Values that it makes."""

    @property
    def constant(self) -> int:
        """Element type of its tensor attribute, or 0."""

    @property
    def inner(self) -> Sequence[int]:
        """Element types of the outputs of its inner graph, 0 where unknown."""


class ElementTypes:
    """Element types of the values of a graph, worked out on first use."""

    def __init__(self, nodes: Sequence[Maker], initializers: Mapping[str, int], declared: Callable[[str], int]) -> None:
        """`nodes` are in the order of the graph; `declared` gives the type in the model, or 0."""
        self._nodes = nodes
        self._initializers = initializers
        self._declared = declared

    def of(self, name: str) -> int:
        """Element type of the value `name`, as `TensorProto.DataType` numbers it; 0 if unknown."""
        return self._initializers.get(name) or self._declared(name) or self._made.get(name, 0)

    @cached_property
    def _made(self) -> Mapping[str, int]:
        """Types of the values that nodes make."""
        found = dict[str, int]()

        def known(name: str) -> int:
            return found.get(name) or self._initializers.get(name) or self._declared(name)

        for node in self._nodes:
            for number, name in enumerate(node.outputs):
                if name:
                    found[name] = self._declared(name) or _type_of(node, number, known)
        return found


def _type_of(maker: Maker, output: int, known: Callable[[str], int]) -> int:
    """Element type of an output of a node; 0 if unknown."""
    operator, inputs = maker.message.op_type, maker.message.input
    if maker.message.domain not in _OURS or operator in _UNKNOWN:
        return 0
    if operator in INNER_OUTPUTS:
        place = output + INNER_OUTPUTS[operator]
        return maker.inner[place] if place < len(maker.inner) else 0
    if operator in _FIXED:
        return dict(enumerate(_FIXED[operator])).get(output, 0)
    if output and operator in _SECOND:
        return _SECOND[operator]
    stated = _stated(maker)
    if stated:
        return stated
    if operator in _EQUAL:
        return next(filter(None, map(known, filter(None, inputs))), 0)
    place = _BY_INPUT.get(operator, 0)
    return known(inputs[place]) if place < len(inputs) else 0


def _stated(maker: Maker) -> int:
    """Element type that the attributes of a node state, or that it has without them; 0 for that of an input."""
    node, operator = maker.message, maker.message.op_type
    attributes = {each.name: each for each in node.attribute}
    if operator in {"Constant", "ConstantOfShape"}:
        return maker.constant or _of_constant(attributes, _FLOAT if operator == "ConstantOfShape" else 0)
    if operator == "QuantizeLinear" and len(node.input) < 3 and "output_dtype" not in attributes:
        return _UINT8
    name, otherwise = _BY_ATTRIBUTE.get(operator, ("", 0))
    return int(attributes[name].i) if name in attributes and attributes[name].i else otherwise


def _of_constant(attributes: Mapping[str, Any], otherwise: int) -> int:
    return next((kind for name, kind in _CONSTANTS.items() if name in attributes), otherwise)
