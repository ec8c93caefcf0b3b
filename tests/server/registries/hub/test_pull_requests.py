"""Pull requests are refused before anything is stored; a change never lands on the branch instead."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest
from tests.support.hub import header, inline
from tests.support.serve import LiveServer

from protoslice.server.registries.hub import commits, repositories, xet
from protoslice.server.routing import routes_of

Made = Callable[..., str]

VALUES = {"{kind}": "models", "{revision}": "main", "{branch}": "b", "{tag}": "t", "{session}": "s", "{hash}": "0" * 64}
CHANGES = [row for router in (repositories.router, commits.router, xet.router) for row, _ in routes_of(router.routes)]


def lines(*operations: tuple[str, object]) -> bytes:
    return "\n".join(json.dumps({"key": key, "value": value}) for key, value in operations).encode()


@pytest.mark.parametrize("query", ["create_pr=1", "create_pr=true", "create_pr=True"])
def test_a_commit_to_a_pull_request_changes_nothing(client: httpx.Client, made: Made, query: str) -> None:
    name = made({"a": b"old"})
    before = client.get(f"/api/models/{name}/revision/main").json()["sha"]
    body = lines(header(), inline("a", b"new"))
    refused = client.post(f"/api/models/{name}/commit/main?{query}", content=body)
    assert refused.status_code == 422
    assert "pull requests" in refused.headers["x-error-message"].lower()
    assert client.get(f"/api/models/{name}/revision/main").json()["sha"] == before
    assert client.post(f"/api/models/{name}/commit/main?create_pr=0", content=body).status_code == 200


def test_a_commit_is_refused_before_its_body_has_come(service: LiveServer, made: Made) -> None:
    name = made({"a": b"old"})
    with service.connect() as connection:
        head = f"POST /api/models/{name}/commit/main?create_pr=1 HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
        connection.sendall(head.encode().replace(b"host: x", b"host: 127.0.0.1"))
        assert connection.recv(12) == b"HTTP/1.1 422"


@pytest.mark.parametrize("row", [row for row in CHANGES if row != "POST /api/validate-yaml"])
def test_every_change_refuses_a_pull_request(client: httpx.Client, made: Made, row: str) -> None:
    method, path = row.split(" ")
    path = path.replace("{name:repository}", made({"a": b"old"}))
    for name, value in VALUES.items():
        path = path.replace(name, value)
    answer = client.request(method, f"{path}?create_pr=1", json={"name": "x", "tag": "x", "files": []})
    assert (answer.status_code, "pull requests" in answer.headers["x-error-message"].lower()) == (422, True)


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_a_discussion_is_refused(client: httpx.Client, made: Made, kind: str) -> None:
    url = f"/api/{kind}s/{made(kind=kind)}/discussions"
    for wanted in (True, False):
        told = client.post(url, json={"title": "title", "description": "d", "pullRequest": wanted})
        assert (told.status_code, "not supported" in told.headers["x-error-message"]) == (422, True)


def test_refs_list_no_pull_requests(client: httpx.Client, made: Made) -> None:
    assert client.get(f"/api/models/{made()}/refs?include_prs=1").json()["pullRequests"] == []
    name = made({"a": b"1"})
    assert client.get(f"/{name}/resolve/refs%2Fpr%2F1/a").headers["x-error-code"] == "RevisionNotFound"
    assert client.post(f"/api/models/{name}/commit/refs%2Fpr%2F1", content=lines(header())).status_code == 404
