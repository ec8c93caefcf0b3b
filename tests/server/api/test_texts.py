"""Lone surrogates in every JSON text of requests: they are refused, and no later read fails.

The routes and the fields of their bodies are taken from the application. Strings that are not UTF-8 are tested in every
type of message: no route that reads a store fails on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest
from google.protobuf.message import Message
from pydantic import BaseModel, Field
from tests.server.auth.hostile import filled
from tests.server.bodies.ways import tar_of
from tests.server.http.test_safe_headers import all_rows, new_app, targets
from tests.support.golden import MODELS, folder
from tests.support.odd_strings import odd_message, root_types, with_odd_strings
from tests.support.protos.writer import varint
from tests.support.serve import Asked, ask, open_app, serve
from tests.support.stores import field
from tests.support.views import every_answer

from protoslice import schema
from protoslice.detection import detect
from protoslice.json_text import parse_json
from protoslice.server.api.requests import RequestBody
from protoslice.server.app import Application
from protoslice.server.auth.permissions import OPEN
from protoslice.server.http.responses import JsonAnswer
from protoslice.server.routing import RouteGroup, endpoint, routes_of

LONE: Final = "\ud800"
SPELLINGS: Final[dict[str, Callable[[Any], bytes]]] = {
    "escaped": lambda data: json.dumps(data).encode(),
    "escaped in capitals": lambda data: json.dumps(data).replace("\\ud800", "\\uD800").encode(),
    "the wrong half first": lambda data: json.dumps(data).replace("\\ud800", "\\udc00\\ud800").encode(),
    "as bytes": lambda data: json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass"),
    "in UTF-16": lambda data: json.dumps(data, ensure_ascii=False).encode("utf-16", "surrogatepass"),
}


def body_models(app: Application) -> Iterator[tuple[str, type[BaseModel]]]:
    """Return the routes with a JSON body, and the body's model."""
    for row, route in routes_of(app.router.routes):
        model = None if route.body_field is None else route.body_field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield row, model


