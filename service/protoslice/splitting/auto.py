"""Splitters that need no subclass: they plan by sizes and do not change the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.chunk_file import ChunkNode, ChunkTree
from protoslice.splitting.fields import Shape, descriptor_of
from protoslice.splitting.paths import Path, path_of, tags_of
from protoslice.splitting.planner import Entry, Plan, SplitPolicy, plan
from protoslice.splitting.remainder import LazyChunk, Remainder
from protoslice.splitting.splitters import ComposableSplitter


class AutoSplitter(ComposableSplitter):
    """Splits any message: large strings, bytes and messages leave, long repeated fields and maps are cut."""

    default_policy = SplitPolicy()
    _plan: Plan | None = None

    def plan(self) -> Plan:
        """Plan of the chunks, from sizes alone; nothing is split yet."""
        return plan(self.source, self.policy, self._leaves)

    def build_chunks(self) -> int:
        """Add the chunks of the plan; returns the number of bytes in them."""
        self._plan = self.plan()
        if self._plan.size and not (self._tree.with_base or self._parent):
            raise InvalidInput(
                f"{self._plan.size} bytes remain in the message after splitting: use proto_as_initial_chunk=True "
                "to keep them"
            )
        remainder, path = self._part_of_root()
        root, place = self._from_root([])
        prefix = path_of(descriptor_of(root.source), place)
        _Execution(remainder, root._tree).run(self._plan.entries, root._tree.root, prefix, path)
        return sum(map(_bytes_in, self._plan.entries))

    def _base(self) -> LazyChunk:
        assert self._own is not None
        return self._own.base(None if self._plan is None else self._plan.size)

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return True


class _GreedySplitter(AutoSplitter):
    """Base class of splitters of certain types, which split only messages too large for one chunk."""

    default_policy = SplitPolicy.greedy()
    types: ClassVar[frozenset[str]]

    def __init__(self, proto: Message, **options: Any) -> None:
        super().__init__(proto, **options)
        name = descriptor_of(proto).name
        if name not in self.types:
            raise InvalidInput(f"{type(self).__name__} splits {' or '.join(sorted(self.types))}, not {name}")

    def plan(self) -> Plan:
        """Plan of the chunks; no chunks for a message that fits into one."""
        found = super().plan()
        return Plan(found.at_most, ()) if found.at_most <= self.policy.max_chunk else found

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return field.type == FieldDescriptor.TYPE_BYTES


class GraphDefSplitter(_GreedySplitter):
    """Splits a TensorFlow `GraphDef`: constants, large nodes and functions, runs of nodes."""

    types = frozenset({"GraphDef"})


class SavedModelSplitter(_GreedySplitter):
    """Splits a TensorFlow `SavedModel`: all of its meta graphs, and other large parts of them."""

    types = frozenset({"SavedModel"})


class OnnxSplitter(_GreedySplitter):
    """Splits an ONNX model, graph or function.

    Chunks are initializers, tensors in attributes and subgraphs, and runs of nodes.
    """

    types = frozenset({"ModelProto", "GraphProto", "FunctionProto"})


def _bytes_in(entry: Entry) -> int:
    return entry.size + sum(map(_bytes_in, entry.inside))


class _Execution:
    """Executor of a plan: numbers all chunks first, then fills them."""

    def __init__(self, remainder: Remainder, tree: ChunkTree) -> None:
        self._remainder = remainder
        self._tree = tree

    def run(self, entries: Sequence[Entry], parent: ChunkNode, prefix: Path, at: Path) -> None:
        """Add `entries`; their message is at `at` in the remainder and at `prefix` below `parent`."""
        nodes = [self._tree.add(parent, tags_of((*prefix, *entry.path))) for entry in entries]
        # Backwards: runs come first in the plan, but parts have to leave elements before a run takes the elements.
        for entry, node in reversed(list(zip(entries, nodes, strict=True))):
            place = (*at, *entry.path)
            self.run(entry.inside, node, (), place)
            if entry.run is None:
                node.piece = self._remainder.take(place, entry.size)
            else:
                node.piece = self._remainder.take_run(place, entry.run.field, entry.run.keys, entry.size)
