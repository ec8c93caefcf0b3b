"""TensorFlow's protos: the tensors of graphs and functions, meta graphs, and signatures."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import PurePosixPath
from typing import Any, Final, overload

from google.protobuf.message import DecodeError

from protoslice import _core, schema, varints
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, NotFound, Unsupported
from protoslice.facts import Signature, SignatureTensor
from protoslice.formats.messages import ProtoFormat, TensorBuilder, content, contents, numbers, parsed, parsed_ends
from protoslice.formats.uses import Fields, Look, by_graph, kinds_in
from protoslice.schema import text_of
from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, Dtype, element_count
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import (
    Data,
    Deferred,
    Encoding,
    Filled,
    Model,
    RootProto,
    Stored,
    Strings,
    Tensor,
    Use,
)

TYPES: Final = {
    number: DTYPES[name]
    for number, name in {
        1: "F32", 2: "F64", 3: "I32", 4: "U8", 5: "I16", 6: "I8", 7: "STRING", 8: "C64", 9: "I64", 10: "BOOL",
        11: "I8", 12: "U8", 13: "I32", 14: "BF16", 15: "I16", 16: "U16", 17: "U16", 18: "C128", 19: "F16",
        22: "U32", 23: "U64", 24: "F8_E5M2", 25: "F8_E4M3FN", 26: "F8_E4M3FNUZ", 27: "F8_E4M3B11FNUZ",
        28: "F8_E5M2FNUZ", 29: "I4", 30: "U4", 31: "I2", 32: "U2", 33: "F4_E2M1",
    }.items()
}  # fmt: skip
"""A map from TensorFlow's data types to dtypes.