class Fields:
    """Bodies that a JSON schema allows, one for each text in it."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._schema = model.model_json_schema()

    def broken(self) -> Iterator[tuple[str, Any]]:
        """Return the places of texts, and for each a body with a lone surrogate there and plain other members."""
        yield from self._broken(self._schema, "")

    def plain(self, schema: Mapping[str, Any]) -> Any:
        """Return a value that the schema roughly allows."""
        schema = self._resolved(schema)
        if "enum" in schema:
            return schema["enum"][0]
        match schema.get("type"):
            case "object":
                members = schema.get("properties", {})
                return {name: self.plain(members[name]) for name in schema.get("required", ())}
            case "array":
                return []
            case "integer" | "number":
                return max(1, schema.get("minimum", 1))
            case "boolean":
                return False
            case _:
                return "0" * 64

    def _broken(self, schema: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
        for choice in schema.get("anyOf", [schema]):
            resolved = self._resolved(choice)
            match resolved.get("type"):
                case "string":
                    yield place, LONE
                    yield place, f"plain{LONE}"
                case "array":
                    for at, value in self._broken(resolved["items"], f"{place}[]"):
                        yield at, [value]
                case "object":
                    for name, member in resolved.get("properties", {}).items():
                        for at, value in self._broken(member, f"{place}.{name}"):
                            yield at, {**self.plain(resolved), name: value}
                    yield f"{place}: a member", {**self.plain(resolved), LONE: "x"}
                    more = resolved.get("additionalProperties")
                    if isinstance(more, dict):
                        for at, value in self._broken(more, f"{place}.*"):
                            yield at, {"key": value}

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        reference = schema.get("$ref")
        found: Mapping[str, Any] = self._schema["$defs"][reference.rpartition("/")[2]] if reference else schema
        return found


def read_back(http: httpx.Client, app: Application, store: str) -> list[str]:
    """Return the reads of all routes that fail with status 500."""
    wrong = []
    for row in all_rows(app):
        if row.startswith("GET "):
            for target in targets(row, store):
                answer = http.get(f"/spaces/own{target}")
                if answer.status_code == 500:
                    wrong.append(f"{target}: {answer.text}")
    return wrong


def sent(http: httpx.Client, row: str, store: str, body: bytes, kind: str = "application/json") -> httpx.Response:
    target = targets(row, store)[0]
    return http.request(row.partition(" ")[0], f"/spaces/own{target}", content=body, headers={"content-type": kind})


def broken_bodies(app: Application) -> list[tuple[str, str, Any]]:
    return [(row, place, body) for row, model in body_models(app) for place, body in Fields(model).broken()]


def test_no_json_body_brings_in_a_lone_surrogate() -> None:
    app = new_app(webhook_allow=("https://hooks.example/",))
    bodies, wrong = broken_bodies(app), []
    assert {row for row, _, _ in bodies} >= {"POST /v1/tokens", "PUT /v1/tags/{tag}", "POST /api/repos/create"}
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        store = filled(http, "own", b"content " * 4000, "own")
        for row, place, body in bodies:
            for name, spelled in SPELLINGS.items():
                answer = sent(http, row, store, spelled(body))
                if answer.status_code not in {400, 422}:
                    wrong.append(f"{row}, {place}, {name}: {answer.status_code} {answer.text}")
        assert wrong == []
        assert read_back(http, app, store) == []


def commit_lines(text: str) -> Iterator[list[dict[str, Any]]]:
    """Return commits that have a text in each place in turn."""
    header = {"key": "header", "value": {"summary": "a commit", "description": ""}}
    file = {"key": "file", "value": {"path": "new.txt", "content": "eA==", "encoding": "base64"}}
    for name in ("summary", "description", "parentCommit"):
        yield [{"key": "header", "value": {**header["value"], name: text}}, file]  # type: ignore[dict-item]
    for name in ("path", "content", "encoding"):
        more = {"encoding": "utf-8"} if name == "content" else {}
        yield [header, {"key": "file", "value": {**file["value"], **more, name: text}}]  # type: ignore[dict-item]
    yield [header, {"key": "lfsFile", "value": {"path": text, "algo": "sha256", "oid": "0" * 64}}]
    yield [header, {"key": "lfsFile", "value": {"path": "a", "algo": "sha256", "oid": text}}]
    for key in ("deletedFile", "deletedFolder"):
        yield [header, {"key": key, "value": {"path": text}}]
    yield [header, file, {"key": text, "value": {}}]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_commit_brings_in_a_lone_surrogate(spelling: str) -> None:
    app = new_app()
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        store = filled(http, "own", b"content " * 4000, "own")
        before = http.get("/spaces/own/api/models/team/own/commits/main").json()
        for lines in commit_lines(LONE):
            body = b"\n".join(SPELLINGS[spelling](line) for line in lines)
            answer = http.post(
                "/spaces/own/api/models/team/own/commit/main",
                content=body,
                headers={"content-type": "application/x-ndjson"},
            )
            assert answer.status_code == 400, (lines, answer.text)
        assert http.get("/spaces/own/api/models/team/own/commits/main").json() == before
        assert read_back(http, app, store) == []


def test_no_body_without_a_model_breaks_what_is_read() -> None:
    app = new_app()
    modelled = {row for row, _ in body_models(app)}
    raw = [row for row in all_rows(app) if row.partition(" ")[0] in {"PUT", "POST", "PATCH"} and row not in modelled]
    about = {"digest": f"sha256:{'0' * 64}", "mediaType": LONE, "annotations": {LONE: LONE}}
    body = {"key": "header", "value": {"summary": LONE}, "schemaVersion": 2, "subject": about, "artifactType": LONE}
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        store = filled(http, "own", b"content " * 4000, "own")
        for row in raw:
            for spelled in SPELLINGS.values():
                for kind in ("application/json", "application/vnd.oci.image.index.v1+json", "application/x-ndjson"):
                    answer = sent(http, row, store, spelled(body), kind)
                    assert answer.status_code < 500, (row, answer.text)
        assert read_back(http, app, store) == []


@pytest.mark.parametrize("text", ["%ED%A0%80", "%FF", "%00", "%F0%9F%98%80", "%5Cud800"])
def test_no_path_or_query_of_odd_bytes_fails(text: str) -> None:
    app = new_app()
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        filled(http, "own", b"content " * 4000, "own")
        for row in all_rows(app):
            target = targets(row, "nowhere")[1].replace("nowhere", text)
            for query in ("", f"?path={text}&tag={text}&cursor={text}&last={text}&{text}={text}"):
                answer = http.request(row.partition(" ")[0], f"/spaces/own{target}{query}", content=b"{}")
                assert answer.status_code != 500, (row, query, answer.text)


def test_a_commit_with_a_lone_surrogate_is_refused_by_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.server.registries.hub.commits.parse_json", json.loads)
    app = new_app()
    with serve(app=app) as live, httpx.Client(base_url=live.url, timeout=60) as http:
        store = filled(http, "own", b"content " * 4000, "own")
        http.base_url = httpx.URL(f"{live.url}/spaces/own")
        lines = next(commit_lines(f"before {LONE}"))
        body = b"\n".join(json.dumps(line).encode() for line in lines)
        refused = http.post("/api/models/team/own/commit/main", content=body)
        assert (refused.status_code, "surrogates" in refused.text) == (400, True)
        http.base_url = httpx.URL(live.url)
        assert read_back(http, app, store) == []


class Careless(RequestBody):
    """The body of a route that checks nothing."""

    text: str
    anything: Any = None
    by_name: dict[str, Any] = Field(default={})


def test_a_careless_body_is_refused_too() -> None:
    row, taken = "POST /v1/careless", []
    router = RouteGroup()

    @endpoint(router, row, OPEN)
    async def careless(body: Careless) -> JsonAnswer:
        taken.append(body)
        return JsonAnswer({"text": body.text})

    app = new_app()
    app.router.routes.append(router)
    with (
        serve(app=app) as live,
        httpx.Client(base_url=live.url, timeout=60, headers={"content-type": "application/json"}) as http,
    ):
        for body in ({"text": LONE}, {"text": "", "anything": [{"a": LONE}]}, {"text": "", "by_name": {LONE: 1}}):
            answer = http.post("/v1/careless", content=json.dumps(body))
            assert answer.status_code == 400, answer.text
        deep = http.post("/v1/careless", content=b'{"text": ' + b"[" * 100_000)
        assert deep.status_code == 400, deep.text
        assert taken == []
        assert http.post("/v1/careless", json={"text": "\N{GRINNING FACE}"}).json() == {"text": "\N{GRINNING FACE}"}


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '["\\ud83d x \\ude00"]', '"\\ude00\\ud83d"'])
def test_parse_json_refuses_half_pairs(text: str) -> None:
    with pytest.raises(ValueError, match="surrogate"):
        parse_json(text)


@pytest.mark.parametrize("text", ['"\\ud83d\\ude00"', '"\\\\ud800"', '"\\u00e9"', '"é"', "[]"])
def test_parse_json_takes_what_is_text(text: str) -> None:
    assert parse_json(text) == json.loads(text)


PACKAGES = {name: list(types) for name, types in groupby(root_types(), lambda name: name.rpartition(".")[0])}
CASES = sorted(path.parent.name for path in MODELS.glob("*/expected.json"))
TAR = {"content-type": "application/x-tar"}
UNKNOWN = varint(536870911 << 3) + b"\x00"
"""A field that no type declares; the same message without it differs in nothing else."""


async def _failures(app: Application, files: dict[str, bytes], type_name: str, root: str) -> list[str]:
    """Return the failed requests: the upload of a model, and all requests that read its store."""
    query = f"/v1/stores?report=true&type={type_name}&root={quote(root)}"
    made = await ask(app, "PUT", query, tar_of(files), TAR)
    if made.status >= 300:
        return [f"PUT {type_name}: {made.status} {made.text}"]
    store = str(json.loads(made.body)["id"])
    # A comparison examines both sides only where they differ.
    other = await ask(app, "PUT", query, tar_of({**files, root: files[root] + UNKNOWN}), TAR)
    answers = await every_answer(app, store, str(json.loads(other.body)["id"]))
    assert any(answer.status == 200 for _, answer in answers)
    return [f"{type_name}: {target}: {answer.status}" for target, answer in answers if _is_faulty(answer)]


def _is_faulty(answer: Asked) -> bool:
    """Return True for a failure, for invalid JSON, and for text that shows Python's form of bytes."""
    if answer.status >= 500 or b"b'\\xff" in answer.body or b"b'\\\\xff" in answer.body:
        return True
    kind = answer.headers.get("content-type", "")
    try:
        for text in answer.body.splitlines() if "jsonl" in kind else [answer.body] if "json" in kind else ():
            json.loads(text.decode("utf-8"))
    except ValueError:
        return True
    return False


