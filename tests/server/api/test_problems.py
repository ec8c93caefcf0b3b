"""Every failure is a problem of the documented kind, for every place that raises it.

The audit over HTTP: who may read it, and its entry for each change.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from google.protobuf import descriptor_pb2
from starlette.exceptions import HTTPException
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.trusting import trust_file
from tests.support.issuer import running_issuer
from tests.support.serve import LiveServer, ask, assert_problem, exchange
from tests.support.stores import onnx

from protoslice import errors
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope
from protoslice.server.problems import BY_SLUG, PROBLEMS, problem_of_error, problem_response
from protoslice.server.request.failures import body_at_fault, problem_of


def classes(kind: type[errors.ProtosliceError]) -> list[type[errors.ProtosliceError]]:
    return [kind, *(each for child in kind.__subclasses__() for each in classes(child))]


KINDS = [kind for kind in classes(errors.ProtosliceError) if kind.__module__ == "protoslice.errors"][1:]


@pytest.mark.parametrize("kind", KINDS)
def test_each_error_has_a_problem(kind: type[errors.ProtosliceError]) -> None:
    assert kind.slug != "internal", "its own, or that of a more general error"
    assert {kind.slug, kind.upload_slug} <= BY_SLUG.keys()


def test_slugs_are_unique() -> None:
    slugs = [problem.slug for problem in PROBLEMS]
    assert len(slugs) == len(set(slugs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("uploading", [False, True])
def test_server_errors_give_nothing_away(kind: type[errors.ProtosliceError], uploading: bool) -> None:
    error = kind("s3://bucket?secret=hush", offset=7, path="graph")
    if uploading:
        with suppress(kind), body_at_fault():
            raise error
    failure = problem_of_error(error)
    assert failure.problem.slug == (kind.upload_slug if uploading else kind.slug)
    answer = problem_response(failure, request_id="id")
    problem = json.loads(bytes(answer.body))
    assert problem["offset"] == 7
    assert problem["path"] == "graph"
    output = failure.problem.status < 500 or kind is errors.QuotaExceeded  # quotas have messages of our own
    assert ("hush" in bytes(answer.body).decode()) == output
    assert ("retry-after" in answer.headers) == (failure.problem.status in {429, 503})


def test_foreign_errors_give_nothing_away() -> None:
    for error in (RuntimeError("hush"), HTTPException(500, "hush"), HTTPException(502, "hush")):
        failure = problem_of(error)
        assert failure.problem.status == 500
        assert "hush" not in failure.detail


def test_values_that_do_not_validate_are_not_repeated() -> None:
    failure = problem_of(RequestValidationError([{"loc": ("query", "limit"), "msg": "use a number", "input": "hush"}]))
    assert failure.members["errors"] == [{"in": "query", "name": "limit", "detail": "use a number"}]


@pytest.mark.parametrize(
    ("method", "path", "expected", "slug"),
    [
        ("GET", "/nowhere", 404, "no-resource"),
        ("GET", "/v1/stores/", 404, "no-resource"),
        ("GET", "/v1/stores/nobody", 404, "not-found"),
        ("GET", f"/v1/stores/{'0' * 64}/merge", 404, "not-found"),
        ("GET", "/v1/stores/bad%20ref", 400, "invalid-input"),
        ("GET", "/v1/stores/nobody/nothing", 404, "no-resource"),
        ("GET", "/v1/stores?limit=x", 400, "invalid-input"),
        ("GET", "/v1/stores/nobody%2ffiles%2fa", 404, "not-found"),
        ("GET", "/v1/stores?cursor=x", 400, "invalid-input"),
        ("POST", "/v1/stores/nobody/tree", 405, "method-not-allowed"),
        ("PATCH", "/v1/stores", 405, "method-not-allowed"),
        ("POST", "/livez", 405, "method-not-allowed"),
        ("GET", "/problems/nothing", 404, "not-found"),
    ],
)
def test_failures_over_the_wire(client: httpx.Client, method: str, path: str, expected: int, slug: str) -> None:
    answer = client.request(method, path)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected, slug=slug)


@pytest.mark.parametrize(
    "target",
    ["/v1/tags/{}", "/v1/stores/{}", "/v1/schemas/{}", "/api/2.0/mlflow-artifacts/artifacts/{}", "/s3/default/tags/{}"],
)
def test_a_long_text_is_not_repeated_whole(client: httpx.Client, target: str) -> None:
    answer = client.get(target.format("%28" + "a" * 9000))
    assert 400 <= answer.status_code < 500
    assert len(answer.content) < 5000


def test_a_view_that_no_store_has_is_named(client: httpx.Client) -> None:
    assert (
        client.get("/v1/stores/nobody/nothing/x")
        .json()["detail"]
        .startswith("There is no view 'nothing/x': use one such as")
    )
    assert client.get("/v1/stores/").json()["detail"] == client.get("/nowhere").json()["detail"]


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/stores", {"GET", "HEAD", "POST", "PUT"}),
        ("/v1/tags/x", {"GET", "HEAD", "PUT", "DELETE"}),
        ("/v1/stores/x/cpb", {"GET", "HEAD"}),
    ],
)
def test_allow_lists_every_method(client: httpx.Client, path: str, allowed: set[str]) -> None:
    answer = client.request("PATCH", path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_malformed_queries_are_the_clients_fault(service: LiveServer) -> None:
    for query in (b"path=%ff", b"path=a&path=b", b"omit_larger_than=many"):
        request = b"GET /v1/stores/nobody/merge?" + query + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
        answer = exchange(service, request)
        assert_problem(answer.status, answer.headers, answer.body, expected=400)


@pytest.mark.parametrize("path", ["/v1/stores/register", "/v1/stores/assemble", "/v1/chunks/missing"])
def test_of_many_mistakes_the_number_is_told(client: httpx.Client, path: str) -> None:
    few = client.post(path, json={str(n): 1 for n in range(10)})
    assert len(assert_problem(few.status_code, few.headers, few.content, expected=400)["errors"]) >= 10
    many = client.post(path, json={str(n): 1 for n in range(50_000)})
    (output,) = assert_problem(many.status_code, many.headers, many.content, expected=400)["errors"]
    assert "errors, which are too many to list" in output["detail"]
    assert len(many.content) < 1000


async def changes(app: Application, token: str, path: str = "/spaces/own/v1/audit") -> list[dict[str, Any]]:
    answer = await ask(app, "GET", path, headers=bearer(token))
    assert answer.status == 200, answer.text
    items: list[dict[str, Any]] = json.loads(answer.body)["items"]
    return items


async def test_changes_name_who_what_and_subject() -> None:
    async with closed_service() as app:
        writer, admin = await token_for(app, Scope.WRITE, Scope.DELETE), await token_for(app, Scope.ADMIN)
        path = "/spaces/own/v1/stores"
        made = await ask(app, "PUT", f"{path}?filename=m.onnx&tag=m:1", body=onnx(100), headers=bearer(writer))
        store = json.loads(made.body)["id"]
        await ask(app, "DELETE", f"{path}/{store}?force=m:1", headers=bearer(writer))
        found = await changes(app, admin)
        assert [(each["what"], each["subject"], each["who"]) for each in found[:4]] == [
            ("store.removed", store, "t"),
            ("tag.removed", "m:1", "t"),
            ("tag.set", "m:1", "t"),
            ("store.created", store, "t"),
        ]
        assert found[0]["transaction"] == found[1]["transaction"] != found[2]["transaction"]
        assert [each["what"] for each in found[4:]] == ["token.created", "token.created"]
        of_tag = await changes(app, admin, "/spaces/own/v1/audit?subject=m:1")
        assert [each["what"] for each in of_tag] == ["tag.removed", "tag.set"]
        secret = admin.rpartition("_")[2]
        assert secret not in json.dumps(found)


async def test_callers_of_one_name_are_told_apart(tmp_path: Path) -> None:
    rules = ("claims = { sub = ['a', 'b'] }\nspace = 'own'\nscopes = ['write']",)
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(tmp_path, issuer, rules=rules, more="name = 'nick'")) as app:
            tokens = [await token_for(app, Scope.WRITE) for _ in range(2)]  # both are named `t`
            callers = [*tokens, *(issuer.token(sub=subject, nick="t") for subject in "ab")]
            path, stores = "/spaces/own/v1/stores", []
            for number, caller in enumerate(callers):
                made = await ask(app, "PUT", f"{path}?filename=m&tag=m:{number}", b"m%d" % number, bearer(caller))
                stores.append(json.loads(made.body)["id"])
            admin = await token_for(app, Scope.ADMIN)
            found = [each for each in await changes(app, admin) if each["what"] == "store.created"][::-1]
            assert [(each["subject"], each["who"]) for each in found] == [(store, "t") for store in stores]
            ids = [each["who_id"] for each in found]
            assert len(set(ids)) == 4
            assert ids[:2] == [token[len("psl_") :][: len(ids[0])] for token in tokens]
            listed = json.loads((await ask(app, "GET", path, headers=bearer(admin))).body)["items"][::-1]
            assert [(each["uploader"], each["uploader_id"]) for each in listed] == [("t", id) for id in ids]
            tag = json.loads((await ask(app, "GET", f"{path}/m:3", headers=bearer(admin))).body)
            assert tag["uploader_id"] == ids[3]


async def test_admins_of_all_spaces_see_what_concerns_all() -> None:
    async with closed_service() as app:
        admin = await token_for(app, Scope.ADMIN, space=EVERY_SPACE)
        typed = bearer(admin) | {"content-type": "application/json"}
        await ask(app, "PUT", "/v1/spaces/own", b'{"quota_stores": 5}', typed)
        found = await changes(app, admin, "/v1/audit?every_space=true")
        assert [(each["what"], each["subject"]) for each in found if each["what"].startswith("space.")] == [
            ("space.changed", "own"),
            ("space.created", "other"),
            ("space.created", "own"),
        ]
        assert found[0]["detail"]["quota_stores"] == 5
        own = await token_for(app, Scope.ADMIN)
        refused = await ask(app, "GET", "/spaces/own/v1/audit?every_space=true", headers=bearer(own))
        assert refused.status == 403


async def test_changes_of_settings_are_recorded() -> None:
    async with closed_service(webhook_allow=("https://hooks.example/",)) as app:
        admin = bearer(await token_for(app, *Scope)) | {"content-type": "application/json"}
        place = "/spaces/own"
        hook = b'{"url": "https://hooks.example/x"}'
        types = descriptor_pb2.FileDescriptorSet(
            file=[descriptor_pb2.FileDescriptorProto(name="k.proto", package="k", syntax="proto3")]
        )
        schema = admin | {"content-type": "application/protobuf"}
        repository = b'{"organization": "ann", "name": "net"}'
        made = await ask(app, "POST", f"{place}/v1/tokens", body=b'{"name": "x", "scopes": ["read"]}', headers=admin)
        token = json.loads(made.body)["id"]
        for method, path, body, headers in (
            ("DELETE", f"/v1/tokens/{token}", b"", admin),
            ("PUT", "/v1/webhooks/ci", hook, admin),
            ("DELETE", "/v1/webhooks/ci", b"", admin),
            ("PUT", "/v1/schemas/k", types.SerializeToString(), schema),
            ("DELETE", "/v1/schemas/k", b"", admin),
            ("POST", "/api/repos/create", repository, admin),
            ("DELETE", "/api/repos/delete", repository, admin),
        ):
            answer = await ask(app, method, f"{place}{path}", body=body, headers=headers)
            assert answer.status < 300, (path, answer.text)
        found = json.loads((await ask(app, "GET", f"{place}/v1/audit", headers=admin)).body)["items"]
        assert [(each["what"], each["subject"]) for each in reversed(found)][1:] == [
            ("token.created", token),
            ("token.revoked", token),
            ("webhook.set", "ci"),
            ("webhook.removed", "ci"),
            ("schema.set", "k"),
            ("schema.removed", "k"),
            ("repository.created", "ann/net"),
            ("repository.removed", "ann/net"),
        ]
        assert {each["who"] for each in found[:-1]} == {"t"}