Quantized types map to plain integers. Resources and variants are absent, because they are not arrays.
"""

_OBJECTS: Final = {20: "resource", 21: "variant"}
_REFERENCE: Final = 100
"""The number that TensorFlow adds to a data type to mark a reference to a tensor of this type."""


def known(number: int) -> Dtype | None:
    """Return the dtype of the data type `number`; None if there is none."""
    return TYPES.get(_plain(number))


def dtype_of(number: int) -> Dtype:
    """Return the dtype of the data type `number`.

    Raise `Unsupported` for resources and variants, and `CorruptModel` for an unknown data type.
    """
    dtype = known(number)
    if dtype is not None:
        return dtype
    if _plain(number) in _OBJECTS:
        raise Unsupported(f"A tensor of TensorFlow's type {_OBJECTS[_plain(number)]} holds objects, not numbers")
    raise CorruptModel(f"TensorFlow has no data type {number}")


def _plain(number: int) -> int:
    return number - _REFERENCE if number > _REFERENCE else number


TENSOR: Final = "tensorflow.TensorProto"

_CONTENT, _STRINGS = 4, 8
_FIXED: Final = {"F32": 5, "F64": 6, "C64": 9, "C128": 12}
_INTS: Final = ("I32", "I16", "I8", "I4", "I2", "U16", "U8", "U4", "U2")
_VARINTS: Final = {
    "I64": 10, "BOOL": 11, "F16": 13, "BF16": 13, "U32": 16, "U64": 17, **dict.fromkeys(_INTS, 7)
}  # fmt: skip
_BYTES: Final = dict.fromkeys(("F8_E5M2", "F8_E4M3FN", "F8_E4M3FNUZ", "F8_E4M3B11FNUZ", "F8_E5M2FNUZ", "F4_E2M1"), 18)
"""Three maps from dtypes to field numbers. They are for fixed-width values, for varints, and for a byte per value."""
_PACKED_STRINGS: Final = 64 << 20
_LOOKED_AT: Final = 1 << 20
_EMPTY: Final = Rope.joined(())
_LONGEST: Final = 9
"""The largest number of bytes in which the length of a string is encoded."""


def _elements(proto: RootProto, found: _core.Finding, number: int, shape: Sequence[int]) -> Data:
    """Return the elements of the TensorProto `found`, whose data type is `number`.

    The last element is repeated in place of missing elements. If the TensorProto has none, all elements are zero.
    """
    dtype, count = dtype_of(number), element_count(shape)
    whole = content(proto, found, _CONTENT)
    if not dtype.bits:
        return _strings(proto, found, whole, count)
    if whole is not None and whole.size:
        return checked(Stored(whole, Encoding.BYTE_PER_ELEMENT if dtype.narrow else Encoding.PLAIN), dtype, shape)
    if not count:
        return Stored(_EMPTY)
    match _typed(proto, found, dtype):
        case None:
            return Filled(Stored(_EMPTY))
        case Deferred(look):
            return Deferred(lambda: _filled(look(), dtype, count))
        case stored:
            return _looked_at(stored, count) if dtype.name == "BOOL" else _filled(stored, dtype, count)


def _typed(proto: RootProto, found: _core.Finding, dtype: Dtype) -> Stored | Deferred[Stored] | None:
    """Return the values in the field that TensorFlow uses for `dtype`; None if the field is absent."""
    if dtype.name in _FIXED:
        return numbers(proto, found, _FIXED[dtype.name], Encoding.PLAIN)
    if dtype.name in _VARINTS:
        return numbers(proto, found, _VARINTS[dtype.name], Encoding.VARINT)
    if dtype.name not in _BYTES:
        raise Unsupported(f"No field of a TensorProto holds values of type {dtype.name}")
    values = content(proto, found, _BYTES[dtype.name])
    return None if values is None else Stored(values, Encoding.BYTE_PER_ELEMENT if dtype.narrow else Encoding.PLAIN)


def _strings(proto: RootProto, found: _core.Finding, whole: Rope | None, count: int) -> Strings:
    if whole is not None and whole.size:
        return Strings(lambda: _unpacked(whole, count))
    places = list(contents(proto, found, _STRINGS))
    if len(places) > count > 0:
        raise CorruptModel(f"The shape of a tensor needs {count} strings, but the tensor has {len(places)}")

    def read() -> Sequence[bytes]:
        values = [place.read() for place in places[:count]]
        return _Continued(values or [b""], count)

    return Strings(read)


def _filled(stored: Stored, dtype: Dtype, count: int) -> Stored | Filled:
    """Return `stored` if it has all elements; else return it with its last element repeated.

    Raise `CorruptModel` if `stored` has too many elements.
    """
    if stored.encoding is not Encoding.PLAIN:
        return Filled(stored)
    have, rest = divmod(stored.bytes.size, dtype.width)
    if rest or have > count:
        raise CorruptModel(f"{stored.bytes.size} bytes of data do not fit a tensor of {count} elements of {dtype.name}")
    return stored if have == count else Filled(stored)


def _looked_at(stored: Stored, count: int) -> Deferred[Stored | Filled] | Filled:
    """Return the booleans in `stored`, which are varints.

    If there are `count` bytes, up to 1 MiB, each byte may be an element. The result is then `Deferred`, because only
    reading the bytes decides this. Otherwise the result is `Filled`.
    """
    if stored.bytes.size != count or count > _LOOKED_AT:
        return Filled(stored)

    def look() -> Stored | Filled:
        # If all varints are single bytes of 0 or 1, the bytes are the elements in PLAIN encoding.
        plain = max(stored.bytes.read()) <= 1
        return Stored(stored.bytes) if plain else Filled(stored)

    return Deferred(look)


def _unpacked(whole: Rope, count: int) -> Sequence[bytes]:
    """Return the strings in `tensor_content`, which holds all lengths and then all strings."""
    if whole.size > _PACKED_STRINGS:
        raise LimitExceeded(f"The strings of a tensor have {whole.size} bytes; at most {_PACKED_STRINGS} are read")
    data = whole.read()
    lengths, at = lengths_of(data, count)
    if at + sum(lengths) != len(data):
        raise CorruptModel(f"The strings of a tensor should take {at + sum(lengths)} bytes, but there are {len(data)}")
    return [data[start:stop] for start, stop in pairwise(accumulate(lengths, initial=at))]


class _Continued(Sequence[bytes]):
    """A sequence of `count` values. The last stored value is repeated for positions beyond it."""

    def __init__(self, values: list[bytes], count: int) -> None:
        self._values = values
        self._count = count

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int, /) -> bytes: ...
    @overload
    def __getitem__(self, at: slice, /) -> Sequence[bytes]: ...
    def __getitem__(self, at: int | slice, /) -> bytes | Sequence[bytes]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(self._count))]
        if not 0 <= at < self._count:
            raise IndexError(at)
        return self._values[min(at, len(self._values) - 1)]


def lengths_of(data: bytes, count: int) -> tuple[list[int], int]:
    """Return the first `count` string lengths in `data`, and the offset after them.

    Raise `CorruptModel` if the lengths are truncated or too large.
    """
    lengths, at = list[int](), 0
    while len(lengths) < count:
        length, end = varints.read(data, at)
        if end < 0 or end - at > _LONGEST:
            raise CorruptModel("The lengths of a tensor's strings are truncated or too large", at)
        lengths.append(length)
        at = end
    return lengths, at


_NODE: Final = "tensorflow.NodeDef"
_CONSTANT: Final = 'attr["value"].tensor'
_FUNCTION: Final = re.compile(r"((?:.*\.)?function\[\d+\]\.|)node_def\[\d+\]\.")
_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class TensorFlow(ProtoFormat):
    """The format of TensorFlow's SavedModels, graphs and other messages."""

    name = "tensorflow"
    package = "tensorflow."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """Return all TensorProtos, at any depth."""
        return graph_tensors(model.root, proto)

    def uses(self, model: Model, found: Tensors) -> Look:
        """Return a function that finds a constant's role and kind from the nodes that use the constant.

        If the model has variables, constants are never weights.
        """
        fields = Fields(name=[1], op=[2], inputs=[3], outputs=[1], qualified=True)
        constants = kinds_in(model.proto, _NODE, fields).constants
        root = PurePosixPath(model.root)  # list no folder: it may be remote or huge
        index = {"saved_model.pb": "variables/variables.index", f"{root.stem}.meta": f"{root.stem}.index"}.get(
            root.name
        )
        has_variables = index is not None and str(root.parent / index) in model.files

        def use(tensor: Tensor) -> Use:
            constant, inside, _ = tensor.address.removeprefix("path:").rpartition(f".{_CONSTANT}")
            found = by_graph(constants.get(constant) if inside else None, tensor, weight=False)
            return Use("constant", found.kind) if has_variables else found

        return use


