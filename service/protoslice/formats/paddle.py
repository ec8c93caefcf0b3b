"""Paddle's models: a program in protobuf or JSON, and the files with its parameters."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from protoslice import _core, schema
from protoslice.detection import TEXT, magic
from protoslice.errors import CorruptModel, LimitExceeded, Unsupported
from protoslice.facts import Kind, Signature, SignatureTensor
from protoslice.formats.messages import TensorBuilder, check_ends, parsed, resolve_location
from protoslice.formats.paddle_files import Blob, Heads, details_of, dtype_of, number_of, stored
from protoslice.formats.uses import Fields, Look, kind_named, kinds_in, operator_of, role_named
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Data, MissingFile, Model, RootProto, Tensor, Use

PROGRAM: Final = magic.PROGRAM
_VARIABLE: Final = "paddle.framework.proto.VarDesc"
_OPERATOR: Final = "paddle.framework.proto.OpDesc"
_SIDES: Final = ("inputs", "outputs")
_SMALL_FIELD: Final = 1 << 16
_MOST_JSON: Final = 16 << 20
_MOST_DEEP: Final = 50

_DENSE, _ROWS = 7, 8
_NOT_SAVED: Final = frozenset({9, 10, 15, 17})
"""The kinds of persistable variables that no file holds: feeds, fetches, readers and raw state."""

_JSON_TYPES: Final = {
    "bool": "BOOL", "i8": "I8", "ui8": "U8", "i16": "I16", "i32": "I32", "i64": "I64", "f16": "F16", "bf16": "BF16",
    "f32": "F32", "f64": "F64", "c64": "C64", "c128": "C128", "f8e4m3fn": "F8_E4M3FN", "f8e5m2": "F8_E5M2",
}  # fmt: skip


_DENSE_JSON: Final = "0.t_dtensor"
_RAW: Final = 17
_TEXT, _BLOCK = 2, 8
_ATTRIBUTES: Final[Mapping[type, tuple[tuple[str, int], tuple[str, int]]]] = {
    bool: (("b", 6), ("bools", 7)),
    int: (("l", 9), ("longs", 11)),
    float: (("float64", 15), ("float64s", 12)),
    str: (("s", _TEXT), ("strings", 5)),
}
"""A map from Python types of JSON values to fields of an attribute.

Each entry has two pairs of a field and a type number: for a single value, and for a list of values.
"""
_NAMED: Final = frozenset({"data", "feed", "fetch"})
"""The operations whose `name` attribute is the name of an input or output of the program."""
_MOST_TRANSLATED: Final = 64 << 20
"""The byte limit for all names of values in a program that is translated from JSON."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A parameter as its program declares it."""

    name: str
    path: str
    """The path of the declaration in the program."""
    dtype: Dtype | None
    """The dtype; None if the program states no type or an unknown type."""
    shape: tuple[int, ...] | None
    """The length of each dimension, or -1 for any length; None if the program states no shape."""
    rows: bool = False
    """True for Paddle's selected rows, a tensor that stores only some of its rows."""
    odd: int | None = None
    """Paddle's number for a kind of variable that is not a tensor; None for tensors."""


def variables(model: Model) -> list[Variable]:
    """Return the parameters of the program at the root of `model`, sorted by name.

    A file that holds all parameters has the same order.
    """
    declared = _of_json(model.file(model.root)) if model.proto is None else _of_proto(model)
    first: dict[str, Variable] = {}
    for variable in declared:
        first.setdefault(variable.name, variable)
    return [first[name] for name in sorted(first)]


def is_json(model: Model) -> bool:
    """Return True when the root of `model` begins like a JSON program of Paddle 3."""
    return model.proto is None and (model.detection.kind, model.detection.type_name) == ("json", PROGRAM)


def json_as_proto(source: RangeSource, limits: _core.Limits | None = None) -> RootProto:
    """Translate the JSON program in `source` to a `ProgramDesc` with blocks, operators and types of values.

    Raise `CorruptModel` for a malformed program, and `LimitExceeded` for a program that is too large.
    """
    translation = _Translation()
    with _reading_json():
        translation.add(_program_in(source), -1, 0)
        image = _core.Rope([translation.program.SerializeToString(deterministic=True)])
    flat = schema.bundled().flat(PROGRAM)
    index = _core.index_source([], image, flat, PROGRAM, limits=limits)
    return RootProto(_core.Document(_core.Index(index), flat, [], image, limits=limits), [])


