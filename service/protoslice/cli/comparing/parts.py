"""Parts of two protos that differ, by path: equal parts are told by digests and not looked into."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final, Literal

from protoslice import Node, Proto
from protoslice.cli.comparing.comparison import Comparison
from protoslice.formats.bytes import Bytes

MANY: Final = 1 << 18
"""Of a field with more elements only that it differs is told."""
SMALL_NODE: Final = 64 << 10
"""Elements without a name that are not larger are known by their content."""


@dataclass(frozen=True, slots=True)
class DifferingPart:
    """Something in a proto that differs."""

    path: str
    change: Literal["added", "removed", "changed", "reordered"]
    before: int | None
    after: int | None
    detail: str = ""


def parts_that_differ(
    before: Proto, after: Proto, comparison: Comparison, covered: Set[str]
) -> Iterator[DifferingPart]:
    """Outermost parts on one side alone, and innermost changed parts; paths in `covered` are left out."""
    yield from _Walk(before, after, comparison, covered).below("", "", elements=False)


@dataclass(frozen=True, slots=True)
class _Walk:
    before: Proto
    after: Proto
    comparison: Comparison
    covered: Set[str]
    """Paths on either side that are reported already, and skipped."""

    def below(self, here: str, there: str, *, elements: bool) -> Iterator[DifferingPart]:
        """Differences between the children of two places, which are `elements` of a repeated field or fields."""
        one, other = _children(self.before, here, elements), _children(self.after, there, elements)
        common = [key for key in one if key in other]
        for key in common:
            yield from self._inside(one[key], other[key])
        kept = set(common)
        gone, new = ([node for key, node in nodes.items() if key not in kept] for nodes in (one, other))
        if elements:  # elements without a name are paired in order
            turns = list(zip(*([node for node in nodes if not _name(node)] for nodes in (gone, new)), strict=False))
            for old, now in turns:
                yield from self._inside(old, now)
            paired = {node.path for old, _ in turns for node in (old,)}, {node.path for _, node in turns}
            gone, new = (
                [node for node in nodes if node.path not in paths]
                for nodes, paths in zip((gone, new), paired, strict=True)
            )
        yield from (
            DifferingPart(node.path, "removed", node.size, None) for node in gone if node.path not in self.covered
        )
        yield from (DifferingPart(node.path, "added", None, node.size) for node in new if node.path not in self.covered)
        if elements and common != [key for key in other if key in kept]:
            yield DifferingPart(there, "reordered", None, None, f"{len(common)} elements in another order")

    def _inside(self, old: Node, new: Node) -> Iterator[DifferingPart]:
        if old.path in self.covered or new.path in self.covered:
            return
        one, other = _bytes(self.before, old), _bytes(self.after, new)
        deeper = old.deeper and new.deeper and max(old.count or 0, new.count or 0) <= MANY
        if self.comparison.known_same(one, other) is True if deeper else self.comparison.same(one, other):
            return
        if deeper:
            repeated = old.count is not None and new.count is not None and "map" not in (old.kind, new.kind)
            yield from self.below(old.path, new.path, elements=repeated)
            return
        detail = f"{old.text} → {new.text}" if old.text is not None and new.text is not None else ""
        yield DifferingPart(new.path, "changed", old.size, new.size, detail)


def _children(proto: Proto, path: str, elements: bool) -> dict[str, Node]:
    """Nodes directly below `path`, by name; those without a unique name by step, elements by content."""
    nodes = proto.tree(path)
    names = Counter(_name(node) for node in nodes)
    found: dict[str, Node] = {}
    seen: Counter[str] = Counter()
    for node in nodes:
        name = _name(node)
        if name and names[name] == 1:
            key = name
        elif not elements:
            key = node.path[len(path) :]
        elif node.size > SMALL_NODE:
            key = f"the next large one of {node.number}"
        else:
            key = hashlib.sha256(proto.merge(node.path).read()).hexdigest()
        seen[key] += 1
        found[f"{key} {seen[key]}"] = node
    return found


def _bytes(proto: Proto, node: Node) -> Bytes:
    if node.count is None:
        return Bytes(proto.merge(node.path).core, proto.sources)
    step = node.name or str(node.number)  # elements of a repeated field are not contiguous
    parent = node.path.removesuffix(step).removesuffix(".")
    return Bytes(proto.merge(parent, [step]).core, proto.sources)


def _name(node: Node) -> str:
    """Number and text of a message that has a name, else the empty string: the same in any position."""
    return f"{node.number} {node.text}" if node.kind == "message" and node.text is not None else ""
