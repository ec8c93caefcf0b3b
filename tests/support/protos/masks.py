"""Field masks applied to parsed messages, slowly and obviously."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from tests.support.protos.descriptors import fields_of
from tests.support.protos.places import Value, bracket
from tests.support.protos.writer import is_map, is_packable


@dataclass(frozen=True, slots=True)
class Step:
    """One segment of a mask's path: a field, and which of its elements."""

    field: FieldDescriptor
    by_name: bool = True
    index: int | None = None
    bounds: tuple[int | None, int | None] | None = None
    key: Value = None
    star: bool = False

    def __str__(self) -> str:
        label = self.field.name if self.by_name else str(self.field.number)
        if self.index is not None:
            return f"{label}[{self.index}]"
        if self.bounds is not None:
            return f"{label}[{':'.join('' if bound is None else str(bound) for bound in self.bounds)}]"
        if self.key is not None:
            return f"{label}[{bracket(self.key)}]"
        return f"{label}[*]" if self.star else label

    def takes(self, at: Value) -> bool:
        """True if the step selects the element at position, or under key, `at`."""
        if self.key is not None:
            return bool(self.key == at)
        if self.bounds is not None:
            first, last = self.bounds
            return (first or 0) <= at and (last is None or at < last)
        return self.index is None or bool(self.index == at)


def path_of(steps: Sequence[Step]) -> str:
    """The path that `steps` are."""
    return ".".join(map(str, steps))


def random_path(message: Message, rng: Random) -> list[Step]:
    """A path into `message`, mostly to what is there."""
    steps: list[Step] = []
    at: Value = message
    while isinstance(at, Message) and (not steps or rng.random() < 0.7):
        there = [field for field, _ in at.ListFields()]
        fields = there if there and rng.random() < 0.9 else fields_of(at)
        if not fields:
            break
        field = rng.choice(fields)
        step, at = _step(field, getattr(at, field.name), rng)
        steps.append(step)
    return steps


def _step(field: FieldDescriptor, value: Value, rng: Random) -> tuple[Step, Value]:
    by_name = rng.random() < 0.5
    if is_map(field):
        key = rng.choice(list(value)) if value else None
        inner = None if key is None else value[key]
        return rng.choice([Step(field, by_name, key=key), Step(field, by_name), Step(field, by_name, star=True)]), inner
    if not field.is_repeated:
        return Step(field, by_name), value
    count = len(value)
    at = rng.randrange(count) if count else 0
    bounds = (rng.choice([None, at]), rng.choice([None, at + 1, count, at + 30]))
    ways = [Step(field, by_name), Step(field, by_name, star=True)]
    if not is_packable(field):
        ways += [Step(field, by_name, index=at), Step(field, by_name, bounds=bounds)]
    return rng.choice(ways), value[at] if count else None


def masked(message: Message, paths: Sequence[Sequence[Step]]) -> Message:
    """Copy of `message` with the parts at `paths` only."""
    if any(not path for path in paths):
        return message
    out = type(message)()
    for field, value in message.ListFields():
        mine = [path for path in paths if path[0].field.number == field.number]
        if mine:
            _keep(out, field, value, mine)
    return out


def _keep(out: Message, field: FieldDescriptor, value: Value, paths: list[Sequence[Step]]) -> None:
    target = getattr(out, field.name)
    if is_map(field):
        for key in value:
            _keep_entry(target, key, value[key], _below(paths, key))
    elif field.is_repeated:
        for at, element in enumerate(value):
            if below := _below(paths, at):
                target.append(masked(element, below) if isinstance(element, Message) else element)
    elif isinstance(value, Message):
        target.CopyFrom(masked(value, _below(paths, None)))
        target.SetInParent()
    else:
        setattr(out, field.name, value)


def pruned(message: Message, paths: Sequence[Sequence[Step]]) -> Message:
    """Copy of `message` without the parts at `paths`."""
    out = type(message)()
    out.CopyFrom(message)
    for field, value in message.ListFields():
        mine = [path for path in paths if path[0].field.number == field.number]
        if mine:
            _prune(out, field, value, mine)
    return out


def _prune(out: Message, field: FieldDescriptor, value: Value, paths: list[Sequence[Step]]) -> None:
    out.ClearField(field.name)
    target = getattr(out, field.name)
    items = value.items() if is_map(field) else enumerate(value) if field.is_repeated else [(None, value)]
    for at, element in items:
        below = _below(paths, at)
        if not all(below):
            continue
        kept = pruned(element, below) if below and isinstance(element, Message) else element
        if is_map(field) and isinstance(kept, Message):
            target[at].CopyFrom(kept)
        elif is_map(field):
            target[at] = kept
        elif field.is_repeated:
            target.append(kept)
        elif isinstance(kept, Message):
            target.CopyFrom(kept)
            target.SetInParent()
        else:
            setattr(out, field.name, kept)


def _keep_entry(target: Value, key: Value, value: Value, below: list[Sequence[Step]]) -> None:
    if below and isinstance(value, Message):
        target[key].CopyFrom(masked(value, below))
    elif below:
        target[key] = value


def _below(paths: list[Sequence[Step]], at: Value) -> list[Sequence[Step]]:
    """The rests of the paths that select `at`."""
    return [path[1:] for path in paths if at is None or path[0].takes(at)]


def clear_large(message: Message, limit: int) -> None:
    """Clear bytes and strings above `limit`, and repeated numbers: only the wire tells which are large."""
    message.DiscardUnknownFields()
    for field, value in message.ListFields():
        if is_map(field):
            _clear_entries(value, limit)
        elif field.is_repeated and is_packable(field):
            message.ClearField(field.name)
        elif field.is_repeated:
            _clear_elements(value, limit)
        elif isinstance(value, Message):
            clear_large(value, limit)
        elif _is_large(value, limit):
            message.ClearField(field.name)


def _clear_entries(entries: Value, limit: int) -> None:
    for key in list(entries):
        if isinstance(entries[key], Message):
            clear_large(entries[key], limit)
        elif _is_large(entries[key], limit):
            entries[key] = type(entries[key])()


def _clear_elements(elements: Value, limit: int) -> None:
    for at in reversed(range(len(elements))):
        if isinstance(elements[at], Message):
            clear_large(elements[at], limit)
        elif _is_large(elements[at], limit):
            del elements[at]


def _is_large(value: Value, limit: int) -> bool:
    size = len(value.encode()) if isinstance(value, str) else len(value) if isinstance(value, bytes) else 0
    return size > limit
