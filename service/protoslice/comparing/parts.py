"""Functions that find the differing parts of two protos, and the differing records of two streams."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import ExitStack
from typing import Any, Final

from protoslice import _core
from protoslice.comparing.equality import Equality
from protoslice.concurrency import Job
from protoslice.errors import LimitExceeded, ProtosliceError, Unsupported
from protoslice.facts import Change, Difference, Node
from protoslice.library.documents import FileDocument, stream_document
from protoslice.library.proto import node_at
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.streams import Records, open_records
from protoslice.tensors.model import RootProto

MANY: Final = 1 << 18
"""Maximum number of nodes of one side in memory. A field with more nodes is only reported as changed."""
SMALL_NODE: Final = 64 << 10
"""Size in bytes up to which an element without a name is identified by its content."""
_AT_ONCE: Final = 256
"""Number of nodes in one slice of work, after which other work may run."""

LARGEST_STREAM: Final = 1 << 30
"""Maximum number of bytes in a stream whose records are compared. To find its records, the whole stream is read."""
MOST_INSIDE: Final = 100
"""Maximum number of pairs of records that are compared in detail. All later records get one common difference."""
_LIMITS: Final = _core.Limits(records=64 << 20)
_RUN: Final = 4096
"""Number of records that are compared together."""

Found = Generator[Difference | None, None, None]
"""A generator of differences, which yields None after each slice of work without a difference."""


def parts_that_differ(before: RootProto, after: RootProto, equality: Equality, reported: Set[str]) -> Found:
    """Yield the differing parts of two protos, except the paths in `reported`.

    If only one side has a part, the parts below it are not yielded. If a part has changed, only the innermost changed
    parts are yielded.
    """
    one, other = (FileDocument(proto.document, proto.sources) for proto in (before, after))
    yield from _Walk(one, other, equality, reported).below("", "", elements=False)


def records_that_differ(before: RangeSource, after: RangeSource, equality: Equality) -> Found:
    """Yield the differing parts of records in two streams, and the records that only one stream has.

    Yield nothing if a file is not a stream of records, or is too large.
    """
    if max(before.size, after.size) > LARGEST_STREAM:
        return
    with ExitStack() as held:
        try:
            sides = [held.enter_context(open_records(source, limits=_LIMITS)) for source in (before, after)]
        except (Unsupported, LimitExceeded):
            return
        yield from _Streams(sides, [before, after], equality).differences()


class _Walk:
    def __init__(self, before: FileDocument, after: FileDocument, equality: Equality, reported: Set[str]) -> None:
        self._before = before
        self._after = after
        self._equality = equality
        self._reported = reported
        """Paths in both protos that are skipped, because they have been reported."""
        self._room = MANY
        """Number of further nodes of one side that may be held in memory, over all levels of the walk."""
        self._turns = 0

    def below(self, here: str, there: str, *, elements: bool) -> Found:
        """Yield the differences between the children of two paths, one in each proto.

        `elements` is True if the children are the elements of a repeated field.
        """
        one = yield from _children(self._before, here, elements)
        other = yield from _children(self._after, there, elements)
        held = max(len(one), len(other))
        self._room -= held
        common = [key for key in one if key in other]
        for key in common:
            yield from self._inside(one[key], other[key])
        kept = set(common)
        gone, new = ([node for key, node in nodes.items() if key not in kept] for nodes in (one, other))
        if elements:  # elements without a name are paired in order
            turns = list(zip(*([node for node in nodes if not _name(node)] for nodes in (gone, new)), strict=False))
            for old, now in turns:
                yield from self._inside(old, now)
            gone, new = (_without(gone, [old for old, _ in turns]), _without(new, [now for _, now in turns]))
        yield from (_part(node.path, "removed", node.size, None) for node in gone if node.path not in self._reported)
        yield from (_part(node.path, "added", None, node.size) for node in new if node.path not in self._reported)
        if elements and common != [key for key in other if key in kept]:
            yield _part(there, "reordered", None, None, f"{len(common)} elements in another order")
        self._room += held

    def _inside(self, old: Node, new: Node) -> Found:
        self._turns += 1
        if not self._turns % _AT_ONCE:
            yield None
        if old.path in self._reported or new.path in self._reported:
            return
        one, other = _bytes(self._before, old), _bytes(self._after, new)
        deeper = old.deeper and new.deeper and max(old.count or 0, new.count or 0) <= self._room
        same = yield from self._equality.equal_if_cheap(one, other) if deeper else self._equality.equal(one, other)
        if same:
            return
        if deeper:
            repeated = old.count is not None and new.count is not None and "map" not in (old.kind, new.kind)
            yield from self.below(old.path, new.path, elements=repeated)
            return
        detail = f"{old.text} → {new.text}" if old.text is not None and new.text is not None else ""
        yield _part(new.path, "changed", old.size, new.size, detail, was=old.path)


def _part(path: str, change: Any, before: int | None, after: int | None, detail: str = "", was: str = "") -> Difference:
    return Difference("part", path, change, before, after, detail, path, was or path)


def _without(nodes: Sequence[Node], others: Sequence[Node]) -> list[Node]:
    paths = {node.path for node in others}
    return [node for node in nodes if node.path not in paths]


def _children(proto: FileDocument, path: str, elements: bool) -> Job[dict[str, Node]]:
    """Return the nodes directly below `path`, each under a key that should be the same in the other proto.

    The key is the name of a node if the name is unique. Otherwise, it is the last step of the path. For a small element
    of a repeated field, it is a digest of the content.
    """
    nodes = [node_at(path, row) for row in proto.document.children(path, 0, 1 << 40)[0]]
    names = Counter(_name(node) for node in nodes)
    found: dict[str, Node] = {}
    seen: Counter[str] = Counter()
    for number, node in enumerate(nodes, 1):
        name = _name(node)
        if name and names[name] == 1:
            key = name
        elif not elements:
            key = node.path[len(path) :]
        elif node.size > SMALL_NODE:
            key = f"another large field numbered {node.number}"
        else:
            key = hashlib.sha256(_merged(proto, node.path).read()).hexdigest()
        seen[key] += 1
        found[f"{key} {seen[key]}"] = node
        if not number % _AT_ONCE:
            yield
    return found


def _bytes(proto: FileDocument, node: Node) -> Rope:
    if node.count is None:
        return _merged(proto, node.path)
    step = node.name or str(node.number)  # elements of a repeated field are not contiguous
    return _merged(proto, node.path.removesuffix(step).removesuffix("."), [step])


def _merged(proto: FileDocument, path: str, fields: Sequence[str] | None = None) -> Rope:
    *_, rope = proto.document.view(path, fields, None)
    return Rope(rope, proto.sources)


def _name(node: Node) -> str:
    """Return the field number and the name of a message, or an empty text for a message without a name.

    The result does not depend on the position of the message.
    """
    return f"{node.number} {node.text}" if node.kind == "message" and node.text is not None else ""


class _Streams:
    def __init__(self, sides: list[Records], sources: list[RangeSource], equality: Equality) -> None:
        self._one, self._other = sides
        self._files = [[source] for source in sources]
        self._documents: tuple[FileDocument, FileDocument] = (
            stream_document(sides[0], self._files[0]),
            stream_document(sides[1], self._files[1]),
        )
        self._equality = equality
        self._inside_left = MOST_INSIDE

    def differences(self) -> Found:
        ours, theirs = len(self._one), len(self._other)
        most = min(ours, theirs)
        begin = yield from self._alike(most, lambda at: (at, at))
        end = yield from self._alike(most - begin, lambda at: (ours - at, theirs - at), backwards=True)
        left, right = ours - begin - end, theirs - begin - end
        paired = min(left, right)
        yield from self._pairs(begin, paired)
        yield from self._alone("removed", 0, begin + paired, left - paired)
        yield from self._alone("added", 1, begin + paired, right - paired)

    def _alike(self, most: int, place: Callable[[int], tuple[int, int]], *, backwards: bool = False) -> Job[int]:
        """Return the number of equal records at the beginning, or, with `backwards`, at the end of both streams.

        Whole runs of records are compared. If a run differs, the next run is half as long.
        """
        at, run = 0, min(_RUN, most)
        while run and at < most:
            run = min(run, most - at)
            one, other = place(at + run if backwards else at)
            if (yield from self._same(one, other, run)):
                at += run
            else:
                run //= 2
        return at

    def _pairs(self, begin: int, count: int) -> Found:
        """Compare `count` records of both streams from number `begin` in pairs, and yield their differences.

        Runs of equal records are compared as a whole and skipped.
        """
        open_runs = [(begin, count)]
        while open_runs:
            start, length = open_runs.pop()
            if not length or (yield from self._same(start, start, length)):
                continue
            if not self._inside_left:
                path = f"records[{start}:{begin + count}]"
                yield Difference(
                    "part", path, "changed", None, None, "at least one of these records differs", path, path
                )
                return
            if length == 1:
                yield from self._inside(start)
                continue
            half = length // 2
            open_runs += [(start + half, length - half), (start, half)]

    def _inside(self, number: int) -> Found:
        """Yield the differing parts of a record.

        If the parts of the record cannot be read, or if no part differs, yield the record itself.
        """
        self._inside_left -= 1
        path, reported = f"records[{number}]", False
        try:
            for found in _Walk(*self._documents, self._equality, set()).below(path, path, elements=False):
                reported = reported or found is not None
                yield found
        except ProtosliceError:
            reported = False
        if not reported:
            before, after = (self._rope(side, number, 1).size for side in (0, 1))
            yield Difference("part", path, "changed", before, after, "", path, path)

    def _alone(self, change: Change, side: int, begin: int, count: int) -> Found:
        if count:
            size = self._rope(side, begin, count).size
            path = f"records[{begin}]" if count == 1 else f"records[{begin}:{begin + count}]"
            before, after = (size, None) if change == "removed" else (None, size)
            detail = "" if count == 1 else f"{count} records"
            yield Difference("part", path, change, before, after, detail, path, path)

    def _same(self, one: int, other: int, count: int) -> Job[bool]:
        # Compare the records with their lengths, because the same bytes may be divided into different records.
        ropes = (self._rope(side, at, count, "delimited") for side, at in ((0, one), (1, other)))
        mine, theirs = (Rope(rope, files) for rope, files in zip(ropes, self._files, strict=True))
        return (yield from self._equality.equal(mine, theirs))

    def _rope(self, side: int, begin: int, count: int, framing: str | None = None) -> _core.Rope:
        records = (self._one, self._other)[side].core
        return records.rope([(begin, begin + count)], framing)
