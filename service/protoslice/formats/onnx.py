"""ONNX models: all TensorProtos, whose elements are in the model or in external files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from protoslice import _core, schema
from protoslice.errors import CorruptModel, Unsupported
from protoslice.facts import Signature, SignatureTensor
from protoslice.formats.messages import (
    ProtoFormat,
    TensorBuilder,
    content,
    contents,
    elements,
    numbers,
    parsed,
    parsed_ends,
    resolve_location,
)
from protoslice.formats.uses import Fields, Look, NamedUses, by_graph, deferred, kinds_in
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, Encoding, Model, RootProto, Stored, Strings, Tensor, Use

MODEL: Final = "onnx.ModelProto"
TENSOR: Final = "onnx.TensorProto"
NODE: Final = "onnx.NodeProto"
EXTERNAL: Final = 1
"""The `data_location` of tensors whose elements are in another file."""
_RAW, _FLOATS, _INT32S, _STRINGS, _INT64S, _DOUBLES, _UINT64S = 9, 4, 5, 6, 7, 10, 11


@dataclass(frozen=True, slots=True)
class _Kind:
    """An ONNX data type: the dtype, and the field and encoding of elements that are not in `raw_data`."""

    dtype: Dtype
    field: int
    encoding: Encoding


def _kinds() -> dict[int, _Kind]:
    varint, plain, packed = Encoding.VARINT, Encoding.PLAIN, Encoding.PACKED_VARINT
    rows: list[tuple[Sequence[tuple[int, str]], int, Encoding]] = [
        ([(1, "F32"), (14, "C64")], _FLOATS, plain),
        ([(11, "F64"), (15, "C128")], _DOUBLES, plain),
        ([(7, "I64")], _INT64S, varint),
        ([(12, "U32"), (13, "U64")], _UINT64S, varint),
        ([(2, "U8"), (3, "I8"), (4, "U16"), (5, "I16"), (6, "I32"), (9, "BOOL")], _INT32S, varint),
        ([(10, "F16"), (16, "BF16"), (17, "F8_E4M3FN"), (18, "F8_E4M3FNUZ"), (19, "F8_E5M2")], _INT32S, varint),
        ([(20, "F8_E5M2FNUZ"), (24, "F8_E8M0FNU"), (27, "F6_E2M3FN"), (28, "F6_E3M2FN")], _INT32S, varint),
        ([(21, "U4"), (22, "I4"), (23, "F4_E2M1"), (25, "U2"), (26, "I2")], _INT32S, packed),
        ([(8, "STRING")], _STRINGS, plain),
    ]
    return {number: _Kind(DTYPES[name], field, encoding) for types, field, encoding in rows for number, name in types}


_KINDS: Final = _kinds()


def _kind(number: int) -> _Kind:
    if number not in _KINDS:
        raise CorruptModel(f"ONNX has no data type {number}")
    return _KINDS[number]


def dtype_of(number: int) -> Dtype | None:
    """Return the dtype of the ONNX data type `number`; None if there is none."""
    kind = _KINDS.get(number)
    return kind.dtype if kind is not None else None


class Onnx(ProtoFormat):
    """The format of ONNX models, and of other messages of the onnx package."""

    name = "onnx"
    package = "onnx."
    uses = None
    """None, because each tensor has a `look` function that returns its role and kind."""

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all TensorProtos at any depth, such as those in initializers, node attributes and functions."""
        found = proto.document.find([TENSOR])

        def listed(look: Look | None) -> Tensors:
            make = TensorMaker(model, proto, look)
            return Tensors(
                len(found), lambda number: make.tensor(found[number]), lambda number: make.called(found[number])
            )

        return listed(deferred(lambda: _uses(proto), lambda: NamedUses(listed(None))))


def _uses(proto: RootProto) -> Look:
    """Return a function that finds a tensor's role and kind from the operators that use the tensor.

    Tensors in attributes are constants, unless a layer uses them as weights.
    """
    values, constants = kinds_in(proto, NODE, Fields(name=[3], op=[4], inputs=[1], outputs=[2]))

    def use(tensor: Tensor) -> Use:
        if tensor.holder in {"initializer", "sparse_values"}:
            return by_graph(values.get(tensor.name), tensor, weight=True)
        node = tensor.address.removeprefix("path:").rpartition(".attribute[")[0]
        return by_graph(constants.get(node) if node else values.get(tensor.name), tensor, weight=False)

    return use


