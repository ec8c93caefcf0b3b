"""The budgets: over a real socket, the worst short requests and each call of the table cost at most their budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import pytest
from tests.budgets.artifacts import MLFLOW, OCI
from tests.budgets.filled import Filled, filled_service
from tests.budgets.harness import Measured, measured_service
from tests.budgets.hub import HUB, S3
from tests.budgets.operating import KEEPING, OPERATING
from tests.budgets.reading import READING
from tests.budgets.rows import Budget, Row, get
from tests.budgets.uploads import INTAKE, RESUMING
from tests.support.calls import CALLS, RULES, Call

ROWS: Final = (*OPERATING, *READING, *KEEPING, *INTAKE, *RESUMING, *HUB, *MLFLOW, *OCI, *S3)
"""All rows, ordered for the cheapest setup: rows over one store are next to each other."""
CALL: Final = Budget(written=1)
"""The budget of each call of the table over a little content."""
LISTED: Final = Budget(held=11_000)
DEARER: Final = {"GET /api/models": LISTED, "GET /api/datasets": LISTED}
"""The budgets of routes with many query parameters, which FastAPI reads one by one."""

Services = Callable[[Row], Measured]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """Return a service for a row; rows with equal requirements share a service."""
    running: dict[Any, Measured] = {}
    with ExitStack() as stack:

        def service(row: Row) -> Measured:
            key = (row.near, row.service, str(row) if row.fresh else "", *sorted(row.settings.items()))
            if key not in running:
                storage = tmp_path_factory.mktemp("storage")
                made = measured_service(storage, near=row.near, warm=not row.fresh, settings=row.settings)
                running[key] = stack.enter_context(made)
            return running[key]

        yield service


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled_service(tmp_path_factory.mktemp("filled")) as filled:
        yield filled


def test_rows_name_routes_of_the_service() -> None:
    assert {row.route for row in ROWS} - {"any"} <= set(RULES)


@pytest.mark.parametrize("row", ROWS, ids=str)
@pytest.mark.long
def test_the_worst_request_keeps_within_its_budget(services: Services, row: Row) -> None:
    service = services(row)
    given = None if row.given is None else service.given(row.given)
    status, wire, cost = service.cost(lambda wire: row.asked(wire, given))
    print(f"\n{row}: {status}; sent {wire.sent}, got {wire.got}; {cost}")
    assert row.budget.over(wire, cost) == []
    assert status in (row.status if isinstance(row.status, tuple) else (row.status,))
    assert wire.exchange(get("/livez"))[0] == 200


@pytest.mark.parametrize("call", CALLS, ids=str)
@pytest.mark.long
def test_each_call_keeps_within_its_budget(filled: Filled, call: Call) -> None:
    status, wire, cost = filled.cost(call)
    print(f"\n{call}: {status}; sent {wire.sent}, got {wire.got}; {cost}")
    assert DEARER.get(call.route, CALL).over(wire, cost) == []
    assert (status if status >= 400 else None) == call.refused


@pytest.mark.parametrize("call", {call.route: call for call in CALLS if "{" in call.target}.values(), ids=str)
@pytest.mark.long
def test_names_as_long_as_a_request_may_have_cost_little(filled: Filled, call: Call) -> None:
    status, wire, cost = filled.cost_of_long_names(call)
    print(f"\n{call}: {status}; sent {wire.sent}, got {wire.got}; {cost}")
    assert DEARER.get(call.route, CALL).over(wire, cost) == []
    assert status < 500
