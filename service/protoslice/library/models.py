"""Models in local files or at a URI, whose tensors can be read by name and slice as ropes."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from heapq import nlargest
from html import escape
from itertools import chain
from typing import Any, Final

from protoslice import schema
from protoslice.detection import BY_NAME, Detection, look_at
from protoslice.errors import (
    CorruptModel,
    InvalidInput,
    LimitExceeded,
    NoRoot,
    NoTensor,
    NotFound,
    ProtosliceError,
    Unsupported,
)
from protoslice.facts import Neighbourhood, Signature, TensorEntry
from protoslice.formats.coreml import is_manifest
from protoslice.formats.registry import formats_of, signatures_of, tensors_of
from protoslice.formats.roots import Candidate, manifests_of, rank_lazily, tried
from protoslice.formats.tensorflow import tensors_with_tags
from protoslice.graphs import GraphQuery, Graphs, subgraph
from protoslice.library.opening import open_looked_at
from protoslice.library.proto import Proto
from protoslice.sizes import format_size
from protoslice.sources.opening import files_at
from protoslice.sources.ropes import Rope
from protoslice.sources.source import ClosedAtEnd, FileSet, RangeSource
from protoslice.tensors.arrays import LazyArray, as_array, strings_array
from protoslice.tensors.listing import Tensors, did_you_mean, entry_of, keys, no_tensor, several, single, wanted
from protoslice.tensors.model import Model, RootProto, Tensor
from protoslice.tensors.reading import ReadableTensor, read, strings
from protoslice.tensors.slices import parsed_slice

Progress = Callable[[int, int], object]
_SHOWN: Final = 10
"""Number of tensors that a notebook shows for a model."""


class OpenedModel(Mapping[str, LazyArray], ClosedAtEnd):
    """A mapping of a model's tensor names to tensors, whose elements are read only when they are used.

    The model is in files or on a service. A tensor that shares its name with another is listed by its address. Close
    the model after use, or use it in a `with` statement.
    """

    @abstractmethod
    def signatures(self, tags: Sequence[str] | None = None) -> Iterator[Signature]:
        """Yield the signatures, which describe the inputs and outputs of the model."""

    @abstractmethod
    def _entries(self) -> Iterator[TensorEntry]:
        """Yield all tensors."""

    @abstractmethod
    def _named(self, name: str) -> Sequence[TensorEntry]:
        """Return the tensors with this name, or the tensor with this address."""

    @abstractmethod
    def _elements(self, address: str, slice: str | None) -> Any:
        """Return the elements of a tensor, or of a slice of it, as a NumPy array."""

    def __getitem__(self, name: str) -> LazyArray:
        """Return the tensor with this name or address.

        Raise `NoTensor`, a `KeyError`, if no tensor matches, and `Conflict` if several match.
        """
        found = self._named(name) if isinstance(name, str) else ()
        if not found:
            hint = did_you_mean(name, (each.name for each in self._entries())) if isinstance(name, str) else None
            raise NoTensor(f"{no_tensor(name)}{f': {hint}' if hint else ''}")
        if len(found) > 1:
            raise several(name, [each.address for each in found])
        return LazyArray(found[0], partial(self._elements, found[0].address))

    def __contains__(self, name: object) -> bool:
        """Return True if exactly one tensor has this name or address."""
        return isinstance(name, str) and len(self._named(name)) == 1

    def __bool__(self) -> bool:
        return True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _repr_html_(self) -> str:
        """Return an HTML table of the largest tensors, for notebooks."""
        largest = nlargest(_SHOWN, self.values(), key=lambda tensor: tensor.facts.size or 0)
        rows = "".join(
            f"<tr><td>{escape(each.name)}</td><td>{each.facts.dtype or '?'}</td><td>{each.dimensions}</td>"
            f"<td>{format_size(each.facts.size or 0)}</td></tr>"
            for each in largest
        )
        more = f"<p>… {len(self) - _SHOWN} more</p>" if len(self) > _SHOWN else ""
        head = "<tr><th>tensor</th><th>type</th><th>shape</th><th>size</th></tr>"
        return f"<p>{escape(repr(self))}</p><table>{head}{rows}</table>{more}"


class LocalModel(OpenedModel):
    """A model in local files or at a URI, as a mapping of names to tensors; `open_model` returns it.

    If several tensors share a name, each is listed by its address.

    Args:
        model: The root and the files of the model.
        proto: The root, if it is a proto.
        held: Resources that are closed with the model.
        tags: All tags of a SavedModel's meta graph; None selects the first meta graph.

    Examples:
        >>> with protoslice.open_model("model.onnx") as model:
        ...     list(model)
        ['embedding.weight', 'attention.weight', 'feed_forward.weight', 'head.weight']
    """

    def __init__(
        self,
        model: Model,
        proto: Proto | None = None,
        held: ExitStack | None = None,
        tags: Sequence[str] | None = None,
    ) -> None:
        self._tags = tags
        self.model = model
        """The root and the files of the model."""
        self.proto = proto
        """The root if it is a proto, else None."""
        self._held = held

    @cached_property
    def tensors(self) -> Tensors:
        """All tensors, in the order of the model; the first access reads metadata, but no elements.

        Raise `Unsupported` if the model has no supported format.
        """
        found = tensors_of(self.model)
        return found if self._tags is None else tensors_with_tags(self.model, found, self._tags)

    def tagged(self, tags: Sequence[str]) -> LocalModel:
        """Return the SavedModel's meta graph that has exactly these tags; this model must stay open while it is used.

        Args:
            tags: All tags of the meta graph.

        Returns:
            A model with the tensors and variables of the meta graph. If no meta graph has these tags, the first use of
            the tensors raises `NotFound`.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     model.tagged(["serve"])
            <LocalModel 'model.onnx': onnx.ModelProto, no tensors>
        """
        return LocalModel(self.model, self.proto, tags=tags)

    def __len__(self) -> int:
        """Return the number of tensors."""
        return len(self.tensors)

    def __iter__(self) -> Iterator[str]:
        return keys(self.tensors)

    def _entries(self) -> Iterator[TensorEntry]:
        return map(entry_of, self.tensors)

    def _named(self, name: str) -> Sequence[TensorEntry]:
        return [entry_of(self.tensors[number]) for number in self.tensors.numbers(name)]

    def _elements(self, address: str, slice: str | None) -> Any:
        tensor = self.tensor(address)
        if tensor.dtype is not None and not tensor.dtype.bits:
            whole = strings_array(*strings(tensor))
            return whole if slice is None else parsed_slice(slice, whole.shape).of(whole)
        found = self.look(tensor, slice)
        data = memoryview(bytearray(found.bytes.size))
        found.bytes.readinto(data)
        return as_array(data, found.dtype.name, found.shape)

    def __repr__(self) -> str:
        return f"<LocalModel {self.model.root!r}: {self.model.type or 'unknown type'}, {_counted(self)}>"

    def signatures(self, tags: Sequence[str] | None = None) -> Iterator[Signature]:
        """Return the inputs and outputs of the model.

        Args:
            tags: All tags of a SavedModel's meta graph; None selects the first meta graph.

        Returns:
            An iterator of signatures. A SavedModel may have several, other models have one.

        Raises:
            NotFound: No meta graph has these tags.
            Unsupported: The format has no inputs and outputs.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     [len(signature.outputs) for signature in model.signatures()]
            [0]
        """
        return signatures_of(self.model, self._tags if tags is None else tags)

    def graph(self, query: GraphQuery) -> Neighbourhood:
        """Return the part of a graph around a node.

        Args:
            query: The graph, the central node, and the largest numbers of links and nodes.

        Returns:
            The nodes, and the edges between these nodes.

        Raises:
            NotFound: There is no such graph or node.
            Unsupported: The model has no graph.

        Examples:
            >>> from protoslice.graphs import GraphQuery
            >>> with protoslice.open_model("model.onnx") as model:
            ...     [node.name for node in model.graph(GraphQuery(around="attention", hops=1)).nodes]
            ['attention', 'embedding', 'feed_forward']
        """
        return subgraph(self._graphs, query, self._is_tensor)

    @cached_property
    def _graphs(self) -> Graphs:
        return Graphs(self.model)

    def _is_tensor(self, name: str) -> bool:
        try:
            return bool(self.tensors.numbers(name))
        except (Unsupported, NotFound, LimitExceeded):
            return False

    def tensor(self, name: str) -> Tensor:
        """Return the tensor with a name or an address.

        Args:
            name: Name or address.

        Returns:
            The tensor, with its facts and the place of its bytes.

        Raises:
            NotFound: There is no such tensor.
            Conflict: Several tensors have this name.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     model.tensor("head.weight").shape
            (250000,)
        """
        return single(self.tensors, name)

    def matching(self, name: str | None = None, dtype: str | None = None) -> Iterator[Tensor]:
        """Return the tensors that match a name and a data type.

        Args:
            name: Name or address, in which `*` matches any characters of a name; None matches all tensors.
            dtype: Data type such as `F32`; None matches all types.

        Returns:
            An iterator of tensors.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     [tensor.name for tensor in model.matching("head.*")]
            ['head.weight']
        """
        return filter(wanted(name, dtype), self.tensors)

    def read(self, tensor: str | Tensor, slice: str | None = None, form: str = "raw") -> Rope:
        """Return the elements of a tensor or of a slice as a rope, whose bytes are read on use.

        If `slice` is None, parts of at most 64 MiB are compared with the model's own checksums.

        Args:
            tensor: Name, address or tensor.
            slice: Text such as `0:128,:`; None selects the whole tensor.
            form: `raw` (little-endian, row-major), `npy`, `packed` or `json`.

        Returns:
            The bytes.

        Raises:
            NotFound: There is no such tensor.
            InvalidInput: The slice or the form is invalid.
            Unsupported: The tensor cannot be read in this form.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     model.read("head.weight", "0:4").size
            16
        """
        return self.look(tensor, slice, form).bytes

    def look(self, tensor: str | Tensor, slice: str | None = None, form: str = "raw") -> ReadableTensor:
        """Return the elements of a tensor or of a slice, with their data type and shape; see `read`.

        Args:
            tensor: Name, address or tensor.
            slice: Text such as `0:128,:`; None selects the whole tensor.
            form: `raw`, `npy`, `packed` or `json`.

        Returns:
            The rope, the data type and the shape.

        Raises:
            NotFound: There is no such tensor.
            InvalidInput: The slice or the form is invalid.

        Examples:
            >>> with protoslice.open_model("model.onnx") as model:
            ...     model.look("head.weight", "0:4").shape
            (4,)
        """
        found = self.tensor(tensor) if isinstance(tensor, str) else tensor
        return read(found, slice, form)

    def close(self) -> None:
        """Close the files that this model has opened."""
        if self._held is not None:
            self._held.close()


def _counted(model: LocalModel) -> str:
    try:
        return f"{len(model)} tensor{'' if len(model) == 1 else 's'}"
    except ProtosliceError:
        return "no tensors"


def open_files(
    path: str | os.PathLike[str] | Mapping[str, RangeSource],
    root: str | None = None,
    type: str | None = None,
    *,
    types: schema.MessageTypes | None = None,
    progress: Progress | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> LocalModel:
    """Open a model in the file or directory at `path`, or in a mapping of paths to sources, which remain open.

    See `protoslice.open_model` for the arguments. The files next to the root belong to the model. Raise `NoRoot` if
    no file of a directory has a supported format.
    """
    with ExitStack() as held:
        if isinstance(path, Mapping):
            files, named = path, None
        else:
            files, named = files_at(path, storage_options)
            held.callback(files.close)
        root = root or named
        chosen, found = (root, _looked_at(files, root)) if root else _likeliest(files, named=type is not None)
        is_text = found.kind == "text" and found.type_name is not None
        if not is_text and found.kind not in {"proto", "riegeli", "unknown"} and type is None:
            return LocalModel(Model(chosen, found.type_name, files, None, found), None, held.pop_all())
        name = chosen.rpartition("/")[2]
        proto = open_looked_at(files[chosen], found, name, type, types=types, progress=progress)
        held.enter_context(proto)
        root_proto = RootProto(proto.document, proto.sources)
        return LocalModel(Model(chosen, proto.type, files, root_proto), proto, held.pop_all())
    raise AssertionError("a with block that returns")  # pragma: no cover


def model_around(proto: Proto, files: Mapping[str, RangeSource], root: str) -> LocalModel:
    """Return the model of `proto`, opened from the file `root`; closing the model leaves `proto` and `files` open."""
    return LocalModel(Model(root, proto.type, files, RootProto(proto.document, proto.sources)), proto)


def root_in(folder: FileSet, type: str | None = None, progress: Progress | None = None) -> str:
    """Return the path of the model's root in `folder`, chosen as in `open_files`; raise `NoRoot` if there is none.

    `progress` receives the number of examined files, and the number of all files.
    """
    # In most folders, the first bytes of the files show which file is the root; only a doubtful candidate is indexed.
    return _likeliest(folder, named=type is not None, progress=progress)[0]


def _looked_at(files: Mapping[str, RangeSource], root: str) -> Detection:
    if root not in files:
        raise NotFound(f"The model has no file {root!r}")
    return look_at(files[root], root.rpartition("/")[2])


def _likeliest(
    files: Mapping[str, RangeSource], *, named: bool = False, progress: Progress | None = None
) -> tuple[str, Detection]:
    """Return the most likely root, chosen as the service chooses it, with its detection.

    If `named` is True, the caller has named the root's type, and the most likely file is used without a check. Raise
    `NoRoot` if no file can be a root, and `InvalidInput` if there are no files.
    """
    found: dict[str, Detection] = {}
    paths = list(files)

    def look(path: str) -> Candidate:
        found[path] = _looked_at(files, path)
        if progress is not None:
            progress(len(found), len(paths))
        return Candidate(path, found[path].kind, files[path].size)

    ranked = rank_lazily(paths, look, _manifests(files, paths))
    first = next(ranked, None)
    if first is None:
        raise InvalidInput("The directory contains no files")
    if named:
        return first.path, found[first.path]
    for candidate in tried(chain([first], ranked)):
        path = candidate.path
        if _is_root(files[path], path, found[path]):
            return path, found[path]
    raise NoRoot(f"none of the {len(found)} files is in a supported format; {first.path}: {found[first.path].why}")


def _manifests(files: Mapping[str, RangeSource], paths: Iterable[str]) -> dict[str, bytes]:
    named = [Candidate(path, "json", files[path].size) for path in paths if is_manifest(path)]
    return {each.path: files[each.path].read(0, each.size) for each in manifests_of(named)}


def _is_root(file: RangeSource, path: str, found: Detection) -> bool:
    """Return True if the file can be a root that no one has named; open the file if its detection is in doubt."""
    sure = found.kind == "proto" and found.confidence > BY_NAME
    if sure or (found.kind == "text" and found.type_name is not None):
        return True
    if found.kind not in {"proto", "riegeli", "unknown"}:
        return bool(formats_of(Model(path, found.type_name, {path: file}, None, found)))
    try:
        with open_looked_at(file, found, path.rpartition("/")[2], None):
            return found.kind != "unknown" or file.size > 0
    except (CorruptModel, LimitExceeded):
        return found.kind == "riegeli"  # a damaged chunked proto is still the root
    except Unsupported:
        return False
