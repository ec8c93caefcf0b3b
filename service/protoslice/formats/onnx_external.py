"""Conversion of an ONNX model to a model with a separate weights file, or to a single file.

Only small parts of the result are new bytes. Weights stay byte ranges of the stored files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from protoslice import _core, schema, varints
from protoslice.errors import InvalidInput, Unsupported
from protoslice.formats.onnx import EXTERNAL, TENSOR, TensorMaker
from protoslice.formats.onnx_extraction import STANDARD, Graph, SubModel, extracted
from protoslice.formats.onnx_messages import (
    INITIALIZER,
    INITIALIZERS_AS_INPUTS,
    NODE,
    OUTPUT,
    SPARSE_INITIALIZER,
    Changes,
    OnnxProto,
    Rewriting,
    declaration,
    numbered,
    without,
    wrapped,
)
from protoslice.sources.ropes import Rope, RopeBuilder, SourceList
from protoslice.tensors.model import Encoding, Stored, Strings, Tensor, Unreadable
from protoslice.tensors.reading import locate, read

WEIGHTS: Final = "weights.bin"
"""The name by which the model refers to its weights file."""
ALIGNMENT: Final = 4096
"""The default alignment of weights in bytes. It is the size of a memory page, because some loaders map the file."""
_MOST_ALIGNMENT: Final = 1 << 20
_LEAST: Final = 1024
"""The size in bytes from which a tensor is moved to the weights file."""
_LARGEST_MODEL: Final = (1 << 31) - 1
"""The size in bytes of the largest model that protobuf runtimes can parse."""
_NAME, _RAW, _EXTERNAL_DATA, _LOCATION = 8, 9, 13, 14
_LOCATION_TAGS: Final = frozenset({_LOCATION << 3, _LOCATION << 3 | 0x80})
"""The possible first bytes of the `data_location` tag. The second one begins a tag that is longer than necessary."""
_ELEMENTS: Final = frozenset({4, 5, 6, 7, _RAW, 10, 11, _EXTERNAL_DATA, _LOCATION})
"""The TensorProto fields that hold or locate the elements."""
_PLACED: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.t")
_INITIALIZER: Final = re.compile(r"graph\.initializer\[[0-9]+\]")
_TOPS: Final = {NODE: "node", INITIALIZER: "initializer", SPARSE_INITIALIZER: "sparse_initializer"}
"""The graph's fields that can contain tensors, by number."""


@dataclass(frozen=True, slots=True)
class OnnxFiles:
    """A model, and the weights file that it refers to."""

    model: Rope
    weights: Rope


def check_alignment(align: int) -> int:
    """Return `align`; raise `InvalidInput` unless it is a power of two up to 1 MiB."""
    if not 1 <= align <= _MOST_ALIGNMENT or align & (align - 1):
        raise InvalidInput(f"Invalid alignment {align}: use a power of two, at most {_MOST_ALIGNMENT}")
    return align


def with_external_data(
    proto: OnnxProto, part: SubModel | None = None, align: int = ALIGNMENT, graph: Graph | None = None
) -> OnnxFiles:
    """Return the model of `proto`, or `part` of its `graph`, and a file with its tensors of at least 1 KiB.

    Initializers and constants of the main graph move to this weights file; constants become initializers. Tensors
    in inner graphs and other attributes move only if they are external now. Smaller tensors are put into the model,
    even if they are external now. Raise `Unsupported` if the model itself still has 2 GiB or more.
    """
    weights = _Weights(align)
    model = _composed(proto, part, weights, graph)
    if model.size > _LARGEST_MODEL:
        raise Unsupported(
            f"Even without its weights, the model has {model.size} bytes, but ONNX runtimes load at most "
            f"{_LARGEST_MODEL}: extract a part of it"
        )
    return OnnxFiles(model, weights.bytes())


def in_one_file(proto: OnnxProto, part: SubModel | None = None, graph: Graph | None = None) -> Rope:
    """Return the model of `proto`, or `part` of its `graph`, as one file with all weights.

    Raise `Unsupported` if the file has 2 GiB or more, because no ONNX runtime parses such a file.
    """
    model = _composed(proto, part, None, graph)
    if model.size > _LARGEST_MODEL:
        raise Unsupported(
            f"In one file, the model has {model.size} bytes, but ONNX runtimes load at most {_LARGEST_MODEL}: use "
            f"onnx/model.onnx and onnx/{WEIGHTS}"
        )
    return model


class _Weights:
    """A builder of a weights file."""

    def __init__(self, align: int) -> None:
        self._sources = SourceList()
        self._builder = RopeBuilder(self._sources)
        self._zeros = Rope.of(_core.Computed.filled(Rope.joined(()), 1, align))

    def add(self, data: Rope) -> int:
        """Append `data` at the next aligned offset, and return that offset."""
        gap = -self._builder.size % self._zeros.size
        if gap:
            self._builder.add(self._zeros.part(0, gap))
        offset = self._builder.size
        self._builder.add(data)
        return offset

    def bytes(self) -> Rope:
        """Return the content of the file so far."""
        return Rope(_core.Rope(self._builder.ropes()), self._sources.listed)


