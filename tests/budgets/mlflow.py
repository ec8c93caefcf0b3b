"""The worst requests to MLflow's artifacts."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
from tests.budgets.rows import MIB, Budget, Row, get, request

_JSON: Final = "application/json"
_BASE: Final = "/api/2.0/mlflow-artifacts"
_FILES: Final = 500
_SESSION: Final = "0" * 32


def _logged(http: httpx.Client) -> str:
    """Five hundred small files in one folder, and as many folders of one file."""
    with http.stream("GET", f"{_BASE}/artifacts?path=run/folders") as there:
        if json.loads(there.read())["files"]:
            return "run"
    for number in range(_FILES):
        for path in (f"run/files/{number}", f"run/folders/{number}/x"):
            http.put(f"{_BASE}/artifacts/{path}", content=b"x" * 1000).raise_for_status()
    http.put(f"{_BASE}/artifacts/run/large", content=b"x" * 100_000).raise_for_status()
    return "run"


def _row(route: str, worst: str, ask: bytes, *, status: int = 200, budget: Budget | None = None) -> Row:
    budget = budget or Budget(held=16_000)
    return Row(route=route, worst=worst, ask=ask, given=_logged, service="mlflow", status=status, budget=budget)


def _post(path: str, body: dict[str, Any]) -> bytes:
    return request("POST", path, json.dumps(body).encode(), content_type=_JSON)


_ETAGS: Final = [{"part_number": number, "etag": f"{number:032x}"} for number in range(1, 9000)]

MLFLOW: Final = (
    _row("GET /api/3.0/mlflow/server-info", "a question", get("/api/3.0/mlflow/server-info")),
    _row(
        f"GET {_BASE}/artifacts",
        "a folder of hundreds of files, each of which is read",
        get(f"{_BASE}/artifacts?path=run/files"),
        budget=Budget(held=32_000, loop=1_000_000, work=300_000, calls=_FILES + 20),
    ),
    _row(
        f"GET {_BASE}/artifacts",
        "a folder of hundreds of folders",
        get(f"{_BASE}/artifacts?path=run/folders"),
        budget=Budget(held=24_000),
    ),
    _row(f"GET {_BASE}/artifacts/{{name:path}}", "a file", get(f"{_BASE}/artifacts/run/large")),
    _row(
        f"GET {_BASE}/artifacts/{{name:path}}",
        "a deep path of nothing",
        get(f"{_BASE}/artifacts/{'a/' * 20}x"),
        status=404,
    ),
    _row(
        f"PUT {_BASE}/artifacts/{{name:path}}",
        "a byte more than lies in a record",
        request("PUT", f"{_BASE}/artifacts/run/new", b"x" * 16_385),
        budget=Budget(held=20_000, loop=100_000, work=100_000, calls=60, written_room=MIB),
    ),
    _row(
        f"DELETE {_BASE}/artifacts/{{name:path}}",
        "nothing",
        request("DELETE", f"{_BASE}/artifacts/run/nothing"),
    ),
    _row(f"GET {_BASE}/presigned/{{name:path}}", "a file", get(f"{_BASE}/presigned/run/large")),
    _row(
        f"POST {_BASE}/mpu/create/{{name:path}}",
        "as many parts as there may be",
        _post(f"{_BASE}/mpu/create/run", {"path": "f", "num_parts": 10_000}),
        budget=Budget(held=16_000, work=400_000, got=4 * MIB),
    ),
    _row(
        f"PUT {_BASE}/parts/{{session}}/{{name:path}}",
        "a byte",
        request("PUT", f"{_BASE}/parts/{_SESSION}/run?number=1", b"x"),
        budget=Budget(held=16_000, loop=100_000, work=100_000, calls=40, written_room=MIB),
    ),
    _row(
        f"POST {_BASE}/mpu/complete/{{name:path}}",
        "thousands of parts that nobody sent",
        _post(f"{_BASE}/mpu/complete/run", {"path": "f", "upload_id": _SESSION, "parts": _ETAGS}),
        status=404,
        budget=Budget(held=45_000, loop=1_000_000, work=400_000, calls=600),
    ),
    _row(
        f"POST {_BASE}/mpu/abort/{{name:path}}",
        "thousands of parts",
        _post(f"{_BASE}/mpu/abort/run", {"path": "f", "upload_id": _SESSION, "parts": _ETAGS}),
    ),
    _row(
        "POST /v1/drafts/{name:path}",
        "a folder of hundreds of files",
        request("POST", "/v1/drafts/run/files"),
        status=201,
        budget=Budget(held=40_000, loop=2_000_000, work=None, calls=_FILES + 100, written_room=4 * MIB),
    ),
)
