"""Rules of splits: those of a request, and those that the operator keeps by message type."""

from __future__ import annotations

from protoslice import _core, schema
from protoslice.errors import ProtosliceError
from protoslice.library.opening import open_proto
from protoslice.stores.options import RulesByType
from protoslice.stores.requests import IngestRequest


def check_kept(kept: RulesByType) -> None:
    """Raise an error that names type and rule unless all rules parse, and apply to their bundled types."""
    for type_name, rules in kept.items():
        try:
            _core.Plan.rules(rules)
            if type_name in schema.bundled():
                with open_proto(b"", type_name) as empty:
                    empty.split(rules=rules)
        except ProtosliceError as error:
            raise _of_type(type_name, error)  # noqa: B904 - the same error, with the type in front


def planned(
    document: _core.Document, type_name: str | None, request: IngestRequest, kept: RulesByType
) -> tuple[_core.Plan, tuple[str, ...]]:
    """Plan of a root of type `type_name`, and the rules that made it, in canonical form."""
    by_type = kept.get(type_name or "", ()) if request.rules is None else ()
    rules = list(request.rules or by_type)
    try:
        plan = document.plan(request.min_chunk, request.max_chunk, rules)
    except ProtosliceError as error:
        if by_type and type_name is not None:
            _of_type(type_name, error)
        raise
    return plan, tuple(_core.Plan.rules(rules))


def _of_type(type_name: str, error: ProtosliceError) -> ProtosliceError:
    error.message = f"the default rules for {type_name}: {error.message}"
    return error
