"""Parameters of queries: names, values, their description, and numbers of any length."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import httpx
import pytest
from fastapi import Depends
from fastapi import Query as Parameter
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from tests.support.calls import RULES
from tests.support.serve import LiveServer, exchange

import protoslice.server
from protoslice.errors import InvalidInput
from protoslice.server.api.parameters import CLIENT, SIZE, Parameters
from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application, create_app
from protoslice.server.auth.permissions import OPEN, from_query, from_upload
from protoslice.server.auth.signatures import Signer
from protoslice.server.http.query import SIGNATURE, QueryNames
from protoslice.server.routing import RouteGroup, endpoint, routes_of
from protoslice.server.settings import Settings

APP = create_app(Settings(storage="memory://"))
REGISTRIES = "protoslice.server.registries."
PAGES = {"GET /", "GET /m/{rest:path}", "GET /diff/{rest:path}", "GET /operations"}
FOREIGN = PAGES | {"GET /session/callback", "GET /metrics"}
"""Pages whose query a script reads, the answer of an OpenID issuer, and metrics that no cache may answer."""


class OwnRoute(NamedTuple):
    """A row of a route of our API, with the names of its query parameters."""

    row: str
    names: QueryNames

    @property
    def request(self) -> tuple[str, str]:
        """Return method and path; a parameter of the path becomes a number, which is also a valid name."""
        method, _, path = self.row.partition(" ")
        return method, re.sub(r"\{[^}]*\}", "0", path)


def own_routes(app: Application) -> dict[str, OwnRoute]:
    """Return every route of an application except the routes of registries and of `FOREIGN`."""
    found = dict[str, OwnRoute]()
    for row, route in routes_of(app.router.routes):
        if not route.endpoint.__module__.startswith(REGISTRIES) and row not in FOREIGN:
            found[row] = OwnRoute(row, route.query)
    return found


ROUTES = own_routes(APP)
ROUTE = pytest.mark.parametrize("row", sorted(ROUTES))


def unchecked(app: Application) -> list[str]:
    """Return the rows of routes of our API that take any query."""
    rows = own_routes(app)
    return [
        row for row, route in routes_of(app.router.routes) if row in rows and (not route.is_strict or route.any_query)
    ]


def wrong_names(names: QueryNames) -> Iterator[tuple[str, str]]:
    """Return unknown names, each with the words of its refusal."""
    yield "xyzzy", "'xyzzy': use one of " if names.known else "'xyzzy': this URL takes no query parameters"
    for name in names.known:
        yield f"{name}_", f"Unknown query parameter '{name}_': did you mean '{name}'?"


@ROUTE
def test_an_unknown_query_parameter_is_refused_with_the_nearest_name(client: httpx.Client, row: str) -> None:
    method, path = ROUTES[row].request
    for name, said in wrong_names(ROUTES[row].names):
        answer = client.request(method, path, params={name: "1"})
        problem = answer.json()
        assert (answer.status_code, problem["type"]) == (400, "/problems/invalid-input"), problem
        assert said in problem["detail"]


@ROUTE
def test_a_repeated_query_parameter_is_refused_unless_repeatable(client: httpx.Client, row: str) -> None:
    method, path = ROUTES[row].request
    names = ROUTES[row].names
    for name in names.known:
        answer = client.request(method, path, params=[(name, "1"), (name, "2")])
        refused = answer.status_code == 400 and f"'{name}' may be given only once" in answer.json()["detail"]
        assert refused is (name not in names.repeatable), answer.text


@ROUTE
def test_parameters_of_signed_urls_are_taken(client: httpx.Client, row: str) -> None:
    method, path = ROUTES[row].request
    answer = client.request(method, path, params=dict.fromkeys(SIGNATURE, "1"))
    assert "query parameter" not in answer.text


def test_the_names_of_a_signature_are_those_that_signers_write() -> None:
    target, _ = Signer("t" * 10, b"key").sign("GET", "/v1/stores", 2e9)
    assert set(httpx.QueryParams(target.partition("?")[2])) == SIGNATURE


def documented() -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    for path, operations in APP.openapi()["paths"].items():
        for method, operation in operations.items():
            found = [each for each in operation.get("parameters", ()) if each["in"] == "query"]
            if found:
                yield method.upper(), path, found


def test_every_parameter_is_documented() -> None:
    said = {(method, path): {each["name"] for each in found} for method, path, found in documented()}
    hidden = {"GET /session/login"}
    older = {f"GET {PREFIX}/records": {"range"}}
    for row, route in ROUTES.items():
        method, _, path = row.partition(" ")
        shown = said.get((method, re.sub(r":\w+\}", "}", path)), set())
        assert shown == route.names.known - older.get(row, set()) or row in hidden, row


def test_routes_whose_tags_the_gate_reads_in_the_query_take_them() -> None:
    rows = [row for row, rule in RULES.items() if rule.tags in {from_query, from_upload}]
    assert rows
    for row in rows:
        assert "tag" in ROUTES[row].names.repeatable


def test_only_registries_and_foreign_queries_go_unchecked() -> None:
    assert unchecked(APP) == []
    foreign = {row for row, route in routes_of(APP.router.routes) if route.any_query}
    assert foreign == FOREIGN


def test_a_route_outside_the_check_is_found() -> None:
    router = RouteGroup(strict=False)

    @endpoint(router, "GET /v1/careless", OPEN)
    async def careless() -> None: ...

    app = create_app(Settings(storage="memory://"))
    app.router.routes.append(router)
    assert unchecked(app) == ["GET /v1/careless"]


def test_a_parameter_that_is_not_declared_cannot_be_read() -> None:
    query = QueryNames(["path"], ["fields"]).read(b"path=a&fields=b&fields=c")
    assert (query.one("path"), query.many("fields")) == ("a", ("b", "c"))
    with pytest.raises(RuntimeError, match="'field' without declaring"):
        query.one("field")


def readers_of_queries(source: str) -> list[int]:
    """Return the lines that read a query directly: by `.query_params`, or by a scope's query string."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Attribute) and node.attr == "query_params")
        or (isinstance(node, ast.Constant) and node.value == "query_string")
    ]


