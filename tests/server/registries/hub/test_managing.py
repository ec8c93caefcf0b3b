"""Access, names, settings and history of repositories.

The metadata of model cards, whose YAML may be as hostile as any other input.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer
from tests.support.hub import commit
from tests.support.serve import serve

from protoslice.server.app import create_app
from protoslice.server.routing import Route, routes_of
from protoslice.server.settings import Settings

Made = Callable[..., str]


def test_access_is_checked(client: httpx.Client, made: Made) -> None:
    name = made()
    for path in ("auth-check", "auth-check/write"):
        assert client.get(f"/api/models/{name}/{path}").status_code == 200
        answer = client.get(f"/api/models/ann/none/{path}")
        assert (answer.status_code, answer.headers["x-error-code"]) == (404, "RepoNotFound")


def test_a_squashed_branch_has_one_commit_with_the_same_files(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    old = client.get(f"/api/models/{name}").json()["sha"]
    commit(client, f"models/{name}", {"b": b"2"})
    assert client.post(f"/api/models/{name}/super-squash/main", json={"message": "all"}).status_code == 200
    told = client.get(f"/api/models/{name}/commits/main").json()
    assert [each["title"] for each in told] == ["all"]
    assert {each["path"] for each in client.get(f"/api/models/{name}/tree/main").json()} == {"a", "b"}
    assert client.get(f"/{name}/resolve/{old}/a").status_code == 404
    assert client.post(f"/api/models/{name}/super-squash/none", json={}).status_code == 404


def store_of(client: httpx.Client, name: str, revision: str = "main") -> str:
    """Return the store of a revision."""
    found: str = client.get(f"/v1/stores/{name.replace('/', '%2F')}@{revision}").raise_for_status().json()["id"]
    return found


def is_there(client: httpx.Client, *stores: str) -> list[bool]:
    """Return True for each store that exists."""
    return [client.get(f"/v1/stores/{store}").status_code == 200 for store in stores]


def test_the_stores_of_a_repository_go_with_it_and_can_be_restored(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"goes"})
    first = store_of(client, name)
    commit(client, f"models/{name}", {"b": b"goes too"})
    last = store_of(client, name)
    assert is_there(client, first, last) == [True, True]
    body = {"name": name.partition("/")[2], "organization": name.partition("/")[0]}
    assert client.request("DELETE", "/api/repos/delete", json=body).status_code == 200
    assert is_there(client, first, last) == [False, False]
    assert client.post(f"/v1/stores/{first}/restore").status_code == 200
    assert is_there(client, first, last) == [True, False]


def test_a_store_that_has_another_name_stays(client: httpx.Client, made: Made) -> None:
    names = {each: made({"a": f"stays by {each}".encode()}) for each in ("tag", "commit", "upload", "dedup", "nothing")}
    stores = {each: store_of(client, name) for each, name in names.items()}
    client.put("/v1/tags/stays", json={"store": stores["tag"]}).raise_for_status()
    made({"a": b"stays by commit"})
    client.put("/v1/stores?filename=a", content=b"stays by upload").raise_for_status()
    client.put("/v1/stores?filename=a", content=b"stays by dedup").raise_for_status()
    for name in names.values():
        body = {"name": name.partition("/")[2], "organization": name.partition("/")[0]}
        assert client.request("DELETE", "/api/repos/delete", json=body).status_code == 200
    found = dict(zip(stores, is_there(client, *stores.values()), strict=True))
    assert found == {"tag": True, "commit": True, "upload": True, "dedup": True, "nothing": False}
    client.delete("/v1/tags/stays")


def test_squashing_and_removing_a_branch_free_what_no_other_branch_leads_to(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"freed 1"})
    commits, stores = [], [store_of(client, name)]
    for number in range(2, 4):
        commit(client, f"models/{name}", {"a": f"freed {number}".encode()})
        stores.append(store_of(client, name))
    commits = [each["id"] for each in client.get(f"/api/models/{name}/commits/main").json()]
    client.post(f"/api/models/{name}/branch/side", json={"startingPoint": commits[1]}).raise_for_status()
    client.post(f"/api/models/{name}/super-squash/main", json={"message": "all"}).raise_for_status()
    assert is_there(client, *stores) == [True, True, True], "the branch has two of them, and main the last"
    client.delete(f"/api/models/{name}/branch/side").raise_for_status()
    assert is_there(client, *stores) == [False, False, True]
    assert client.get(f"/{name}/resolve/main/a", follow_redirects=True).content == b"freed 3"


def test_a_moved_repository_keeps_everything(client: httpx.Client, made: Made) -> None:
    name, other = made({"a": b"1"}), made({"a": b"2"})
    client.post(f"/api/models/{name}/tag/main", json={"tag": "v1"})
    new = f"{name}-new"
    assert client.post("/api/repos/move", json={"fromRepo": name, "toRepo": new}).status_code == 200
    assert client.get(f"/{new}/resolve/v1/a").content == b"1"
    assert client.get(f"/api/models/{name}").headers["location"] == f"/api/models/{new}"
    assert [each["id"] for each in client.get(f"/api/models?search={new}").json()] == [new]
    assert client.post("/api/repos/move", json={"fromRepo": new, "toRepo": other}).status_code == 409
    assert client.post("/api/repos/move", json={"fromRepo": name, "toRepo": new}).status_code == 404
    assert client.get(f"/{other}/resolve/main/a").content == b"2"


READERS: tuple[tuple[dict[str, Any], bool | None], ...] = (
    ({}, False),
    ({"private": False}, False),
    ({"visibility": "public"}, False),
    ({"gated": False}, False),
    ({"private": True}, True),
    ({"visibility": "private"}, True),
    ({"visibility": "protected"}, None),
    ({"gated": "auto"}, None),
    ({"gated": True}, None),
    ({"resourceGroupId": "x"}, None),
)
"""Settings of who may read; True for a service that is closed, and None where no service can apply the setting."""


def places(name: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return requests, by their route's row, that make a repository or change who may read it."""
    return {
        "POST /api/repos/create": ("/api/repos/create", {"organization": "Ann", "name": f"new-{name[4:]}"}),
        "POST /api/repos/move": ("/api/repos/move", {"fromRepo": name, "toRepo": f"{name}-moved"}),
        "PUT /api/{kind}/{name:repository}/settings": (f"/api/models/{name}/settings", {}),
    }


