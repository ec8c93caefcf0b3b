"""JSON of 1 KiB and more is compressed for clients that take gzip, once; bytes of models and secrets never are."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.server.api.test_second_requests import all_targets, filled
from tests.support.serve import Asked, ask, open_app

from protoslice.server.api import json_answers
from protoslice.server.api.encoding import has_secret, json_schemas
from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application, create_app
from protoslice.server.routing import routes_of
from protoslice.server.settings import Settings

LISTS: Final = ("/v1/stores", "/v1/stores/{id}", "/v1/tags", "/v1/audit", "/openapi.json", "/docs")
SECRETS: Final = re.compile("token|secret|password|signature|signed", re.IGNORECASE)
GZIP: Final = {"accept-encoding": "br, gzip"}
JSON: Final = {"content-type": "application/json"}


async def every_target(app: Application) -> list[str]:
    """Targets of all routes that read a store, of lists that are long, and of the document."""
    ids = await filled(app, 40)
    for number in range(20):
        body = json.dumps({"store": ids["after"]}).encode()
        assert (await ask(app, "PUT", f"/v1/tags/t{number}", body, JSON)).status == 201
    return [*all_targets(ids), *(each.replace("{id}", ids["after"]) for each in LISTS)]


def is_view(target: str) -> bool:
    """True for a view, whose bytes are given out by range."""
    path = target.partition("?")[0]
    templates = (re.sub(r"\{(\w+):path\}", r".+", view.path) for view in VIEWS)
    return any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", each), path) for each in templates)


def check(target: str, plain: Asked, coded: Asked) -> None:
    """Compare an answer to a client that takes gzip with the plain one."""
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
                check(target, plain, coded)
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
    """The classes of the answers of all routes."""
    app = create_app(Settings(storage="memory://"))
    for row, route in routes_of(app.router.routes):
        for kind in route.answers.values():
            yield row, kind


def names_in(schema: Any, definitions: Mapping[str, Any]) -> Iterator[str]:
    """Names of the members of a schema, and of the schemas that it refers to."""
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
