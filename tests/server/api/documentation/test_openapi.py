"""The committed document is the application's, and the live service keeps to it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS as CHECKS_BY_NAME
from schemathesis.checks import load_all_checks
from schemathesis.transport.serialization import Binary
from tests.support.live import LiveServer

import protoslice

COMMITTED = Path(__file__).parents[4] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text())
# No 5xx, and nothing undocumented. Left out: that whatever the document allows is accepted. A path, a precondition, a
# model can be well-formed and wrong.
load_all_checks()
CHECKS: Any = CHECKS_BY_NAME.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "unsupported_method",
    ]
)


@schemathesis.serializer(
    "application/protobuf",
    "application/x-riegeli",
    "application/x-tar",
    "application/vnd.protoslice.recipe",
    "application/offset+octet-stream",
    "application/partial-upload",
)
def as_bytes(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Bytes as they are; for whatever else the generator thinks of, its text."""
    return value.data if isinstance(value, Binary) else value if isinstance(value, bytes) else str(value).encode()


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [(path, method, each) for path, found in DOCUMENT["paths"].items() for method, each in found.items()]


def test_it_is_served(client: httpx.Client) -> None:
    served = client.get("/openapi.json").json()
    assert served["info"].pop("version") == protoslice.__version__
    assert served["info"] == {name: value for name, value in DOCUMENT["info"].items() if name != "version"}
    assert {**served, "info": None} == {**DOCUMENT, "info": None}


def test_operation_ids_are_unique() -> None:
    counts = Counter(operation["operationId"] for _, _, operation in operations())
    assert max(counts.values()) == 1


def test_every_operation_says_what_it_is_and_how_it_fails() -> None:
    for path, method, operation in operations():
        assert operation["summary"], path
        assert operation["tags"], path
        assert {"400", "500", "503"} <= operation["responses"].keys(), (path, method)


def test_views_have_head_and_ranges() -> None:
    for path in ("files/{path}", "metadata", "chunks/{n}", "merge", "cpb"):
        found = DOCUMENT["paths"][f"/v1/stores/{{ref}}/{path}"]
        assert found.keys() - {"post"} == {"get", "head"}
        assert {"200", "206", "304", "412", "416"} <= found["get"]["responses"].keys() | {"412"}
        assert "content-range" in found["get"]["responses"]["206"]["headers"]


@pytest.fixture(scope="module")
def store(client: httpx.Client, model: bytes) -> str:
    answer = client.post("/v1/stores?filename=model.onnx&tag=resnet50:3", content=model)
    assert answer.status_code == 201
    return str(answer.json()["id"])


@SCHEMA.parametrize()
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_the_service_keeps_to_the_document(case: schemathesis.Case[Any], service: LiveServer, store: str) -> None:
    case.call_and_validate(base_url=service.url, checks=CHECKS)
