"""Budgets: the worst short request of every route keeps within its own, over a real socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.budgets.harness import Measured, measured_service
from tests.budgets.hub import HUB
from tests.budgets.intake import INTAKE
from tests.budgets.keeping import KEEPING
from tests.budgets.mlflow import MLFLOW
from tests.budgets.oci import OCI
from tests.budgets.operating import OPERATING
from tests.budgets.reading import READING
from tests.budgets.resuming import RESUMING
from tests.budgets.rows import Row, get
from tests.support.calls import RULES

ROWS = (*OPERATING, *READING, *KEEPING, *INTAKE, *RESUMING, *HUB, *MLFLOW, *OCI)
"""In the order of the cheapest setting up: rows over one store stand together."""

Services = Callable[[Row], Measured]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """A service as a row wants it; those that want the same share one."""
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


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert {row.route for row in ROWS} - {"any"} == set(RULES), "each route needs a row in tests/budgets"


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, id=str(row), marks=[pytest.mark.xfail(strict=True, reason=row.mend)] if row.mend else [])
        for row in ROWS
    ],
)
@pytest.mark.long
def test_the_worst_request_keeps_within_its_budget(services: Services, row: Row) -> None:
    service = services(row)
    given = None if row.given is None else service.given(row.given)
    status, wire, cost = service.cost(lambda wire: row.asked(wire, given))
    print(f"\n{row}: {status}; sent {wire.sent}, got {wire.got}; {cost}")
    assert row.over(wire, cost) == []
    assert status in (row.status if isinstance(row.status, tuple) else (row.status,))
    assert wire.exchange(get("/livez"))[0] == 200
