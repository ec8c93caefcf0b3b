"""The two models that are compared: their files, local or read by range, with digests of pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Protocol

from protoslice import _core, schema
from protoslice.cli.comparing.fetched import Fetched, LocalPieces
from protoslice.cli.comparing.shifts import Local
from protoslice.cli.models.files import NamedFiles, named_files
from protoslice.cli.models.remote import client_of
from protoslice.cli.models.types import RootType
from protoslice.cli.terminal.progress import Progress
from protoslice.comparing.differences import ComparedModel, steps_of_differences
from protoslice.comparing.equality import Equality, PieceList, unverified_by
from protoslice.errors import CorruptModel, NoRoot, Unsupported
from protoslice.facts import Difference, Piece
from protoslice.library.models import LocalModel, open_files
from protoslice.library.proto import Proto, Split
from protoslice.pieces import cut, extents_of
from protoslice.references import address_of, is_address
from protoslice.sources.source import RangeSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model


class ComparedFiles(ComparedModel, Protocol):
    """A model of the command line, whose files may be fetched from a service."""

    @property
    def fetched(self) -> bool:
        """True if reading the model costs more than time."""

    def cuts(self, source: RangeSource) -> PieceList | None:
        """The pieces of one of its files; None where nobody needs to be told."""


def differences(before: ComparedFiles, after: ComparedFiles) -> Iterator[Difference]:
    """In what `after` differs from `before`; nothing where both are the same, byte for byte."""
    with Progress("comparing") as progress:
        local = not (before.fetched or after.fetched)
        stored = sum(source.size for side in (before, after) for source in side.files.values())
        equality = Equality(unverified_by(before.cuts, after.cuts), progress.advance, local=local, stored=stored)
        yield from (found for found in steps_of_differences(before, after, equality) if found is not None)


@contextmanager
def both_sides(names: tuple[str, str], root: RootType) -> Iterator[tuple[ComparedFiles, ComparedFiles]]:
    """The models that both names mean. What of a store lies in a local one too is not fetched."""
    near, stores, sides = LocalPieces(), dict[str, tuple[Any, Any]](), dict[str, ComparedFiles]()
    with ExitStack() as held:
        for name in filter(is_address, dict.fromkeys(names)):
            address = address_of(name)
            client = held.enter_context(client_of(address.service))
            stores[name] = client, client.store(address.ref, names=False)
        other = next((store for _, store in stores.values()), None)
        for name in dict.fromkeys(names):
            if name not in stores:
                sides[name] = _Local(held.enter_context(named_files(name, root)), other, near, held)
        for name, (client, store) in stores.items():
            sides[name] = _Remote(client, store, near, held)
        yield sides[names[0]], sides[names[1]]


def _split_like(store: Any, proto: Proto) -> Split:
    """The chunks that the service would make of `proto` as it did for `store`."""
    keep = store.planner is not None and _core.Plan.is_kept_version(store.planner)
    sizes = {"min_chunk": store.min_chunk, "max_chunk": store.max_chunk}
    return (keep and proto.own_chunks) or proto.split(**sizes, rules=store.rules)


class _Local:
    fetched = False

    def __init__(self, place: NamedFiles, other: Any, near: LocalPieces, held: ExitStack) -> None:
        try:
            opened = held.enter_context(place.open_model())
        except NoRoot:  # a folder without a root counts as its files
            opened = LocalModel(Model("", None, place.files, None))
        self.model, self._proto = opened.model, opened.proto
        self.root = self.model.root or None
        self.serialized = _is_serialized(opened)
        self.tensors = _tensors_of(opened)
        found = self.model.files
        named = {self.model.root, *(tensor.file for tensor in self.tensors if tensor.file)}
        counting = found if place.named is None else named
        self.files = {path: found[path] for path in counting if path in found}
        self._cuts = {} if other is None else self._cut_up(other, near)

    def sha256(self, path: str) -> None:
        """See `ComparedModel.sha256`."""

    def cuts(self, source: RangeSource) -> PieceList | None:
        return self._cuts.get(id(source))

    def _cut_up(self, other: Any, near: LocalPieces) -> dict[int, PieceList]:
        """The pieces of all files, cut as the service cuts those of its stores."""
        found = {}
        with Progress("digesting", sum(file.size for file in self.files.values())) as progress:
            for path, file in self.files.items():
                extents: list[tuple[int, int]] = []
                if path == self.root and self._proto is not None:
                    extents = list(extents_of(_split_like(other, self._proto).plan))
                pieces = list(_digested(path, file, extents, progress))
                found[id(file)] = PieceList(pieces)
                near.add("" if path == self.root else path, Local(file, found[id(file)]))
        return found


def _digested(path: str, file: RangeSource, extents: Iterable[tuple[int, int]], progress: Progress) -> Iterator[Piece]:
    for offset, data in cut(file.size, extents, lambda start, end: file.read(start, end - start)):
        yield Piece(path, offset, len(data), hashlib.sha256(data).hexdigest())
        progress.advance(len(data))


class _Remote:
    fetched = True

    def __init__(self, client: Any, store: Any, near: LocalPieces, held: ExitStack) -> None:
        self._client, self._store, self._held = client, store, held
        self.root: str | None = store.root
        self.files = {file.path: Fetched(self, file.path, file.size, near) for file in store.files}
        self._digests = {file.path: file.sha256 for file in store.files}

    @property
    def model(self) -> Model:
        return self._opened.model

    @property
    def serialized(self) -> bool:
        return _is_serialized(self._opened)

    @cached_property
    def tensors(self) -> Tensors:
        return _tensors_of(self._opened)

    @cached_property
    def _opened(self) -> LocalModel:
        if self.root is None:
            return LocalModel(Model("", None, self.files, None))
        known = self._store.type if self._store.type in schema.bundled() and self._store.chunks else None
        return self._held.enter_context(open_files(self.files, self.root, known))

    @cached_property
    def pieces(self) -> dict[str, PieceList]:
        """Pieces that the service lists, by file."""
        found: dict[str, list[Piece]] = {path: [] for path in self.files}
        for piece in self._client.pieces(self._store.id):
            found.setdefault(piece.file, []).append(piece)
        return {path: PieceList(pieces) for path, pieces in found.items()}

    def source(self, path: str) -> RangeSource:
        """The file as the service has it."""
        source: RangeSource = self._client.source(self._store.id, f"files/{path}", lean=True)
        return source

    def sha256(self, path: str) -> str | None:
        return self._digests.get(path)

    def cuts(self, source: RangeSource) -> PieceList | None:
        return source.cuts if isinstance(source, Fetched) else None


def _is_serialized(model: LocalModel) -> bool:
    return model.proto is not None and model.proto.form == "serialized"


def _tensors_of(model: LocalModel) -> Tensors:
    try:
        return model.tensors
    except (Unsupported, CorruptModel):  # a proto that is no model: its parts are compared
        return Tensors.of([])
