"""In what two models differ: files, tensors, and the parts of the root proto by path."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from protoslice.cli.comparing.comparison import Comparison
from protoslice.cli.comparing.parts import DifferingPart, parts_that_differ
from protoslice.cli.comparing.sides import ComparedModel
from protoslice.cli.terminal.progress import Progress
from protoslice.errors import ProtosliceError
from protoslice.formats.bytes import Bytes
from protoslice.formats.model import Fault, Strings, Tensor
from protoslice.formats.tensors.reading import read

Change = Literal["added", "removed", "changed", "renamed", "reordered"]


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing in which the second model differs from the first."""

    what: Literal["file", "tensor", "part"]
    path: str
    change: Change
    before: int | None
    """Size in the first model, in bytes; None for an addition."""
    after: int | None
    detail: str = ""


def differences(before: ComparedModel, after: ComparedModel) -> list[Difference]:
    """In what `after` differs from `before`; nothing where both are the same, byte for byte."""
    with Progress("comparing") as progress:
        local = not (before.fetched or after.fetched)
        comparison = Comparison(before.cuts, after.cuts, progress, local=local)
        return _Models(before, after, comparison).differences()


class _Models:
    def __init__(self, before: ComparedModel, after: ComparedModel, comparison: Comparison) -> None:
        self._sides = before, after
        self._comparison = comparison

    def differences(self) -> list[Difference]:
        """All of them."""
        files = list(self._files())
        if not files:
            return []
        tensors = list(self._tensors())
        found = [difference for difference, _ in tensors]
        covered = {place for _, places in tensors for place in places if place}
        parts = [*self._parts(covered)]
        root = self._sides[1].root
        if parts or found:
            return [*files, *found, *parts]
        plainly = "the same parts, written in another way" if self._sides[1].model.proto is not None else ""
        return [
            Difference(each.what, each.path, each.change, each.before, each.after, plainly)
            if each.path == root and each.change == "changed"
            else each
            for each in files
        ]

    def _files(self) -> Iterator[Difference]:
        """Files that differ. The roots are a pair, whatever they are called."""
        before, after = self._sides
        roots: tuple[str | None, str | None] = (None, None)
        if before.root is not None and after.root is not None:
            roots = before.root, after.root
            if not self._same_roots(*roots):
                sizes = before.files[before.root].size, after.files[after.root].size
                yield Difference("file", after.root, "changed", *sizes)
        pairs = zip(self._sides, roots, strict=True)
        ours, theirs = ([name for name in side.files if name != root] for side, root in pairs)
        for name in dict.fromkeys([*ours, *theirs]):
            if name not in theirs:
                yield Difference("file", name, "removed", before.files[name].size, None)
            elif name not in ours:
                yield Difference("file", name, "added", None, after.files[name].size)
            elif not self._same_file(name, name):
                yield Difference("file", name, "changed", before.files[name].size, after.files[name].size)

    def _same_roots(self, before: str, after: str) -> bool:
        if self._same_digest(before, after):
            return True
        protos = [side.model.proto for side in self._sides]
        if protos[0] is None or protos[1] is None or protos[0].form == protos[1].form == "serialized":
            return self._same_file(before, after)
        return self._comparison.same(*(Bytes(proto.rope.core, proto.sources) for proto in protos if proto is not None))

    def _same_file(self, one: str, other: str) -> bool:
        same = self._same_digest(one, other)
        before, after = (Bytes.of(side.files[name]) for side, name in zip(self._sides, (one, other), strict=True))
        return self._comparison.same(before, after) if same is None else same

    def _same_digest(self, one: str, other: str) -> bool | None:
        """Equality of two files by their digests; None where one is not known."""
        before, after = (side.sha256(name) for side, name in zip(self._sides, (one, other), strict=True))
        return None if before is None or after is None else before == after

    def _tensors(self) -> Iterator[tuple[Difference, tuple[str, str]]]:
        """Tensors that differ, and where in either root proto they lie."""
        one, other = (_keyed(side.tensors()) for side in self._sides)
        gone = {key: tensor for key, tensor in one.items() if key not in other}
        for key, tensor in other.items():
            old = one.get(key)
            if old is None:
                yield self._new(key, tensor, gone)
            elif (difference := self._changed(key, old, tensor)) is not None:
                yield difference, (_place(old), _place(tensor))
        for key, tensor in gone.items():
            yield Difference("tensor", key, "removed", tensor.size, None), (_place(tensor), "")

    def _new(self, key: str, tensor: Tensor, gone: dict[str, Tensor]) -> tuple[Difference, tuple[str, str]]:
        """A tensor that was not there, unless it was called otherwise: then that is taken from what is `gone`."""
        facts = _facts(tensor)
        for name, old in gone.items():
            if tensor.size and _facts(old) == facts and self._equal(old, tensor, for_sure=True):
                del gone[name]
                renamed = Difference("tensor", key, "renamed", old.size, tensor.size, f"was {name}")
                return renamed, (_place(old), _place(tensor))
        return Difference("tensor", key, "added", None, tensor.size), ("", _place(tensor))

    def _changed(self, key: str, before: Tensor, after: Tensor) -> Difference | None:
        facts, now = _facts(before), _facts(after)
        if facts != now:
            return Difference("tensor", key, "changed", before.size, after.size, f"{facts} → {now}")
        faults = [str(each.data.error) for each in (before, after) if isinstance(each.data, Fault)]
        if len(faults) == 2 and faults[0] == faults[1]:
            return None
        if faults:
            return Difference("tensor", key, "changed", before.size, after.size, faults[-1])
        try:
            return None if self._equal(before, after) else Difference("tensor", key, "changed", before.size, after.size)
        except ProtosliceError as error:
            return Difference("tensor", key, "changed", before.size, after.size, f"cannot be read: {error.message}")

    def _equal(self, before: Tensor, after: Tensor, *, for_sure: bool = False) -> bool:
        """True if both have the same elements; `for_sure` means as far as that is known without fetching much."""
        one, other = _elements(before), _elements(after)
        return self._comparison.alike(one, other) if for_sure else self._comparison.same(one, other)

    def _parts(self, covered: set[str]) -> Iterator[Difference]:
        """Parts that differ, but for those that belong to tensors in `covered`."""
        protos = [side.model.proto for side in self._sides]
        if protos[0] is None or protos[1] is None:
            return
        for part in parts_that_differ(protos[0], protos[1], self._comparison, covered):
            yield _as_difference(part)


def _as_difference(part: DifferingPart) -> Difference:
    return Difference("part", part.path, part.change, part.before, part.after, part.detail)


def _keyed(tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The tensors by name, and by address where several bear it."""
    names = Counter(tensor.name for tensor in tensors)
    return {tensor.address if names[tensor.name] > 1 else tensor.name: tensor for tensor in tensors}


def _place(tensor: Tensor) -> str:
    """Path of the tensor in the proto; empty when the tensor lies in another file."""
    return tensor.address.removeprefix("path:") if tensor.address.startswith("path:") else ""


def _facts(tensor: Tensor) -> str:
    shape = "?" if tensor.shape is None else "×".join(map(str, tensor.shape)) or "scalar"
    return f"{tensor.dtype.name if tensor.dtype is not None else '?'} {shape}"


def _elements(tensor: Tensor) -> Bytes:
    return read(tensor, form="json" if isinstance(tensor.data, Strings) else "raw", compare=False).bytes
