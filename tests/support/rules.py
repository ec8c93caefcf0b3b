"""Random sets of split rules, and random messages that they split."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from tests.support.protos import ROOT, Case, Place, descriptor_of, make_case, places
from tests.support.protos.writer import is_map

import protoslice
from protoslice.library.proto import Split
from protoslice.schema import from_descriptor_set

_TEXT = (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES)


def ruled_cases() -> list[Case]:
    """Return fifty random messages of as many types, the same at each call."""
    return [make_case(Random(seed).getrandbits(64), types=3, fields=8, budget=60) for seed in range(50)]


def splits(case: Case, seed: int, sets: int) -> Iterator[tuple[list[str], Split]]:
    """Split the message of `case` by `sets` random sets of rules; yield each result with its rules."""
    random = Random(seed)
    with protoslice.open(case.data, ROOT, types=from_descriptor_set(case.schema), floor=case.floor) as proto:
        for _ in range(sets):
            rules = random_rules(random, descriptor_of(case.root)) + rules_of_places(random, case.message())
            sizes: Any = {"min_chunk": random.choice([1, 8, 64, 1 << 20]), "max_chunk": 1 << 21}
            yield rules, proto.split(**sizes, rules=rules)


def random_rules(random: Random, root: Descriptor) -> list[str]:
    """Return rules of every kind for places that messages of type `root` may have."""
    return [rule for _ in range(random.randint(1, 6)) if (rule := _rule(random, root)) is not None]


def _rule(random: Random, at: Descriptor) -> str | None:
    path = ""
    for _ in range(random.randint(0, 3)):
        inner = [field for field in at.fields if _below(field) is not None]
        if not inner:
            break
        field = random.choice(inner)
        path += field.name + (random.choice(_brackets(random, field)) if field.is_repeated else "") + "."
        at = _below(field) or at
    field = random.choice(list(at.fields))
    message, text = _below(field) is not None, field.type in _TEXT
    actions = [(brackets, "never") for brackets in (["", "[*]"] if field.is_repeated else [""])]
    sizes = ["always", "2", "40", "1KiB"]
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        actions += [("", "whole")]
    if field.is_repeated:
        actions += [("", size) for size in sizes]
        actions += [("", f"every {random.choice([1, 2, 3, 1000])}")] * 3 if field.message_type or text else []
        actions += [(brackets, size) for size in sizes for brackets in _brackets(random, field)[1:] if message]
    elif message or text:
        actions += [("", size) for size in sizes]
    if field.type == FieldDescriptor.TYPE_GROUP:
        actions = [(brackets, action) for brackets, action in actions if action in {"never", "whole"}]
    brackets, action = random.choice(actions)
    return f"{path}{field.name}{brackets}: {action}"


def rules_of_places(random: Random, message: Any) -> list[str]:
    """Return rules for one to three places that `message` has, so that most of them split something."""
    found = [place.path for place in places(message, random) if _splits(place) and "=" not in place.path]
    return [f"{path}: always" for path in random.sample(found, min(len(found), random.randint(1, 3)))]


def _splits(place: Place) -> bool:
    if place.field.type == FieldDescriptor.TYPE_MESSAGE:
        return True
    return place.field.type in _TEXT and not place.path.endswith("]")


def _below(field: FieldDescriptor) -> Descriptor | None:
    """Return the type of the messages at `field`, or of a map's values; None for other fields and groups."""
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        return None
    found: Descriptor | None = field.message_type
    if found is not None and is_map(field):
        found = found.fields_by_name["value"].message_type
    return found


def _brackets(random: Random, field: FieldDescriptor) -> list[str]:
    if not is_map(field):
        return ["", "[*]", f"[{random.randint(0, 3)}]", f"[{random.randint(0, 2)}:]", "[:2]"]
    key = field.message_type.fields_by_name["key"] if field.message_type else None
    assert key is not None
    named = {FieldDescriptor.TYPE_STRING: '"a"', FieldDescriptor.TYPE_BOOL: "true"}.get(key.type, "1")
    return ["", "[*]", f"[{named}]"]