def graph_tensors(root: str, proto: RootProto) -> Tensors:
    """Return the tensors of all TensorProtos in `proto`. The path of its file is `root`."""
    made = _GraphTensors(root, proto)
    return Tensors(len(made.found), made.tensor, made.key)


class _GraphTensors:
    """A builder that makes tensors from the TensorProtos of one proto."""

    def __init__(self, root: str, proto: RootProto) -> None:
        self._root = root
        self._proto = proto
        self._message = schema.bundled().message_class(TENSOR)
        self.found = proto.document.find([TENSOR])
        self._functions: dict[str, str] = {}

    def tensor(self, number: int) -> Tensor:
        """Return the tensor with this number. Numbers follow the order of the proto."""
        found = self.found[number]
        builder = TensorBuilder(self._name(found), found.path, self._kind(found), self._root)
        return builder.tensor(lambda builder: self._data(builder, found))

    def _data(self, builder: TensorBuilder, found: _core.Finding) -> Data:
        message = parsed(self._message, found)
        builder.dtype = known(message.dtype)
        dims = tuple(dim.size for dim in message.tensor_shape.dim)
        if message.tensor_shape.unknown_rank:
            raise CorruptModel("A tensor has an unknown number of dimensions")
        element_count(dims)
        builder.shape = dims
        return _elements(self._proto, found, message.dtype, dims)

    def key(self, number: int) -> tuple[str, str]:
        """Return the name and the address of the tensor with this number."""
        found = self.found[number]
        return self._name(found), f"path:{found.path}"

    def _name(self, found: _core.Finding) -> str:
        """Return the name `NODE` or `FUNCTION/NODE` for the value of a node, and the path for other tensors."""
        if not _is_constant(found):
            return found.path or "tensor"
        node = text_of(found.names[-2][1])
        function = _FUNCTION.match(found.path)
        return node if function is None else f"{self._function(function[1])}/{node}"

    def _function(self, path: str) -> str:
        """Return the name of the function at `path`; empty if the name is missing or cannot be read."""
        name = self._functions.get(path)
        if name is None:
            try:
                _, _, rope = self._proto.document.view(f"{path}signature.name")
                name = text_of(Rope(rope, self._proto.sources).read())
            except OF_MODELS:
                name = ""
            self._functions[path] = name
        return name

    def _kind(self, found: _core.Finding) -> str:
        if _is_constant(found):
            return "const" if _FUNCTION.match(found.path) is None else "function_const"
        steps = _KEY.sub("", found.path).split(".")  # keys may contain dots
        if steps[-1].startswith("defaults["):
            return "signature_default"
        if any(step.startswith("attr[") for step in steps):
            return "attr"
        return "other" if found.path else "tensor"


def _is_constant(found: _core.Finding) -> bool:
    """Return True when `found` is the attribute `value` of a node, such as a Const node."""
    owner = found.names[-2:-1]
    return bool(owner) and owner[0][0] == _NODE and (f".{found.path}").endswith(f".{_CONSTANT}")


SAVED_MODEL: Final = "tensorflow.SavedModel"
META_GRAPH: Final = "tensorflow.MetaGraphDef"

_INITIAL: Final = "__saved_model_init_op"
"""The signature that only loaders call. It is not listed."""
_FIELDS: Final = [
    "meta_info_def.tags", "signature_def[*].method_name", "signature_def[*].inputs", "signature_def[*].outputs",
]  # fmt: skip


ReadSignatures = Callable[[int], tuple[Sequence[Signature], int]]
"""A function that takes the number of a graph, and returns its signatures and the number of bytes read."""


