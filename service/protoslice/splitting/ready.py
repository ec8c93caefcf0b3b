"""Splitters that need no subclass: they plan by sizes, and leave the message and its payload where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.base import ComposableSplitter
from protoslice.splitting.planning.draft import LazyChunk, MessageDraft
from protoslice.splitting.planning.ledger import Ledger, LedgerNode
from protoslice.splitting.planning.plan import Entry, Plan, plan
from protoslice.splitting.planning.shape import Shape, descriptor_of
from protoslice.splitting.policy import SplitPolicy
from protoslice.splitting.tags import Path, path_of, tags_of


class AutoSplitter(ComposableSplitter):
    """Splits any message: large bytes, strings and messages leave it, long repeated fields and maps are cut."""

    _plan: Plan | None = None

    @property
    def policy(self) -> SplitPolicy:
        """The sizes to split by; `SplitPolicy()` where neither this splitter nor a parent was given any."""
        return SplitPolicy() if self._policy is None and self._parent is None else super().policy

    def plan(self) -> Plan:
        """What would become a chunk, from sizes alone."""
        return plan(self.source, self.policy, self._leaves)

    def build_chunks(self) -> int:
        """Adds the chunks of the plan; returns the bytes in them."""
        self._plan = self.plan()
        if self._plan.size and not (self._ledger.with_base or self._parent):
            raise InvalidInput(f"{self._plan.size} bytes remain of the message, which need an initial chunk")
        draft, path = self._part_of_root()
        root, place = self._from_root([])
        prefix = path_of(descriptor_of(root.source), place)
        _Execution(draft, root._ledger).run(self._plan.entries, root._ledger.root, prefix, path)
        return sum(map(_bytes_in, self._plan.entries))

    def _base(self) -> LazyChunk:
        assert self._own is not None
        return self._own.base(None if self._plan is None else self._plan.size)

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return True


class _GreedySplitter(AutoSplitter):
    """Splits messages of certain types, and those only that are too large for one chunk."""

    types: ClassVar[frozenset[str]]

    def __init__(self, proto: Message, **options: Any) -> None:
        super().__init__(proto, **options)
        name = descriptor_of(proto).name
        if name not in self.types:
            raise InvalidInput(f"{type(self).__name__} splits {' or '.join(sorted(self.types))}, not {name}")

    @property
    def policy(self) -> SplitPolicy:
        """The sizes to split by; `SplitPolicy.greedy()` where neither this splitter nor a parent was given any."""
        return ComposableSplitter.policy.fget(self)  # type: ignore[attr-defined, no-any-return]

    def plan(self) -> Plan:
        """What would become a chunk: nothing of a message that fits into one."""
        found = super().plan()
        return Plan(found.at_most, ()) if found.at_most <= self.policy.max_chunk else found

    @staticmethod
    def _leaves(field: Shape) -> bool:
        return field.type == FieldDescriptor.TYPE_BYTES


class GraphDefSplitter(_GreedySplitter):
    """Splits a TensorFlow `GraphDef`: constants, large nodes and functions, runs of nodes."""

    types = frozenset({"GraphDef"})


class SavedModelSplitter(_GreedySplitter):
    """Splits a TensorFlow `SavedModel`: all of its meta graphs, and whatever else is large in them."""

    types = frozenset({"SavedModel"})


class OnnxSplitter(_GreedySplitter):
    """Splits an ONNX model, graph or function: initializers, tensors in attributes and subgraphs, runs of nodes."""

    types = frozenset({"ModelProto", "GraphProto", "FunctionProto"})


def _bytes_in(entry: Entry) -> int:
    return entry.size + sum(map(_bytes_in, entry.inside))


class _Execution:
    """Follows a plan: first all chunks get their numbers, then what they hold."""

    def __init__(self, draft: MessageDraft, ledger: Ledger) -> None:
        self._draft = draft
        self._ledger = ledger

    def run(self, entries: Sequence[Entry], parent: LedgerNode, prefix: Path, at: Path) -> None:
        """Adds `entries` of the message at `at` below `parent`, for which that message stands at `prefix`."""
        nodes = [self._ledger.add(parent, tags_of((*prefix, *entry.path))) for entry in entries]
        # Backwards, since runs come first: parts leave their elements before these do, the last ones first.
        for entry, node in reversed(list(zip(entries, nodes, strict=True))):
            place = (*at, *entry.path)
            self.run(entry.inside, node, (), place)
            if entry.run is None:
                node.piece = self._draft.take(place, entry.size)
            else:
                node.piece = self._draft.take_run(place, entry.run.field, entry.run.keys, entry.size)