def signature(proto: RootProto) -> tuple[Sequence[Signature], int]:
    """Return the inputs and outputs of a program, and the number of bytes read for them.

    Raise `LimitExceeded` if their names and declarations take more than 4 MiB. A name that is listed twice counts
    twice.
    """
    operator, ends, size, listed = schema.bundled().message_class(_OPERATOR), dict[str, list[str]](), 0, 0
    for each in proto.document.find([_OPERATOR], small=_SMALL_FIELD):
        found, size = parsed(operator, each), size + len(each.skeleton)
        if found.type in {"feed", "data", "fetch"}:
            named = any(attribute.name == "name" for attribute in found.attrs)  # Paddle 3 names its results
            slots = found.outputs if named or found.type != "fetch" else found.inputs
            names = [name for slot in slots for name in slot.arguments]
            check_ends(listed := listed + sum(map(len, names)))
            ends.setdefault(_SIDES[found.type == "fetch"], []).extend(names)
    wanted = Counter(name for names in ends.values() for name in names)
    variable, declared = schema.bundled().message_class(_VARIABLE), dict[str, Variable]()
    for each in proto.document.find([_VARIABLE], small=_SMALL_FIELD):
        found, size = parsed(variable, each), size + len(each.skeleton)
        if found.name in wanted:
            check_ends(listed := listed + wanted[found.name] * len(each.skeleton))
            declared[found.name] = _declared(found, each.path)
    inputs, outputs = (tuple(_end(name, declared.get(name)) for name in ends.get(side, ())) for side in _SIDES)
    return [Signature("main", "", (), inputs, outputs)], size


def _end(name: str, variable: Variable | None) -> SignatureTensor:
    if variable is None or variable.shape is None:
        return SignatureTensor(name, name, None, None)
    shape = tuple(None if length < 0 else length for length in variable.shape)
    return SignatureTensor(name, name, None if variable.dtype is None else variable.dtype.name, shape)


def kinds_of(model: Model) -> Mapping[str, Kind]:
    """Return the kind of each parameter by name. The operators that use a parameter determine its kind."""
    return kinds_in(
        model.proto or json_as_proto(model.file(model.root)),
        _OPERATOR,
        Fields(name=[], op=[3], inputs=[1, 2], outputs=[2, 2], reassigned=True),
        lambda op: operator_of("matmul" if op == "mul" else op),
    ).values


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
    with _reading_json():
        yield from _in_regions(_program_in(source), "program", 0)


def _program_in(source: RangeSource) -> Any:
    if source.size > _MOST_JSON:
        raise LimitExceeded(f"A JSON program of {source.size} bytes is too large: at most {_MOST_JSON} allowed")
    return json.loads(source.read(0, source.size))["program"]


@contextmanager
def _reading_json() -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CorruptModel(f"Not a program in Paddle 3's JSON format: {error!r:.200}") from error


def _in_regions(holder: Any, path: str, depth: int) -> Iterator[Variable]:
    """Yield the parameters at any depth in the regions of `holder`, a program or an operation."""
    if depth > _MOST_DEEP:
        raise ValueError("the blocks of the program are nested too deeply")
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
    return Variable(name, path, _json_dtype(kind), tuple(shape))


def _json_dtype(kind: Any) -> Dtype | None:
    return DTYPES.get(_JSON_TYPES.get(kind["#"].removeprefix("0.t_"), ""))


