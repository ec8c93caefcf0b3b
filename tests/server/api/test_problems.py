"""Every failure is a problem of the documented kind, whoever raised it."""

from __future__ import annotations

import json
from contextlib import suppress

import httpx
import pytest
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from tests.support.serve import LiveServer, assert_problem, exchange

from protoslice import errors
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
    output = failure.problem.status < 500 or kind is errors.QuotaExceeded  # quotas are told in words of ours
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


def test_a_view_that_no_store_has_is_named(client: httpx.Client) -> None:
    assert client.get("/v1/stores/nobody/nothing/x").json()["detail"].startswith("No view 'nothing/x': use one such as")
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
    assert "errors are too many to list" in output["detail"]
    assert len(many.content) < 1000
