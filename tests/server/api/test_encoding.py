"""Facts over the wire: their JSON matches the OpenAPI document, and the client reads the same fact.

JSON of 1 KiB and more is compressed once for clients that accept gzip; bytes of models and secrets never are.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, Final

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.api.test_second_requests import all_targets, filled
from tests.support.serve import Asked, ask, open_app

from protoslice import facts
from protoslice.client.http.decoding import decode
from protoslice.json_text import encode_json
from protoslice.server.api import json_answers
from protoslice.server.api.encoding import encode_fact, has_secret, json_schemas, store_weight
from protoslice.server.api.models import CreatedStore, RestoredStore
from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application, create_app
from protoslice.server.routing import routes_of
from protoslice.server.settings import Settings

ID, SHA = "9f" * 32, "5e" * 32
TIME = datetime(2026, 11, 21, 10, 0, 5, tzinfo=UTC)
STORE = facts.Store(
    ID, "onnx.ModelProto", "a.onnx", 7, 2, 1 << 20, 1 << 30, TIME, ("a:1", "b"), (facts.File("a.onnx", 7, SHA),),
    "upload", SHA, 1, ("node: every 10",), names=(facts.StoreName("tag", "a:1"), facts.StoreName("hub", "ann/m@main")),
)  # fmt: skip
ROOTLESS = facts.Store(
    ID, None, None, 1, 0, 1, 2, TIME, (), (facts.File("x", 1, None),), "register", None, None, why="no file is one"
)
LEAF = facts.Node("graph.name", 2, "name", "string", None, None, 5, False, "torch")
GRAPH = facts.Node("graph", 7, "graph", "message", "onnx.GraphProto", None, 9, True, None, (LEAF,), 3)
REPORT = facts.ModelReport(
    type="onnx.ModelProto", tensors=3, missing=("w.bin",), duplicates=("a",), damaged=(facts.Damage("b", "not so"),),
    dtypes=(facts.DtypeTotal("F32", 2, 9, 36), facts.DtypeTotal(None, 1, 0, 0)),
    totals=(facts.RoleTotal("weight", 3, 9, 36),),
    complete=False,
)  # fmt: skip
TENSOR = facts.TensorEntry("w", "path:w", "F32", (2, 3), 24, "a.onnx", "weight", "linear", "cut short")
DELTA = facts.TensorDelta("F32", (2, 3), 6, 6, 1, 0, 0.5, 0.25, 0.125, None)
BRANCH = facts.TensorBranch("w", 7, 1, 24, 6, "F32", "linear", address="path:w", shape=(2, 3))
EMPTY = facts.Node("graph", 7, "graph", "message", "onnx.GraphProto", None, 0, True, None, (), 0)

OPERATOR = facts.GraphOperator("Add", 3)
INNER = {
    "Damage", "DtypeTotal", "EqualTensors", "File", "GraphBlock", "GraphEdge", "GraphEntry", "GraphLink", "GraphNode",
    "GraphOperator", "GraphStep", "GraphValue", "Histogram", "PiecePlace", "RoleTotal", "SignatureTensor",
}  # fmt: skip
ELSEWHERE = ["StoreName", "Restored", "SignInTerms"]

CASES: list[object] = [
    STORE,
    ROOTLESS,
    facts.Removed(ID, ("a:1",), TIME),
    facts.Tag("a:1", ID, TIME),
    facts.RepositorySummary("ann/m", "hub", "ann/m@main", ID, "onnx.ModelProto", 1 << 40, 2, TIME),
    facts.RepositorySummary("ann/empty", "oci", None, None, None, None, None, TIME),
    facts.RepositoryVersion("v1", "tag", "ann/m@v1", ID, TIME),
    facts.Schema("mine", 90, 3, TIME),
    facts.Signature("serve", "predict", ("serve",), (facts.SignatureTensor("x", "x:0", "F32", (None, 3)),), ()),
    facts.Neighbourhood(
        (facts.GraphEntry("graph", "g", 2),), 7, "graph", "graph.node[1]",
        (facts.GraphNode("a", "Add", "graph.node[1]", 0, (("axis", "i: 1"),), ("w",), 3, ("y",)),),
        (facts.GraphEdge("graph.node[0]", "graph.node[1]", "x", 1),), True,
    ),
    facts.GraphLevel(
        (facts.GraphEntry("graph", "g", 2),), "graph", 7, (0, 7), 100,
        (facts.GraphBlock(8, "repeat", "layer", None, 3, 0, 6, "graph.node[0]", (OPERATOR,), 9, (4, 5), "path:x"),),
        (facts.GraphLink(None, 0, 1, facts.GraphValue("x", "F32", (None, 3))),), (),
        (facts.GraphValue("y", None, None),),
    ),
    facts.GraphSection(1, 2, ((0, 1),), (facts.GraphStep("graph.node[0]", "a", "Add"),), ("w",), ("x",), ("y",)),
    facts.ChunkEntry(0, "message", "onnx.ModelProto", "", 7, SHA),
    facts.ChunkEntry(1, "bytes", None, "graph.initializer[0].raw_data", 7, None, "too large"),
    REPORT,
    facts.ModelReport(type=None, tensors=None),
    facts.Piece("a.onnx", 1 << 40, 7, SHA),
    facts.MissingPieces((SHA,), (facts.PiecePlace(SHA, 7, ID, "a.onnx", 1 << 40),), (ID,)),
    LEAF,
    GRAPH,
    EMPTY,
    TENSOR,
    BRANCH,
    facts.TensorBranch("w.", 7, 2, 48, 12, "F32", None, parameters=6, children=(BRANCH,)),
    facts.TensorStatistics(
        "w", "path:w", "F32", (2,), 2, 2, 0, 0, 0, 1.0, 2.5, 1.75, 0.75, facts.Histogram(1.0, 0.25, (1, 1))
    ),
    facts.Difference("tensor", "w", "renamed", 8, 8, "was v", "path:w[1]", "path:w[0]"),
    facts.Difference("file", "a.onnx", "added", None, 7),
    DELTA,
    facts.TensorMove("w", "path:w", "v", "path:v", "F32", (2, 3), 24, "linear", "w", "renamed", DELTA),
    facts.TensorMove("w", "path:w", None, "", None, None, None, "other", "w", "added", None),
    facts.TensorMoves(
        (), (facts.EqualTensors("h.0", 3, "linear", 2), facts.EqualTensors("h", None, "other", 1)), 9, 11, "9"
    ),
    facts.RecordsSummary("a.tfrecord", "tfrecord", None, 3, 70, "cut at 70"),
    facts.AuditEntry(TIME, "ci", "tag.set", "m:1", {"tag": "m:1", "store": None}, "9f" * 16, "kU3x9QbW1z"),
    facts.AccessToken("a", "ci", "*", ("read", "write"), ("ci-*",), TIME, None),
    facts.AccessToken("a", "ci", "*", ("read",), (), TIME, TIME, TIME, "secret"),
    facts.SignedUrl("http://a/b", TIME),
    facts.Space("own", 7, 1),
    facts.Space("own"),
    facts.WebhookFacts("ci", "http://a/b", ("store.created",), TIME),
    facts.WebhookFacts("ci", "http://a/b", (), TIME, "whsec_a"),
    facts.EventLetter("a", "store.created", "b", TIME, 3, "refused"),
    facts.Redelivered(2),
]  # fmt: skip
NAMES = [f"{type(fact).__name__}-{number}" for number, fact in enumerate(CASES)]
KINDS = list(dict.fromkeys(map(type, CASES)))
SCHEMAS, DEFINITIONS = json_schemas([*KINDS, CreatedStore, RestoredStore])


def check(kind: type, sent: object) -> None:
    """Raise unless `sent` is valid by the schema of `kind`."""
    jsonschema_rs.validate({**SCHEMAS[kind], "components": {"schemas": DEFINITIONS}}, sent, validate_formats=True)


def all_of(store: facts.Store) -> dict[str, Any]:
    """Return the members of a store."""
    return {field.name: getattr(store, field.name) for field in fields(facts.Store)}


@pytest.mark.parametrize("fact", CASES, ids=NAMES)
def test_fact_is_read_by_the_client_as_it_was_encoded(fact: Any) -> None:
    assert decode(type(fact), json.loads(encode_fact(fact))) == fact


@pytest.mark.parametrize("fact", CASES, ids=NAMES)
def test_schema_describes_the_json_of_a_fact(fact: Any) -> None:
    sent = json.loads(encode_fact(fact))
    check(type(fact), sent)
    described = DEFINITIONS[type(fact).__name__]
    assert set(described["required"]) <= set(sent) <= set(described["properties"])


def test_schema_refuses_what_a_fact_cannot_be() -> None:
    with pytest.raises(jsonschema_rs.ValidationError):
        check(facts.Tag, {"name": "a", "store": "none", "updated": "2026-11-21T10:00:05Z"})


def test_schema_takes_descriptions_from_docstrings_in_the_words_of_json() -> None:
    members = DEFINITIONS["CreatedStore"]["properties"]
    assert members["why"]["description"] == "Why no root was found; null if there is a root."
    assert members["report"]["description"] == "Report on the uploaded model; only if the request has `report=true`."
    assert "report" not in DEFINITIONS["CreatedStore"]["required"]


def test_every_fact_has_a_case() -> None:
    defined = {name for name, value in vars(facts).items() if isinstance(value, type) and is_dataclass(value)}
    named = {kind.__name__ for kind in KINDS} | {*INNER, *ELSEWHERE}
    assert named == defined, "each fact needs a case in CASES, or a place in INNER"


def test_encode_fact_writes_times_in_utc_to_the_second() -> None:
    time = datetime(2026, 11, 21, 12, 0, 5, 999_999, timezone(timedelta(hours=2)))
    assert json.loads(encode_fact(facts.Tag("a", ID, time)))["updated"] == "2026-11-21T10:00:05Z"


def test_encode_fact_leaves_out_only_what_is_omitted() -> None:
    unknown = facts.TensorEntry("w", "path:w", None, None, None, None, "constant", "other")
    assert list(json.loads(encode_fact(unknown))) == [
        "name",
        "address",
        "dtype",
        "shape",
        "size",
        "file",
        "role",
        "kind",
    ]
    assert {"children", "more"} & json.loads(encode_fact(LEAF)).keys() == set()
    assert encode_fact(EMPTY).endswith(b',"text":null,"children":[],"more":0}')
    assert "files" not in json.loads(encode_fact(facts.ModelReport(type=None, tensors=1, files=("w.bin",))))


def test_encode_fact_takes_the_members_of_a_base_class() -> None:
    made = CreatedStore(**all_of(STORE), report=REPORT)
    assert encode_fact(made, facts.Store) == encode_fact(STORE)
    check(CreatedStore, json.loads(encode_fact(made)))


@given(st.text(st.characters(), max_size=20), st.booleans())
def test_encode_fact_spells_texts_as_the_library_does(text: str, broken: bool) -> None:
    entry = facts.TensorEntry(text, text, text, (1,), 1 << 70, text, "weight", "other", text if broken else None)
    members = {name: getattr(entry, name) for name in facts.TensorEntry.__slots__ if broken or name != "problem"}
    assert encode_fact(entry) == encode_json(members)
    assert encode_fact(facts.Tag(text, ID, TIME)) == encode_json(
        {"name": text, "store": ID, "updated": "2026-11-21T10:00:05Z"}
    )


def test_encode_fact_escapes_half_of_a_surrogate_pair_at_any_depth() -> None:
    odd = facts.Node("g.a", 1, "\ud800", None, None, None, 1, True, None, (), 3)
    sent = encode_fact(facts.Node("g", 1, "g", None, None, None, 1, True, None, (odd,), 0))
    assert rb'"name":"\ud800"' in sent
    assert json.loads(sent)["children"][0]["children"] == []


def test_restored_store_is_a_store_with_the_tags_it_lost() -> None:
    sent = json.loads(encode_fact(RestoredStore(**all_of(STORE), tags_taken=("b",))))
    check(RestoredStore, sent)
    assert sent == json.loads(encode_fact(STORE)) | {"tags_taken": ["b"]}


def test_store_weight_is_about_the_size_of_its_json() -> None:
    files = tuple(facts.File(f"folder/{number}", number, SHA) for number in range(1000))
    large = facts.Store(**all_of(STORE) | {"files": files})
    assert 0.5 * len(encode_fact(large)) < store_weight(large) < 2 * len(encode_fact(large))


LISTS: Final = ("/v1/stores", "/v1/stores/{id}", "/v1/tags", "/v1/audit", "/openapi.json", "/docs")
SECRETS: Final = re.compile("token|secret|password|signature|signed", re.IGNORECASE)
GZIP: Final = {"accept-encoding": "br, gzip"}
JSON: Final = {"content-type": "application/json"}


async def every_target(app: Application) -> list[str]:
    """Return the targets of all routes that read a store, of lists that are long, and of the document."""
    ids = await filled(app, 40)
    for number in range(20):
        body = json.dumps({"store": ids["after"]}).encode()
        assert (await ask(app, "PUT", f"/v1/tags/t{number}", body, JSON)).status == 201
    return [*all_targets(ids), *(each.replace("{id}", ids["after"]) for each in LISTS)]


def is_view(target: str) -> bool:
    """Return True for a view, whose bytes are served by range."""
    path = target.partition("?")[0]
    templates = (re.sub(r"\{(\w+):path\}", r".+", view.path) for view in VIEWS)
    return any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path) for each in templates)


def assert_same_coded(target: str, plain: Asked, coded: Asked) -> None:
    """Compare an answer to a client that accepts gzip with the plain one."""
    assert gzip.decompress(coded.body) == plain.body, target
    assert int(coded.headers["content-length"]) == len(coded.body) < len(plain.body), target
    assert coded.headers["repr-digest"] == f"sha-256=:{b64encode(hashlib.sha256(coded.body).digest()).decode()}:"
    assert "accept-encoding" in plain.headers["vary"], target
    weak = plain.headers["etag"].startswith("W/")
    assert (coded.headers["etag"] == plain.headers["etag"]) is weak, target
    other = {"content-encoding", "content-length", "repr-digest", "etag", "x-request-id"}
    for one, two in ((plain, coded), (coded, plain)):
        differing = {name for name in one.headers if one.headers[name] != two.headers.get(name)}
        assert differing <= other, target


async def test_every_json_answer_is_compressed_once_and_no_bytes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    compressed, calls = list[str](), list[int]()

    def counted(data: bytes, *given: Any, **options: Any) -> bytes:
        calls.append(len(data))
        return gzip.compress(data, *given, **options)

    monkeypatch.setattr(json_answers, "gzip", SimpleNamespace(compress=counted))
    async with open_app() as app:
        every = await every_target(app)
        for target in every:
            plain, coded = await ask(app, "GET", target), await ask(app, "GET", target, headers=GZIP)
            is_text = plain.headers["content-type"].startswith(("application/json", "text/html"))
            if plain.status == 200 and is_text and len(plain.body) >= 1024 and not is_view(target):
                assert_same_coded(target, plain, coded)
                compressed.append(target)
                head = await ask(app, "HEAD", target, headers=GZIP)
                assert {**head.headers, "x-request-id": ""} == {**coded.headers, "x-request-id": ""}, target
                for known in (plain, coded):
                    unchanged = await ask(app, "GET", target, headers=GZIP | {"if-none-match": known.headers["etag"]})
                    assert (unchanged.status, unchanged.headers["etag"]) == (304, known.headers["etag"]), target
                    same = await ask(app, "GET", target, headers=GZIP | {"if-match": known.headers["etag"]})
                    assert same.status == (412 if known.headers["etag"].startswith("W/") else 200), target
                stale = await ask(app, "GET", target, headers=GZIP | {"if-match": '"other"'})
                assert stale.status == 412, target
            else:
                assert "content-encoding" not in coded.headers, target
        assert len(compressed) > 15, compressed
        assert len(calls) > 10
        calls.clear()
        for target in every:
            if not target.startswith("/v1/audit"):  # which is not kept
                await ask(app, "GET", target, headers=GZIP)
        assert calls == [], "a second request compresses again"
    assert {"/openapi.json", "/docs", "/v1/stores", "/v1/tags"} <= {*compressed}


async def test_only_clients_that_take_gzip_get_it() -> None:
    taking = ("gzip", "*", "GZIP;q=0.1", "identity, gzip;q=0.5", "deflate, *;q=0.2")
    async with open_app() as app:
        for accepted in (*taking, "", "br", "gzip;q=0", "*, gzip;q=0", "gzip;q=x", "identity"):
            answer = await ask(app, "GET", "/openapi.json", headers={"accept-encoding": accepted})
            assert (answer.headers.get("content-encoding") == "gzip") is (accepted in taking), accepted


async def test_a_write_takes_the_tag_of_the_compressed_answer() -> None:
    async with open_app() as app:
        store = json.loads((await ask(app, "PUT", "/v1/stores?filename=a", b"some bytes")).body)["id"]
        target, body = f"/v1/stores/{store}", json.dumps({"description": "long " * 300}).encode()
        assert (await ask(app, "PATCH", target, body, JSON)).status == 200
        etag = (await ask(app, "GET", target, headers=GZIP)).headers["etag"]
        assert etag.endswith('-gzip"')
        conditions = JSON | {"if-match": etag}
        assert (await ask(app, "PATCH", target, b'{"description": "short"}', conditions)).status == 200
        assert (await ask(app, "PATCH", target, b'{"description": "other"}', conditions)).status == 412


def answers() -> Iterator[tuple[str, Any]]:
    """Return the classes of all routes' answers."""
    app = create_app(Settings(storage="memory://"))
    for row, route in routes_of(app.router.routes):
        for kind in route.answers.values():
            yield row, kind


