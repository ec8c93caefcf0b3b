"""PaddlePaddle: parameters in one file or in one file each, named by the program alone."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.model import Data, MissingFile, Model, Tensor, Tensors, Use
from protoslice.formats.paddle.blobs import Blob, Heads, details_of, stored
from protoslice.formats.paddle.programs import PROGRAM, Variable, is_json, kinds_of, variables
from protoslice.formats.tensors.drafts import TensorDraft
from protoslice.formats.tensors.locations import beside
from protoslice.formats.uses import Look, kind_named, role_named
from protoslice.schema.detection.names import TEXT
from protoslice.sources.source import RangeSource

_KIND: Final = "parameter"
_MODEL: Final = "__model__"
_PARAMETERS: Final = "__params__"
_ENDING: Final = ".pdiparams"


class Paddle:
    """Inference models: `.pdmodel`, `__model__`, and the `.json` of Paddle 3."""

    name = "paddle"

    def wants(self, model: Model) -> bool:
        """True when the root is a program of Paddle, in protobuf or JSON."""
        return is_json(model) if model.proto is None else model.type == PROGRAM

    def tensors(self, model: Model) -> Tensors:
        """All parameters, sorted by name. Headers in a combined file are read now, other files on access."""
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
        """Say what parameters are for by the operators that take them."""
        kinds = kinds_of(model)

        def use(tensor: Tensor) -> Use:
            role = role_named(tensor.name, tensor.dtype)
            kind = kinds.of(tensor.name) or kind_named(tensor.name, tensor.rank)
            return Use(role, kind)

        return use


def _combined(root: str) -> Sequence[str]:
    """Candidate paths of the file with all parameters."""
    folder, name = posixpath.split(root)
    for ending in (*TEXT, ".pb"):
        name = name.removesuffix(ending)
    stem = name.removesuffix(".json").removesuffix(".pdmodel")
    return posixpath.join(folder, stem + _ENDING), posixpath.join(folder, _PARAMETERS)


def _from_one(source: RangeSource, path: str, wanted: Sequence[Variable]) -> Iterator[Blob]:
    """Blobs of a combined file, in the order of `wanted`: the file holds them without names.

    `CorruptModel` where a blob does not match its variable, and where the file is too short or too long.
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
            raise CorruptModel(f"The file ends before {variable.name!r}: {len(wanted)} tensors expected", start, path)
        blob = heads.next()
        if (problem := _misfit(blob, variable)) is not None:
            raise CorruptModel(f"{problem}: the program and this file do not have the same parameters", start, path)
        yield blob
    heads.finish()


def _in_one(source: RangeSource, path: str, variable: Variable, blob: Blob) -> Tensor:
    """The tensor of `variable` from its blob in a combined file."""
    name, address = _called(variable)
    details = partial(details_of, source, path, blob)
    return Tensor(name, address, blob.dtype, blob.shape, _KIND, path, stored(source, blob), details)


def _called(variable: Variable) -> tuple[str, str]:
    return variable.name, f"path:{variable.path}"


def _from_own(model: Model, variable: Variable) -> Tensor:
    """The tensor of `variable` from the file with its name, whose header is read; errors become a Fault."""
    draft = TensorDraft(variable.name, variable.path, _KIND, None, variable.dtype, variable.shape)
    return draft.tensor(lambda draft: _own(model, variable, draft))


def _own(model: Model, variable: Variable, draft: TensorDraft) -> Data:
    if draft.shape is not None and min(draft.shape, default=0) < 0:
        draft.shape = None  # the program leaves a dimension open; the header of the file has the shape
    if variable.odd is not None:
        raise Unsupported(f"Variables of Paddle's type number {variable.odd} are not tensors")
    path = beside(model.root, variable.name)
    if path not in model.files:
        together = "" if _MODEL in model.root else f", nor {_combined(model.root)[0]!r} with all parameters"
        raise MissingFile(f"The model has no file {path!r} with this parameter{together}", path)
    draft.file = path
    source = model.beside(path)
    _refuse_pickle(source, path)
    heads = Heads(source, path)
    blob = heads.next(rows=variable.rows)
    heads.finish()
    if (problem := _misfit(blob, variable)) is not None:
        raise CorruptModel(problem, path=path)
    draft.dtype, draft.shape = blob.dtype, blob.shape
    draft.details = partial(details_of, source, path, blob, rows=variable.rows)
    return stored(source, blob)


def _misfit(blob: Blob, variable: Variable) -> str | None:
    """The mismatch between `blob` and `variable` in words; None if they agree."""
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