def _composed(proto: OnnxProto, part: SubModel | None, weights: _Weights | None, graph_names: Graph | None) -> Rope:
    """Return the model. Add its weights to `weights`, or put them into the model if `weights` is None."""
    fields, added = (proto.graph, []) if part is None else extracted(proto, part, graph_names)
    kept = {field.start for field in fields}
    changes, constants = _changes(proto, part, kept, weights)
    inner = changes.pop("graph", {})
    assert isinstance(inner, dict)
    rewriting = Rewriting(proto)
    tensors = (each for content in constants for each in wrapped(INITIALIZER, content))
    graph = Rope.joined([*rewriting.message("onnx.GraphProto", "graph", proto.graph, inner, kept), *tensors, *added])
    return Rope.joined(rewriting.message("onnx.ModelProto", "", proto.fields, changes | {"graph": graph}))


def _changes(
    proto: OnnxProto, part: SubModel | None, kept: set[int], weights: _Weights | None
) -> tuple[Changes, list[bytes]]:
    """Return the new contents of tensors, and the initializers that replace Constant nodes.

    Remove the replaced nodes from `kept`.
    """
    tops = {f"{_TOPS[number]}[{place}]": field for (number, place), field in numbered(proto.graph) if number in _TOPS}
    maker, found = TensorMaker(proto.model, proto.proto), proto.document.find([TENSOR])
    kind, constants = schema.bundled().message_class(TENSOR), _Constants(proto, part)
    changes, made = Changes(), list[bytes]()
    for number in range(len(found)):
        names = found[number].path.split(".")
        if names[0] == "graph" and tops[names[1]].start not in kept:
            continue
        tensor, skeleton = maker.tensor(found[number]), found[number].skeleton
        large = weights is not None and (tensor.size or 0) >= _LEAST
        # Parsing is slow, and needless if no byte can begin the tag of `data_location`.
        external = bool(_LOCATION_TAGS & set(skeleton)) and schema.parsed(kind, skeleton).data_location == EXTERNAL
        # Strings and unreadable elements inside the model stay unchanged. Unreadable external elements are an
        # error, which `_elements` raises.
        if isinstance(tensor.data, Strings) or (isinstance(tensor.data, Unreadable) and not external):
            continue
        constant = _PLACED.fullmatch(found[number].path)
        name = constants.names.get(int(constant[1])) if constant and large else None
        if not external and not (large and (name is not None or _INITIALIZER.fullmatch(found[number].path))):
            continue
        skeleton, elements = without(skeleton, _ELEMENTS), _elements(tensor)
        if name is not None and weights is not None:
            field = b"".join((varints.write(_NAME << 3 | 2), varints.write(len(name.encode())), name.encode()))
            made.append(without(skeleton, {_NAME}) + field + _reference(weights.add(elements), elements.size))
            kept.discard(tops[names[1]].start)
            continue
        content: Rope | bytes
        if large and weights is not None:
            content = skeleton + _reference(weights.add(elements), elements.size)
        else:
            content = Rope.joined([skeleton, *wrapped(_RAW, elements)])
        _put(changes, names, content)
    return changes, made


def _put(changes: Changes, names: list[str], content: Rope | bytes) -> None:
    """Set `content` as the new content of the message whose path has the steps `names`."""
    for name in names[:-1]:
        inner = changes.setdefault(name, {})
        assert isinstance(inner, dict)
        changes = inner
    changes[names[-1]] = content


class _Constants:
    """The Constant nodes that can become initializers."""

    def __init__(self, proto: OnnxProto, part: SubModel | None) -> None:
        self._proto = proto
        self._part = part

    @cached_property
    def names(self) -> Mapping[int, str]:
        """The name of each constant's value, by node number. The first access searches the graph."""
        proto, found, number = self._proto, dict[int, str](), -1
        if proto.version < INITIALIZERS_AS_INPUTS:
            return found
        outputs = {declaration(proto, field).name for field in proto.graph if field.number == OUTPUT}
        outputs |= set(() if self._part is None else self._part.outputs)
        kind = schema.bundled().message_class("onnx.NodeProto")
        for each in proto.document.find(["onnx.NodeProto"]):
            if "." in each.path.removeprefix("graph.") or not each.path.startswith("graph."):
                continue
            node, number = schema.parsed(kind, each.skeleton), number + 1
            is_constant = node.op_type == "Constant" and node.domain in STANDARD and len(node.output) == 1
            if (
                is_constant and node.output[0] not in outputs and "\\" not in node.output[0]
            ):  # a backslash means that the name is not UTF-8
                found[number] = node.output[0]
        return found


def _elements(tensor: Tensor) -> Rope:
    """Return the elements in the encoding of `raw_data` and external files.

    Raise the error of a tensor that is unreadable.
    """
    narrow, data = tensor.dtype is not None and tensor.dtype.narrow, tensor.data
    if isinstance(data, Stored) and data.encoding is (Encoding.PACKED if narrow else Encoding.PLAIN):
        return data.bytes
    return read(locate(tensor)[0], form="packed" if narrow else "raw", compare=False).bytes


def _reference(offset: int, size: int) -> bytes:
    """Return the TensorProto fields that locate elements in the weights file."""
    place = (("location", WEIGHTS), ("offset", str(offset)), ("length", str(size)))
    entries = (_field(1, key.encode()) + _field(2, value.encode()) for key, value in place)
    return (
        b"".join(_field(_EXTERNAL_DATA, entry) for entry in entries)
        + varints.write(_LOCATION << 3)
        + varints.write(EXTERNAL)
    )


def _field(number: int, content: bytes) -> bytes:
    """Return a length-delimited field with its tag."""
    return varints.write(number << 3 | 2) + varints.write(len(content)) + content
