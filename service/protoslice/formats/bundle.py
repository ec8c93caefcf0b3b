"""Tensor bundles: an index and shards of data, as variables of a SavedModel or bare checkpoints."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import _core, schema
from protoslice._core import crc32c
from protoslice.detection.magic import masked
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded
from protoslice.formats.tensorflow import TYPES, dtype_of, lengths_of
from protoslice.formats.uses import kind_named, role_named
from protoslice.schema import text_of
from protoslice.sources.ropes import PIECE, Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.dtypes import Dtype
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import (
    Data,
    Encoding,
    MissingFile,
    Model,
    Stored,
    Strings,
    Tensor,
    Tile,
    Tiled,
    Unreadable,
    Use,
)


def crc_of(data: Rope) -> int:
    """Return the CRC-32C of `data`, read in pieces."""
    crc = 0
    for at in range(0, data.size, PIECE):
        crc = crc32c(data.read(at, min(PIECE, data.size - at)), crc)  # bytes, which need no copy
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """Raise `CorruptModel`, with `what` in its message, unless `stored` is the masked form of `crc`."""
    if masked(crc) != stored:
        raise CorruptModel(f"The checksum of {what} does not match: the file is damaged")


Entry = tuple[int, tuple[int, ...] | None, int, int, int, int | None]
"""Type, shape, shard, offset in the shard, size, masked checksum; shape and checksum may be None."""

Slices = Sequence[tuple[list[tuple[int, int | None]], Entry | None]]
"""Start and length in each dimension (None for all of it), and the entry; None if absent."""


def details_of(entry: Entry, slices: Slices) -> dict[str, object]:
    """Return the shard, offset, size and masked checksum of an entry, or of each of its slices, as JSON."""
    if not slices:
        return _place(entry)
    parts = []
    for extents, part in slices:
        boxes = [{"start": start, "length": length} for start, length in extents]
        parts.append({"extents": boxes} | (_place(part) if part is not None else {}))
    return {"slices": parts}


def _place(entry: Entry) -> dict[str, object]:
    return {"shard": entry[2], "offset": entry[3], "size": entry[4], "crc32c": entry[5]}


_MOST_STRING_BYTES: Final = 64 << 20
_CHECKSUM: Final = 4
_SHORT: Final = 0xFFFF_FFFF
"""Longest length that enters a checksum as four bytes; longer ones enter as eight."""


def strings(data: Rope, count: int, crc: int | None, name: str) -> Sequence[bytes]:
    """Return the `count` strings of tensor `name`, compared with `crc`, their masked checksum, unless it is None.

    Raise `CorruptModel` for checksums and lengths that do not match, `LimitExceeded` above 64 MiB.
    """
    if data.size > _MOST_STRING_BYTES:
        raise LimitExceeded(
            f"The strings of {name!r} have {data.size} bytes; at most {_MOST_STRING_BYTES} are read at once"
        )
    stored = data.read()
    lengths, start = lengths_of(stored, count)
    content = start + _CHECKSUM
    if content > len(stored):
        raise CorruptModel(f"The data of {name!r} ends before the checksum of its string lengths", start)
    summed = 0
    for length in lengths:
        summed = crc32c(length.to_bytes(4 if length <= _SHORT else 8, "little"), summed)
    check(f"the lengths of the strings of {name!r}", summed, int.from_bytes(stored[start:content], "little"))
    if content + sum(lengths) != len(stored):
        raise CorruptModel(
            f"The strings of {name!r} should take {content + sum(lengths)} bytes, but there are {len(stored)}"
        )
    if crc is not None:
        check(f"the strings of {name!r}", crc32c(stored[content:], crc32c(stored[start:content], summed)), crc)
    ends = accumulate(lengths, initial=content)
    return [stored[begin:end] for begin, end in pairwise(ends)]


GRAPH: Final = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the string tensor that holds the graph."""
_ATTRIBUTE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"


