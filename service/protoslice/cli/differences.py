"""What differs between two models, found by their digests: what is equal is not read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

import protoslice
from protoslice import Proto
from protoslice.cli.subjects import Digest, Policy, Row, Subject
from protoslice.errors import CorruptModel, ProtosliceError, Unsupported
from protoslice.library import MIN_CHUNK, SMALLEST_FLOOR, Node

__all__ = ["Change", "Difference", "differences"]

Change = Literal["added", "removed", "changed"]
LARGEST_SKELETON: Final = 64 << 20
"""Of models with more than that in small fields only the chunks are compared."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which the second model differs from the first."""

    what: Literal["file", "tensor", "chunk", "part"]
    path: str
    change: Change
    before: int | None
    """Its size in the first."""
    after: int | None
    detail: str = ""


def differences(before: Subject, after: Subject) -> list[Difference]:
    """In what `after` differs from `before`; nothing where both are the same, byte for byte."""
    files = _paired(before.files(), after.files())
    changed = list(_changes("file", files))
    if not changed:
        return []
    same = {path for path, (one, other) in files.items() if one and other and _surely_equal(one, other)}
    chunks = _chunks(before, after)
    sound = bool(chunks) and all(one and other and _surely_equal(one, other) for one, other in chunks.values())
    tensors = _Tensors(before, after, same, chunks)
    found = list(tensors.changes(everything_else_is_equal=sound))
    shown = [difference for difference, _ in found]
    # Of what was there tensors are known by where they were, of what is there by where they are.
    told = {True: [old for _, (old, _) in found if old], False: [new for _, (_, new) in found if new]}
    parts = (
        [] if sound else [each for each in _parts(before, after) if not _within(each.path, told[each.after is None])]
    )
    seen = [*tensors.places, *(part.path for part in parts)]
    left = [each for each in _changes("chunk", chunks) if each.path or not (shown or parts)]
    return [*changed, *shown, *parts, *(each for each in left if not _within(each.path, seen))]


def _paired(before: Mapping[str, T], after: Mapping[str, T]) -> dict[str, tuple[T | None, T | None]]:
    """Both by name; two that are alone are a pair, whatever they are called."""
    if len(before) == len(after) == 1:
        return {next(iter(after)): (next(iter(before.values())), next(iter(after.values())))}
    return {name: (before.get(name), after.get(name)) for name in dict.fromkeys([*before, *after])}


def _changes(
    what: Literal["file", "chunk"], pairs: Mapping[str, tuple[Digest | None, Digest | None]]
) -> Iterator[Difference]:
    for path, (one, other) in pairs.items():
        sizes = one.size if one else None, other.size if other else None
        if one is None or other is None:
            yield Difference(what, path, "added" if one is None else "removed", *sizes)
        elif not _surely_equal(one, other):
            unknown = one.sha256 is None or other.sha256 is None
            yield Difference(what, path, "changed", *sizes, "no digest is known" if unknown else "")


def _surely_equal(one: Digest, other: Digest) -> bool:
    return one == other and one.sha256 is not None


def _chunks(before: Subject, after: Subject) -> dict[str, tuple[Digest | None, Digest | None]]:
    """The chunks of both by path; none where they are cut in different ways, or one is no proto."""
    policies = [policy for policy in (before.policy(), after.policy()) if policy is not None]
    if len(set(policies)) == 2:
        return {}
    policy = policies[0] if policies else Policy()
    try:
        one, other = before.digests(policy), after.digests(policy)
    except (Unsupported, CorruptModel):
        return {}
    return {path: (one.get(path), other.get(path)) for path in dict.fromkeys([*one, *other])}


