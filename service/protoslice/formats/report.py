"""Reports on models: the type, the tensors, missing files, and parts whose checksums do not match."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import prod
from typing import Final, get_args

from protoslice.concurrency import Job
from protoslice.errors import CorruptModel, LimitExceeded, NotFound, Unsupported
from protoslice.facts import Damage, DtypeTotal, ModelReport, Role, RoleTotal
from protoslice.formats.registry import tensors_of
from protoslice.tensors.layout import parts_of
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import MissingFile, Model, Strings, Tensor, Unreadable
from protoslice.tensors.reading import read

Check = Callable[[], object]
"""A function that compares a part of a model with its checksum, and raises `CorruptModel` if they differ."""

MOST_LISTED: Final = 20_000
"""The default maximum number of tensors that a report examines."""
MOST_NAMED: Final = 20
"""Largest number of missing files that a report lists.

The same limit applies to duplicate names and to damaged parts.
"""
_LARGEST_TOTAL: Final = (1 << 63) - 1
"""The upper bound of totals. A damaged model may state absurd shapes, and clients read numbers of 63 bits."""
_LISTED_AT_ONCE: Final = 256
_READ_AT_ONCE: Final = 8 << 20


def report_job(
    model: Model,
    *,
    most: int | None = MOST_LISTED,
    compare: bool = False,
    checks: Iterable[tuple[str, Check]] = (),
    listed: Tensors | None = None,
) -> Job[ModelReport]:
    """Return the report on `model` after examining its first `most` tensors, or all tensors if `most` is None.

    If `compare` is set, read tensors and compare them with the model's checksums. The bytes read are at most the total
    size of the model's files. Otherwise read no elements. `checks` are further comparisons: pairs of a part's name and
    a function that compares this part. `listed` are the tensors of the model, if the caller knows them.
    """
    survey, read = _Survey(), 0
    found = listed if listed is not None else survey.tensors_of(model)
    room = sum(source.size for source in model.files.values()) if compare else 0
    for number, tensor in enumerate(islice(found, most) if found is not None else (), 1):
        survey.take(tensor, model.root)
        if room >= 0 and compare and (check := comparing(tensor)) is not None:
            size = _claimed(tensor)
            room -= size  # a small index may assign the same bytes to a million tensors
            survey.check(tensor.name, check if room >= 0 else _overlapping)
            read += size
        if number % _LISTED_AT_ONCE == 0 or read >= _READ_AT_ONCE:
            read = 0
            yield
    for part, check in checks:
        yield
        survey.check(part, check)
    return survey.report(model, found, complete=most is None or found is None or len(found) <= most)


def comparing(tensor: Tensor) -> Check | None:
    """Return a function that compares `tensor` with the model's checksums; None if the tensor has no checksum.

    For a tensor of strings, the function reads all strings.
    """
    if isinstance(tensor.data, Strings):
        return partial(read, tensor, form="json")
    compares = [part.compare for part in parts_of(tensor.data) if part.compare is not None]
    return partial(_all_of, compares) if compares else None


def _claimed(tensor: Tensor) -> int:
    """Return how many bytes of data files the check of `tensor` reads."""
    if isinstance(tensor.data, Strings):
        return tensor.data.claimed
    return sum(part.bytes.size for part in parts_of(tensor.data) if part.compare is not None)


def _overlapping() -> None:
    raise CorruptModel(
        "Tensors overlap: together they have more bytes than the model's files, so the rest is not checked"
    )


def _all_of(steps: Iterable[Check]) -> None:
    for step in steps:
        step()


@dataclass(slots=True)
class _Survey:
    """The results of an examination so far."""

    names: Counter[str] = field(default_factory=Counter)
    files: dict[str, None] = field(default_factory=dict)
    missing: dict[str, None] = field(default_factory=dict)
    damaged: list[Damage] = field(default_factory=list)
    dtypes: dict[str | None, tuple[int, int, int]] = field(default_factory=dict)
    """The number of tensors, elements and bytes of each dtype."""
    roles: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """The number of tensors, elements and bytes of each role."""
    passed_over: bool = False
    """True when some names were not compared, because there were too many."""

    def tensors_of(self, model: Model) -> Tensors | None:
        """Return the tensors of `model`; None if no format matches, or if metadata is missing, damaged or too large."""
        try:
            return tensors_of(model)
        except MissingFile as error:
            self.missing[error.file] = None
        except CorruptModel as error:
            self._damage(error.path or model.root, error)
        except (Unsupported, NotFound, LimitExceeded):
            pass
        return None

    def take(self, tensor: Tensor, root: str) -> None:
        """Record the name, the dtype, the role, the file and the problem of `tensor`."""
        if tensor.name in self.names or len(self.names) < MOST_LISTED:
            self.names[tensor.name] += 1
        else:
            self.passed_over = True
        self._add_up(tensor)
        fault = tensor.data.error if isinstance(tensor.data, Unreadable) else None
        if isinstance(fault, MissingFile):
            self.missing[fault.file] = None
        elif tensor.file is not None and tensor.file != root:
            self.files[tensor.file] = None
        if isinstance(fault, CorruptModel):
            self._damage(tensor.name, fault)

    def _add_up(self, tensor: Tensor) -> None:
        name = None if tensor.dtype is None else tensor.dtype.name
        elements = 0 if tensor.shape is None else prod(tensor.shape)
        more = 1, elements, tensor.size or 0
        role = tensor.use.role
        self.dtypes[name] = _sum(self.dtypes.get(name, (0, 0, 0)), more)
        self.roles[role] = _sum(self.roles.get(role, (0, 0, 0)), more)

    def check(self, part: str, check: Check) -> None:
        """Run `check` and record the damage that it finds. Parts that cannot be compared count as sound."""
        try:
            check()
        except CorruptModel as error:
            self._damage(part, error)
        except (LimitExceeded, Unsupported):
            pass

    def _damage(self, part: str, error: CorruptModel) -> None:
        if len(self.damaged) <= MOST_NAMED:  # one more than a report lists: it then counts as incomplete
            self.damaged.append(Damage(part, error.message))

    def report(self, model: Model, found: Tensors | None, *, complete: bool) -> ModelReport:
        """Return the report. It is complete if `complete` is True and no list was truncated."""
        twice = [name for name, count in self.names.items() if count > 1]
        cut = self.passed_over or any(len(each) > MOST_NAMED for each in (self.missing, twice, self.damaged))
        return ModelReport(
            type=model.type,
            tensors=None if found is None else len(found),
            files=tuple(self.files),
            missing=tuple(self.missing)[:MOST_NAMED],
            duplicates=tuple(twice[:MOST_NAMED]),
            damaged=tuple(self.damaged[:MOST_NAMED]),
            dtypes=tuple(
                DtypeTotal(name, *totals) for name, totals in sorted(self.dtypes.items(), key=lambda each: -each[1][2])
            ),
            totals=tuple(RoleTotal(role, *self.roles[role]) for role in get_args(Role) if role in self.roles),
            complete=complete and not cut,
        )


def _sum(before: tuple[int, int, int], more: tuple[int, int, int]) -> tuple[int, int, int]:
    tensors, elements, size = (min(one + other, _LARGEST_TOTAL) for one, other in zip(before, more, strict=True))
    return tensors, elements, size