class _Translation:
    """A translator that makes a protobuf program from the regions of a JSON program."""

    def __init__(self) -> None:
        self.program: Any = schema.bundled().message_class(PROGRAM)()
        self._names: dict[int, str] = {}
        """The names of values by number. A value without a name gets a name of `%` and its number."""
        self._room = _MOST_TRANSLATED

    def add(self, holder: Any, parent: int, depth: int) -> list[int]:
        """Append the blocks in the regions of `holder` to the program, and return the numbers of these blocks."""
        if depth > _MOST_DEEP:
            raise ValueError("the blocks of the program are nested too deeply")
        added = list[int]()
        for each in (block for region in holder.get("regions", ()) for block in region["blocks"]):
            number = len(self.program.blocks)
            added.append(number)
            block = self.program.blocks.add(idx=number, parent_idx=parent)
            for value in each.get("args", ()):
                self._declare(block, value)
            for operation in each["ops"]:
                self._operation(block, operation, depth)
        return added

    def _operation(self, block: Any, operation: Any, depth: int) -> None:
        kind, made = operation["#"], operation.get("O", ())
        if kind == "p":
            *_, name = operation["A"]
            self._declare(block, made, name).persistable = True
            return
        attributes = {str(each["N"]): each["AT"] for each in operation.get("A", ())}
        kind = kind.partition(".")[2] or kind  # the part before the dot is a dialect number
        name = attributes.get("name", {}).get("D") if kind in _NAMED else None
        op = block.ops.add(type=_utf8(kind))
        for slot, value in enumerate(operation.get("I", ())):
            if value["%"]:  # the number 0 means that an optional input is absent
                op.inputs.add(parameter=str(slot), arguments=[self._name(value["%"])])
        for slot, value in enumerate(made):
            if value["%"]:
                op.outputs.add(parameter=str(slot), arguments=[self._declare(block, value, name).name])
        for key, value in attributes.items():
            _set(op.attrs.add(name=_utf8(key)), value.get("D"))
        for number in self.add(operation, block.idx, depth + 1):
            op.attrs.add(name=f"block_{number}", type=_BLOCK, block_idx=number)

    def _declare(self, block: Any, value: Any, name: str | None = None) -> Any:
        """Add a variable for a value to a block, and return the variable."""
        number, described = value["%"], value.get("TT", {})
        if name is not None:
            self._names[number] = _utf8(name)
        variable = block.vars.add(name=self._name(number))
        variable.type.type = _RAW
        if described.get("#") == _DENSE_JSON:
            kind, shape, *_ = described["D"]
            dtype = _json_dtype(kind)
            if dtype is not None:
                variable.type.type = _DENSE
                variable.type.dense_tensor.tensor.data_type = number_of(dtype)
                variable.type.dense_tensor.tensor.dims.extend(shape)
        return variable

    def _name(self, number: Any) -> str:
        if type(number) is not int:
            raise TypeError(f"{number!r:.50} is not the number of a value")
        name = self._names.get(number, f"%{number}")
        self._room -= len(name)  # each use of a value repeats the value's name
        if self._room < 0:
            raise LimitExceeded(f"The names of values in a JSON program take more than {_MOST_TRANSLATED} bytes")
        return name


def _set(attribute: Any, value: Any) -> None:
    """Set an operator's attribute to a JSON value. A value that no protobuf field can hold becomes text."""
    is_list = isinstance(value, list)
    given = value if is_list else [value]
    items: list[Any] = [each.get("D") if isinstance(each, dict) else each for each in given]
    kinds = {type(each) for each in items}
    fits = all(-(1 << 63) <= each < 1 << 63 for each in items if type(each) is int)
    fields = _ATTRIBUTES.get(kinds.pop()) if fits and len(kinds) == 1 else None
    if fields is None:
        attribute.type, attribute.s = _TEXT, json.dumps(value)
        return
    name, attribute.type = fields[is_list]
    items = [_utf8(each) if isinstance(each, str) else each for each in items]
    if is_list:
        getattr(attribute, name).extend(items)
    else:
        setattr(attribute, name, items[0])