async def _reading(*models: tuple[dict[str, bytes], str, str]) -> list[str]:
    """Return the failures of all requests that read each of the models: files, type and root."""
    wrong: list[str] = []
    async with open_app() as app:
        for model in models:
            wrong.extend(await _failures(app, *model))
    return wrong


@pytest.mark.parametrize("package", PACKAGES)
async def test_routes_read_messages_of_every_type(package: str) -> None:
    assert await _reading(*(({"m.pb": odd_message(name)}, name, "m.pb") for name in PACKAGES[package])) == []


def _golden(case: str) -> tuple[dict[str, bytes], str, str] | None:
    """Return a model of the corpus with odd strings in its root: files, type, root; None for other roots."""
    root = str(json.loads((MODELS / case / "expected.json").read_text())["root"])
    files = {str(path.relative_to(folder(case))): path for path in folder(case).rglob("*") if path.is_file()}
    contents = {name: path.read_bytes() for name, path in files.items()}
    type_name = detect(contents[root], root, len(contents[root])).type_name
    if (
        type_name is None
        or root.endswith(("txt", ".cpb"))
        or case.startswith(("corrupt", "gguf", "safetensors", "paddle_pir_json"))
    ):
        return None
    return {**contents, root: with_odd_strings(contents[root], type_name)}, type_name, root