READERS = {
    "auth/spaces.py",  # repeats the query in a URL
    "auth/signatures.py",  # removes the signature
    "auth/permissions.py",  # reads `tag`, which its routes declare
    "api/json_answers.py",  # links to the next page
    "api/sessions.py",  # passes an issuer's answer to its client
    "api/view_router.py",  # by names that the view declares
    "app.py",  # makes a scope
    "routing.py",  # the check
}
"""The server's modules that read a query directly, except for registries."""


def test_no_route_reads_the_query_by_hand() -> None:
    root = Path(protoslice.server.__file__).parent
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if "registries" not in path.parts and readers_of_queries(path.read_text())
    }
    assert found == READERS


def test_a_route_that_reads_the_query_by_hand_is_found() -> None:
    assert readers_of_queries("async def careless(request):\n    return request.query_params.get('feild')") == [2]
    assert readers_of_queries("def careless(scope):\n    return scope['query_string']") == [2]


def test_merge_with_two_paths_names_fields(client: httpx.Client) -> None:
    answer = client.get("/v1/stores/0/merge?path=a&path=b")
    assert answer.status_code == 400
    assert "`fields=`" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["x" * 60_000, "path" * 10_000, "\U0001f600" * 500, "", " path", "PATH", "path[]"])
def test_hostile_names_are_refused_in_few_words(client: httpx.Client, name: str) -> None:
    answer = client.get("/v1/stores/0/merge", params={name: "1"})
    assert answer.status_code in {400, 431}, answer.text
    assert len(answer.text) < 1000


_URL = re.compile(
    r"(?:(GET|POST|PUT|PATCH|DELETE) |https?://[^/\s]+(?:/spaces/\w+)?)?(/v1/[^\s'\"`?]+)\?([^\s'\"`)\]]+)"
)


