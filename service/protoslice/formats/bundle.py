"""TensorFlow's tensor bundles: an index file and data shards. A SavedModel's variables and checkpoints are bundles."""

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
    """Return the CRC-32C of `data`, which is read piece by piece."""
    crc = 0
    for at in range(0, data.size, PIECE):
        crc = crc32c(data.read(at, min(PIECE, data.size - at)), crc)  # no copy: `read` returns bytes
    return crc


def check(what: str, crc: int, stored: int) -> None:
    """Raise `CorruptModel` unless `stored` is the masked form of `crc`. The error message names `what`."""
    if masked(crc) != stored:
        raise CorruptModel(f"The checksum of {what} does not match: the file is damaged")


Entry = tuple[int, tuple[int, ...] | None, int, int, int, int | None]
"""The index entry of a tensor or slice: type, shape, shard, offset in the shard, size and masked checksum.

Shape and checksum may be None.
"""

Slices = Sequence[tuple[list[tuple[int, int | None]], Entry | None]]
"""The slices of a tensor. Each has a start and a length per dimension, and an index entry.

A length of None means the whole dimension. An entry is None if the index has no entry for the slice.
"""


def details_of(entry: Entry, slices: Slices) -> dict[str, object]:
    """Return the shard, offset, size and masked checksum of `entry` as JSON.

    If `slices` is not empty, return these facts for each slice instead.
    """
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
"""The largest length of a string that the checksum covers as four bytes. It covers larger lengths as eight bytes."""


def strings(data: Rope, count: int, crc: int | None, name: str) -> Sequence[bytes]:
    """Return the `count` strings in `data`. They belong to the tensor `name`.

    `crc` is the masked checksum of the strings; None skips the comparison. Raise `CorruptModel` if a checksum or
    length does not match, and `LimitExceeded` for strings of more than 64 MiB.
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
"""The key of the string tensor that holds the checkpoint's object graph."""
_ATTRIBUTE: Final = "/.ATTRIBUTES/VARIABLE_VALUE"


def plain_key(key: str) -> str:
    """Return `key` without the suffix that TensorFlow appends to the keys of variables."""
    return key.removesuffix(_ATTRIBUTE)


def full_names(graph: Sequence[bytes]) -> Iterator[tuple[str, str]]:
    """Yield the key and the full name of each variable in the serialized object graph `graph`.

    Names may repeat. Yield nothing if `graph` is malformed.
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
"""The part that an optimizer variable's key has in addition to the key of the optimized weight."""
_OPTIMIZED: Final = "optimizer/_trainable_variables/"
"""The key prefix of the weights that a Keras checkpoint stores under the optimizer instead of under the model."""
_COPIES: Final = "_all_variables/"
"""The key prefix of second copies. Keras exports contain them in addition to the variables under `variables/`."""
_BIAS: Final = re.compile(r"/bias(?=$|/\.ATTRIBUTES/)")


class Bundle:
    """The tensor bundle format. TensorFlow's checkpoints have been bundles since version 2 of the checkpoint format."""

    name = "tensor bundle"

    def matches(self, model: Model) -> bool:
        """Return True when the root is a bundle's index, or a SavedModel that comes with a bundle index."""
        if model.proto is None:
            return model.detection.kind == "table"
        return model.type == _SAVED_MODEL and _index(model) in model.files

    def tensors(self, model: Model) -> BundleTensors:
        """Return all variables. Partitioned variables become one tensor each. This method reads the index."""
        index = _index(model)
        return BundleTensors(model.files, index.removesuffix(_ENDING), model.file(index))


def _index(model: Model) -> str:
    """Return the path of the index: the root, or a file among the variables of a SavedModel."""
    return model.root if model.proto is None else posixpath.join(posixpath.dirname(model.root), _VARIABLES)


class BundleTensors(Tensors):
    """The tensors of one bundle."""

    def __init__(self, files: Mapping[str, RangeSource], prefix: str, index: RangeSource) -> None:
        """Read and validate all of `index`; raise `CorruptModel` with the index path if it is damaged."""
        self._files = files
        self._prefix = prefix
        try:
            self._bundle = _core.Bundle(index)
        except CorruptModel as error:
            error.path = error.path or prefix + _ENDING
            raise
        # Places that matched their checksum: shard, offset, size, checksum. The size is needed because an empty
        # tensor has the same offset as the next tensor. A match of the empty tensor says nothing about the next one.
        self._sound: set[tuple[int, int, int, int]] = set()
        super().__init__(len(self._bundle), self._tensor, self._called, self._found)

    def _tensor(self, number: int) -> Tensor:
        """Return the tensor with this number. Numbers follow the order of the keys."""
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
        """Return the role and kind of a variable, derived from its key and its name in the object graph."""
        of = _SLOT.sub("", tensor.name)
        kind = kind_named(self._called_as.get(of, of), tensor.rank)
        layer = self._bundle.find(_BIAS.sub("/kernel", of).encode()) if kind == "other" and tensor.rank == 1 else None
        if layer is not None:
            kind = kind_named(of, len(self._bundle.entry(layer)[1] or ()))
        if tensor.name.startswith(_COPIES) and self._content(tensor.name) in self._variables:
            return Use("other", kind)
        return Use(role_named(tensor.name.removeprefix(_OPTIMIZED), tensor.dtype), kind)

    def _content(self, key: str) -> tuple[object, ...] | None:
        """Return the type, shape, size and checksum of the variable with this key; None if there is none."""
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
        """Return the number of the tensor with this key or address.

        If no tensor has it, return the numbers of all tensors with this name in the object graph.
        """
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
        """A map from names to bundle keys. A name is a key without its suffix, or a name in the object graph."""
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
        """A map from bundle keys to names in the object graph; empty if the graph cannot be read."""
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
        """Return the elements of a tensor that one entry holds completely."""
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
        """Return one slice of a tensor.

        Raise `CorruptModel` if the slice has no entry, or if its entry contradicts the tensor's entry.
        """
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

        Raise `MissingFile` if the shard is missing, and `CorruptModel` if the bytes reach beyond the end of the shard.
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
        """Compare `data` with the checksum of `entry`. Files are immutable, so each match is remembered."""
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
        """Add the shard of `entry` to each `CorruptModel`, and make the error's offset count from the shard's start."""
        try:
            yield
        except CorruptModel as error:
            error.offset, error.path = entry[3] + (error.offset or 0), self._shard(entry[2])
            raise


def _plain(tiled: Tiled, shape: tuple[int, ...]) -> Tiled | Stored:
    """Return the elements of the only tile if that tile covers the whole tensor; else return `tiled`."""
    whole = len(tiled.tiles) == 1 and tiled.tiles[0].shape == shape
    return tiled.tiles[0].stored if whole else tiled


def _number_of(entry: Entry, dtype: Dtype) -> int:
    return entry[0] if TYPES.get(entry[0]) is dtype else -1


def _unescaped(key: bytes) -> bytes:
    r"""Return `key` with escapes such as `\xff` replaced by the bytes that they represent."""
    return _ESCAPED.sub(lambda found: bytes.fromhex(text_of(found[1])), key)
