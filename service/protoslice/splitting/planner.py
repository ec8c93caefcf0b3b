"""The planner of splits, which selects the parts of a message that become chunks. It uses only sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from protoslice.defaults import LARGEST_MESSAGE, MAX_CHUNK, MIN_CHUNK
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.splitting.fields import (
    INT_32,
    Shape,
    delimited,
    field_size,
    present,
    sized_entry,
    unknown_size,
    value_size,
)
from protoslice.splitting.paths import Key, Path, Step, show


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """The limits of a split, with sizes in bytes. Contradicting sizes raise `InvalidInput`.

    Parts of at least `min_chunk` become chunks. Runs of repeated elements are cut at `max_chunk`. Messages may nest at
    most `depth` levels.
    """

    min_chunk: int = MIN_CHUNK
    max_chunk: int = MAX_CHUNK
    depth: int = 100

    def __post_init__(self) -> None:
        if not 1 <= self.min_chunk <= self.max_chunk <= LARGEST_MESSAGE:
            sizes = f"min_chunk {self.min_chunk} and max_chunk {self.max_chunk}"
            raise InvalidInput(
                f"Invalid chunk sizes {sizes}: they must satisfy 1 <= min_chunk <= max_chunk <= {LARGEST_MESSAGE}"
            )
        if self.depth < 1:
            raise InvalidInput(f"Invalid depth {self.depth}: use at least 1")

    @classmethod
    def greedy(cls, max_chunk: int = MAX_CHUNK, depth: int = 100) -> SplitPolicy:
        """Return the policy of TensorFlow's splitters. Parts larger than a third of `max_chunk` become chunks."""
        return cls(min_chunk=max_chunk // 3 + 1, max_chunk=max_chunk, depth=depth)


@dataclass(frozen=True, slots=True)
class Run:
    """A run of elements that becomes one chunk. `keys` are indices of a repeated field, or keys of a map.

    The chunk has the type of the message that contains the field.
    """

    field: Shape
    keys: Sequence[Key]


@dataclass(frozen=True, slots=True)
class Entry:
    """A planned chunk of `size` bytes. It is the part at `path`, or the elements in `run` if `run` is set.

    `inside` holds the chunks that are taken out of this chunk.
    """

    path: Path
    size: int
    run: Run | None = None
    inside: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The planned chunks of a message, and the size of the remaining message in bytes."""

    size: int
    entries: tuple[Entry, ...]

    @property
    def at_most(self) -> int:
        """An upper bound of the size of the whole message in bytes."""
        return self.size + sum(map(_bound, self.entries))


def _bound(entry: Entry) -> int:
    return entry.size + 16 * (len(entry.path) + 1) + sum(map(_bound, entry.inside))


def cut_into_runs(sizes: Iterable[int], room: int, limit: int) -> list[tuple[range, int]]:
    """Divide elements with the given `sizes` into runs. Return the range and the size in bytes of each run.

    The first run has up to `room` bytes and may be empty. Other runs have up to `limit` bytes. An element larger than
    `limit` is a separate run.
    """
    cuts: list[tuple[range, int]] = []
    begin = end = total = 0
    for end, size in enumerate(sizes):
        full = total + size > (limit if cuts else room)
        if full and (end > begin or not cuts):
            cuts.append((range(begin, end), total))
            begin, total = end, 0
        total += size
    cuts.append((range(begin, end + 1 if total or end > begin else begin), total))
    return cuts


_Field = FieldDescriptor
_PLAIN_KEYS = frozenset({_Field.TYPE_STRING, _Field.TYPE_BOOL, _Field.TYPE_INT32, _Field.TYPE_UINT32})
_WIDE_KEYS = frozenset({_Field.TYPE_INT64, _Field.TYPE_UINT64})


Leaves = Callable[[Shape], bool]


def plan(message: Message, policy: SplitPolicy, leaves: Leaves = lambda _: True) -> Plan:
    """Plan the chunks of `message`.

    Parts of at least `min_chunk` become chunks. If more than `max_chunk` bytes remain, the largest fields are cut.
    `leaves` returns True for string and bytes fields that may become chunks. Raise `LimitExceeded` if messages nest too
    deep, or if more than 2 GiB remain that cannot be split.
    """
    planner = _Planner(policy, leaves)
    return planner.finished(planner.message(message, policy.depth), ())


@dataclass(slots=True)
class _Held:
    """A field of a message that is being planned: the bytes that remain in the field, and the chunks taken out."""

    field: Shape
    value: Any
    size: int
    entries: list[Entry] = dataclasses.field(default_factory=list)
    items: dict[Any, int] | list[int] | None = None
    part: _Part | None = None


@dataclass(slots=True)
class _Part:
    """A message that is being planned, with its remaining size."""

    size: int
    fields: list[_Held]

    def entries(self) -> Iterator[Entry]:
        for held in self.fields:
            if held.part is not None:
                yield from _below(Step(held.field), held.part.entries())
            yield from held.entries


def _below(step: Step, entries: Iterable[Entry]) -> Iterator[Entry]:
    return (replace(entry, path=(step, *entry.path)) for entry in entries)


class _Planner:
    def __init__(self, policy: SplitPolicy, leaves: Leaves) -> None:
        self._policy = policy
        self._leaves = leaves

    def message(self, message: Message, depth: int) -> _Part:
        if depth < 1:
            raise LimitExceeded("messages nest deeper than the limit; allow a larger depth")
        fields = [self._field(each, value, depth - 1) for each, value in present(message)]
        unknown = unknown_size(UnknownFieldSet(message))
        return _Part(unknown + sum(held.size for held in fields), fields)

    def _field(self, each: Shape, value: Any, depth: int) -> _Held:
        if each.descriptor.is_extension:
            return _Held(each, value, field_size(each, value, depth))
        if each.key is not None:
            return self._map(each, value, depth)
        if not each.message:
            return self._scalar(each, value)
        return self._elements(each, value, depth) if each.repeated else self._submessage(each, value, depth)

    def _scalar(self, each: Shape, value: Any) -> _Held:
        size = field_size(each, value, 1)
        if each.repeated or not each.text:
            return _Held(each, value, size)
        if size - each.tag_size > LARGEST_MESSAGE + 5:
            raise LimitExceeded(f"A field of {size} bytes is larger than protobuf allows", path=each.name)
        length = _length(value)
        if length < self._policy.min_chunk or not (each.addressable and self._leaves(each)):
            return _Held(each, value, size)
        return _Held(each, None, 0, [Entry((Step(each),), length)])

    def _submessage(self, each: Shape, value: Message, depth: int) -> _Held:
        if each.type == _Field.TYPE_GROUP:
            return _Held(each, value, field_size(each, value, depth))
        part = self.message(value, depth)
        if part.size < self._policy.min_chunk or not each.addressable:
            return _Held(each, value, _wrapped(each, part.size), part=part)
        return _Held(each, None, 0, [self._whole(Step(each), part)])

    def _elements(self, each: Shape, values: Sequence[Message], depth: int) -> _Held:
        if each.type == _Field.TYPE_GROUP:
            # TensorFlow's Merger does not look into groups.
            whole = [each.tag_size + value_size(each, value, depth) for value in values]
            return _Held(each, values, sum(whole), items=whole)
        held = _Held(each, values, 0)
        sizes = [_wrapped(each, self._item(held, Step(each, i), value, depth)) for i, value in enumerate(values)]
        held.items, held.size = sizes, sum(sizes)
        return held

    def _map(self, each: Shape, values: Any, depth: int) -> _Held:
        held = _Held(each, values, 0)
        sizes = {key: self._entry(held, key, values[key], depth) for key in values}
        held.items, held.size = sizes, sum(sizes.values())
        return held

    def _entry(self, held: _Held, key: Any, value: Any, depth: int) -> int:
        each = held.field
        if not each.map_value.message or not _addressed(each, key):
            return sized_entry(each, key, value_size(each.map_value, value, depth))
        return sized_entry(each, key, delimited(self._item(held, Step(each, key), value, depth)))

    def _item(self, held: _Held, step: Step, value: Message, depth: int) -> int:
        """Plan an element or a map's value; add chunks to `held`, and return the bytes that remain of `value`."""
        part = self.message(value, depth)
        may_be_empty = (step.field if step.field.key is None else step.field.map_value).may_be_empty
        if part.size >= self._policy.min_chunk and may_be_empty:
            held.entries.append(self._whole(step, part))
            return 0
        held.entries.extend(_below(step, part.entries()))
        return part.size

    def _whole(self, step: Step, part: _Part) -> Entry:
        plan = self.finished(part, (step,))
        return Entry((step,), plan.size, inside=plan.entries)

    def finished(self, part: _Part, path: Path) -> Plan:
        """Return the plan of a message that becomes a chunk. Its largest fields are cut until it fits `max_chunk`."""
        runs: list[Entry] = []
        for held in sorted(part.fields, key=lambda held: -held.size):
            if part.size <= self._policy.max_chunk:
                break
            before = held.size
            self._shrink(part, held, runs)
            part.size += held.size - before
        if part.size > LARGEST_MESSAGE:
            raise LimitExceeded(
                f"{part.size} bytes remain that cannot be split, more than protobuf allows in a message",
                path=show(path) or None,
            )
        return Plan(part.size, (*runs, *part.entries()))

    def _shrink(self, part: _Part, held: _Held, runs: list[Entry]) -> None:
        each = held.field
        if each.descriptor.is_extension:
            return
        if each.repeated and each.siblings_optional:
            runs.extend(self._runs(held, self._policy.max_chunk - (part.size - held.size)))
        elif each.addressable and held.part is not None:
            held.entries, held.size, held.part = [self._whole(Step(each), held.part)], 0, None
        elif (
            each.addressable
            and each.text
            and not each.repeated
            and held.value is not None
            and held.size > each.tag_size + 1
        ):
            held.entries.append(Entry((Step(each),), _length(held.value)))
            held.size = 0

    def _runs(self, held: _Held, room: int) -> Iterator[Entry]:
        keys, sizes = _items(held)
        each = held.field
        header = each.tag_size + 5 if each.packed else 0
        (_, stays), *runs = cut_into_runs(sizes, room - header, self._policy.max_chunk - header)
        held.size = _packed(each, stays)
        return (Entry((), _packed(each, size), Run(each, keys[run.start : run.stop])) for run, size in runs)


def _items(held: _Held) -> tuple[Sequence[Any], Iterable[int]]:
    """Return the keys and the sizes of a field's items, which are elements with indices or map entries with keys."""
    if isinstance(held.items, dict):
        return tuple(held.items), held.items.values()
    if held.items is not None:
        return range(len(held.items)), held.items
    each = held.field
    tag = 0 if each.packed else each.tag_size
    return range(len(held.value)), (tag + value_size(each, value, 1) for value in held.value)


def _packed(each: Shape, size: int) -> int:
    """Return the size of a field whose elements take `size` bytes. A packed field also has a tag and a length."""
    return each.tag_size + delimited(size) if each.packed and size else size


def _length(value: str | bytes) -> int:
    return len(value) if isinstance(value, bytes) else len(value.encode())


def _addressed(each: Shape, key: Any) -> bool:
    """Return True when the key in metadata leads TensorFlow to the right map entry."""
    # TensorFlow truncates integer keys to 32 bits.
    kind = each.map_key.type
    return kind in _PLAIN_KEYS or (kind in _WIDE_KEYS and key in INT_32)


def _wrapped(each: Shape, size: int) -> int:
    return each.tag_size + delimited(size)