class TensorMaker:
    """A builder that makes tensors from the TensorProtos of one model."""

    def __init__(self, model: Model, proto: RootProto, look: Look | None = None) -> None:
        """Set `look`, a function that returns the role and kind of a tensor."""
        self._model = model
        self._proto = proto
        self._look = look
        self._message = schema.bundled().message_class(TENSOR)

    def tensor(self, found: _core.Finding) -> Tensor:
        """Return the TensorProto `found` as a tensor. Errors in it are raised only when the tensor is read."""
        builder = TensorBuilder(found.path, found.path, _role(found.path), self._model.root, look=self._look)
        try:
            message = parsed(self._message, found)
        except CorruptModel as error:
            return builder.unreadable(error)
        builder.name = message.name or _name(found)
        return builder.tensor(lambda builder: self._data(builder, found, message))

    def called(self, found: _core.Finding) -> tuple[str, str]:
        """Return the name and address of the tensor `found`."""
        try:
            name = parsed(self._message, found).name or _name(found)
        except CorruptModel:
            name = found.path
        return name, f"path:{found.path}"

    def _data(self, builder: TensorBuilder, found: _core.Finding, message: Any) -> Data:
        element_count(message.dims)
        builder.shape = tuple(message.dims)
        kind = _kind(message.data_type)
        builder.dtype = kind.dtype
        if message.data_location != EXTERNAL:
            return self._inside(found, kind, message.dims)
        builder.file, data = self._external(message, kind.dtype)
        return data

    def _inside(self, found: _core.Finding, kind: _Kind, dims: Sequence[int]) -> Data:
        if kind.field == _STRINGS:
            return self._strings(found, element_count(dims))
        raw = content(self._proto, found, _RAW)
        if raw is not None and raw.size:
            return checked(Stored(raw, Encoding.PACKED if kind.dtype.narrow else Encoding.PLAIN), kind.dtype, dims)
        typed = numbers(self._proto, found, kind.field, kind.encoding)
        lack = "A tensor has no values of its data type, although its shape is not empty"
        return elements(typed, kind.dtype, dims, lack)

    def _strings(self, found: _core.Finding, count: int) -> Strings:
        places = list(contents(self._proto, found, _STRINGS))
        if len(places) != count:
            raise CorruptModel(f"The shape of a tensor needs {count} strings, but the tensor has {len(places)}")
        return Strings(lambda: [place.read() for place in places])

    def _external(self, message: Any, dtype: Dtype) -> tuple[str, Data]:
        entries = {entry.key: entry.value for entry in message.external_data}
        path = resolve_location(self._model.root, entries.get("location", ""))
        source = self._model.file(path)
        offset = _number(entries, "offset", 0)
        length = _number(entries, "length", source.size - offset)
        if length < 0 or offset + length > source.size:
            raise CorruptModel(
                f"A tensor is stored at byte {offset} of {path!r} with {length} bytes, but the file has {source.size}"
            )
        if dtype.bits == 0:
            raise Unsupported("Strings cannot be stored in external data files")
        encoding = Encoding.PACKED if dtype.narrow else Encoding.PLAIN
        return path, checked(Stored(Rope.of(source, offset, offset + length), encoding), dtype, message.dims)


_GRAPH_FIELDS: Final = ["graph.name", "graph.input", "graph.output", "graph.initializer[*].name"]


def signature(proto: RootProto) -> tuple[Sequence[Signature], int]:
    """Return the inputs and outputs of the main graph, and the number of bytes read for them.

    Inputs that have an initializer are left out. Raise `LimitExceeded` if more than 4 MiB must be read.
    """
    model, size = parsed_ends(proto, MODEL, "", _GRAPH_FIELDS, "graph")
    graph: Any = model.graph
    given = {each.name for each in graph.initializer}
    inputs = tuple(_value(each) for each in graph.input if each.name not in given)
    return [Signature(graph.name or "graph", "", (), inputs, tuple(map(_value, graph.output)))], size


def _value(info: Any) -> SignatureTensor:
    """Return an input or output. Values other than tensors, such as sequences, have neither dtype nor shape."""
    dtype, dims = dtype_of(info.type.tensor_type.elem_type), info.type.tensor_type
    lengths = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in dims.shape.dim)
    shape = lengths if dims.HasField("shape") else None
    return SignatureTensor(info.name, info.name, dtype.name if dtype else None, shape)


def _number(entries: dict[str, str], key: str, default: int) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise CorruptModel(f"External data has an invalid {key} {text[:40]!r}: it must be a number")
    return int(text)


def _role(path: str) -> str:
    """Return the value of `Tensor.holder`, which depends on the field that contains the tensor."""
    field = path.rpartition(".")[2].partition("[")[0]
    sparse = {"values": "sparse_values", "indices": "sparse_indices"}
    return sparse.get(field) or {"initializer": "initializer", "": "tensor"}.get(field, "attr")


def _name(found: _core.Finding) -> str:
    """Return a name for an unnamed tensor: `NODE/ATTRIBUTE` if an attribute holds it, else its path."""
    names = [schema.text_of(name) for _, name in found.names[-2:] if name]
    return "/".join(names) if found.names[-1:] and found.names[-1][0] == "onnx.AttributeProto" else found.path
