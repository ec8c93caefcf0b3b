"""The OpenAPI document, the shared declarations of the document and the routes, and the document's media types."""

from __future__ import annotations

import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any, Final

import httpx
import pytest
import schemathesis
from fastapi import Request
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import CHECKS as CHECKS_BY_NAME
from schemathesis.checks import load_all_checks
from schemathesis.transport.serialization import Binary
from starlette.responses import Response
from tests.server.api.test_preconditions import filled, rows
from tests.support.calls import CALLS, RULES
from tests.support.serve import LiveServer, ask, open_app
from tools.interfaces import operations_page

import protoslice
from protoslice.facts import Tag
from protoslice.server import app as app_module
from protoslice.server.app import create_app
from protoslice.server.auth.permissions import READ, READ_SIGNED, Rule
from protoslice.server.request.middleware import OPERATING
from protoslice.server.routing import RouteGroup, endpoint, routes_of
from protoslice.server.settings import Settings

COMMITTED = Path(__file__).parents[3] / "openapi" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(COMMITTED.read_text())
# Check for status 5xx and undocumented answers. Do not check that every documented input is accepted, as a path,
# a precondition or a model can be well-formed and wrong.
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


@schemathesis.serializer("application/protobuf", "application/offset+octet-stream")
def as_bytes(context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Return bytes unchanged; of any other generated value, its text."""
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


def test_options_lists_the_methods_of_the_document(client: httpx.Client) -> None:
    for path in ("/v1/uploads", "/v1/uploads/{upload}"):
        allowed = client.options(path).headers["allow"].lower().split(", ")
        assert {*allowed} == {"options", *DOCUMENT["paths"][path]}, path


def test_every_operation_says_what_it_is_and_how_it_fails() -> None:
    for path, method, operation in operations():
        assert operation["summary"], path
        assert operation["tags"], path
        assert {"400", "500", "503"} <= operation["responses"].keys(), (path, method)


def test_views_have_ranges() -> None:
    for path in ("files/{path}", "metadata", "chunks/{n}", "merge", "cpb"):
        found = DOCUMENT["paths"][f"/v1/stores/{{ref}}/{path}"]
        assert found.keys() - {"post"} == {"get"}
        assert {"200", "206", "304", "412", "416"} <= found["get"]["responses"].keys() | {"412"}
        assert "content-range" in found["get"]["responses"]["206"]["headers"]


def test_names_of_parameters_differ_by_more_than_case_and_punctuation() -> None:
    """Generators make one name of `range` and `Range`, or of `if-match` and `if_match`."""
    for path, method, operation in operations():
        names = ["".join(filter(str.isalnum, each["name"])).lower() for each in operation.get("parameters", ())]
        assert max(Counter(names).values(), default=0) <= 1, (path, method, sorted(names))


def test_an_operation_takes_bytes_as_one_media_type() -> None:
    """A generated client sends the same type for all bytes."""
    for path, method, operation in operations():
        content = operation.get("requestBody", {}).get("content", {})
        of_bytes = [media for media, each in content.items() if each["schema"].get("format") == "binary"]
        assert len(of_bytes) <= 1, (path, method, of_bytes)


def test_operations_name_the_tokens_that_they_take() -> None:
    schemes = DOCUMENT["components"]["securitySchemes"]
    assert {name: each["scheme"] for name, each in schemes.items()} == {"bearer": "bearer", "basic": "basic"}
    rules = {row.replace(":path}", "}"): rule for row, rule in RULES.items()}
    for path, method, operation in operations():
        scope = rules[f"{'GET' if method == 'head' else method.upper()} {path}"].scope
        expected = [] if scope is None else [{"bearer": [scope.value]}, {"basic": [scope.value]}, {}]
        assert operation["security"] == expected, (path, method)
        assert scope is None or {"401", "403", "404"} <= operation["responses"].keys(), (path, method)


def test_failures_that_operations_share_are_in_all_of_them() -> None:
    for path, method, operation in operations():
        said = operation["responses"].keys()
        assert "429" in said or path in OPERATING, (path, method)
        assert "requestBody" not in operation or {"413", "415"} <= said, (path, method)


def test_integers_have_a_format_and_inclusive_bounds() -> None:
    """Some generators accept only numbers of OpenAPI 3.0, in which exclusive bounds are true or false."""

    def check(part: Any, place: str) -> None:
        for name, each in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
            check(each, f"{place}/{name}")
        if isinstance(part, dict) and part.get("type") == "integer":
            assert part["format"] in {"int32", "int64"}, place
            assert not part.keys() & {"exclusiveMaximum", "exclusiveMinimum"}, place

    check(DOCUMENT, "")


def test_parameters_of_paths_are_bounded() -> None:
    for path, method, operation in operations():
        for each in operation.get("parameters", ()):
            bounds = each["schema"].keys() & {"pattern", "maxLength", "enum", "minimum"}
            assert each["in"] != "path" or bounds, (path, method, each["name"])


def test_a_name_outside_its_pattern_is_refused(client: httpx.Client) -> None:
    checked = 0
    for path, method, operation in operations():
        schemas = {each["name"]: each["schema"] for each in operation.get("parameters", ()) if each["in"] == "path"}
        for name, schema in schemas.items():
            if "pattern" in schema:
                target = "/".join(part if part != f"{{{name}}}" else "-_" for part in path.split("/"))
                assert not re.fullmatch(schema["pattern"], "-_"), (path, name)
                body = {"store": "0" * 64, "url": "https://hooks.example/"} if "requestBody" in operation else None
                answer = client.request(method, target, json=body)
                assert 400 <= answer.status_code < 500, (method, target, answer.status_code)
                checked += 1
    assert checked > 10


def test_members_of_problems_are_in_the_document() -> None:
    described = DOCUMENT["components"]["schemas"]["ProblemModel"]["properties"].keys()
    given = {"expected-offset", "provided-offset", "path", "offset", "object", "names", "more"}
    for source in (COMMITTED.parents[1] / "service/protoslice/server").rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "HttpProblem":
                given |= {each.arg for each in node.keywords if each.arg is not None}
    assert given - {"headers"} <= described


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


def test_threads_make_the_document_once(monkeypatch: pytest.MonkeyPatch) -> None:
    both, made = Barrier(2), list[int]()

    def make(*_: object) -> dict[str, str]:
        made.append(1)
        with suppress(BrokenBarrierError):  # two threads would meet here
            both.wait(0.5)
        return {}

    monkeypatch.setattr(app_module, "openapi_document", make)
    app = app_module.create_app(Settings(storage="memory://"))
    with ThreadPoolExecutor(2) as threads:
        assert [each.result() for each in [threads.submit(app.openapi) for _ in range(2)]] == [{}, {}]
    assert len(made) == 1


def test_endpoint_declares_route_rule_and_answers() -> None:
    router = RouteGroup()

    @endpoint(router, "POST /v1/new/{name}", READ, answer=Tag, status=201, fails=(404,), cached=True)
    async def make_new(request: Request, name: str) -> Response:
        """Create a new thing."""
        return Response()

    ((row, route),) = routes_of(router.routes)
    assert (row, route.rule) == ("POST /v1/new/{name}", READ)
    assert (route.operation_id, route.description, dict(route.answers)) == (
        "make_new",
        "Create a new thing.",
        {201: Tag},
    )
    assert (sorted(route.fails), route.cached) == ([404], True)


def test_routes_of_one_call_have_one_rule() -> None:
    rules = defaultdict[str, list[Rule]](list)
    for row, route in routes_of(create_app(Settings(storage="memory://")).router.routes):
        rules[row].append(route.rule)
    shared = {row: found for row, found in rules.items() if len(found) > 1}
    assert shared == {"GET /v1/stores/{ref}/files/{path:path}": [READ_SIGNED, READ_SIGNED]}, (
        "a file, and the index of a folder"
    )


def declared(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, found in document["paths"].items():
        for method, said in found.items():
            yield method.upper(), path, said


async def test_answers_of_deprecated_operations_name_the_date_and_a_successor() -> None:
    async with open_app() as app:
        document = app.openapi()
        deprecated = [(method, path) for method, path, said in declared(document) if said.get("deprecated")]
        assert deprecated == [("PUT", "/v1/stores")]
        assert all("x-deprecated" in document["paths"][path][method.lower()] for method, path in deprecated)
        for space in ("", "/spaces/default"):
            for method, target in (("PUT", "/v1/stores?filename=m"), ("POST", "/v1/stores?filename=m")):
                got = await ask(app, method, space + target, b"content")
                assert got.status in {200, 201}, got
                assert got.headers.get("deprecation") == ("@1795910400" if method == "PUT" else None)
                link = f'<{space}/v1/stores>; rel="successor-version"' if method == "PUT" else None
                assert got.headers.get("link") == link
                assert document["paths"]["/v1/stores"]["post"].get("deprecated") is None


def test_operations_are_promised_experimental_or_deprecated() -> None:
    """The page of operations marks experimental and deprecated operations, as the document does."""
    sections = dict(re.findall(r"^### (\w+ /\S+)\n(.*?)(?=^##|\Z)", operations_page(), re.MULTILINE | re.DOTALL))
    marks = set()
    for method, path, said in declared(create_app(Settings(storage="memory://")).openapi()):
        if path.startswith("/v1/") and method != "HEAD":
            stability = said.get("x-stability")
            assert stability in {None, "experimental"}
            text = sections[f"{method} {path}"]
            marked = ("**Deprecated" in text, "*Experimental:" in text)
            assert marked == (bool(said.get("deprecated")), stability is not None and not said.get("deprecated")), path
            marks.add(marked)
    assert len(marks) == 3


BROWSER: Final = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"


def documented(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the responses of each operation below `/v1`, by method and path."""
    return {
        f"{method.upper()} {path}": operation["responses"]
        for path, operations in document["paths"].items()
        if path.startswith("/v1/")
        for method, operation in operations.items()
    }


async def test_a_type_that_is_not_offered_is_refused_with_those_that_are() -> None:
    asked = set()
    async with filled() as (app, caller, things):
        said = documented(app.openapi())
        before = None
        for call in CALLS:
            row = call.route.replace(":path}", "}")
            method, target, body, headers = call.filled(things, "")
            if method == "HEAD" or call.refused or row not in said:
                continue
            if method == "GET":  # results that the first read computes are stored then
                plain = await ask(app, method, target, body, {**headers, **caller})
                assert plain.status == 200, (target, plain)
                if "content-type" in plain.headers:
                    for accept in (BROWSER, "*/*", "", plain.headers["content-type"], "image/png, */*;q=0.1"):
                        got = await ask(app, method, target, body, {**headers, **caller, "accept": accept})
                        assert got.status == 200, (target, accept, got)
                before = await rows(app)
            offered = any("content" in each for status, each in said[row].items() if status < "3")
            assert ("406" in said[row]) == offered, row
            if offered:
                got = await ask(app, method, target, body, {**headers, **caller, "accept": "image/png, text/x;q=0.5"})
                problem = json.loads(got.body)
                assert (got.status, problem["type"]) == (406, "/problems/not-acceptable"), (target, got)
                assert problem["offers"], target
                assert got.headers["content-type"] == "application/problem+json"
                assert before is None or await rows(app) == before, target
            asked.add(row)
        for row in said.keys() - asked:  # refused before anything else is checked
            method, _, path = row.partition(" ")
            if method != "HEAD" and "406" in said[row]:
                got = await ask(app, method, re.sub("[{}]", "", path), b"", {**caller, "accept": "image/png"})
                assert got.status == 406, (row, got)


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/octet-stream", ""])
async def test_a_body_that_is_not_said_to_be_json_is_refused_in_our_words(kind: str) -> None:
    taken = 0
    async with open_app() as app:
        for row, route in routes_of(app.router.routes):
            method, _, path = row.partition(" ")
            if route.body_field is None or not path.startswith(("/v1/", "/session")):
                continue
            given = {"content-type": kind} if kind else {}
            for sized in (True, False):
                chunked = {} if sized else {"transfer-encoding": "chunked"}
                got = await ask(app, method, re.sub("[{}]", "", path), b"{}", {**given, **chunked}, sized=sized)
                problem = json.loads(got.body)
                assert (got.status, problem.get("offers")) == (415, ["application/json"]), (row, got)
                assert "Content-Type: application/json" in problem["detail"]
            got = await ask(app, method, re.sub("[{}]", "", path), b"{}", {"content-type": "application/json; x=y"})
            assert got.status != 415, (row, got)
            taken += 1
    assert taken > 10


async def test_an_open_service_says_that_it_has_no_tokens() -> None:
    async with open_app() as app:
        made = b'{"name": "t", "scopes": ["read"]}'
        for method, path, body in (("GET", "", b""), ("POST", "", made), ("DELETE", "/x", b"")):
            got = await ask(
                app, method, f"/v1/tokens{path}", body, {"content-type": "application/json"} if body else {}
            )
            assert (got.status, "is open and has no tokens" in got.text) == (404, True), got