def names_in(schema: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Return the names of a schema's members, and of the members of schemas that it refers to."""
    if isinstance(schema, list):
        for each in schema:
            yield from names_in(each, definitions)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {})
        if "$ref" in schema and (name := schema["$ref"].rpartition("/")[2]) in definitions:
            rest = {other: each for other, each in definitions.items() if other != name}
            yield from names_in(definitions[name], rest)
        for each in schema.values():
            yield from names_in(each, definitions)


def test_every_answer_with_a_secret_says_so() -> None:
    found = dict(answers())
    schemas, definitions = json_schemas(dict.fromkeys(found.values()))
    secret = {row for row, kind in found.items() if has_secret(kind)}
    named = {row for row, kind in found.items() if any(map(SECRETS.search, names_in(schemas[kind], definitions)))}
    signed = {row for row in found if row == "POST /v1/sign"}
    assert secret == named | signed
    assert {"GET /v1/tokens", "GET /v1/webhooks"} <= secret


async def test_a_list_of_a_type_with_secrets_is_not_compressed() -> None:
    async with open_app(auth="tokens") as app:
        token = app.services.initial_admin_token
        assert token is not None
        headers = {"authorization": f"Bearer {token.text}", "content-type": "application/json", **GZIP}
        for number in range(20):
            body = json.dumps({"name": f"token-{number}", "scopes": ["read"]}).encode()
            assert (await ask(app, "POST", "/v1/tokens", body, headers)).status == 201
        answer = await ask(app, "GET", "/v1/tokens", headers=headers)
        assert answer.status == 200
        assert len(answer.body) > 1024
        assert "content-encoding" not in answer.headers


def test_views_are_told_apart_from_lists() -> None:
    store = PREFIX.replace("{ref}", "m:1")
    assert is_view(f"{store}/tensors/a/b?slice=0:1")
    assert not is_view(f"{store}/tensors?limit=5")
