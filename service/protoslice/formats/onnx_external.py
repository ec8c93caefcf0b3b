"""ONNX models with their weights in another file, or all in one file; only the small parts are new bytes."""

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
"""Name of the file with the weights, as the model refers to it."""
ALIGNMENT: Final = 4096
"""Default alignment of weights in bytes: that of a page, for loaders that map the file."""
_MOST_ALIGNMENT: Final = 1 << 20
_LEAST: Final = 1024
"""Bytes of the smallest tensor that is moved to the file of weights."""
_LARGEST_MODEL: Final = (1 << 31) - 1
"""Bytes of the largest model that protobuf runtimes parse."""
_NAME, _RAW, _EXTERNAL_DATA, _LOCATION = 8, 9, 13, 14
_LOCATION_TAGS: Final = frozenset({_LOCATION << 3, _LOCATION << 3 | 0x80})
"""First bytes of the tag of the location, which may be written longer than need be."""
_ELEMENTS: Final = frozenset({4, 5, 6, 7, _RAW, 10, 11, _EXTERNAL_DATA, _LOCATION})
"""Fields of a TensorProto that hold its elements, or say where they are."""
_PLACED: Final = re.compile(r"graph\.node\[([0-9]+)\]\.attribute\[[0-9]+\]\.t")
_INITIALIZER: Final = re.compile(r"graph\.initializer\[[0-9]+\]")
_TOPS: Final = {NODE: "node", INITIALIZER: "initializer", SPARSE_INITIALIZER: "sparse_initializer"}
"""Fields of the graph in which tensors are."""


@dataclass(frozen=True, slots=True)
class OnnxFiles:
    """A model, and the file of weights that it refers to."""

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
    """Return the model of `proto`, or `part` of its `graph`, with tensors of at least 1 KiB in a file of weights.

    The moved tensors are initializers, and constants, which become initializers. Smaller tensors are put into the
    model, even if they are external now. In inner graphs and attributes, only weights that are external now are moved.
    Raise `Unsupported` if the model then has 2 GiB or more.
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
    """Return the model of `proto`, or `part` of its `graph`, with all its weights inside.

    Raise `Unsupported` if it has 2 GiB or more, which no ONNX runtime parses.
    """
    model = _composed(proto, part, None, graph)
    if model.size > _LARGEST_MODEL:
        raise Unsupported(
            f"In one file, the model has {model.size} bytes, but ONNX runtimes load at most {_LARGEST_MODEL}: use "
            f"onnx/model.onnx and onnx/{WEIGHTS}"
        )
    return model


class _Weights:
    """A file of weights that is being composed."""

    def __init__(self, align: int) -> None:
        self._sources = SourceList()
        self._builder = RopeBuilder(self._sources)
        self._zeros = Rope.of(_core.Computed.filled(Rope.joined(()), 1, align))

    def add(self, data: Rope) -> int:
        """Append `data`, aligned; return its offset."""
        gap = -self._builder.size % self._zeros.size
        if gap:
            self._builder.add(self._zeros.part(0, gap))
        offset = self._builder.size
        self._builder.add(data)
        return offset

    def bytes(self) -> Rope:
        """Return all that was added."""
        return Rope(_core.Rope(self._builder.ropes()), self._sources.listed)


def _composed(proto: OnnxProto, part: SubModel | None, weights: _Weights | None, graph_names: Graph | None) -> Rope:
    """Return the model, with its weights in `weights`, or inside the model if `weights` is None."""
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
    """Return the new contents of tensors, and initializers in place of Constant nodes.

    These nodes are removed from `kept`.
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
        # Parsing again is spared if no byte can be the tag of the location.
        external = bool(_LOCATION_TAGS & set(skeleton)) and schema.parsed(kind, skeleton).data_location == EXTERNAL
        # A tensor whose elements cannot be read is left unchanged, unless they are missing in another file.
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
    """Set the new content of the message at a path."""
    for name in names[:-1]:
        inner = changes.setdefault(name, {})
        assert isinstance(inner, dict)
        changes = inner
    changes[names[-1]] = content


class _Constants:
    """Nodes that can become initializers: those that make a constant from a tensor in an attribute."""

    def __init__(self, proto: OnnxProto, part: SubModel | None) -> None:
        self._proto = proto
        self._part = part

    @cached_property
    def names(self) -> Mapping[int, str]:
        """Names of the constants' values, by the number of the node; looked up on first use."""
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
            if is_constant and node.output[0] not in outputs and "\\" not in node.output[0]:  # bytes that are no text
                found[number] = node.output[0]
        return found


def _elements(tensor: Tensor) -> Rope:
    """Return the elements as `raw_data` and external files have them; raise the error of a faulty tensor."""
    narrow, data = tensor.dtype is not None and tensor.dtype.narrow, tensor.data
    if isinstance(data, Stored) and data.encoding is (Encoding.PACKED if narrow else Encoding.PLAIN):
        return data.bytes
    return read(locate(tensor)[0], form="packed" if narrow else "raw", compare=False).bytes


def _reference(offset: int, size: int) -> bytes:
    """Return the fields of a TensorProto whose elements are in the file of weights."""
    place = (("location", WEIGHTS), ("offset", str(offset)), ("length", str(size)))
    entries = (_field(1, key.encode()) + _field(2, value.encode()) for key, value in place)
    return (
        b"".join(_field(_EXTERNAL_DATA, entry) for entry in entries)
        + varints.write(_LOCATION << 3)
        + varints.write(EXTERNAL)
    )


def _field(number: int, content: bytes) -> bytes:
    """Return a field with content of a length."""
    return varints.write(number << 3 | 2) + varints.write(len(content)) + content
