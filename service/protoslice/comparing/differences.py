"""In what two models differ: files, tensors, and the parts of the root proto by path."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from protoslice.comparing.equality import Equality, Verdict
from protoslice.comparing.parts import parts_that_differ
from protoslice.comparing.sides import ComparedModel
from protoslice.comparing.streams import records_that_differ
from protoslice.errors import ProtosliceError
from protoslice.facts import Change, Difference
from protoslice.formats.bytes import Bytes
from protoslice.formats.model import Fault, Strings, Tensor, Tensors
from protoslice.formats.selection import naming
from protoslice.formats.tensors.budget import OverBudget, distinct_bytes
from protoslice.formats.tensors.reading import read
from protoslice.sources.ropes import Rope

_AT_ONCE: Final = 256
"""Tensors per slice of work."""
_SAMPLE: Final = 4 << 10
"""Bytes at either end by which tensors of other names are told apart."""
_MOST_TRIED: Final = 16
"""Tensors of other names, and of one look, that a new one is compared with."""

Found = Generator[Difference | None, None, None]
"""Yields differences, and None after each slice of work without one."""


def steps_of_differences(before: ComparedModel, after: ComparedModel, equality: Equality) -> Found:
    """Yields each difference of `after` from `before`, and None after each slice of work without one.

    Nothing differs where both are the same, byte for byte.
    """
    return _Models(before, after, equality).differences()


class _Models:
    def __init__(self, before: ComparedModel, after: ComparedModel, equality: Equality) -> None:
        self._sides = before, after
        self._equality = equality
        self._covered: set[str] = set()
        """Paths of tensors that differ, on either side."""
        self._changed_files: list[tuple[str, str]] = []
        """Names of files that differ, before and after."""

    def differences(self) -> Found:
        """All of them: files first, then tensors, then other parts."""
        files = yield from self._files()
        held = [*files]  # until it is known whether anything is different in them
        for found in chain(self._tensors(), self._parts()) if files else ():
            if found is not None:
                yield from held
                held = []
            yield found
        yield from map(self._plainly, held)

    def _plainly(self, file: Difference) -> Difference:
        """The difference of a file in which nothing else was found."""
        of_root = file.path == self._sides[1].root and file.change == "changed"
        if of_root and self._sides[1].model.proto is not None:
            return replace(file, detail="equal content, encoded differently")
        return file

    def _files(self) -> Generator[None, None, list[Difference]]:
        """Files that differ. The roots are a pair, whatever they are called."""
        before, after = self._sides
        found: list[Difference] = []
        roots: tuple[str | None, str | None] = (None, None)
        if before.root is not None and after.root is not None:
            roots = before.root, after.root
            if not (yield from self._same_roots(*roots)):
                sizes = before.files[before.root].size, after.files[after.root].size
                self._changed_files.append(roots)
                found.append(Difference("file", after.root, "changed", *sizes))
        ours, theirs = ({*side.files} - {root} for side, root in zip(self._sides, roots, strict=True))
        for name in dict.fromkeys(name for side in self._sides for name in side.files):
            if name in ours and name not in theirs:
                found.append(Difference("file", name, "removed", before.files[name].size, None))
            elif name in theirs and name not in ours:
                found.append(Difference("file", name, "added", None, after.files[name].size))
            elif name in ours and not (yield from self._same_file(name, name)):
                self._changed_files.append((name, name))
                found.append(Difference("file", name, "changed", before.files[name].size, after.files[name].size))
        return found

    def _same_roots(self, before: str, after: str) -> Verdict:
        if self._same_digest(before, after):
            return True
        protos = [side.model.proto for side in self._sides]
        if protos[0] is None or protos[1] is None or all(side.serialized for side in self._sides):
            return (yield from self._same_file(before, after))
        whole = (Bytes(proto.document.view("", None, None)[2], proto.sources) for proto in protos if proto is not None)
        return (yield from self._equality.same(*whole))

    def _same_file(self, one: str, other: str) -> Verdict:
        same = self._same_digest(one, other)
        before, after = (Bytes.of(side.files[name]) for side, name in zip(self._sides, (one, other), strict=True))
        return (yield from self._equality.same(before, after)) if same is None else same

    def _same_digest(self, one: str, other: str) -> bool | None:
        """Equality of two files by their digests; None where one is not known."""
        before, after = (side.sha256(name) for side, name in zip(self._sides, (one, other), strict=True))
        return None if before is None or after is None else before == after

    def _tensors(self) -> Found:
        """Tensors that differ; their places are covered from then on."""
        before, after = (_Keyed(side.tensors) for side in self._sides)
        gone, renamed = dict[int, None](), _Candidates(self._equality)
        for turn, (key, number) in enumerate(before, 1):
            if after.number(key) is None:
                gone[number] = None
                renamed.add(number, before.tensors[number])
            if not turn % _AT_ONCE:
                yield None
        for turn, (key, number) in enumerate(after, 1):
            tensor, old = after.tensors[number], before.number(key)
            if old is None:
                was = yield from renamed.take(tensor)
                if was is not None:
                    gone.pop(was[0])
                yield self._new(key, tensor, None if was is None else was[1])
            elif (found := (yield from self._changed(key, before.tensors[old], tensor))) is not None:
                yield found
            if not turn % _AT_ONCE:
                yield None
        for number in gone:
            tensor = before.tensors[number]
            self._cover(tensor)
            yield _of_tensor(before.key(number), "removed", tensor, None)

    def _new(self, key: str, tensor: Tensor, was: Tensor | None) -> Difference:
        """A tensor that was not there, unless it was called otherwise."""
        if was is None:
            self._cover(tensor)
            return _of_tensor(key, "added", None, tensor)
        self._cover(was, tensor)
        return _of_tensor(key, "renamed", was, tensor, f"was {was.name}")

    def _changed(self, key: str, before: Tensor, after: Tensor) -> Generator[None, None, Difference | None]:
        detail = yield from self._detail(before, after)
        if detail is None:
            return None
        self._cover(before, after)
        return _of_tensor(key, "changed", before, after, detail)

    def _detail(self, before: Tensor, after: Tensor) -> Generator[None, None, str | None]:
        """In what two tensors differ beside their elements; None when they are the same."""
        facts, now = _facts(before), _facts(after)
        if facts != now:
            return f"{facts} → {now}"
        faults = [str(each.data.error) for each in (before, after) if isinstance(each.data, Fault)]
        if len(faults) == 2 and faults[0] == faults[1]:
            return None
        if faults:
            return faults[-1]
        try:
            return None if (yield from self._equality.same(*_compared(before, after))) else ""
        except OverBudget:
            raise
        except ProtosliceError as error:
            return f"cannot be read: {error.message}"

    def _cover(self, *tensors: Tensor) -> None:
        self._covered.update(filter(None, map(_place, tensors)))

    def _parts(self) -> Found:
        """Parts that differ, but for those that belong to tensors that do."""
        before, after = (side.model.proto for side in self._sides)
        if before is not None and after is not None:
            yield from parts_that_differ(before, after, self._equality, self._covered)
        elif before is None and after is None:
            for one, other in self._changed_files:
                ours, theirs = self._sides
                yield from records_that_differ(ours.files[one], theirs.files[other], self._equality)


class _Keyed:
    """The tensors of a side by name, and by address where several bear it."""

    def __init__(self, tensors: Tensors) -> None:
        self.tensors = tensors
        self._called = naming(tensors)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return ((self.key(number), number) for number in range(len(self.tensors)))

    def key(self, number: int) -> str:
        """The key of a tensor."""
        name, address = self._called(number)
        return name if len(self.tensors.numbers(name)) == 1 else address

    def number(self, key: str) -> int | None:
        """The tensor with this key, or None."""
        numbers = self.tensors.numbers(key)
        return numbers[0] if len(numbers) == 1 and self.key(numbers[0]) == key else None


class _Candidates:
    """Tensors that are gone, among which a new one may be found by another name."""

    def __init__(self, equality: Equality) -> None:
        self._equality = equality
        self._alike: dict[tuple[str, bytes], list[tuple[int, Tensor]]] = {}

    def add(self, number: int, tensor: Tensor) -> None:
        """Note a tensor that is gone."""
        if tensor.size:
            self._alike.setdefault(self._look(tensor), []).append((number, tensor))

    def take(self, tensor: Tensor) -> Generator[None, None, tuple[int, Tensor] | None]:
        """Number and tensor of a candidate that is the same, and none any more; None if there is none."""
        found = self._alike.get(self._look(tensor), []) if tensor.size and self._alike else []
        for candidate in found[:_MOST_TRIED]:
            if (yield from self._equality.alike(*_compared(candidate[1], tensor))):
                found.remove(candidate)
                return candidate
        return None

    def _look(self, tensor: Tensor) -> tuple[str, bytes]:
        """Facts that the same tensor has by any name: elements at its ends too, where they cost but time."""
        if not self._equality.is_local or isinstance(tensor.data, Fault):
            return _facts(tensor), b""
        try:
            data = _elements(tensor)
            ends = Rope(data.rope, data.sources)
            sample = min(_SAMPLE, data.size)
            read = ends.read(0, sample) + ends.read(data.size - sample, sample)
        except ProtosliceError:
            return _facts(tensor), b""
        return _facts(tensor), hashlib.sha256(read).digest()


def _of_tensor(key: str, change: Change, before: Tensor | None, after: Tensor | None, detail: str = "") -> Difference:
    one, other = (None if each is None else each.size for each in (before, after))
    was, address = ("" if each is None else each.address for each in (before, after))
    return Difference("tensor", key, change, one, other, detail, address, was)


def _place(tensor: Tensor) -> str:
    """Path of the tensor in the proto; empty when the tensor lies in another file."""
    return tensor.address.removeprefix("path:") if tensor.address.startswith("path:") else ""


def _facts(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype.name if tensor.dtype is not None else '?'} {shape}"


def _compared(one: Tensor, other: Tensor) -> tuple[Bytes, Bytes]:
    """The elements of two tensors of one type and shape, of those that repeat in both only the first."""
    before, after = _elements(one), _elements(other)
    if before.size != after.size or one.dtype is None:
        return before, after
    end = min(before.size, max(map(distinct_bytes, (before, after))) + one.dtype.width)
    return before.part(0, end), after.part(0, end)


def _elements(tensor: Tensor) -> Bytes:
    return read(tensor, form="json" if isinstance(tensor.data, Strings) else "raw", compare=False).bytes
