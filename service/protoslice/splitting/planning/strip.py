"""Copies of messages without some parts; omitted parts are never copied, whatever their size."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from protoslice.splitting.planning.shape import Shape, present
from protoslice.splitting.planning.unknown import copy_unknown
from protoslice.splitting.tags import Key, Path, Step

M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Omissions:
    """Parts to omit from a message: all of it, or parts of its fields by number."""

    all: bool = False
    fields: dict[int, FieldOmissions] = field(default_factory=dict)

    def at(self, path: Path) -> Omissions:
        """Omissions of the message at `path`, made when missing."""
        node = self
        for step in path:
            below = node.fields.setdefault(step.field.number, FieldOmissions())
            node = below.at.setdefault(step.at, Omissions())
        return node

    def detach(self, path: Path) -> Omissions:
        """Omissions inside the message at `path`, which is omitted as a whole from now on."""
        if not path:
            inside = Omissions(fields=self.fields)
            self.all, self.fields = True, {}
            return inside
        parent, last = self.at(path[:-1]), path[-1]
        below = parent.fields.setdefault(last.field.number, FieldOmissions())
        inside = below.at.pop(last.at, Omissions())
        if last.at is None:
            below.whole = True
        else:
            below.at[last.at] = Omissions(all=True)
        return inside


@dataclass(slots=True)
class FieldOmissions:
    """Parts to omit from a field.

    `whole`: the field. `keep`: the elements from this index on, None for no element. `gone`: the map entries with these
    keys. `at`: parts of the field's messages, by index or map key, or by None for a singular field.
    """

    whole: bool = False
    keep: int | None = None
    gone: set[Key] = field(default_factory=set)
    at: dict[Key | None, Omissions] = field(default_factory=dict)


def stripped(source: M, omissions: Omissions) -> M:
    """Copy of `source` without `omissions`."""
    target = type(source)()
    strip_into(target, source, omissions)
    return target


def strip_into(target: Message, source: Message, omissions: Omissions) -> None:
    """Copy `source` without `omissions` into the empty `target`."""
    if omissions.all:
        return
    for each, value in present(source):
        if (below := omissions.fields.get(each.number)) is None or each.descriptor.is_extension:
            _copy(target, each, value)
        elif not below.whole:
            _copy_partly(target, each, value, below)
    copy_unknown(target, source)


def sliced(source: M, each: Shape, keys: Iterable[Key], omissions: FieldOmissions) -> M:
    """Message of `source`'s type with the elements or entries `keys` of one field, less `omissions`."""
    target = type(source)()
    values = each.of(source)
    if each.message or each.key is not None:
        _copy_items(target, each, values, keys, omissions)
    elif isinstance(keys, range):
        each.of(target).extend(values[keys.start : keys.stop])
    return target


def _copy(target: Message, each: Shape, value: Any) -> None:
    if each.repeated:
        each.of(target).MergeFrom(value)
    elif each.message:
        inside = each.of(target)
        inside.SetInParent()
        inside.MergeFrom(value)
    elif each.descriptor.is_extension:
        target.Extensions[cast(Any, each.descriptor)] = value
    else:
        setattr(target, each.name, value)


def _copy_partly(target: Message, each: Shape, value: Any, omissions: FieldOmissions) -> None:
    if not each.repeated:
        inside = each.of(target)
        inside.SetInParent()
        strip_into(inside, value, omissions.at.get(None) or Omissions())
    elif each.key is not None:
        _copy_items(target, each, value, (key for key in value if key not in omissions.gone), omissions)
    else:
        keep = len(value) if omissions.keep is None else omissions.keep
        if each.message:
            _copy_items(target, each, value, range(keep), omissions)
        else:
            each.of(target).extend(value[:keep])


def _copy_items(target: Message, each: Shape, values: Any, keys: Iterable[Any], omissions: FieldOmissions) -> None:
    copies = each.of(target)
    if each.key is not None and not each.map_value.message:
        for key in keys:
            copies[key] = values[key]
        return
    for key in keys:
        copy = copies.add() if each.key is None else copies[key]
        if (below := omissions.at.get(key)) is None:
            copy.MergeFrom(values[key])
        else:
            strip_into(copy, values[key], below)


def drop(message: Message, last: Step) -> None:
    """Clear the field at `last`, or the element or map value if `last` names one."""
    if last.at is None:
        message.ClearField(last.field.name)
    else:
        last.field.of(message)[last.at].Clear()