def test_every_route_that_says_who_may_read_is_tried() -> None:
    rows = {row for row, route in routes_of(create_app(Settings(storage="memory://")).router.routes) if _says(route)}
    assert rows - {"DELETE /api/repos/delete"} == places("Ann/m").keys()


def _says(route: Route) -> bool:
    """Return True for a route whose body names a repository, or sets who may read one."""
    models = [each.field_info.annotation for each in route.dependant.body_params]
    known = {name for model in models if isinstance(model, type) for name in getattr(model, "model_fields", ())}
    named = {"organization", "toRepo", "private", "visibility", "gated"}
    return route.path.startswith("/api/") and bool(named & known)


@pytest.mark.parametrize("row", places("Ann/m"))
@pytest.mark.parametrize(("said", "needs"), READERS)
def test_who_may_read_is_never_ignored(
    client: httpx.Client, made: Made, row: str, said: dict[str, Any], needs: bool | None
) -> None:
    name = made()
    url, body = places(name)[row]
    listed = client.get("/api/models?limit=1000").json()
    answer = client.request(row.split()[0], url, json=body | said)
    assert answer.status_code == (200 if needs is False else 422), answer.text
    if needs is not False:
        assert "cannot be" in answer.headers["x-error-message"]
        assert client.get("/api/models?limit=1000").json() == listed, "nothing was made or moved"


def test_a_closed_service_has_private_repositories(tmp_path: Path) -> None:
    settings = Settings(storage=tmp_path.as_uri(), space_watermark_bytes=0, auth="tokens")
    app = create_app(settings)
    with serve(app=app) as live, httpx.Client(base_url=live.url) as client:
        assert app.services.initial_admin_token is not None
        client.headers.update(bearer(app.services.initial_admin_token.text))
        for number, (said, needs) in enumerate(READERS):
            body = {"organization": "Ann", "name": f"m{number}"}
            made = client.post("/api/repos/create", json=body | said)
            assert made.status_code == (422 if needs is None else 200), made.text
            if needs is None:
                assert client.get(f"/api/models/Ann/m{number}").status_code == 404
                continue
            assert client.get(f"/api/models/Ann/m{number}").json()["private"] is True
            answer = client.put(f"/api/models/Ann/m{number}/settings", json=said)
            assert answer.json() == {"private": True, "gated": False}
        assert {each["private"] for each in client.get("/api/models").json()} == {True}
        assert httpx.get(f"{live.url}/api/models/Ann/m0").status_code == 401


def test_a_comparison_is_refused(client: httpx.Client, made: Made) -> None:
    answer = client.get(f"/api/models/{made()}/compare/main..v1")
    assert (answer.status_code, "/diff?before=" in answer.headers["x-error-message"]) == (422, True)


