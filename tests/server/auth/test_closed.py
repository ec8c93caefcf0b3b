"""A service that requires tokens: its start, its fast path, and its clients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer
from tests.support.serve import LiveServer, serve, service_process
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import InvalidInput, NotFound, StorageDenied
from protoslice.server.app import create_app
from protoslice.server.settings import Settings, read_settings
from protoslice.server.transport.run import fast_path

MODEL = onnx(1000, 2000)


@dataclass
class Closed:
    """A service, its admin token, and the requests that were answered while they were parsed."""

    live: LiveServer
    admin: str
    at_once: list[bool]


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    folder = tmp_path_factory.mktemp("closed")
    settings = Settings(storage=folder.as_uri(), space_watermark_bytes=0, trust_seconds=60, auth="tokens")
    app = create_app(settings)
    quick, at_once = fast_path(app), list[bool]()
    assert quick is not None

    def answer(*request: Any) -> bytes | None:
        given = quick(*request)
        at_once.append(given is not None)
        return given

    with serve(app=app, answerer=answer) as live:
        assert app.services.initial_admin_token is not None
        yield Closed(live, app.services.initial_admin_token.text, at_once)


@pytest.fixture(scope="module")
def http(closed: Closed) -> Iterator[httpx.Client]:
    """Return a client without a token."""
    with httpx.Client(base_url=closed.live.url) as client:
        client.put("/v1/spaces/team", headers=bearer(closed.admin))
        yield client


def made(http: httpx.Client, admin: str, *scopes: str, **more: Any) -> dict[str, Any]:
    """Return a new token of the space `team`."""
    terms = {"name": "ci", "scopes": list(scopes), **more}
    answer = http.post("/spaces/team/v1/tokens", json=terms, headers=bearer(admin))
    assert answer.status_code == 201, answer.text
    assert "no-store" in answer.headers["cache-control"]
    return dict(answer.json())


def test_known_tokens_are_let_in_while_the_request_is_parsed(closed: Closed, http: httpx.Client) -> None:
    inside = bearer(closed.admin)
    sent = http.put("/spaces/team/v1/stores?filename=m.onnx&tag=fast", content=MODEL, headers=inside)
    url = f"{sent.headers['location']}/files/m.onnx"
    reader, writer = (made(http, closed.admin, scope)["token"] for scope in ("read", "write"))
    part = {"range": "bytes=0-9"}
    slow = http.get(url, headers=bearer(reader) | part)
    quick = http.get(url, headers=bearer(reader) | part)
    assert closed.at_once[-2:] == [False, True]
    same = {name: value for name, value in slow.headers.items() if name not in {"date", "x-request-id"}}
    assert same == {name: value for name, value in quick.headers.items() if name not in {"date", "x-request-id"}}
    assert (slow.status_code, slow.content, quick.status_code, quick.content) == (206, MODEL[:10]) * 2
    wrong = reader[:-1] + ("y" if reader.endswith("x") else "x")
    for token, status in ((None, 401), (writer, 403), (wrong, 401)):
        for _ in range(2):
            assert http.get(url, headers=bearer(token) | part).status_code == status
            assert not closed.at_once[-1]
    other = url.removeprefix("/spaces/team")
    assert http.get(other, headers=bearer(reader) | part).status_code == 404


def test_known_signatures_are_let_in_while_the_request_is_parsed(closed: Closed, http: httpx.Client) -> None:
    inside = bearer(closed.admin)
    sent = http.put("/spaces/team/v1/stores?filename=m.onnx&tag=signed", content=MODEL, headers=inside)
    path = f"/v1/stores/{sent.json()['id']}/files/m.onnx"
    terms = {"path": path, "expires_seconds": 60}
    target = http.post("/spaces/team/v1/sign", json=terms, headers=inside).json()["url"]
    part = {"range": "bytes=0-9"}
    slow = http.get(target, headers=part)
    quick = http.get(target, headers=part)
    assert closed.at_once[-2:] == [False, True]
    own = {"date", "x-request-id"}
    same = [[header for header in each.headers.raw if header[0].decode() not in own] for each in (slow, quick)]
    assert same[0] == same[1]
    assert (slow.status_code, slow.content, quick.status_code, quick.content) == (206, MODEL[:10]) * 2
    assert (quick.headers["referrer-policy"], "private" in quick.headers["cache-control"]) == ("no-referrer", True)
    end = int(target.partition("psl-expires=")[2].partition("&")[0])
    for bent, status in (
        (target[:-1] + ("0" if target[-1] != "0" else "1"), 401),
        (target.replace(f"psl-expires={end}", f"psl-expires={end + 1}"), 401),
        (target.replace("/files/m.onnx", "/metadata"), 401),
        (target.replace("/spaces/team", "/spaces/default"), 401),
        (target.replace("?", "?a=1&"), 401),
        (target + "&a=1", 401),
    ):
        for _ in range(2):
            assert http.get(bent, headers=part).status_code == status, bent
            assert not closed.at_once[-1]
    both = http.get(target, headers=part | bearer("psl_none"))
    assert (both.status_code, closed.at_once[-1]) == (401, False)


def test_tokens_are_made_listed_and_revoked(closed: Closed, http: httpx.Client) -> None:
    ci = made(http, closed.admin, "read", "write", tags=["ci-*"], expires_seconds=60)
    assert (ci["space"], ci["scopes"], ci["tags"]) == ("team", ["read", "write"], ["ci-*"])
    listed = http.get("/spaces/team/v1/tokens", headers=bearer(closed.admin)).json()["items"]
    (shown,) = [each for each in listed if each["id"] == ci["id"]]
    assert shown == {name: value for name, value in ci.items() if name != "token"}
    for outside in ("", "/spaces/default"):
        assert ci["id"] not in http.get(f"{outside}/v1/tokens", headers=bearer(closed.admin)).text
        assert http.delete(f"{outside}/v1/tokens/{ci['id']}", headers=bearer(closed.admin)).status_code == 404
    assert http.delete(f"/spaces/team/v1/tokens/{ci['id']}", headers=bearer(closed.admin)).status_code == 204
    assert http.get("/spaces/team/v1/stores", headers=bearer(ci["token"])).status_code == 401


def test_an_admin_of_one_space_makes_no_token_for_all(closed: Closed, http: httpx.Client) -> None:
    local = made(http, closed.admin, "admin")["token"]
    terms = {"name": "x", "scopes": ["admin"]}
    for more, status in (({}, 201), ({"every_space": True}, 403)):
        got = http.post("/spaces/team/v1/tokens", json=terms | more, headers=bearer(local))
        assert got.status_code == status, got.text
    assert http.get("/spaces/team/v1/tokens?every_space=true", headers=bearer(local)).status_code == 403
    assert http.post("/v1/tokens", json=terms, headers=bearer(local)).status_code == 404


def test_the_page_for_people_lists_nothing_without_a_token(closed: Closed, http: httpx.Client) -> None:
    http.put("/v1/stores?filename=m.onnx&tag=secret-name", content=MODEL, headers=bearer(closed.admin))
    page = http.get("/").text
    assert "secret-name" not in page
    assert "needs a token" in page


def test_a_client_brings_a_token(closed: Closed, http: httpx.Client, tmp_path: Path) -> None:
    token = made(http, closed.admin, "read", "write")["token"]
    team = f"{closed.live.url}/spaces/team"
    with Client(team, token=token, attempts=1) as client:
        assert client.push(MODEL, filename="c.onnx", tags=["c"]).store.tags
        client.download("c", tmp_path / "c.onnx")
    assert (tmp_path / "c.onnx").read_bytes() == MODEL
    with Client(team, attempts=1) as nobody, pytest.raises(StorageDenied):
        nobody.store("c")
    with Client(closed.live.url, token=token, attempts=1) as outside, pytest.raises(NotFound):
        outside.store("c")
    for bad in ("", "a\nb", "\u0661"):
        with pytest.raises(InvalidInput):
            Client(team, token=bad)


def test_the_admin_token_can_be_written_to_a_private_file(tmp_path: Path) -> None:
    file = tmp_path / "admin-token"
    settings = {"PROTOSLICE_AUTH": "tokens", "PROTOSLICE_ADMIN_TOKEN_FILE": str(file)}
    with service_process(settings=settings | {"PROTOSLICE_STORAGE": (tmp_path / "one").as_uri()}) as service:
        token = file.read_text().removesuffix("\n")
        assert file.stat().st_mode & 0o777 == 0o600
        assert httpx.get(f"{service.url}/v1/stores", headers=bearer(token)).status_code == 200
        service.running.terminate()
        assert service.running.stdout is not None
        assert "psl_" not in service.running.stdout.read() + service.log.read_text()
    with service_process(settings=settings | {"PROTOSLICE_STORAGE": (tmp_path / "two").as_uri()}) as service:
        assert file.read_text() == f"{token}\n", "an existing file is not replaced"
        assert httpx.get(f"{service.url}/livez").status_code == 200
        service.running.terminate()
        assert service.running.stdout is not None
        assert "psl_" not in service.running.stdout.read()
        service.running.wait()
        log = service.log.read_text()
        assert "PROTOSLICE_ADMIN_TOKEN_FILE" in log
        assert "token create admin --storage" in log
        assert "psl_" not in log


def test_a_new_storage_gets_an_admin_token_that_is_told_once(tmp_path: Path) -> None:
    settings = {"PROTOSLICE_STORAGE": tmp_path.as_uri(), "PROTOSLICE_AUTH": "tokens"}
    with service_process(settings=settings) as first:
        assert first.running.stdout is not None
        output, _, token = first.running.stdout.readline().strip().partition(": ")
        assert output == "Admin token (shown only once)"
        assert httpx.get(f"{first.url}/v1/stores").status_code == 401
        assert httpx.get(f"{first.url}/v1/stores", auth=("any", token)).status_code == 200
        assert token not in first.log.read_text()
    with service_process(settings=settings) as second:
        assert httpx.get(f"{second.url}/v1/stores", headers=bearer(token)).status_code == 200
        second.running.terminate()
        assert second.running.stdout is not None
        assert "psl_" not in second.running.stdout.read()


def test_no_other_word_opens_a_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROTOSLICE_AUTH", "none")
    with pytest.raises(InvalidInput, match="PROTOSLICE_AUTH"):
        read_settings({})


def test_an_open_service_makes_no_tokens(tmp_path: Path) -> None:
    with serve(storage="memory://", space_watermark_bytes=0) as live:
        answer = httpx.post(f"{live.url}/v1/tokens", json={"name": "x", "scopes": ["read"]})
        assert (answer.status_code, "PROTOSLICE_AUTH" in answer.text) == (404, True)
        assert "is open" in httpx.get(live.url).text
