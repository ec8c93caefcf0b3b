"""Parameter files of Paddle without a program: types and shapes by their heads, names by a list."""

from __future__ import annotations

import posixpath
from array import array
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.model import Data, Model, Tensor, Tensors
from protoslice.formats.paddle.blobs import Heads, details_of, stored
from protoslice.formats.tensors.drafts import TensorDraft
from protoslice.schema.detection.detect import HEAD
from protoslice.schema.detection.paddle import has_rows, is_parameters
from protoslice.sources.source import RangeSource

_KIND: Final = "parameter"
_NAMES: Final = ".names"
_JOINED: Final = (".pdiparams", "__params__")
"""Endings of files that are called like their model, not like a tensor."""
_MOST: Final = 1 << 18
"""Limit of tensors in a file: their heads are read one after the other."""
_MOST_NAMES: Final = 16 << 20
_MOST_FILES: Final = 4096
"""Limit of the files whose heads are read in search of parameters."""


class PaddleParameters:
    """Parameter files without a program: one file of any number of tensors, or several of one each."""

    name = "paddle parameters"

    def wants(self, model: Model) -> bool:
        """True when the root is a parameter file."""
        return model.proto is None and model.root in model.files and is_parameters(_head(model.files[model.root]))

    def tensors(self, model: Model) -> Tensors:
        """All tensors in the order of the file, or, where it holds one, of all such files by name.

        `CorruptModel` for a damaged head and for names that are not as many as the tensors, `LimitExceeded` for more
        than 262,144 tensors.
        """
        source = model.beside(model.root)
        rows = has_rows(_head(source))
        starts = _starts(source, model.root, rows=rows)
        if len(starts) == 1 and len(paths := _apart(model)) > 1:
            return _in_files(model, paths)
        names = _names(model.files, model.root, len(starts))

        def make(number: int) -> Tensor:
            blob = Heads(source, model.root, starts[number]).next(rows=rows)
            name, address = called(number)
            details = partial(details_of, source, model.root, blob, rows=rows)
            return Tensor(name, address, blob.dtype, blob.shape, _KIND, model.root, stored(source, blob), details)

        def called(number: int) -> tuple[str, str]:
            path = f"tensor[{number}]"
            return names[number] if names else path, f"path:{path}"

        return Tensors(len(starts), make, called)


def _apart(model: Model) -> Sequence[str]:
    """Paths of all parameter files of the model, sorted, each of one tensor by its name.

    Only the root where its name says that it holds all tensors. `LimitExceeded` for more than 4096 files.
    """
    if model.root.endswith(_JOINED) or model.root + _NAMES in model.files:
        return [model.root]
    paths = [path for path in model.files if not path.endswith((*_JOINED, _NAMES))]
    if len(paths) > _MOST_FILES:
        raise LimitExceeded(
            f"The model has {len(paths)} possible parameter files, but at most {_MOST_FILES} are checked"
        )
    return sorted(path for path in paths if path == model.root or is_parameters(_head(model.files[path])))


def _in_files(model: Model, paths: Sequence[str]) -> Tensors:
    """The tensor of each file, by its path below their common folder; an error becomes a Fault."""
    folder = posixpath.join(posixpath.commonpath([posixpath.dirname(path) for path in paths]), "")

    def make(number: int) -> Tensor:
        name, address = called(number)
        draft = TensorDraft(name, address.removeprefix("path:"), _KIND, paths[number])
        return draft.tensor(lambda draft: _alone(model.beside(paths[number]), draft))

    def called(number: int) -> tuple[str, str]:
        return paths[number].removeprefix(folder), f"path:tensor[{number}]"

    return Tensors(len(paths), make, called)


def _alone(source: RangeSource, draft: TensorDraft) -> Data:
    """The elements of the only tensor in a file."""
    path, rows, heads = str(draft.file), has_rows(_head(source)), Heads(source, str(draft.file))
    blob = heads.next(rows=rows)
    heads.finish()
    draft.dtype, draft.shape = blob.dtype, blob.shape
    draft.details = partial(details_of, source, path, blob, rows=rows)
    return stored(source, blob)


def _head(source: RangeSource) -> bytes:
    return source.read(0, min(source.size, HEAD))


def _starts(source: RangeSource, path: str, *, rows: bool) -> Sequence[int]:
    """Offsets of all tensors of the file."""
    heads, starts = Heads(source, path), array("Q")
    while heads.at < heads.size:
        if len(starts) == _MOST:
            raise LimitExceeded(f"The file contains more than {_MOST} tensors", heads.at, path)
        starts.append(heads.at)
        heads.next(rows=rows)
        if rows:
            heads.finish()
    return starts


def _names(files: Mapping[str, RangeSource], path: str, count: int) -> Sequence[str]:
    """Names of the `count` tensors; empty if unknown.

    The file of names beside the parameters gives them, one in each line; a tensor alone in its file is called like it.
    """
    listed = files.get(path + _NAMES)
    if listed is None:
        return [posixpath.basename(path)] if count == 1 and not path.endswith(_JOINED) else []
    if listed.size > _MOST_NAMES:
        raise LimitExceeded(
            f"A list of names may have at most {_MOST_NAMES} bytes, but this one has {listed.size}", path=path
        )
    try:
        names = listed.read(0, listed.size).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptModel("The list of names is not UTF-8", error.start, path + _NAMES) from error
    if len(names) != count:
        raise CorruptModel(
            f"There are {len(names)} names for {count} tensors: use one line per tensor", 0, path + _NAMES
        )
    return [name.removesuffix("\r") for name in names]
