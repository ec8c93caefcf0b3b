"""Differences of two models: files, tensors, and the parts of the root proto by path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol

from protoslice.comparing.equality import Equality
from protoslice.comparing.pairs import Pair, elements_of, pairs_job
from protoslice.comparing.parts import Found, parts_that_differ, records_that_differ
from protoslice.concurrency import Job
from protoslice.errors import ProtosliceError
from protoslice.facts import Change, Difference
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors.layout import OverBudget, distinct_bytes
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import Model, Tensor, Unreadable

_AT_ONCE: Final = 256
"""Tensors per slice of work."""


class ComparedModel(Protocol):
    """A model to be compared."""

    @property
    def root(self) -> str | None:
        """The path of its root among the files; None if no file is a root."""

    @property
    def files(self) -> Mapping[str, RangeSource]:
        """Compared files: all of a store or a directory; for a model named by its root, those it refers to."""

    @property
    def model(self) -> Model:
        """The model in the files."""

    @property
    def serialized(self) -> bool:
        """True if the root file is the serialized proto itself, rather than a chunked file or a text."""

    @property
    def tensors(self) -> Tensors:
        """Tensors of the model; none if no format knows the model."""

    def sha256(self, path: str) -> str | None:
        """Return the digest of a whole file, if it is known."""


def steps_of_differences(
    before: ComparedModel, after: ComparedModel, equality: Equality, pairs: Sequence[Pair] | None = None
) -> Found:
    """Yield each difference of `after` from `before`, and None after each slice of work without a difference.

    Nothing differs if both models are equal byte for byte. `pairs` are the result of `pairs_job`, if known.
    """
    return _Models(before, after, equality, pairs).differences()


class _Models:
    def __init__(
        self, before: ComparedModel, after: ComparedModel, equality: Equality, pairs: Sequence[Pair] | None
    ) -> None:
        self._sides = before, after
        self._equality = equality
        self._pairs = pairs
        self._reported: set[str] = set()
        """Paths of tensors that differ, on either side."""
        self._changed_files: list[tuple[str, str]] = []
        """Names of files that differ, before and after."""

    def differences(self) -> Found:
        """Yield all differences: files first, then tensors, then other parts."""
        files = yield from self._files()
        held = [*files]  # until it is known whether anything is different in them
        for found in chain(self._tensors(), self._parts()) if files else ():
            if found is not None:
                yield from held
                held = []
            yield found
        yield from map(self._plainly, held)

    def _plainly(self, file: Difference) -> Difference:
        """Return the difference of a file in which nothing more specific was found."""
        of_root = file.path == self._sides[1].root and file.change == "changed"
        if of_root and self._sides[1].model.proto is not None:
            return replace(file, detail="equal content, encoded differently")
        return file

    def _files(self) -> Job[list[Difference]]:
        """Yield the files that differ. The roots are compared even if their names differ."""
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

    def _same_roots(self, before: str, after: str) -> Job[bool]:
        if self._same_digest(before, after):
            return True
        protos = [side.model.proto for side in self._sides]
        if protos[0] is None or protos[1] is None or all(side.serialized for side in self._sides):
            return (yield from self._same_file(before, after))
        whole = (Rope(proto.document.view("", None, None)[2], proto.sources) for proto in protos if proto is not None)
        return (yield from self._equality.equal(*whole))

    def _same_file(self, one: str, other: str) -> Job[bool]:
        same = self._same_digest(one, other)
        before, after = (Rope.of(side.files[name]) for side, name in zip(self._sides, (one, other), strict=True))
        return (yield from self._equality.equal(before, after)) if same is None else same

    def _same_digest(self, one: str, other: str) -> bool | None:
        """Return whether two files have equal digests; None if a digest is unknown."""
        before, after = (side.sha256(name) for side, name in zip(self._sides, (one, other), strict=True))
        return None if before is None or after is None else before == after

    def _tensors(self) -> Found:
        """Yield the tensors that differ, and remember their paths as reported."""
        before, after = (side.tensors for side in self._sides)
        pairs = self._pairs
        if pairs is None:
            pairs = yield from pairs_job(before, after, local=self._equality.is_local)
        twins = {new: old for old, new in pairs if new is not None}
        gone = sorted(old for old, new in pairs if old is not None and new is None)
        for number in range(len(after)):
            tensor, old = after[number], twins.get(number)
            if old is None:
                self._note(tensor)
                yield _of_tensor(_key(after, number), "added", None, tensor)
            elif (change := (yield from self._paired(_key(after, number), before[old], tensor))) is not None:
                yield change
            if not (number + 1) % _AT_ONCE:
                yield None
        for number in gone:
            tensor = before[number]
            self._note(tensor)
            yield _of_tensor(_key(before, number), "removed", tensor, None)

    def _paired(self, key: str, before: Tensor, after: Tensor) -> Job[Difference | None]:
        detail = yield from self._detail(before, after)
        if before.name == after.name:
            if detail is None:
                return None
            self._note(before, after)
            return _of_tensor(key, "changed", before, after, detail)
        self._note(before, after)
        change: Change = "renamed" if _facts(before) == _facts(after) else "changed"
        more = "values differ" if detail == "" else detail
        return _of_tensor(key, change, before, after, "; ".join(filter(None, (f"was {before.name}", more))))

    def _detail(self, before: Tensor, after: Tensor) -> Job[str | None]:
        """Yield how two tensors differ besides their elements; None when they are the same."""
        facts, now = _facts(before), _facts(after)
        if facts != now:
            return f"{facts} → {now}"
        faults = [str(each.data.error) for each in (before, after) if isinstance(each.data, Unreadable)]
        if len(faults) == 2 and faults[0] == faults[1]:
            return None
        if faults:
            return faults[-1]
        try:
            return None if (yield from self._equality.equal(*_compared(before, after))) else ""
        except OverBudget:
            raise
        except ProtosliceError as error:
            return f"cannot be read: {error.message}"

    def _note(self, *tensors: Tensor) -> None:
        self._reported.update(filter(None, map(_place, tensors)))

    def _parts(self) -> Found:
        """Yield the parts that differ, except those that belong to differing tensors."""
        before, after = (side.model.proto for side in self._sides)
        if before is not None and after is not None:
            yield from parts_that_differ(before, after, self._equality, self._reported)
        elif before is None and after is None:
            for one, other in self._changed_files:
                ours, theirs = self._sides
                yield from records_that_differ(ours.files[one], theirs.files[other], self._equality)


def _key(tensors: Tensors, number: int) -> str:
    """Return the name of a tensor, or its address where several have that name."""
    name, address = tensors.key(number)
    return name if len(tensors.numbers(name)) == 1 else address


def _of_tensor(key: str, change: Change, before: Tensor | None, after: Tensor | None, detail: str = "") -> Difference:
    one, other = (None if each is None else each.size for each in (before, after))
    was, address = ("" if each is None else each.address for each in (before, after))
    return Difference("tensor", key, change, one, other, detail, address, was)


def _place(tensor: Tensor) -> str:
    """Return the path of the tensor in the proto; empty when the tensor is in another file."""
    return tensor.address.removeprefix("path:") if tensor.address.startswith("path:") else ""


def _facts(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype.name if tensor.dtype is not None else '?'} {shape}"


def _compared(one: Tensor, other: Tensor) -> tuple[Rope, Rope]:
    """Return the elements of two tensors of one type and shape; if both repeat a part, only the first."""
    before, after = elements_of(one), elements_of(other)
    if before.size != after.size or one.dtype is None:
        return before, after
    end = min(before.size, max(map(distinct_bytes, (before, after))) + one.dtype.width)
    return before.part(0, end), after.part(0, end)