def urls_of(text: str) -> Iterator[tuple[str, str]]:
    """Return the paths and queries of our API in a page of documentation."""
    for found in _URL.finditer(text):
        yield found[2], found[3]


def test_documentation_sends_known_parameters() -> None:
    root = Path(__file__).parents[3]
    known = [(re.sub(r"\{[^}]*\}", ".+", row.partition(" ")[2]), route.names.known) for row, route in ROUTES.items()]
    seen = 0
    for page in [root / "README.md", *(root / "docs").rglob("*.md")]:
        for path, query in urls_of(page.read_text()):
            takers = [names for pattern, names in known if re.fullmatch(pattern, path)]
            sent = set(httpx.QueryParams(query))
            assert any(sent <= each for each in takers), (page.name, path, query)
            seen += 1
    assert seen > 10


def test_facades_of_registries_ignore_unknown_parameters(client: httpx.Client) -> None:
    for path in ("/v2/", "/api/3.0/mlflow/server-info", "/api/2.0/mlflow-artifacts/artifacts?path="):
        assert client.get(path).status_code == client.get(path, params={"xyzzy": "1"}).status_code
    assert json.loads(client.get("/v2/_catalog?xyzzy=1").text) == {"repositories": []}


@dataclass(frozen=True, slots=True)
class _Query:
    text: Annotated[str | None, Parameter(description="A text.", examples=["a"])] = None
    form: Annotated[str, Parameter(description="A form.", examples=["b"], json_schema_extra={"enum": ["a", "b"]})] = "a"
    many: Annotated[tuple[str, ...], Parameter(description="Texts; repeatable.", examples=[["a"]])] = ()
    flag: Annotated[bool, Parameter(description="A flag.", examples=[True])] = False
    number: Annotated[int, Parameter(description="A number.", examples=[1])] = 7
    size: Annotated[int | None, SIZE, Parameter(description="A size.", examples=["64KiB"])] = None
    client: Annotated[str, CLIENT] = ""


PARAMETERS = Parameters(_Query)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"", _Query()),
        (b"text=", _Query(text="", client="me")),
        (b"text=a%20b&form=b", _Query(text="a b", form="b", client="me")),
        (b"form=", _Query(client="me")),
        (b"many=a&many=b,c", _Query(many=("a", "b,c"), client="me")),
        (b"flag=true&number=12", _Query(flag=True, number=12, client="me")),
        (b"size=64KiB", _Query(size=65536, client="me")),
    ],
)
def test_parameters_read_values_by_their_annotations(query: bytes, expected: _Query) -> None:
    assert PARAMETERS.read(query, "me") == expected


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        (b"txt=a", "did you mean 'text'"),
        (b"client=you", "Unknown query parameter 'client'"),
        (b"text=a&text=b", "may be given only once"),
        (b"flag=yes", "use true or false"),
        (b"number=-1", "Invalid number"),
        (b"size=big", "big"),
    ],
)
def test_parameters_refuse_unknown_repeated_and_invalid_ones(query: bytes, detail: str) -> None:
    with pytest.raises(InvalidInput, match=detail):
        PARAMETERS.read(query)


async def _handler(query: Annotated[_Query, Depends()]) -> None: ...


def test_parameters_are_described_by_fastapi() -> None:
    described = get_openapi(title="", version="", routes=[APIRoute("/", _handler)])["paths"]["/"]["get"]["parameters"]
    schemas = {each["name"]: each["schema"] for each in described}
    assert schemas.keys() == {"text", "form", "many", "flag", "number", "size"}
    assert not any(each["required"] for each in described)
    assert schemas["text"]["anyOf"] == [{"type": "string"}, {"type": "null"}]
    assert (schemas["form"]["enum"], schemas["form"]["default"]) == (["a", "b"], "a")
    assert schemas["many"]["items"] == {"type": "string"}
    assert (schemas["flag"]["type"], schemas["number"]["type"]) == ("boolean", "integer")
    assert schemas["size"]["type"] == "string"