def test_a_commit_is_found_by_the_first_digits_of_its_id(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    sha = client.get(f"/api/models/{name}").json()["sha"]
    for digits in (7, 12, 39):
        assert client.head(f"/{name}/resolve/{sha[:digits]}/a").headers["x-repo-commit"] == sha
    for revision in (sha[:6], "0" * 7):
        answer = client.head(f"/{name}/resolve/{revision}/a")
        assert (answer.status_code, answer.headers["x-error-code"]) == (404, "RevisionNotFound")
    client.post(f"/api/models/{name}/branch/{sha[:7]}", json={})
    commit(client, f"models/{name}", {"a": b"2"}, revision=sha[:7])
    assert client.get(f"/{name}/resolve/{sha[:7]}/a").content == b"2", "a branch goes first"


def test_files_have_their_last_commit_on_request(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1", "sub/b": b"1", "other/c": b"1"})
    first = client.get(f"/api/models/{name}").json()["sha"]
    commit(client, f"models/{name}", {"sub/b": b"2"}, summary="second")
    second = client.get(f"/api/models/{name}").json()["sha"]
    commit(client, f"models/{name}", {"d": b"1"}, summary="third")
    third = client.get(f"/api/models/{name}").json()["sha"]
    wanted = {"a": first, "d": third, "other": first, "other/c": first, "sub": second, "sub/b": second}
    told = client.get(f"/api/models/{name}/tree/main?recursive=true&expand=true").json()
    assert {each["path"]: each["lastCommit"]["id"] for each in told} == wanted
    assert {each["lastCommit"]["title"] for each in told if each["path"] == "sub"} == {"second"}
    body = {"paths": ["sub", "d"], "expand": "true"}
    told = client.post(f"/api/models/{name}/paths-info/main", data=body).json()
    assert {each["path"]: each["lastCommit"]["id"] for each in told} == {"sub": second, "d": third}
    assert "lastCommit" not in client.get(f"/api/models/{name}/tree/main").json()[0]


CARD = b"""---
language:
- en
license: apache-2.0
library_name: transformers
pipeline_tag: text-classification
tags: [a, "b c", text-classification]
model-index:
- name: 'x'
  results: [{metrics: [{type: f1, value: 0.5, verified: true, runs: 3, date: 2024-01-02, none: ~}]}]
---
# A model
---
tags: [none]
---
"""


def test_metadata_of_a_card_are_those_of_its_commit(client: httpx.Client, made: Made) -> None:
    name = made({"README.md": CARD, "w.bin": b"w"})
    first = client.get(f"/api/models/{name}").json()
    assert (first["pipeline_tag"], first["library_name"]) == ("text-classification", "transformers")
    assert first["tags"] == ["transformers", "text-classification", "a", "b c", "en", "license:apache-2.0"]
    metric = {"type": "f1", "value": 0.5, "verified": True, "runs": 3, "date": "2024-01-02", "none": None}
    assert first["cardData"] == {
        "language": ["en"],
        "license": "apache-2.0",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["a", "b c", "text-classification"],
        "model-index": [{"name": "x", "results": [{"metrics": [metric]}]}],
    }
    commit(client, f"models/{name}", {"README.md": CARD.replace(b"text-cl", b"image-cl")})
    assert client.get(f"/api/models/{name}").json()["pipeline_tag"] == "image-classification"
    assert client.get(f"/api/models/{name}/revision/{first['sha']}").json() == first


@pytest.mark.parametrize(
    "front",
    [
        b"",
        b"- a",
        b"a: [",
        b"a: \xff",
        b"a: &x [1]\nb: *x",
        b"a: &x [1]\nb: [*x, *x]",
        b"a: " + b"[" * 21 + b"]" * 21,
        b"a: " + b"[" * 60_000,
        b"- " * 30_000,
        b"? " * 30_000,
        b"{a: " * 15_000,
        b"[a]: b",
        b"a: b\na: " + b"- " * 9,
        b"k: " * 20_000,
        b"#" * 70_000,
        b'a: "\\ud800"',
        b"a: [" + b"b," * 30_000 + b"]",
        b"a: !!python/object/apply:os.system [ls]\nb: !!binary [",
    ],
    ids=lambda front: repr(front[:12]),
)
def test_a_hostile_card_has_no_metadata(client: httpx.Client, made: Made, front: bytes) -> None:
    name = made({"README.md": b"---\n" + front + b"\n---\n"})
    found = client.get(f"/api/models/{name}")
    assert found.status_code == 200
    assert found.json()["tags"] == []
    assert not {"cardData", "pipeline_tag", "library_name"} & found.json().keys()


@pytest.mark.parametrize("text", [b"9" * 60_000, b"1:" * 30_000 + b"1", b"1e999999", b"0x" + b"f" * 60_000, b".nan"])
def test_numbers_that_json_cannot_hold_are_texts(client: httpx.Client, made: Made, text: bytes) -> None:
    name = made({"README.md": b"---\na: " + text + b"\ntags: 3\npipeline_tag: [x]\n---\n"})
    found = client.get(f"/api/models/{name}").json()
    assert found["cardData"] == {"a": text.decode(), "tags": 3, "pipeline_tag": ["x"]}
    assert found["tags"] == []
    assert "pipeline_tag" not in found