@pytest.mark.parametrize("case", [case for case in CASES if _golden(case) is not None])
async def test_routes_read_models_of_other_programs(case: str) -> None:
    model = _golden(case)
    assert model is not None
    assert await _reading(model) == []


async def test_routes_read_weights_with_odd_names() -> None:
    def text(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    key = text(b"general.\xff") + (8).to_bytes(4, "little") + text(b"odd \xff")
    tensor = text(b"w\xff") + b"\1\0\0\0" + (2).to_bytes(8, "little") + bytes(12)
    head = b"GGUF\3\0\0\0" + (1).to_bytes(8, "little") * 2 + key + tensor
    gguf = head + bytes(-len(head) % 32 + 8)
    header = json.dumps({"w\x00\x7f": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    async with open_app() as app:
        for name, data in (("m.gguf", gguf), ("m.safetensors", text(header) + bytes(8))):
            made = await ask(app, "PUT", f"/v1/stores?filename={name}", data)
            store = str(json.loads(made.body)["id"])
            answers = await every_answer(app, store, store)
            assert [f"{target}: {answer.status}" for target, answer in answers if _is_faulty(answer)] == []
            assert any("/tensors/" in target and answer.status == 200 for target, answer in answers)


async def test_a_parser_that_leaves_bytes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "parsed", lambda kind, data: kind.FromString(data))
    assert any(
        ": 500" in each
        for each in await _reading(({"m.pb": odd_message("onnx.ModelProto")}, "onnx.ModelProto", "m.pb"))
    )


async def test_tensors_are_found_by_names_with_odd_bytes() -> None:
    tensor = b"\x08\x01\x10\x01" + field(8, b"w\xff") + field(9, b"\0\0\x80\x3f")
    told: list[Asked] = []
    async with open_app() as app:
        made = await ask(app, "PUT", "/v1/stores?filename=m.onnx&type=onnx.ModelProto", field(7, field(5, tensor)))
        base = f"/v1/stores/{json.loads(made.body)['id']}"
        name = quote(json.loads((await ask(app, "GET", f"{base}/tensors")).body)["items"][0]["name"], safe="")
        for target in (f"tensors/{name}", f"tensors?name={name}", f"safetensors?name={name}", "references.json"):
            told.append(await ask(app, "GET", f"{base}/{target}"))
    one, listed, file, references = told
    assert one.body == b"\0\0\x80\x3f"
    assert [each["name"] for each in json.loads(listed.body)["items"]] == ["w\\xff"]
    assert "w\\xff" in json.loads(file.body[8 : 8 + int.from_bytes(file.body[:8], "little")])
    assert json.loads(references.body)["refs"]["w%5Cxff/0"]


async def test_nodes_are_found_by_names_with_odd_bytes() -> None:
    nodes = b"".join(field(1, field(1, b"x\xff") + field(2, b"y") + field(3, name)) for name in (b"n\xff", b"n"))
    told: list[Asked] = []
    async with open_app() as app:
        made = await ask(app, "PUT", "/v1/stores?filename=m.onnx&type=onnx.ModelProto", field(7, nodes))
        base = f"/v1/stores/{json.loads(made.body)['id']}/graph"
        for query in ("around=n%5Cxff&hops=0", "around=x%5Cxff&hops=0", "search=n%5CxFF"):
            told.append(await ask(app, "GET", f"{base}?{query}"))
    for answer in told:
        assert [node["name"] for node in json.loads(answer.body)["nodes"]] == ["n\\xff"]


def test_odd_strings_are_the_same_text_in_messages_as_in_names() -> None:
    tensor: Message = schema.parsed(
        schema.bundled().message_class("onnx.NodeProto"), field(1, b"\xff") + field(3, b"n\xff")
    )
    assert str(tensor) == 'input: "\\\\xff"\nname: "n\\\\xff"\n'
