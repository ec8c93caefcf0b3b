"""Building blocks for custom splitters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import Message

from protoslice.errors import InvalidInput
from protoslice.splitting.fields import Shape, delimited, descriptor_of, message_size, value_size
from protoslice.splitting.paths import Fields, listed, path_of, value_at
from protoslice.splitting.planner import cut_into_runs
from protoslice.splitting.splitters import ComposableSplitter

SizeCheck: TypeAlias = Callable[[int], bool]


class SplitBasedOnSize(ComposableSplitter):
    """Splitter that knows the size of its message.

    Subclasses override `build_chunks` and return the number of bytes that left the message.
    """

    def __init__(self, proto: Message, proto_size: int, **options: Any) -> None:
        """Takes the message, its size in bytes, and the options of `ComposableSplitter`."""
        super().__init__(proto, **options)
        self.proto_size = proto_size

    def build_chunks(self) -> int:
        """Add chunks; returns the number of bytes that left the message."""
        return 0


class LargeMessageSplitter(SplitBasedOnSize):
    """Makes one chunk of a large message; an empty message stays in its place."""

    def __init__(self, proto: Message, proto_size: int, size_check: SizeCheck | None = None, **options: Any) -> None:
        """`size_check` is true for a large size; by default, for one that reaches the policy's `min_chunk`."""
        super().__init__(proto, proto_size, **options)
        self.size_check = size_check

    def build_chunks(self) -> int:
        """Add the chunk, if the message is large; returns the number of bytes that left."""
        large = (
            self.proto_size >= self.policy.min_chunk if self.size_check is None else self.size_check(self.proto_size)
        )
        if not large:
            return 0
        remainder, path = self._part_of_root()
        self._add(remainder.take(path), [])
        return self.proto_size


class RepeatedMessageSplitter(ComposableSplitter):
    """Splits the elements of a repeated field, then the field into runs of elements.

    Each element is split by `message_splitters` in turn.
    """

    def __init__(
        self,
        proto: Message,
        repeated_field: Fields,
        message_splitters: Sequence[type[SplitBasedOnSize]],
        **options: Any,
    ) -> None:
        """Takes the message, the place of the field, the splitters, and the options of `ComposableSplitter`.

        `InvalidInput` unless the place is a repeated field and no map.
        """
        super().__init__(proto, **options)
        self.repeated_field = listed(repeated_field)
        self.message_splitters = message_splitters
        path = path_of(descriptor_of(proto), self.repeated_field)
        if not path or not path[-1].field.repeated or path[-1].field.key is not None or path[-1].at is not None:
            raise InvalidInput(f"{repeated_field!r} of {descriptor_of(proto).full_name} is not a repeated field")
        self._path = path

    def build_chunks(self) -> int:
        """Add the chunks; returns the number of bytes that left the message."""
        holder, each = value_at(self.source, self._path[:-1]), self._path[-1].field
        if holder is None or not each.of(holder):
            return 0
        tree = self._from_root([])[0]._tree
        position = len(tree.root.below)
        sizes, moved = self._split_elements(each, each.of(holder))
        _, *runs = cut_into_runs(sizes, self.policy.max_chunk, self.policy.max_chunk)
        if runs:
            self._take_runs(each, runs)
            # Mergers fill elements that exist already: runs come before the chunks split out of elements.
            below = tree.root.below
            below[position:] = below[-len(runs) :] + below[position : -len(runs)]
        return moved + sum(size for _, size in runs)

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

    def _take_runs(self, each: Shape, runs: Sequence[tuple[range, int]]) -> None:
        remainder, path = self._part_of_root()
        place = (*path, *self._path[:-1])
        nodes = [self._add(None, self.repeated_field[:-1]) for _ in runs]
        # Backwards: taking a run shifts the indices of later runs.
        for (run, size), node in reversed(list(zip(runs, nodes, strict=True))):
            node.piece = remainder.take_run(place, each, run, size)
