"""The two models that are compared: their files, read from the disk or by range, with digests of their pieces."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

from protoslice import LocalModel, schema
from protoslice.cli.comparing.comparison import Cuts, Piece
from protoslice.cli.comparing.shifts import BLOCK, Local, Place, places_in
from protoslice.cli.models.addresses import address_of, is_address
from protoslice.cli.models.files import opened_model
from protoslice.cli.models.remote import client_of
from protoslice.cli.terminal.progress import Progress
from protoslice.errors import CorruptModel, Unsupported
from protoslice.formats.model import Tensor
from protoslice.models import model_over
from protoslice.pieces import cut, extents_of
from protoslice.sources import RangeSource

__all__ = ["Side", "both_sides"]

KEPT: Final = 4096
"""So many blocks of what was fetched are kept, 64 MiB."""


class Side(Protocol):
    """A model to be compared."""

    @property
    def root(self) -> str:
        """Which of its files is the root."""

    @property
    def files(self) -> Mapping[str, RangeSource]:
        """Those that count: all of a store or a directory; of a model named by its root those it refers to."""

    @property
    def model(self) -> LocalModel:
        """What lies in them."""

    @property
    def fetched(self) -> bool:
        """Whether reading it costs more than time."""

    def tensors(self) -> list[Tensor]:
        """Its tensors."""

    def sha256(self, path: str) -> str | None:
        """The digest of a whole file, where somebody has told it."""

    def cuts(self, source: RangeSource) -> Cuts | None:
        """The pieces of one of its files; none where nobody needs to be told."""


@contextmanager
def both_sides(names: tuple[str, str], type_name: str | None) -> Iterator[tuple[Side, Side]]:
    """The models that both names mean. What of a store lies in a local one too is not fetched."""
    near, stores, sides = _Near(), dict[str, tuple[Any, Any]](), dict[str, Side]()
    with ExitStack() as held:
        for name in filter(is_address, dict.fromkeys(names)):
            address = address_of(name)
            client = held.enter_context(client_of(address.service))
            stores[name] = client, client.store(address.ref)
        policy = next(((store.min_chunk, store.max_chunk) for _, store in stores.values()), None)
        for name in dict.fromkeys(names):
            if name not in stores:
                model = held.enter_context(opened_model(name, type_name))
                sides[name] = _Local(name, model, policy, near)
        for name, (client, store) in stores.items():
            sides[name] = _Remote(client, store, near, held)
        yield sides[names[0]], sides[names[1]]


class _Local:
    fetched = False

    def __init__(self, name: str, model: LocalModel, policy: tuple[int, int] | None, near: _Near) -> None:
        self.root, self.model = model.model.root, model
        found = model.model.files
        counting = found if Path(name).is_dir() else {self.root, *(each.file for each in self.tensors() if each.file)}
        self.files = {path: found[path] for path in counting if path in found}
        self._cuts = {} if policy is None else self._cut_up(policy, near)

    def tensors(self) -> list[Tensor]:
        """See `Side.tensors`."""
        return _tensors(self.model)

    def sha256(self, path: str) -> None:
        """See `Side.sha256`."""

    def cuts(self, source: RangeSource) -> Cuts | None:
        """See `Side.cuts`."""
        return self._cuts.get(id(source))

    def _cut_up(self, policy: tuple[int, int], near: _Near) -> dict[int, Cuts]:
        """The pieces of all files, cut as the service cuts those of its stores."""
        found = {}
        with Progress("digesting", sum(file.size for file in self.files.values())) as progress:
            for path, file in self.files.items():
                extents: list[tuple[int, int]] = []
                if path == self.root and self.model.proto is not None:
                    extents = list(extents_of(self.model.proto.split(min_chunk=policy[0], max_chunk=policy[1]).plan))
                pieces = list(_digested(file, cut(file.size, extents), progress))
                found[id(file)] = Cuts(pieces)
                near.add("" if path == self.root else path, Local(file, found[id(file)]))
        return found


def _digested(file: RangeSource, spans: Iterable[tuple[int, int]], progress: Progress) -> Iterator[Piece]:
    for start, end in spans:
        data = file.read(start, end - start)
        yield Piece(start, len(data), hashlib.sha256(data).hexdigest())
        progress.advance(len(data))


class _Remote:
    fetched = True

    def __init__(self, client: Any, store: Any, near: _Near, held: ExitStack) -> None:
        self._client, self._store, self._held = client, store, held
        self.root: str = store.root
        self.files = {file.path: _Fetched(self, file.path, file.size, near) for file in store.files}
        self._digests = {file.path: file.sha256 for file in store.files}

    @cached_property
    def model(self) -> LocalModel:
        """See `Side.model`."""
        known = self._store.type if self._store.type in schema.bundled() and self._store.chunks else None
        return self._held.enter_context(model_over(self.files, self.root, known))

    @cached_property
    def pieces(self) -> dict[str, Cuts]:
        """Those that the service lists, by file."""
        found: dict[str, list[Piece]] = {path: [] for path in self.files}
        for each in self._client.pieces(self._store.id):
            found.setdefault(each.file, []).append(Piece(each.offset, each.size, each.sha256))
        return {path: Cuts(pieces) for path, pieces in found.items()}

    def source(self, path: str) -> RangeSource:
        """The file as the service has it."""
        source: RangeSource = self._client.source(self._store.id, f"files/{path}", lean=True)
        return source

    def tensors(self) -> list[Tensor]:
        """See `Side.tensors`."""
        return _tensors(self.model)

    def sha256(self, path: str) -> str | None:
        """See `Side.sha256`."""
        return self._digests.get(path)

    def cuts(self, source: RangeSource) -> Cuts | None:
        """See `Side.cuts`."""
        return source.cuts if isinstance(source, _Fetched) else None


def _tensors(model: LocalModel) -> list[Tensor]:
    try:
        return list(model)
    except (Unsupported, CorruptModel):  # a proto that is no model: its parts are compared
        return []


class _Near:
    """Bytes that need not be fetched: pieces in local files, and what was fetched lately."""

    def __init__(self) -> None:
        self._files: dict[str, Local] = {}
        self._places: dict[str, Place] = {}
        self._blocks: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def add(self, path: str, local: Local) -> None:
        """Such a file lies here; the path of a root is empty."""
        self._files[path] = local
        for piece in local.cuts:
            self._places.setdefault(piece.sha256, (local.file, piece.start))

    def look_for(self, path: str, pieces: Sequence[Piece], fetch: Callable[[Piece, int], bytes]) -> None:
        """Find out where the pieces of a file lie in the local one that it is compared with."""
        if path in self._files and any(piece.sha256 not in self._places for piece in pieces):
            for piece, place in places_in(self._files[path], pieces, fetch):
                self._places.setdefault(piece.sha256, place)

    def local(self, piece: Piece, start: int, length: int) -> bytes | None:
        """So many bytes of the piece, if it lies here."""
        place = self._places.get(piece.sha256)
        return None if place is None else place[0].read(place[1] + start, length)

    def block(self, piece: Piece, number: int) -> bytes | None:
        """A block of the piece, if it was fetched lately."""
        found = self._blocks.get((piece.sha256, number))
        if found is not None:
            self._blocks.move_to_end((piece.sha256, number))
        return found

    def keep(self, piece: Piece, number: int, data: bytes) -> None:
        """A block of the piece has been fetched."""
        self._blocks[piece.sha256, number] = data
        if len(self._blocks) > KEPT:
            self._blocks.popitem(last=False)


class _Fetched:
    """A file of a store: what of it lies here is read here, and the rest fetched, verified, as it is asked for."""

    def __init__(self, side: _Remote, path: str, size: int, near: _Near) -> None:
        self.size = size
        self.name = path.rpartition("/")[2]
        self._side, self._path, self._near = side, path, near

    @property
    def cuts(self) -> Cuts:
        """Its pieces."""
        return self._side.pieces[self._path]

    @cached_property
    def _remote(self) -> RangeSource:
        return self._side.source(self._path)

    @cached_property
    def _settled(self) -> Cuts:
        """Its pieces, when it is known which of them lie here."""
        path = "" if self._path == self._side.root else self._path
        self._near.look_for(path, [*self.cuts], self._block)
        return self.cuts

    def read(self, offset: int, length: int, /) -> bytes:
        """Exactly the `length` bytes at `offset`."""
        parts = []
        for piece in self._settled.within(offset, offset + length):
            start, end = max(offset, piece.start), min(offset + length, piece.start + piece.size)
            near = self._near.local(piece, start - piece.start, end - start)
            parts.append(self._blocks(piece, start - piece.start, end - piece.start) if near is None else near)
        data = b"".join(parts)
        if len(data) != length:
            raise CorruptModel(f"the service lists no pieces for all of {self.name}")
        return data

    def _block(self, piece: Piece, number: int) -> bytes:
        return self._blocks(piece, number * BLOCK, min(piece.size, (number + 1) * BLOCK))

    def _blocks(self, piece: Piece, start: int, end: int) -> bytes:
        first, last = start // BLOCK, -(-end // BLOCK)
        kept = {number: self._near.block(piece, number) for number in range(first, last)}
        missing = [number for number, data in kept.items() if data is None]
        if missing:
            begin, stop = missing[0] * BLOCK, min(piece.size, (missing[-1] + 1) * BLOCK)
            data = self._remote.read(piece.start + begin, stop - begin)
            for number in range(missing[0], missing[-1] + 1):
                kept[number] = data[number * BLOCK - begin : (number + 1) * BLOCK - begin]
                self._near.keep(piece, number, kept[number] or b"")
        return b"".join(each or b"" for each in kept.values())[start - first * BLOCK : end - first * BLOCK]
