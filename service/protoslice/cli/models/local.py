"""Models in local files, as the verbs see them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import cached_property

from protoslice import LocalModel, Proto, Rope
from protoslice._core import DEFAULT_FLOOR
from protoslice.cli.models.extent import extent_of
from protoslice.cli.models.files import STDIO, opened, opened_model
from protoslice.cli.models.subjects import ChunkPolicy, PathContent, TreeListing
from protoslice.defaults import MAX_CHUNK, MIN_CHUNK
from protoslice.errors import Unsupported
from protoslice.facts import TensorEntry
from protoslice.formats.model import Model
from protoslice.formats.model import RootProto as Root
from protoslice.formats.outputs.listing import entry_of
from protoslice.formats.outputs.safetensors import safetensors
from protoslice.indexing import SMALLEST_FLOOR
from protoslice.models import model_around
from protoslice.sources import FileSource

__all__ = ["LocalSubject"]

_BIGGEST = 10
_SHOWN_SHARE = 0.001


class LocalSubject:
    """The proto in a file, and the model that it is the root of."""

    def __init__(self, name: str, type_name: str | None, floor: int, held: ExitStack) -> None:
        self._name = name
        self._type = type_name
        self._floor = floor
        self._held = held

    @classmethod
    @contextmanager
    def opened(cls, name: str, type_name: str | None, *, close_look: bool = False) -> Iterator[LocalSubject]:
        """The subject in the file `name`, closed in the end; a directory counts for its tensors."""
        with ExitStack() as held:
            yield cls(name, type_name, _floor(name) if close_look else DEFAULT_FLOOR, held)

    @cached_property
    def proto(self) -> Proto:
        """The proto of the model's root."""
        return self._held.enter_context(opened(self._name, self._type, floor=self._floor))

    @cached_property
    def _model(self) -> LocalModel:
        return self._held.enter_context(opened_model(self._name, self._type))

    def facts(self) -> dict[str, object]:
        """See `Subject.facts`."""
        try:
            proto = self.proto
        except Unsupported:
            if (told := self._facts_of_tensors()) is None:
                raise
            return told
        biggest = [part for part in proto.largest(_BIGGEST) if part.size >= proto.size * _SHOWN_SHARE]
        extent = extent_of(self._name, self._held.enter_context(_around(self._name, proto)), proto.sources[0].size)
        return {
            "file": self._name,
            "type": proto.type,
            **asdict(extent),
            "proto_size": proto.size,
            "form": proto.form,
            "chunks": len(proto.split()),
            "index_size": len(proto.index_bytes),
            "why": proto.why,
            "biggest": [asdict(part) for part in biggest],
        }

    def _facts_of_tensors(self) -> dict[str, object] | None:
        """Facts about a root that is no proto, such as the index of a bundle; None for one without tensors."""
        try:
            tensors = sorted(self._model, key=lambda tensor: -(tensor.size or 0))
        except Unsupported:
            return None
        model = self._model.model
        return {
            "file": self._name,
            "type": model.type,
            **asdict(extent_of(self._name, self._model, model.files[model.root].size)),
            "proto_size": None,
            "form": "other",
            "chunks": 0,
            "index_size": 0,
            "why": f"no proto, but it tells of {len(tensors)} tensors",
            "biggest": [
                {"path": each.name, "size": each.size, "count": None} for each in tensors[:_BIGGEST] if each.size
            ],
        }

    def tree(self, path: str, limit: int) -> TreeListing:
        """See `Subject.tree`."""
        return TreeListing(self.proto.tree(path, limit=limit), self.proto.count(path))

    def chunks(self, policy: ChunkPolicy) -> Iterable[dict[str, object]]:
        """See `Subject.chunks`."""
        fields = ("index", "kind", "type", "path", "size")
        split = self.proto.split(min_chunk=policy.min_chunk or MIN_CHUNK, max_chunk=policy.max_chunk or MAX_CHUNK)
        return [{name: getattr(chunk, name) for name in fields} for chunk in split]

    def part(self, path: str, fields: Sequence[str] | None = None, omit_larger_than: int | None = None) -> PathContent:
        """See `Subject.part`."""
        view = self.proto.merge(path, fields, omit_larger_than)
        return PathContent(view, view.kind)

    def tensors(self, name: str | None, dtype: str | None) -> Iterator[TensorEntry]:
        """See `Subject.tensors`."""
        return (entry_of(tensor) for tensor in self._model.matching(name, dtype))

    def tensor(self, name: str, slice_: str | None, form: str) -> Rope:
        """See `Subject.tensor`."""
        return self._model.read(name, slice_, form)

    def safetensors(self, name: str | None) -> Rope:
        """See `Subject.safetensors`."""
        file = safetensors(self._model.matching(name))
        return Rope(file.rope, file.sources)


def _around(name: str, proto: Proto) -> LocalModel:
    """The model whose root is `proto`; of standard input nothing is known but that."""
    source = proto.sources[0]
    if os.path.isdir(name) and isinstance(source, FileSource):
        return model_around(proto, name, os.path.relpath(source.path, name))
    if name == STDIO:
        return LocalModel(Model(STDIO, proto.type, {}, Root(proto.document, proto.sources)), proto, ExitStack())
    return model_around(proto, os.path.dirname(name) or ".", os.path.basename(name))


def _floor(file: str) -> int:
    """Least size of messages to be told apart: the smaller the file, the closer the look."""
    size = os.path.getsize(file) if os.path.isfile(file) else DEFAULT_FLOOR
    return min(DEFAULT_FLOOR, max(SMALLEST_FLOOR, size // 1000))