class _Tensors:
    """The tensors of both: a pair bears the same name, or where several do the same address."""

    def __init__(
        self,
        before: Subject,
        after: Subject,
        same_files: set[str],
        chunks: Mapping[str, tuple[Digest | None, Digest | None]],
    ) -> None:
        self._subjects = before, after
        one, other = (_keyed(_rows(subject)) for subject in self._subjects)
        self._pairs = {key: (one.get(key), other.get(key)) for key in dict.fromkeys([*one, *other])}
        self.places = [place for pair in self._pairs.values() for row in pair if row and (place := _place(row))]
        """Where in either proto tensors lie: what differs there is told of them."""
        self._same_files = same_files
        self._chunks = (
            {path: one for path, (one, _) in chunks.items() if one},
            {path: other for path, (_, other) in chunks.items() if other},
        )

    def changes(self, *, everything_else_is_equal: bool) -> Iterator[tuple[Difference, tuple[str, str]]]:
        """The differences, and where in each of the protos they lie."""
        for key, (before, after) in self._pairs.items():
            places = (before and _place(before)) or "", (after and _place(after)) or ""
            if before is None or after is None:
                change: Change = "added" if before is None else "removed"
                sizes = before.size if before else None, after.size if after else None
                yield Difference("tensor", key, change, *sizes), places
            elif (facts := _facts(before)) != (now := _facts(after)):
                yield Difference("tensor", key, "changed", before.size, after.size, f"{facts} → {now}"), places
            elif not (everything_else_is_equal and before.file == after.file) and not self._equal(before, after):
                yield Difference("tensor", key, "changed", before.size, after.size), places

    def _equal(self, before: Row, after: Row) -> bool:
        """Whether both have the same elements: by file, by chunks, and where no digest tells by reading them."""
        if before.file is not None and before.file == after.file and before.file in self._same_files:
            return True
        one, other = self._below(0, before), self._below(1, after)
        if one and one.keys() == other.keys():
            return one == other
        try:
            return self._read(0, before) == self._read(1, after)
        except ProtosliceError as error:
            return before.problem is not None and before.problem == after.problem and error.request_id is None

    def _below(self, side: int, row: Row) -> dict[str, Digest]:
        place = _place(row)
        return {path[len(place) :]: each for path, each in self._chunks[side].items() if _within(path, (place,))}

    def _read(self, side: int, row: Row) -> str:
        content = self._subjects[side].tensor(row.address, None, "json" if row.dtype == "STRING" else "raw")
        digest = hashlib.sha256()
        for piece in content.pieces():
            digest.update(piece)
        return digest.hexdigest()


def _rows(subject: Subject) -> list[Row]:
    try:
        return list(subject.tensors(None, None))
    except (Unsupported, CorruptModel):  # a proto that is no model: its parts are compared
        return []


def _keyed(rows: Sequence[Row]) -> dict[str, Row]:
    names = [row.name for row in rows]
    many = {name for name, count in _counts(names).items() if count > 1}
    return {row.address if row.name in many else row.name: row for row in rows}


def _counts(names: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return counts


def _place(row: Row) -> str:
    """Where in the proto it lies: nowhere, when that is in another file."""
    return row.address.removeprefix("path:") if row.address.startswith("path:") else ""


def _facts(row: Row) -> str:
    shape = "?" if row.shape is None else "×".join(map(str, row.shape)) or "scalar"
    return f"{row.dtype or '?'} {shape}"


def _within(path: str, places: Sequence[str]) -> bool:
    return any(path == place or path.startswith((f"{place}.", f"{place}[")) for place in places if place)


def _parts(before: Subject, after: Subject) -> Iterator[Difference]:
    """The fields that differ, of those smaller than chunks."""
    policy = before.policy() or after.policy() or Policy()
    try:
        one, other = (_skeleton(subject, (policy.min_chunk or MIN_CHUNK) - 1) for subject in (before, after))
    except (Unsupported, CorruptModel):
        return
    if one is not None and other is not None:
        yield from _walk(one, other, "", "")


def _skeleton(subject: Subject, limit: int) -> Proto | None:
    content = subject.part("", None, limit).content
    if content.size > LARGEST_SKELETON:
        return None
    facts: dict[str, Any] = subject.facts()
    data = content.read()
    try:
        return protoslice.open(data, facts["type"], floor=SMALLEST_FLOOR)
    except ProtosliceError:  # a type that only the service knows
        return protoslice.open(data, floor=SMALLEST_FLOOR)


def _walk(one: Proto, other: Proto, here: str, there: str) -> Iterator[Difference]:
    before, after = _children(one, here), _children(other, there)
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        if old is None and new is not None:
            yield Difference("part", new.path, "added", None, new.size)
        elif new is None and old is not None:
            yield Difference("part", old.path, "removed", old.size, None)
        elif old is not None and new is not None:
            yield from _inside(one, other, old, new)


def _inside(one: Proto, other: Proto, old: Node, new: Node) -> Iterator[Difference]:
    repeated = old.count is not None and new.count is not None
    if not repeated and one.merge(old.path).read() == other.merge(new.path).read():
        return
    if old.deeper and new.deeper:
        yield from _walk(one, other, old.path, new.path)
    elif not repeated or (old.count, old.size, old.text) != (new.count, new.size, new.text):
        detail = f"{old.text} → {new.text}" if old.text is not None and new.text is not None else ""
        yield Difference("part", new.path, "changed", old.size, new.size, detail)


def _children(proto: Proto, path: str) -> dict[str, Node]:
    """What lies below a place; messages that bear a name are known by that, wherever they stand."""
    nodes = proto.tree(path)
    names = _counts([node.text or "" for node in nodes])
    return {_key(node, path, names): node for node in nodes}


def _key(node: Node, path: str, names: Mapping[str, int]) -> str:
    named = node.kind == "message" and node.text is not None and names[node.text] == 1
    return f"{node.number} {node.text}" if named else node.path[len(path) :]
