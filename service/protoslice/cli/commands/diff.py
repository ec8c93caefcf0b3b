"""The command `diff`, which shows how two models differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from enum import StrEnum
from heapq import nlargest
from math import inf
from typing import Annotated, Final

import typer

from protoslice.cli.errors import ExitCode
from protoslice.cli.models.compared import differences, open_both
from protoslice.cli.models.remote import connect
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.models.source import RootType
from protoslice.cli.options import FileName, Json, SchemaFile, TypeName
from protoslice.cli.tables import Colour, counted, note, print_json, print_table, say
from protoslice.comparing.pairs import delta_job
from protoslice.concurrency import finish
from protoslice.errors import ProtosliceError
from protoslice.facts import Difference, TensorDelta
from protoslice.references import address_of, is_address
from protoslice.sizes import format_size
from protoslice.tensors.listing import Tensors, single
from protoslice.tensors.reading import resolve

_SAMPLE: Final = 4096
"""Number of elements of a tensor that are sampled to measure its change."""
_RUNS: Final = 4
_FARTHEST: Final = 15
_MOST_SUMMED: Final = 2000
"""Maximum number of changed tensors that a summary measures."""
DeltaOf = Callable[[Difference], TensorDelta]
COLOURS: Final[Mapping[str, Colour]] = {"added": "green", "removed": "red", "changed": "yellow"}


class What(StrEnum):
    """The kind of a difference."""

    FILE = "file"
    TENSOR = "tensor"
    PART = "part"


def diff(
    before: FileName,
    after: Annotated[str, typer.Argument(metavar="OTHER", help="Another file, directory or store.")],
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of differences to show.", min=1)] = 50,
    only: Annotated[
        What | None, typer.Option("--only", metavar="KIND", help="Only differences of this kind: file, tensor or part.")
    ] = None,
    summary: Annotated[
        bool, typer.Option("--summary", help="Show the number of differences, and the tensors that changed most.")
    ] = False,
    type_name: TypeName = None,
    schema_file: SchemaFile = None,
    as_json: Json = False,
) -> None:
    """Compare two models: files, tensors and other parts.

    Changed tensors are shown with their relative change, measured on a sample of elements. The relative change is the
    length of the difference vector divided by the length of the earlier tensor as a vector. Parts with equal checksums
    are not downloaded. The exit code is 0 if the models are equal, and 8 if they differ.

    Example: protoslice diff model.onnx http://127.0.0.1:8000/v1/stores/resnet50:3
    """
    root = root_type(type_name, schema_file)
    if is_address(before) and is_address(after):
        root.check_unused()
    with _compared(before, after, root) as (found, delta_of):
        shown = [each for each in found if only is None or each.what == only]
        if as_json:
            print_json({"equal": not found, "differences": [asdict(each) for each in shown]})
        elif summary:
            _sum_up(shown, delta_of)
        elif shown:
            _show(shown, limit, delta_of)
        elif found:
            note(f"no difference is of this kind: {_counted(found)}")
        else:
            say("equal")
    if found:
        raise typer.Exit(ExitCode.DIFFERENT)


@contextmanager
def _compared(before: str, after: str, root: RootType) -> Iterator[tuple[list[Difference], DeltaOf]]:
    """Yield the differences, and a function that measures how far a changed tensor moved.

    If both models are stores of one service, the service compares them.
    """
    if is_address(before) and is_address(after):
        one, other = address_of(before), address_of(after)
        if one.service == other.service:
            with connect(one.service) as client:
                found = [*client.diff(one.ref, other.ref)]
                yield (
                    found,
                    lambda each: client.tensor_delta(one.ref, other.ref, each.address, was=each.was, sample=_SAMPLE),
                )
                return
    with open_both((before, after), root) as sides:
        yield [*differences(*sides)], lambda each: _delta(sides[0].tensors, sides[1].tensors, each)


def _delta(before: Tensors, after: Tensors, each: Difference) -> TensorDelta:
    one, other = resolve(single(before, each.was))[0], resolve(single(after, each.address))[0]
    return finish(delta_job(one, other, _SAMPLE, _RUNS))


def _distances(found: list[Difference], delta_of: DeltaOf) -> dict[str, TensorDelta]:
    """Measure the changed tensors among `found`, and return the results by address.

    Tensors that cannot be compared are left out.
    """
    deltas: dict[str, TensorDelta] = {}
    for each in found:
        if each.what == "tensor" and each.change == "changed" and not each.detail:
            with suppress(ProtosliceError):
                deltas[each.address] = delta_of(each)
    return deltas


def _moved(delta: TensorDelta | None) -> str:
    """Return a text about how far the elements of a tensor moved."""
    if delta is None:
        return ""
    relative = f"relative change {shown}" if (shown := _relative(delta)) else ""
    most = "" if delta.max is None else f"max |Δ| {delta.max:.3g}"
    return ", ".join(filter(None, [relative, most]))


def _relative(delta: TensorDelta) -> str:
    """Return the relative change as text. A tensor that was zero before has no relative change."""
    if delta.relative is None:
        return "from 0" if delta.max else ""
    return f"{100 * delta.relative:.3g} %"


def _distance(delta: TensorDelta) -> float:
    if delta.relative is None:
        return inf if delta.max else 0
    return delta.relative


def _counted(found: list[Difference]) -> str:
    counts = Counter((each.what, each.change) for each in found)
    return ", ".join(f"{counted(count, what)} {change}" for (what, change), count in counts.items())


def _show(found: list[Difference], limit: int, delta_of: DeltaOf) -> None:
    shown = found[:limit]
    deltas = _distances(shown, delta_of)
    titles = ["change", "what", "before", "after", "path"]
    rows = [_row(each, _moved(deltas.get(each.address))) for each in shown]
    print_table(titles, rows, right=(2, 3), colours=COLOURS)
    if len(found) > 1:
        more = f"… {len(found) - limit} more (--limit shows more, --json all); in total: " if len(found) > limit else ""
        say()
        say(f"{more}{_counted(found)}")


def _sum_up(found: list[Difference], delta_of: DeltaOf) -> None:
    say(_counted(found) or "no differences")
    changed = [each for each in found if each.what == "tensor" and each.change == "changed"]
    deltas = _distances(changed[:_MOST_SUMMED], delta_of)
    farthest = nlargest(_FARTHEST, deltas.items(), key=lambda item: _distance(item[1]))
    if farthest:
        names = {each.address: each.path for each in changed}
        rows = [
            [
                _relative(delta),
                "" if delta.max is None else f"{delta.max:.3g}",
                _cosine(delta),
                names[address],
            ]
            for address, delta in farthest
        ]
        say()
        print_table(["relative change", "max |Δ|", "1 − cosine", "tensors that changed most"], rows, right=(0, 1, 2))
    if len(changed) > _MOST_SUMMED:
        note(f"only the first {_MOST_SUMMED} changed tensors were measured")


def _cosine(delta: TensorDelta) -> str:
    return "" if delta.cosine is None else f"{max(0.0, 1 - delta.cosine):.3g}"


def _row(each: Difference, moved: str) -> list[str]:
    before, after = ("" if size is None else format_size(size) for size in (each.before, each.after))
    words = [each.path or "(the root)", each.detail, moved]
    return [each.change, each.what, before, after, "  ".join(filter(None, words))]