def signatures(model: Model, tags: Sequence[str] | None) -> tuple[int, ReadSignatures]:
    """Return the number of meta graphs, and a function that reads the signatures of one of them.

    If `tags` is not None, the number is 1, and the function reads the first meta graph with exactly these tags. The
    function raises `NotFound` if no meta graph has them, and `LimitExceeded` above 4 MiB. Raise `Unsupported` for any
    other root.
    """
    if model.proto is None or model.type not in {SAVED_MODEL, META_GRAPH}:
        raise Unsupported(f"Signatures of {model.type or 'such a file'} are not supported")
    proto, is_saved = model.proto, model.type == SAVED_MODEL
    count = proto.document.children("meta_graphs", 0, 0)[1] if is_saved and tags is None else 1

    def read(number: int) -> tuple[Sequence[Signature], int]:
        chosen = number if tags is None else f"meta_info_def.tags={{{','.join(map(_quoted, tags))}}}"
        path = f"meta_graphs[{chosen}]" if is_saved else ""
        graph, size = parsed_ends(proto, META_GRAPH, path, _FIELDS, path)
        has = tuple(graph.meta_info_def.tags)
        if tags is not None and set(has) != set(tags):
            raise NotFound(f"The meta graph has the tags {list(has)}, not {list(tags)}")
        found = graph.signature_def
        return [_signature(name, found[name], has) for name in sorted(found) if name != _INITIAL], size

    return count, read


def _signature(name: str, found: Any, tags: tuple[str, ...]) -> Signature:
    return Signature(name, found.method_name, tags, _tensors(found.inputs), _tensors(found.outputs))


def _tensors(found: Any) -> tuple[SignatureTensor, ...]:
    return tuple(_tensor(name, found[name]) for name in sorted(found))


def _tensor(name: str, info: Any) -> SignatureTensor:
    dtype, dims = known(info.dtype), info.tensor_shape
    shape = None if dims.unknown_rank else tuple(dim.size if dim.size >= 0 else None for dim in dims.dim)
    return SignatureTensor(name, info.name or None, dtype.name if dtype is not None else None, shape)


def _quoted(tag: str) -> str:
    return '"' + tag.replace("\\", "\\\\").replace('"', '\\"') + '"'


_MOST_BYTES: Final = 4 << 20
"""The byte limit for the tags of all meta graphs."""
_ALL: Final = "path:meta_graphs["


def tensors_with_tags(model: Model, found: Tensors, tags: Sequence[str]) -> Tensors:
    """Return the tensors of the first meta graph with exactly `tags`, and tensors that belong to no meta graph.

    Variables belong to no meta graph, for example. `found` are all tensors of the model. This call blocks. Raise
    `Unsupported` for a root without meta graphs, and `NotFound` if no meta graph has these tags.
    """
    if model.proto is None or model.type not in {SAVED_MODEL, META_GRAPH}:
        raise Unsupported(f"Only a {SAVED_MODEL} or a {META_GRAPH} has tags, not {model.type or 'such a file'}")
    if model.type == META_GRAPH:
        _number([_parsed(model.proto, META_GRAPH, "meta_info_def.tags")], tags)
        return found
    graphs = _parsed(model.proto, SAVED_MODEL, "meta_graphs[*].meta_info_def.tags").meta_graphs
    place = f"{_ALL}{_number(graphs, tags)}]"
    addresses = ((number, found.key(number)[1]) for number in range(len(found)))
    numbers = array("q", (n for n, each in addresses if each.startswith(place) or not each.startswith(_ALL)))
    places = {number: place for place, number in enumerate(numbers)}
    return Tensors(
        len(numbers),
        lambda place: found[numbers[place]],
        lambda place: found.key(numbers[place]),
        lambda name: [places[number] for number in found.numbers(name) if number in places],
    )


def _parsed(proto: RootProto, type_name: str, field: str) -> Any:
    """Return the root message with only this `field`; raise `LimitExceeded` if it has more than 4 MiB."""
    _, _, core = proto.document.view("", [field])
    if core.size > _MOST_BYTES:
        raise LimitExceeded(f"The tags have {core.size} bytes, but at most {_MOST_BYTES} are read")
    try:
        parsed: Any = schema.parsed(schema.bundled().message_class(type_name), Rope(core, proto.sources).read())
    except DecodeError as error:
        raise CorruptModel(f"The tags of the meta graphs do not parse: {error}") from error
    return parsed


def _number(graphs: Sequence[Any], tags: Sequence[str]) -> int:
    """Return the number of the first meta graph with exactly `tags`; raise `NotFound` if there is none."""
    for number, graph in enumerate(graphs):
        if set(graph.meta_info_def.tags) == set(tags):
            return number
    there = ", ".join((",".join(graph.meta_info_def.tags) or "(none)")[:100] for graph in graphs[:8])
    raise NotFound(f"No meta graph has exactly the tags {','.join(tags)[:100] or '(none)'}; available: {there}")