def plain_key(key: str) -> str:
    """Return `key` without the common suffix of variables' keys."""
    return key.removesuffix(_ATTRIBUTE)


def full_names(graph: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """Yield key and full name of each variable in the serialized `graph`, or nothing if it is malformed.

    Names may repeat.
    """
    try:
        message: Any = schema.parsed(schema.bundled().message_class("tensorflow.TrackableObjectGraph"), b"".join(graph))
    except DecodeError:
        return
    for node in message.nodes:
        for attribute in node.attributes:
            if attribute.full_name:
                yield attribute.checkpoint_key, attribute.full_name


_ENDING: Final = ".index"
_VARIABLES: Final = "variables/variables.index"
_SAVED_MODEL: Final = "tensorflow.SavedModel"
_ESCAPED: Final = re.compile(rb"\\x([0-9a-f]{2})")
_SLOT: Final = re.compile(r"/\.OPTIMIZER_SLOT/.*(?=/\.ATTRIBUTES/)")
"""What the key of a variable of an optimizer adds to that of the weight that it belongs to."""
_OPTIMIZED: Final = "optimizer/_trainable_variables/"
"""Beginning of the keys of weights of Keras to which the optimizer comes first in a checkpoint."""
_COPIES: Final = "_all_variables/"
"""Beginning of the keys under which exports of Keras have a second copy of what lies under `variables/`."""
_BIAS: Final = re.compile(r"/bias(?=$|/\.ATTRIBUTES/)")


class Bundle:
    """TensorFlow checkpoints since format version 2."""

    name = "tensor bundle"

    def matches(self, model: Model) -> bool:
        """Return True when the root is the index of a bundle, or a SavedModel with one among its variables."""
        if model.proto is None:
            return model.detection.kind == "table"
        return model.type == _SAVED_MODEL and _index(model) in model.files

    def tensors(self, model: Model) -> BundleTensors:
        """Return all variables, with partitioned ones put together; this reads the index."""
        index = _index(model)
        return BundleTensors(model.files, index.removesuffix(_ENDING), model.file(index))


def _index(model: Model) -> str:
    """Return the path of the index: the root, or a file among the variables of a SavedModel."""
    return model.root if model.proto is None else posixpath.join(posixpath.dirname(model.root), _VARIABLES)


class BundleTensors(Tensors):
    """The tensors of one bundle."""

    def __init__(self, files: Mapping[str, RangeSource], prefix: str, index: RangeSource) -> None:
        """Read and validate all of `index`; raise `CorruptModel` with the index as its path."""
        self._files = files
        self._prefix = prefix
        try:
            self._bundle = _core.Bundle(index)
        except CorruptModel as error:
            error.path = error.path or prefix + _ENDING
            raise
        # Shard, offset, size and checksum: an empty tensor lies where the next one begins, and must not vouch for it.
        self._sound: set[tuple[int, int, int, int]] = set()
        super().__init__(len(self._bundle), self._tensor, self._called, self._found)

    def _tensor(self, number: int) -> Tensor:
        """Return the tensor `number`, in the order of the keys."""
        name = self._name(number)
        type_number, shape, *_ = entry = self._bundle.entry(number)
        slices = self._bundle.slices(number)
        parts = [part for _, part in slices] or [entry]
        shards = {part and part[2] for part in parts}
        shard = shards.pop() if len(shards) == 1 else None
        file = None if shard is None else self._shard(shard)
        holder = "object_graph" if name == GRAPH else "variable"
        dtype = TYPES.get(type_number)
        data = self._data(name, entry, slices)
        details = partial(details_of, entry, slices)
        return Tensor(name, f"bundle:{name}", dtype, shape, holder, file, data, details, self._use)

    def _use(self, tensor: Tensor) -> Use:
        """Return the role of a variable, by its key and by its name in the program."""
        of = _SLOT.sub("", tensor.name)
        kind = kind_named(self._called_as.get(of, of), tensor.rank)
        layer = self._bundle.find(_BIAS.sub("/kernel", of).encode()) if kind == "other" and tensor.rank == 1 else None
        if layer is not None:
            kind = kind_named(of, len(self._bundle.entry(layer)[1] or ()))
        if tensor.name.startswith(_COPIES) and self._content(tensor.name) in self._variables:
            return Use("other", kind)
        return Use(role_named(tensor.name.removeprefix(_OPTIMIZED), tensor.dtype), kind)

    def _content(self, key: str) -> tuple[object, ...] | None:
        """Return type, shape, size and checksum of a variable; None if no variable has that key."""
        number = self._bundle.find(key.encode("utf-8", "surrogateescape"))
        if number is None:
            return None
        kind, shape, _, _, size, checksum = self._bundle.entry(number)
        return kind, shape and tuple(shape), size, checksum

    @cached_property
    def _variables(self) -> frozenset[tuple[object, ...] | None]:
        names = map(self._name, range(len(self._bundle)))
        return frozenset(self._content(name) for name in names if name.startswith("variables/"))

    def _found(self, name_or_address: str) -> Sequence[int]:
        """Return the tensor with that key or address; else tensors with that name in the object graph."""
        key = name_or_address.encode("utf-8", "surrogateescape")
        for each in (key, key.removeprefix(b"bundle:"), _unescaped(key.removeprefix(b"bundle:"))):
            number = self._bundle.find(each)
            if number is not None and not each.startswith(b"\0"):
                return [number]
        found = (self._bundle.find(each.encode()) for each in self._known_as.get(name_or_address, ()))
        return [number for number in found if number is not None]

    def _called(self, number: int) -> tuple[str, str]:
        """Return the name and address of tensor `number`."""
        name = self._name(number)
        return name, f"bundle:{name}"

    @cached_property
    def _known_as(self) -> Mapping[str, Sequence[str]]:
        """Names in the object graph, and keys without their suffix → keys of the bundle."""
        names: dict[str, list[str]] = {}
        for number in range(len(self)):
            key = self._name(number)
            if (plain := plain_key(key)) != key:
                names.setdefault(plain, []).append(key)
        for key, name in self._full_names():
            keys = names.setdefault(name, [])
            if key not in keys:
                keys.append(key)
        return names

    @cached_property
    def _called_as(self) -> Mapping[str, str]:
        """Keys of the bundle → names in the object graph; empty where the graph cannot be read."""
        try:
            return dict(self._full_names())
        except OF_MODELS:
            return {}

    def _full_names(self) -> Iterator[tuple[str, str]]:
        graph = self._bundle.find(GRAPH.encode())
        data = None if graph is None else self[graph].data
        return full_names(data.read()) if isinstance(data, Strings) else iter(())

    def _name(self, number: int) -> str:
        return text_of(self._bundle.name(number))

    def _shard(self, shard: int) -> str:
        return f"{self._prefix}.data-{shard:05d}-of-{self._bundle.shards:05d}"

    def _data(self, name: str, entry: Entry, slices: Slices) -> Data:
        try:
            dtype = dtype_of(entry[0])
            if entry[1] is None:
                raise CorruptModel(f"The shape of {name!r} is invalid or unknown")
            if not slices:
                return self._whole(name, dtype, entry[1], entry)
            if not dtype.bits:
                raise CorruptModel(f"{name!r} is stored in slices, which is not possible for strings")
            return _plain(Tiled(tuple(self._tile(name, dtype, entry[1], *each) for each in slices)), entry[1])
        except OF_MODELS as error:
            return Unreadable(error)

    def _whole(self, name: str, dtype: Dtype, shape: tuple[int, ...], entry: Entry) -> Stored | Strings:
        """Return the elements of an entry that holds all of them."""
        data, crc = self._bytes(name, entry), entry[5]
        if not dtype.bits:
            return Strings(lambda: self._strings(name, data, prod(shape), entry), data.size)
        encoding = Encoding.BYTE_PER_ELEMENT if dtype.narrow else Encoding.PLAIN
        if self._bundle.big_endian and dtype.width > 1:
            encoding = Encoding.BIG_ENDIAN
        compare = None if crc is None else lambda: self._compare(name, data, entry)
        return checked(Stored(data, encoding, compare), dtype, shape)

    def _tile(
        self,
        name: str,
        dtype: Dtype,
        shape: tuple[int, ...],
        extents: Sequence[tuple[int, int | None]],
        entry: Entry | None,
    ) -> Tile:
        """Return one slice of a tensor; raise `CorruptModel` if its entry is missing or contradicts the tensor's."""
        if len(extents) != len(shape):
            raise CorruptModel(f"{name!r} has {len(shape)} dimensions, but one of its slices has {len(extents)}")
        if entry is None:
            raise CorruptModel(f"A slice of {name!r} is missing from the index")
        pairs = list(zip(extents, shape, strict=True))
        start = tuple(start if length is not None and length >= 0 else 0 for (start, length), _ in pairs)
        lengths = tuple(length if length is not None and length >= 0 else full for (_, length), full in pairs)
        if (entry[0], entry[1]) != (_number_of(entry, dtype), lengths):
            raise CorruptModel(f"A slice of {name!r} has a different type or shape than the index says")
        part = self._whole(name, dtype, lengths, entry)
        assert isinstance(part, Stored)
        return Tile(start, lengths, part)

    def _bytes(self, name: str, entry: Entry) -> Rope:
        """Return the bytes of an entry.

        Raise `MissingFile` if its shard is missing, `CorruptModel` if the bytes exceed the shard.
        """
        shard, offset, size = entry[2:5]
        if not 0 <= shard < self._bundle.shards:
            raise CorruptModel(f"{name!r} is in shard {shard}, but there are {self._bundle.shards} shards")
        path = self._shard(shard)
        if path not in self._files:
            raise MissingFile(f"{name!r} is stored in {path!r}, which is not among the files", path)
        source = self._files[path]
        if offset < 0 or size < 0 or offset + size > source.size:
            message = f"{name!r} has {size} bytes at byte {offset} of {path!r}, which has only {source.size} bytes"
            raise CorruptModel(message, max(offset, 0), path)
        return Rope.of(source, offset, offset + size)

    def _compare(self, name: str, data: Rope, entry: Entry) -> None:
        """Compare `data` with the checksum of `entry`, once: files are immutable."""
        if entry[5] is None or (place := (*entry[2:5], entry[5])) in self._sound:
            return
        with self._blaming(entry):
            check(f"tensor {name!r}", crc_of(data), entry[5])
        self._sound.add(place)

    def _strings(self, name: str, data: Rope, count: int, entry: Entry) -> Sequence[bytes]:
        with self._blaming(entry):
            return strings(data, count, entry[5], name)

    @contextmanager
    def _blaming(self, entry: Entry) -> Iterator[None]:
        """Make each `CorruptModel` name the shard of `entry` and count its offset from the shard's start."""
        try:
            yield
        except CorruptModel as error:
            error.offset, error.path = entry[3] + (error.offset or 0), self._shard(entry[2])
            raise


def _plain(tiled: Tiled, shape: tuple[int, ...]) -> Tiled | Stored:
    """Return the elements of the only tile if it covers the whole tensor, else `tiled`."""
    whole = len(tiled.tiles) == 1 and tiled.tiles[0].shape == shape
    return tiled.tiles[0].stored if whole else tiled


def _number_of(entry: Entry, dtype: Dtype) -> int:
    return entry[0] if TYPES.get(entry[0]) is dtype else -1


def _unescaped(key: bytes) -> bytes:
    r"""Return the key of a name in which bytes outside UTF-8 were written as `\xff`."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(text_of(found[1])), key)