def _utf8(text: str) -> str:
    """Return `text` with lone surrogates, which JSON may contain, replaced by escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


_KIND: Final = "parameter"
_MODEL: Final = "__model__"
_PARAMETERS: Final = "__params__"
_ENDING: Final = ".pdiparams"


class Paddle:
    """The format of Paddle's inference models: `.pdmodel`, `__model__`, and the `.json` of Paddle 3."""

    name = "paddle"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a Paddle program in protobuf or JSON."""
        return is_json(model) if model.proto is None else model.type == PROGRAM

    def tensors(self, model: Model) -> Tensors:
        """Return all parameters, sorted by name.

        If one file holds all parameters, this call reads all headers in it. If each parameter has a separate file, the
        file's header is read when the tensor is accessed.
        """
        wanted = variables(model)
        combined = next((path for path in _combined(model.root) if path in model.files), None)
        if combined is not None and wanted:
            source, blobs = model.files[combined], list(_from_one(model.files[combined], combined, wanted))
            return Tensors(
                len(wanted),
                lambda number: _in_one(source, combined, wanted[number], blobs[number]),
                lambda number: _called(wanted[number]),
            )
        return Tensors(
            len(wanted),
            lambda number: _from_own(model, wanted[number]),
            lambda number: _called(wanted[number]),
        )

    def uses(self, model: Model, found: Tensors) -> Look:
        """Return a function that finds a parameter's role and kind.

        The role follows from the name, and the kind from the operators that use the parameter.
        """
        kinds = kinds_of(model)

        def use(tensor: Tensor) -> Use:
            role = role_named(tensor.name, tensor.dtype)
            kind = kinds.get(tensor.name) or kind_named(tensor.name, tensor.rank)
            return Use(role, kind)

        return use


def _combined(root: str) -> Sequence[str]:
    """Return the two paths at which the file with all parameters may be."""
    folder, name = posixpath.split(root)
    for ending in (*TEXT, ".pb"):
        name = name.removesuffix(ending)
    stem = name.removesuffix(".json").removesuffix(".pdmodel")
    return posixpath.join(folder, stem + _ENDING), posixpath.join(folder, _PARAMETERS)


def _from_one(source: RangeSource, path: str, wanted: Sequence[Variable]) -> Iterator[Blob]:
    """Yield the blobs of a file with all parameters. The file has no names, so the order must be that of `wanted`.

    Raise `CorruptModel` if a blob does not match its variable, and if the file is too short or too long.
    """
    _refuse_pickle(source, path)
    heads = Heads(source, path)
    for variable in wanted:
        start = heads.at
        if variable.odd is not None or variable.rows:
            raise CorruptModel(
                f"{variable.name!r} is not a tensor, so it cannot be stored in a combined file", path=path
            )
        if start == heads.size:
            raise CorruptModel(
                f"The file ends before {variable.name!r}: it should have {len(wanted)} tensors",
                start,
                path,
            )
        blob = heads.next()
        if (problem := _misfit(blob, variable)) is not None:
            raise CorruptModel(f"{problem}: the program and this file do not have the same parameters", start, path)
        yield blob
    heads.finish()


def _in_one(source: RangeSource, path: str, variable: Variable, blob: Blob) -> Tensor:
    """Return the tensor of `variable`. Its elements are in `blob`, which is in a file with all parameters."""
    name, address = _called(variable)
    details = partial(details_of, source, path, blob)
    return Tensor(name, address, blob.dtype, blob.shape, _KIND, path, stored(source, blob), details)


def _called(variable: Variable) -> tuple[str, str]:
    return variable.name, f"path:{variable.path}"


def _from_own(model: Model, variable: Variable) -> Tensor:
    """Return the tensor of `variable`, which is in a file with the variable's name. This call reads the file's header.

    If an error occurs, the data of the tensor is `Unreadable`.
    """
    builder = TensorBuilder(variable.name, variable.path, _KIND, None, variable.dtype, variable.shape)
    return builder.tensor(lambda builder: _own(model, variable, builder))


def _own(model: Model, variable: Variable, builder: TensorBuilder) -> Data:
    if builder.shape is not None and min(builder.shape, default=0) < 0:
        builder.shape = None  # a dimension has any length; the file's header has the actual shape
    if variable.odd is not None:
        raise Unsupported(f"A variable of Paddle's type number {variable.odd} is not a tensor")
    path = resolve_location(model.root, variable.name)
    if path not in model.files:
        together = "" if _MODEL in model.root else f", and no file {_combined(model.root)[0]!r} for all parameters"
        raise MissingFile(f"The model has no file {path!r} for this parameter{together}", path)
    builder.file = path
    source = model.file(path)
    _refuse_pickle(source, path)
    heads = Heads(source, path)
    blob = heads.next(rows=variable.rows)
    heads.finish()
    if (problem := _misfit(blob, variable)) is not None:
        raise CorruptModel(problem, path=path)
    builder.dtype, builder.shape = blob.dtype, blob.shape
    builder.details = partial(details_of, source, path, blob, rows=variable.rows)
    return stored(source, blob)


def _misfit(blob: Blob, variable: Variable) -> str | None:
    """Return a description of the mismatch between `blob` and `variable`; None if they match."""
    same = variable.shape is None or (
        len(variable.shape) == len(blob.shape)
        and all(due in (-1, found) for due, found in zip(variable.shape, blob.shape, strict=True))
    )
    if same and variable.dtype in (None, blob.dtype):
        return None
    due = f"{variable.dtype.name if variable.dtype else ''} {list(variable.shape or ())}".strip()
    return f"The data is {blob.dtype.name} {list(blob.shape)}, but {variable.name!r} should be {due}"


def _refuse_pickle(source: RangeSource, path: str) -> None:
    head = source.read(0, min(2, source.size))
    if head[:1] == b"\x80" and b"\x02" <= head[1:] <= b"\x05":
        raise Unsupported(f"{path!r} is a Python pickle, which is never loaded: save the parameters for inference")
