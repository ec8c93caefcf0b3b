"""Names of repositories: names that differ only in case are one name, and a moved repository keeps its former name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import RULES
from tests.support.catalogues import make_earlier
from tests.support.serve import Asked, ask, open_app

from protoslice.database import connect, upgrade
from protoslice.server.app import Application, create_app
from protoslice.server.auth.permissions import Scope
from protoslice.server.routing import routes_of
from protoslice.server.settings import Settings

Made = Callable[..., str]

JSON: Final = {"content-type": "application/json"}
_HUB: Final = "protoslice.server.registries.hub."
ROWS: Final = sorted(
    row
    for row, route in routes_of(create_app(Settings(storage="memory://")).router.routes)
    if route.endpoint.__module__.startswith(_HUB) and "{name:" in row and not RULES[row].signed
)
"""Calls on a repository, except those by URLs that the service signs for a name."""
_BODY: Final = {
    "operation": "download", "transfers": ["basic"], "objects": [], "paths": ["a"], "files": [], "tag": "v",
    "message": "m",
}  # fmt: skip
_PARTS: Final = {
    "{kind}": "models", "{revision}": "main", "{branch}": "main", "{tag}": "v", "{path:path}": "a",
    "{folder:path}": "a", "{revisions:path}": "main..v",
    "{session}": "0" * 32, "{hash}": "0" * 64, "{start}": "00", "{rest}": "0" * 38,
}  # fmt: skip


def filled(row: str, name: str) -> tuple[str, str]:
    """Return the method and the path of a call of the repository `name`."""
    method, _, path = row.partition(" ")
    for part, text in {
        "{name:repository}": name,
        "{name:repository_of_kind}": name,
        "{name:owned}": name,
        **_PARTS,
    }.items():
        path = path.replace(part, text)
    assert "{" not in path, row
    return method, path


def test_a_name_in_another_case_is_taken(client: httpx.Client, made: Made) -> None:
    name, other = made({"a": b"1"}), made()
    for taken in (name, name.upper(), name.lower()):
        owner, _, last = taken.partition("/")
        answer = client.post("/api/repos/create", json={"organization": owner, "name": last})
        assert answer.status_code == 409
        assert answer.json()["name"] == name
        assert answer.json()["url"] == f"{client.base_url}/{name}".replace("//Ann", "/Ann")
        moved = client.post("/api/repos/move", json={"fromRepo": other, "toRepo": taken})
        assert moved.status_code == 409
    assert [each["id"] for each in client.get("/api/models?author=Ann").json()].count(name) == 1
    assert client.get("/api/models?author=ANN").json() == []
    body = {"organization": "ANN", "name": name[4:], "type": "dataset"}
    assert client.post("/api/repos/create", json=body).status_code == 200, "a dataset is another repository"


def test_a_new_name_does_not_end_as_the_urls_of_git(client: httpx.Client, made: Made) -> None:
    name = made({"a": b"1"})
    said = []
    for end in (".git", ".GIT"):
        for kind in ("model", "dataset"):
            body = {"organization": "Ann", "name": f"{name[4:]}{end}", "type": kind}
            said.append(client.post("/api/repos/create", json=body))
        said.append(client.post("/api/repos/move", json={"fromRepo": name, "toRepo": f"{name}{end}"}))
    path = f"/v2/{name.lower()}.git"
    said.append(client.post(f"{path}/blobs/uploads/"))
    said.append(client.post(f"{path}/blobs/uploads/?digest=sha256:{'0' * 64}", content=b"x"))
    kind = "application/vnd.oci.image.manifest.v1+json"
    manifest = {"schemaVersion": 2, "mediaType": kind, "layers": []}
    said.append(client.put(f"{path}/manifests/v1", json=manifest, headers={"content-type": kind}))
    for answer in said:
        assert answer.status_code == 400, answer.request.url
        assert "without '.git' at the end" in answer.text
    assert "refs/heads/main" in client.get(f"/{name}.git/info/refs?service=git-upload-pack").text
    assert client.get(f"{path}/tags/list").json()["tags"] == []


LOOKING_UP_NONE: Final = {
    "GET /api/{kind}/{name:repository}/compare/{revisions:path}",
    "POST /api/{kind}/{name:repository}/discussions",
    "GET /{name:owned}",
    "GET /{name:owned}/blob/{revision}/{path:path}",
    "GET /{name:owned}/commit/{revision}",
    "GET /{name:owned}/tree/{revision}",
    "GET /{name:owned}/tree/{revision}/{path:path}",
}
"""Refused calls, and pages for users, which lead to the service's page for any name."""


