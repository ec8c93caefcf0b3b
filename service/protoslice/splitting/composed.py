"""Building blocks for splitters of one's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.base import ComposableSplitter
from protoslice.splitting.planning.measure import delimited, message_size, value_size
from protoslice.splitting.planning.plan import ElementSpan, cut
from protoslice.splitting.planning.shape import Shape, descriptor_of
from protoslice.splitting.tags import Fields, find, listed, path_of

SizeCheck: TypeAlias = Callable[[int], bool]


class SplitBasedOnSize(ComposableSplitter):
    """A splitter that is told the size of its message: override `build_chunks`, and return the bytes that left it."""

    def __init__(self, proto: Message, proto_size: int, **options: Any) -> None:
        """Takes the message and its size in bytes, and what `ComposableSplitter` takes."""
        super().__init__(proto, **options)
        self.proto_size = proto_size

    def build_chunks(self) -> int:
        """Adds chunks; returns how many bytes they took out of the message."""
        return 0


class LargeMessageSplitter(SplitBasedOnSize):
    """Makes a chunk of the whole message when it is large; an empty one stays in its place."""

    def __init__(self, proto: Message, proto_size: int, size_check: SizeCheck | None = None, **options: Any) -> None:
        """`size_check` tells of a size whether it is large; by default, whether it reaches the policy's `min_chunk`."""
        super().__init__(proto, proto_size, **options)
        self.size_check = size_check

    def build_chunks(self) -> int:
        """Adds the chunk, if the message is large; returns how many bytes left it."""
        large = (
            self.proto_size >= self.policy.min_chunk if self.size_check is None else self.size_check(self.proto_size)
        )
        if not large:
            return 0
        draft, path = self._part_of_root()
        self._add(draft.take(path), [])
        return self.proto_size


class RepeatedMessageSplitter(ComposableSplitter):
    """Splits a repeated field: each element by `message_splitters` in turn, then the field into runs of elements."""

    def __init__(
        self,
        proto: Message,
        repeated_field: Fields,
        message_splitters: Sequence[type[SplitBasedOnSize]],
        **options: Any,
    ) -> None:
        """Takes the message, where in it the field is, the splitters, and what `ComposableSplitter` takes."""
        super().__init__(proto, **options)
        self.repeated_field = listed(repeated_field)
        self.message_splitters = message_splitters
        path = path_of(descriptor_of(proto), self.repeated_field)
        if not path or not path[-1].field.repeated or path[-1].field.key is not None or path[-1].at is not None:
            raise InvalidInput(f"{repeated_field!r} of {descriptor_of(proto).full_name} is no repeated field")
        self._path = path

    def build_chunks(self) -> int:
        """Adds the chunks; returns how many bytes left the message."""
        holder, each = find(self.source, self._path[:-1]), self._path[-1].field
        if holder is None or not each.of(holder):
            return 0
        ledger = self._from_root([])[0]._ledger
        position = len(ledger.root.below)
        sizes, moved = self._split_elements(each, each.of(holder))
        _, *runs = cut(sizes, self.policy.max_chunk, self.policy.max_chunk)
        if runs:
            self._take_runs(each, runs)
            # Elements are merged into when they are there: the runs come before what was split out of the elements.
            below = ledger.root.below
            below[position:] = below[-len(runs) :] + below[position : -len(runs)]
        return moved + sum(run.size for run in runs)

    def _split_elements(self, each: Shape, values: Sequence[Any]) -> tuple[list[int], int]:
        sizes, moved = [], 0
        for i, value in enumerate(values):
            size = message_size(value) if each.message else value_size(each, value, 1)
            for splitter in self.message_splitters:
                place = [*self.repeated_field, i]
                left = splitter(value, size, parent_splitter=self, fields_in_parent=place).build_chunks()
                size, moved = size - left, moved + left
            sizes.append(each.tag_size + (delimited(size) if each.message else size))
        return sizes, moved

    def _take_runs(self, each: Shape, runs: Sequence[ElementSpan]) -> None:
        draft, path = self._part_of_root()
        place = (*path, *self._path[:-1])
        nodes = [self._add(None, self.repeated_field[:-1]) for _ in runs]
        # Backwards, so that nothing moves up before it is taken.
        for run, node in reversed(list(zip(runs, nodes, strict=True))):
            node.piece = draft.take_run(place, each, range(run.begin, run.end), run.size)
