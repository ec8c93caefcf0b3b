"""Access, names, settings and history of repositories."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from tests.support.hub import commit

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
    assert client.get(f"/{name}/resolve/{old}/a").content == b"1"
    assert client.post(f"/api/models/{name}/super-squash/none", json={}).status_code == 404


def test_a_moved_repository_keeps_everything(client: httpx.Client, made: Made) -> None:
    name, other = made({"a": b"1"}), made({"a": b"2"})
    client.post(f"/api/models/{name}/tag/main", json={"tag": "v1"})
    new = f"{name}-new"
    assert client.post("/api/repos/move", json={"fromRepo": name, "toRepo": new}).status_code == 200
    assert client.get(f"/{new}/resolve/v1/a").content == b"1"
    assert client.get(f"/api/models/{name}").status_code == 404
    assert [each["id"] for each in client.get(f"/api/models?search={new}").json()] == [new]
    assert client.post("/api/repos/move", json={"fromRepo": new, "toRepo": other}).status_code == 409
    assert client.post("/api/repos/move", json={"fromRepo": name, "toRepo": new}).status_code == 404
    assert client.get(f"/{other}/resolve/main/a").content == b"2"


@pytest.mark.parametrize(
    ("body", "status"), [({"private": False}, 200), ({"private": True}, 422), ({"gated": "auto"}, 422)]
)
def test_settings_that_a_repository_cannot_have_are_refused(
    client: httpx.Client, made: Made, body: dict[str, object], status: int
) -> None:
    assert client.put(f"/api/models/{made()}/settings", json=body).status_code == status


def test_a_comparison_is_refused(client: httpx.Client, made: Made) -> None:
    answer = client.get(f"/api/models/{made()}/compare/main..v1")
    assert (answer.status_code, "/diff?from=" in answer.headers["x-error-message"]) == (422, True)


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