@pytest.mark.parametrize("row", ROWS)
def test_every_call_by_another_name_is_redirected(client: httpx.Client, made: Made, row: str) -> None:
    kind = "dataset" if "/datasets/" in row else "model"
    current = made({"a": b"1"}, kind)
    moved = f"{current}-then"
    for start, end in ((current, moved), (moved, current)):
        assert client.post("/api/repos/move", json={"fromRepo": start, "toRepo": end, "type": kind}).status_code == 200

    def answered(name: str) -> httpx.Response:
        method, path = filled(row, name)
        return client.request(method, f"{path}?a=b%2Fc", json=None if method == "GET" else _BODY)

    assert ("No repository" not in answered("Ann/none").text) == (row in LOOKING_UP_NONE)
    for name in (moved, current.upper(), moved.upper()):
        if row not in LOOKING_UP_NONE:
            answer = answered(name)
            assert answer.status_code == 307, f"{row}: {answer.text}"
            assert answer.headers["location"] == f"{filled(row, current)[1]}?a=b%2Fc"


def test_a_redirect_leads_to_the_file(client: httpx.Client, made: Made) -> None:
    client.follow_redirects = True
    try:
        name = made({"sub/a b": b"1"})
        client.post(f"/api/models/{name}/branch/feat%2Fx", json={})
        for other in (name.upper(), name.upper().replace("/", "%2F")):
            answer = client.get(f"/{other}/resolve/feat%2Fx/sub/a%20b?download=true")
            assert answer.content == b"1"
            assert str(answer.url).endswith(f"/{name}/resolve/feat%2Fx/sub/a%20b?download=true")
        data = made({"a": b"3"}, "dataset")
        assert client.get(f"/datasets/{data.upper()}/resolve/main/a").content == b"3"
        assert client.get(f"/api/datasets/{data.upper()}").json()["id"] == data
        for plain in (f"{name.upper()}.git", f"datasets/{data.upper()}.git", f"datasets/{data.upper()}"):
            assert "refs/heads/main" in client.get(f"/{plain}/info/refs?service=git-upload-pack").text
    finally:
        client.follow_redirects = False


def test_a_former_name_leads_to_its_last_repository(client: httpx.Client, made: Made) -> None:
    def move(start: str, end: str) -> int:
        return client.post("/api/repos/move", json={"fromRepo": start, "toRepo": end}).status_code

    def led(name: str) -> str | int:
        answer = client.get(f"/{name}/resolve/main/a")
        return answer.headers["location"].split("/resolve")[0][1:] if answer.is_redirect else answer.status_code

    first, second = made({"a": b"1"}), made({"a": b"2"})
    names = [f"{first}-{letter}" for letter in "abc"]
    for start, end in zip([first, *names], names, strict=False):
        assert move(start, end) == 200
    assert [led(each) for each in (first, *names)] == [names[2], names[2], names[2], 200]
    assert move(first, f"{first}-d") == 404, "only a current name can be moved"
    assert client.request("DELETE", "/api/repos/delete", json={"name": first}).status_code == 404
    # Another repository takes a former name, in another case; the other former names still lead to the first.
    assert move(second, names[0].upper()) == 200
    assert [led(each) for each in (first, names[0], second)] == [names[2], names[0].upper(), names[0].upper()]
    # A former name does not return when the repository that took it is removed.
    assert client.request("DELETE", "/api/repos/delete", json={"name": names[0].upper()}).status_code == 200
    assert [led(each) for each in (names[0], second)] == [404, 404]
    assert move(names[2], first.upper()) == 200, "its own former name"
    assert [led(each) for each in (first, names[1], names[2])] == [first.upper()] * 3
    made_again = client.post("/api/repos/create", json={"organization": "Ann", "name": names[1][4:]})
    assert made_again.status_code == 200
    assert (led(names[1]), led(names[2])) == (404, first.upper()), "a new repository, which has no file"
    assert client.request("DELETE", "/api/repos/delete", json={"name": first.upper()}).status_code == 200
    assert [led(each) for each in (first, names[2])] == [404, 404]


async def _create(app: Application, base: str, name: str, headers: dict[str, str]) -> Asked:
    owner, _, last = name.partition("/")
    body = json.dumps({"organization": owner, "name": last}).encode()
    return await ask(app, "POST", f"{base}/api/repos/create", body, {**JSON, **headers})


@pytest.mark.anyio
async def test_a_redirect_stays_in_the_space_and_behind_the_proxy() -> None:
    async with closed_service(public_url="https://models.example/base") as app:
        caller = bearer(await token_for(app, Scope.READ, Scope.WRITE))
        assert (await _create(app, "/spaces/own", "Ann/m", caller)).status == 200
        for path in ("/api/models/{}/tree/main?recursive=true", "/{}/resolve/main/a", "/{}/info/refs?service=x"):
            answer = await ask(app, "GET", "/spaces/own" + path.format("ann/M"), headers=caller)
            assert (answer.status, answer.headers["location"]) == (307, "/base/spaces/own" + path.format("Ann/m"))
        there = await _create(app, "/spaces/own", "ANN/M", caller)
        assert json.loads(there.body)["url"] == "https://models.example/base/spaces/own/Ann/m"
        there = await _create(app, "/spaces/own", "ANN/M", bearer(await token_for(app, Scope.WRITE)))
        assert json.loads(there.body)["name"] == "ANN/M", "a caller who may not read learns no name"
        elsewhere = bearer(await token_for(app, Scope.WRITE, space="other"))
        assert (await _create(app, "/spaces/other", "ANN/M", elsewhere)).status == 200