def test_parameters_want_a_description_and_an_example() -> None:
    @dataclass(frozen=True)
    class Undescribed:
        text: Annotated[str | None, Parameter(description="A text.")] = None

    with pytest.raises(RuntimeError, match="give an example"):
        Parameters(Undescribed)


def test_views_are_described_and_have_a_rule() -> None:
    assert all(view.summary and view.description and RULES[f"GET {view.path}"] is view.rule for view in VIEWS)


LONG = ("9" * 20, "9" * 31, "9" * 5000, "0" * 5000 + "1", "-" + "9" * 31)
"""Numbers that Python may not read: it reads no more than 4300 digits."""


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
@pytest.mark.parametrize("name", ["Content-Length", "Upload-Offset", "Upload-Length", "Range", "Want-Content-Digest"])
def test_in_headers(service: LiveServer, client: httpx.Client, name: str, digits: str) -> None:
    store = client.put("/v1/stores", content=b"\x0a\x04many").json()["id"]
    value = {"Range": f"bytes={digits}-", "Want-Content-Digest": f"sha-256={digits}"}.get(name, digits)
    head = "host: localhost\r\ntus-resumable: 1.0.0\r\ncontent-type: application/offset+octet-stream\r\n"
    head += f"{name}: {value}\r\n\r\n"
    for line in (f"GET /v1/stores/{store}/files/model.pb", "POST /v1/uploads", "PATCH /v1/uploads/x", "PUT /v1/stores"):
        assert exchange(service, f"{line} HTTP/1.1\r\n{head}".encode()).status < 500


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
def test_in_queries_and_paths(client: httpx.Client, model: bytes, digits: str) -> None:
    store = client.put("/v1/stores?filename=m.onnx", content=model).json()["id"]
    for target in (
        f"/v1/stores?limit={digits}",
        f"/v1/stores/{store}/chunks?limit={digits}",
        f"/v1/stores/{store}/chunks/{digits}",
        f"/v1/stores/{store}/tree?depth={digits}",
        f"/v1/stores/{store}/tensors?limit={digits}",
        f"/v1/stores/{store}/tensors/big?slice={digits}",
        f"/v1/stores/{store}/tensors/big?slice=0:{digits}:{digits}",
        f"/v1/stores/{store}/merge?path=graph.initializer[{digits}]",
        f"/v1/stores/{store}/merge?fields=graph.initializer[{digits}:]",
        f"/v1/stores/{store}/merge?omit_larger_than={digits}KiB",
    ):
        assert client.get(target).status_code < 500, target
    assert client.put(f"/v1/stores?min_chunk={digits}", content=model).status_code < 500


@pytest.mark.parametrize("digits", LONG, ids=lambda text: f"{text[0]}x{len(text)}")
def test_in_json(client: httpx.Client, digits: str) -> None:
    for path, body in {
        "/v1/stores/assemble": f'{{"uploads": {{"a": "x"}}, "min_chunk": {digits}}}',
        "/v1/chunks/missing": f'{{"chunks": [{{"sha256": "{"a" * 64}", "size": {digits}}}]}}',
        "/v1/stores/register": f'{{"files": {{"a": {{"uri": "file:///x", "offset": {digits}}}}}}}',
    }.items():
        assert client.post(path, content=body, headers={"content-type": "application/json"}).status_code < 500
    recipe = b'{"file": "a"}\n{"bytes": %b}\n' % digits.encode()
    headers = {"content-type": "application/vnd.protoslice.recipe"}
    assert client.put("/v1/stores", content=recipe, headers=headers).status_code < 500
    copy = json.dumps({"copy": {"store": "a" * 64, "file": "b", "offset": 0, "length": 1}}).replace("0", digits)
    answer = client.put("/v1/stores", content=b'{"file": "a"}\n' + copy.encode() + b"\n", headers=headers)
    assert answer.status_code < 500
