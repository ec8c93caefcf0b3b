"""The two models of a comparison, each in local files or in a store.

Bytes of a store are fetched from the service only if no local file has them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any, Final, Protocol

from protoslice import _core, schema
from protoslice.cli.models.files import NamedFiles, named_files
from protoslice.cli.models.remote import connect
from protoslice.cli.models.source import RootType
from protoslice.cli.progress import Progress
from protoslice.comparing.differences import ComparedModel, steps_of_differences
from protoslice.comparing.equality import Equality, PieceList, unverified_by
from protoslice.concurrency.results import LruCache
from protoslice.errors import CorruptModel, NoRoot, Unsupported
from protoslice.facts import Difference, Piece
from protoslice.library.models import LocalModel, open_files
from protoslice.library.proto import Proto, Split
from protoslice.pieces import cut, extents_of
from protoslice.references import address_of, is_address
from protoslice.sources.source import RangeSource
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model

_BLOCK: Final = 16 << 10
"""Size in bytes of the blocks in which bytes are fetched from a service."""
_BLOCKS: Final = 4096
"""Maximum number of fetched blocks in memory: 64 MiB."""


class ComparedFiles(ComparedModel, Protocol):
    """A model whose files may have to be fetched from a service."""

    @property
    def fetched(self) -> bool:
        """True if the model is in a store, so that its bytes come over the network."""

    def cuts(self, source: RangeSource) -> PieceList | None:
        """Return the pieces of one file, or None if both models are local, because local bytes need no digests."""


@contextmanager
def open_both(names: tuple[str, str], root: RootType) -> Iterator[tuple[ComparedFiles, ComparedFiles]]:
    """Open the two models with these `names`, which are files or stores."""
    local, stores, sides = _LocalPieces(), dict[str, tuple[Any, Any]](), dict[str, ComparedFiles]()
    with ExitStack() as held:
        for name in filter(is_address, dict.fromkeys(names)):
            address = address_of(name)
            client = held.enter_context(connect(address.service))
            stores[name] = client, client.store(address.ref, names=False)
        other = next((store for _, store in stores.values()), None)
        for name in dict.fromkeys(names):
            if name not in stores:
                sides[name] = _Local(held.enter_context(named_files(name, root)), other, local, held)
        for name, (client, store) in stores.items():
            sides[name] = _Remote(client, store, local, held)
        yield sides[names[0]], sides[names[1]]


def differences(before: ComparedFiles, after: ComparedFiles) -> Iterator[Difference]:
    """Compare two models and yield their differences; yield nothing if the models are equal byte for byte."""
    with Progress("comparing") as progress:
        local = not (before.fetched or after.fetched)
        stored = sum(source.size for side in (before, after) for source in side.files.values())
        equality = Equality(unverified_by(before.cuts, after.cuts), progress.advance, local=local, stored=stored)
        yield from (found for found in steps_of_differences(before, after, equality) if found is not None)


def chunks_like(store: Any, proto: Proto) -> Split:
    """Split `proto` in the same way as the service has split the root of `store`."""
    keep = store.planner is not None and _core.Plan.is_kept_version(store.planner)
    sizes = {"min_chunk": store.min_chunk, "max_chunk": store.max_chunk}
    return (keep and proto.own_chunks) or proto.split(**sizes, rules=store.rules)


class _LocalPieces:
    """The bytes that need not be fetched: pieces of local files by digest, and recently fetched blocks."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[RangeSource, int]] = {}
        self.blocks: LruCache[tuple[RangeSource, int], bytes] = LruCache(most=_BLOCKS, room=_BLOCKS * _BLOCK)
        """Recently fetched blocks, by file and block number."""

    def add(self, file: RangeSource, cuts: PieceList) -> None:
        """Add the pieces `cuts` of a local file."""
        for piece in cuts:
            self._places.setdefault(piece.sha256, (file, piece.offset))

    def read(self, piece: Piece, start: int, length: int) -> bytes | None:
        """Return `length` bytes at `start` of the piece, or None if no local file has the piece."""
        place = self._places.get(piece.sha256)
        return None if place is None else place[0].read(place[1] + start, length)


