"""The differences of two models: files, tensors, and parts of the root proto by path."""

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
"""Number of tensors in one slice of work, after which other work may run."""


class ComparedModel(Protocol):
    """A model to be compared."""

    @property
    def root(self) -> str | None:
        """The path of the root among the files, or None if no file is a root."""

    @property
    def files(self) -> Mapping[str, RangeSource]:
        """The files to compare, by path.

        For a store or a directory, these are all files. For a model that was named by its root, these are the root and
        the files to which it refers.
        """

    @property
    def model(self) -> Model:
        """The model in the files."""

    @property
    def serialized(self) -> bool:
        """True if the root file is the serialized proto itself, and not a chunked proto or a text."""

    @property
    def tensors(self) -> Tensors:
        """The tensors of the model, or an empty list if its format is not supported."""

    def sha256(self, path: str) -> str | None:
        """Return the digest of a whole file, or None if it is unknown."""


def steps_of_differences(
    before: ComparedModel, after: ComparedModel, equality: Equality, pairs: Sequence[Pair] | None = None
) -> Found:
    """Compare two models in steps: yield each difference, and None after a slice of work without a difference.

    If all files of both models are equal byte for byte, the function yields no difference. `pairs` is the result of
    `pairs_job`, if it is known already.
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
        """Paths of the tensors that differ, in both models."""
        self._changed_files: list[tuple[str, str]] = []
        """Names of changed files: the name before, and the name after."""

    def differences(self) -> Found:
        """Yield all differences: files first, then tensors, then other parts."""
        files = yield from self._files()
        held = [*files]  # report these together with the first difference of a tensor or part
        for found in chain(self._tensors(), self._parts()) if files else ():
            if found is not None:
                yield from held
                held = []
            yield found
        yield from map(self._plainly, held)

    def _plainly(self, file: Difference) -> Difference:
        """Return the difference of a file in which no tensor and no part differs."""
        of_root = file.path == self._sides[1].root and file.change == "changed"
        if of_root and self._sides[1].model.proto is not None:
            return replace(file, detail="the content is equal, but encoded differently")
        return file

    def _files(self) -> Job[list[Difference]]:
        """Return the files that differ. The roots are compared with each other even if their names differ."""
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
        """Return True if two files have equal digests, False if they differ, and None if a digest is unknown."""
        before, after = (side.sha256(name) for side, name in zip(self._sides, (one, other), strict=True))
        return None if before is None or after is None else before == after

    def _tensors(self) -> Found:
        """Yield the tensors that differ, and add their paths to `_reported`."""
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
        """Return how two tensors differ: a text about type, shape or errors, or an empty text if only elements differ.

        Return None if the tensors are equal.
        """
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
        """Yield the parts that differ, except parts of tensors that have been reported."""
        before, after = (side.model.proto for side in self._sides)
        if before is not None and after is not None:
            yield from parts_that_differ(before, after, self._equality, self._reported)
        elif before is None and after is None:
            for one, other in self._changed_files:
                ours, theirs = self._sides
                yield from records_that_differ(ours.files[one], theirs.files[other], self._equality)


def _key(tensors: Tensors, number: int) -> str:
    """Return the name of a tensor, or its address if several tensors have that name."""
    name, address = tensors.key(number)
    return name if len(tensors.numbers(name)) == 1 else address


def _of_tensor(key: str, change: Change, before: Tensor | None, after: Tensor | None, detail: str = "") -> Difference:
    one, other = (None if each is None else each.size for each in (before, after))
    was, address = ("" if each is None else each.address for each in (before, after))
    return Difference("tensor", key, change, one, other, detail, address, was)


def _place(tensor: Tensor) -> str:
    """Return the path of the tensor in the proto, or an empty text if the tensor is in another file."""
    return tensor.address.removeprefix("path:") if tensor.address.startswith("path:") else ""


def _facts(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype.name if tensor.dtype is not None else '?'} {shape}"


def _compared(one: Tensor, other: Tensor) -> tuple[Rope, Rope]:
    """Return the elements of two tensors of the same type and shape.

    If the elements of both tensors repeat, return only the bytes before the repetition, and one more element.
    """
    before, after = elements_of(one), elements_of(other)
    if before.size != after.size or one.dtype is None:
        return before, after
    end = min(before.size, max(map(distinct_bytes, (before, after))) + one.dtype.width)
    return before.part(0, end), after.part(0, end)