@pytest.mark.anyio
async def test_a_stranger_is_not_redirected() -> None:
    async with closed_service() as app:
        inside = bearer(await token_for(app, Scope.READ, Scope.WRITE))
        elsewhere, writing = await token_for(app, Scope.READ, space="other"), await token_for(app, Scope.WRITE)
        assert (await _create(app, "/spaces/own", "Ann/m", inside)).status == 200
        for path in ("/api/models/{}", "/{}/resolve/main/a", "/{}/info/refs", "/api/models/{}/auth-check/write"):
            for caller in ({}, bearer(elsewhere), bearer(writing)):
                there, missing = [
                    await ask(app, "GET", "/spaces/own" + path.format(name), headers=caller)
                    for name in ("ann/m", "ann/n")
                ]
                assert there.status in {401, 403, 404}
                assert "location" not in there.headers
                assert (there.status, _said(there).replace("ann/m", "ann/n")) == (missing.status, _said(missing))


def _said(answer: Asked) -> str:
    return re.sub(r'"request_id": "\w+"', "", answer.text)


@pytest.mark.anyio
async def test_older_repositories_that_differ_in_case_keep_their_names(url: str, tmp_path: Path) -> None:
    await make_earlier(url, 10)
    database = connect(url, "memory://")
    names = ["a/b", "A/b", "a/B", "c/d", "c/D", "datasets/a/b", "g/m.git"]
    sql = "INSERT INTO repositories (space, id, protocol, name, created) VALUES (:space, :id, 'hub', :name, :id)"

    def fill(tx: Any) -> None:
        for at, space in enumerate(("default", "own")):  # ids are random, so no two spaces share one
            first = (1 + at) << 32
            rows = [{"space": space, "id": first + number, "name": name} for number, name in enumerate(names)]
            tx.many(sql, rows)
        tx.run(f"{sql.replace('hub', 'oci')}", space="own", id=1 << 40, name="a/Pulled")

    await database.fill(fill)
    await upgrade(database)
    oci = await database.read(lambda tx: tx.all("SELECT name FROM repositories WHERE protocol = 'oci'"))
    assert oci == [], "what was computed for pulls by a name with capitals is computed again"
    await database.close()
    async with open_app(storage=(tmp_path / "storage").as_uri(), database=url) as app:

        async def led(name: str) -> str | int:
            answer = await ask(app, "GET", f"/api/models/{name}")
            return answer.headers["location"].removeprefix("/api/models/") if answer.status == 307 else answer.status

        async def sent(path: str, body: dict[str, str], method: str = "POST") -> int:
            return (await ask(app, method, f"/api/repos/{path}", json.dumps(body).encode(), JSON)).status

        assert [await led(name) for name in ("a/b", "A/b", "a/B", "A/B", "C/D")] == [200, 200, 200, "a/b", "c/d"]
        assert (await _create(app, "", "A/B", {})).status == 409
        assert await sent("delete", {"name": "a/B"}, "DELETE") == 200
        assert [await led(name) for name in ("a/b", "A/b", "a/B", "A/B")] == [200, 200, "a/b", "a/b"]
        assert await sent("move", {"fromRepo": "a/b", "toRepo": "e/f"}) == 200
        assert [await led(name) for name in ("a/b", "A/b", "A/B", "E/F")] == ["A/b", 200, "A/b", "e/f"]
        assert (await _create(app, "", "a/b", {})).status == 409
        assert await sent("move", {"fromRepo": "A/b", "toRepo": "a/b"}) == 200
        assert [await led(name) for name in ("a/b", "A/b")] == [200, "a/b"]
        assert await sent("delete", {"name": "c/d"}, "DELETE") == 200
        assert [await led(name) for name in ("c/d", "c/D")] == ["c/D", 200]
        assert [await led(name) for name in ("g/m.git", "G/M.git", "g/m")] == [200, "g/m.git", 404]
        assert (await ask(app, "GET", "/g/m.git.git/info/refs")).status == 200, "for git it has its suffix twice"
        assert await sent("move", {"fromRepo": "g/m.git", "toRepo": "g/m"}) == 200
        assert (await _create(app, "", "C/D", {})).status == 409
        listed = json.loads((await ask(app, "GET", "/api/models")).body)
        assert [each["id"] for each in listed] == ["a/b", "c/D", "e/f", "g/m"]