class _Local:
    fetched = False

    def __init__(self, place: NamedFiles, other: Any, local: _LocalPieces, held: ExitStack) -> None:
        try:
            opened = held.enter_context(place.open_model())
        except NoRoot:  # the files of a folder without a root can be compared too
            opened = LocalModel(Model("", None, place.files, None))
        self.model, self._proto = opened.model, opened.proto
        self.root = self.model.root or None
        self.serialized = _is_serialized(opened)
        self.tensors = _tensors_of(opened)
        found = self.model.files
        named = {self.model.root, *(tensor.file for tensor in self.tensors if tensor.file)}
        counting = found if place.named is None else named
        self.files = {path: found[path] for path in counting if path in found}
        self._cuts = {} if other is None else self._cut_up(other, local)

    def sha256(self, path: str) -> None:
        """See `ComparedModel.sha256`."""

    def cuts(self, source: RangeSource) -> PieceList | None:
        return self._cuts.get(id(source))

    def _cut_up(self, other: Any, local: _LocalPieces) -> dict[int, PieceList]:
        """Cut all files into the same pieces as the service, using the chunk sizes of the store `other`."""
        found = {}
        with Progress("digesting", sum(file.size for file in self.files.values())) as progress:
            for path, file in self.files.items():
                extents: list[tuple[int, int]] = []
                if path == self.root and self._proto is not None:
                    extents = list(extents_of(chunks_like(other, self._proto).plan))
                found[id(file)] = PieceList(list(_digested(path, file, extents, progress)))
                local.add(file, found[id(file)])
        return found


def _digested(path: str, file: RangeSource, extents: Iterable[tuple[int, int]], progress: Progress) -> Iterator[Piece]:
    for offset, data in cut(file.size, extents, lambda start, end: file.read(start, end - start)):
        yield Piece(path, offset, len(data), hashlib.sha256(data).hexdigest())
        progress.advance(len(data))


class _Remote:
    fetched = True

    def __init__(self, client: Any, store: Any, local: _LocalPieces, held: ExitStack) -> None:
        self._client, self._store, self._held = client, store, held
        self.root: str | None = store.root
        self.files = {file.path: _RemoteFile(self, file.path, file.size, local) for file in store.files}
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
        """The pieces of each file, as the service lists them."""
        found: dict[str, list[Piece]] = {path: [] for path in self.files}
        for piece in self._client.pieces(self._store.id):
            found.setdefault(piece.file, []).append(piece)
        return {path: PieceList(pieces) for path, pieces in found.items()}

    def source(self, path: str) -> RangeSource:
        """Return a source that reads a file of the store from the service."""
        source: RangeSource = self._client.source(self._store.id, f"files/{path}", lean=True)
        return source

    def sha256(self, path: str) -> str | None:
        return self._digests.get(path)

    def cuts(self, source: RangeSource) -> PieceList | None:
        return source.cuts if isinstance(source, _RemoteFile) else None


class _RemoteFile:
    """A file of a store. Pieces that a local file also has are read locally; other bytes are fetched in blocks."""

    def __init__(self, store: _Remote, path: str, size: int, local: _LocalPieces) -> None:
        self.size = size
        self.name = path.rpartition("/")[2]
        self._store, self._path, self._local = store, path, local

    @property
    def cuts(self) -> PieceList:
        """The pieces of this file."""
        return self._store.pieces[self._path]

    @cached_property
    def _source(self) -> RangeSource:
        return self._store.source(self._path)

    def read(self, offset: int, length: int, /) -> bytes:
        """Return exactly `length` bytes at `offset`."""
        end = offset + length
        pieces = self.cuts.within(offset, end)
        data = b"".join(self._part(piece, max(offset, piece.offset), min(end, piece.end)) for piece in pieces)
        if len(data) != length:
            raise CorruptModel(f"The service did not list all parts of {self.name}")
        return data

    def _part(self, piece: Piece, start: int, end: int) -> bytes:
        local = self._local.read(piece, start - piece.offset, end - start)
        return self._fetched(start, end) if local is None else local

    def _fetched(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to `end`. Fetch all blocks that are not in memory with one request."""
        first, blocks = start // _BLOCK, self._local.blocks
        found = {number: blocks.get((self, number)) for number in range(first, -(-end // _BLOCK))}
        missing = [number for number, data in found.items() if data is None]
        if missing:
            begin, stop = missing[0] * _BLOCK, min(self.size, (missing[-1] + 1) * _BLOCK)
            data = self._source.read(begin, stop - begin)
            for number in range(missing[0], missing[-1] + 1):
                at = number * _BLOCK - begin
                found[number] = block = data[at : at + _BLOCK]
                blocks.put((self, number), block, len(block))
        begin = start - first * _BLOCK
        return b"".join(block or b"" for block in found.values())[begin : begin + end - start]


def _is_serialized(model: LocalModel) -> bool:
    return model.proto is not None and model.proto.form == "serialized"


def _tensors_of(model: LocalModel) -> Tensors:
    try:
        return model.tensors
    except (Unsupported, CorruptModel):  # not a model: only the parts of the proto are compared
        return Tensors.of([])
