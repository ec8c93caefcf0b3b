"""Addresses that clients print open the page of the model in a browser."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

import httpx
import pytest
from tests.server.auth.closed import closed_service
from tests.support.hub import commit
from tests.support.serve import ask

Made = Callable[..., str]
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_addresses_of_a_commit_lead_to_its_store(client: httpx.Client, made: Made, kind: str) -> None:
    name = made(kind=kind)
    told = commit(client, f"{kind}s/{name}", {"sub/a b.txt": b"a"}).json()
    created = client.post("/api/repos/create", json={"name": name, "type": kind}).json()["url"]
    root = f"/{name}" if kind == "model" else f"/datasets/{name}"
    printed = [told["commitUrl"], created]
    printed += [f"{created}/{rest}" for rest in ("tree/main", "tree/main/", "tree/main/sub", "blob/main/sub/a%20b.txt")]
    for url in printed:
        assert httpx.URL(url).path.startswith(root)
        answer = client.get(url, headers=BROWSER)
        assert answer.status_code == 302, url
        place = answer.headers["location"]
        assert place.startswith("/m/")
        ref = place.removeprefix("/m/")
        assert client.get(f"/v1/stores/{ref}").json()["id"][:40] == told["commitOid"]
        assert client.head(url, headers=BROWSER).status_code == 302


def test_a_revision_with_a_slash_is_kept(client: httpx.Client) -> None:
    for path, shown in (("tree/feat%2Fx/a", "@feat/x"), ("commit/0123", "@0123"), ("tree/a%3Fb%23c", "@a?b#c")):
        place = client.get(f"/Ann/none/{path}", headers=BROWSER).headers["location"]
        assert place.startswith("/m/Ann%2Fnone%40")
        assert unquote(place) == f"/m/Ann/none{shown}"
    assert client.put("/v1/spaces/red").status_code == 201
    assert client.get("/spaces/red/Ann/none", headers=BROWSER).headers["location"] == "/spaces/red/m/Ann%2Fnone%40main"


@pytest.mark.parametrize(
    "path",
    ["/.well-known/x", "/v1/x", "/api/x", "/a/b/c", "/%2e%2e/x", "/a/%2F%2Fevil.example", "/a/b%0D%0Ax", "/datasets/a"],
)
def test_other_paths_lead_nowhere(client: httpx.Client, path: str) -> None:
    answer = client.get(path, headers=BROWSER)
    assert answer.status_code in {400, 404}
    assert "location" not in answer.headers
    assert client.post("/v1/x").status_code == 404


@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "text/html"])
@pytest.mark.parametrize(
    "path", ["/v3/stores", "/v2beta/stores", "/v10/stores/tree/main", "/nope/x", "/nope/x/tree/main"]
)
def test_programs_are_not_sent_to_a_page(client: httpx.Client, path: str, accept: str | None) -> None:
    answer = client.get(path, headers={} if accept is None else {"accept": accept})
    if accept == "text/html" and not path.startswith(("/v3", "/v10")):
        assert (answer.status_code, answer.headers["vary"]) == (302, "accept")
    else:
        assert (answer.status_code, answer.headers.get("location")) == (404, None)
        assert "`/v1`" in answer.text, answer.text


async def test_a_stranger_learns_nothing_of_a_closed_service() -> None:
    async with closed_service() as app:
        answers = [await ask(app, "GET", f"/spaces/{space}/team/x", headers=BROWSER) for space in ("own", "none")]
        assert [each.status for each in answers] == [302, 302]
        assert [each.headers["location"] for each in answers] == [
            f"/spaces/{space}/m/team%2Fx%40main" for space in ("own", "none")
        ]
