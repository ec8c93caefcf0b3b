"""Parts of two protos that differ, by path: equal parts are told by digests and not looked into."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Generator, Sequence, Set
from typing import Any, Final

from protoslice.comparing.equality import Equality
from protoslice.concurrency import Job
from protoslice.facts import Difference, Node
from protoslice.formats.model import RootProto
from protoslice.library.documents import FileDocument
from protoslice.library.proto import node_at
from protoslice.sources.ropes import Rope

MANY: Final = 1 << 18
"""Nodes of one side held together, at most: of a field with more, only that it differs is told."""
SMALL_NODE: Final = 64 << 10
"""Elements without a name that are not larger are known by their content."""
_AT_ONCE: Final = 256
"""Nodes per slice of work."""

Found = Generator[Difference | None, None, None]
"""Yields differences, and None after each slice of work without one."""


def parts_that_differ(before: RootProto, after: RootProto, equality: Equality, covered: Set[str]) -> Found:
    """Outermost parts on one side alone, and innermost changed parts; paths in `covered` are left out."""
    one, other = (FileDocument(proto.document, proto.sources) for proto in (before, after))
    yield from _Walk(one, other, equality, covered).below("", "", elements=False)


def parts_below(before: FileDocument, after: FileDocument, path: str, equality: Equality) -> Found:
    """Parts that differ below one path of two documents."""
    yield from _Walk(before, after, equality, set()).below(path, path, elements=False)


class _Walk:
    def __init__(self, before: FileDocument, after: FileDocument, equality: Equality, covered: Set[str]) -> None:
        self._before = before
        self._after = after
        self._equality = equality
        self._covered = covered
        """Paths on either side that are reported already, and skipped."""
        self._room = MANY
        """Nodes of a side that may still be held, at all levels together."""
        self._turns = 0

    def below(self, here: str, there: str, *, elements: bool) -> Found:
        """Differences between the children of two places, which are `elements` of a repeated field or fields."""
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
        yield from (_part(node.path, "removed", node.size, None) for node in gone if node.path not in self._covered)
        yield from (_part(node.path, "added", None, node.size) for node in new if node.path not in self._covered)
        if elements and common != [key for key in other if key in kept]:
            yield _part(there, "reordered", None, None, f"{len(common)} elements in another order")
        self._room += held

    def _inside(self, old: Node, new: Node) -> Found:
        self._turns += 1
        if not self._turns % _AT_ONCE:
            yield None
        if old.path in self._covered or new.path in self._covered:
            return
        one, other = _bytes(self._before, old), _bytes(self._after, new)
        deeper = old.deeper and new.deeper and max(old.count or 0, new.count or 0) <= self._room
        same = yield from self._equality.known(one, other) if deeper else self._equality.same(one, other)
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
    """Nodes directly below `path`, by name; those without a unique name by step, elements by content."""
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
    """Number and text of a message that has a name, else the empty string: the same in any position."""
    return f"{node.number} {node.text}" if node.kind == "message" and node.text is not None else ""
