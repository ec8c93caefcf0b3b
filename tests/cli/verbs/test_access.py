"""Tokens on the command line, against a service that requires tokens: tests beyond the transcripts.

The verb `auth explain` shows the service's decision with its reasons. A token is saved once it is known to be valid,
for exactly one origin, in a file that no one else can read.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.server.auth.oidc.trusting import trust_file
from tests.support.issuer import AUDIENCE, FakeIssuer, running_issuer
from tests.support.serve import service_process
from typer.testing import Result

from protoslice import credentials
from protoslice.client import Client
from protoslice.client.http.connection import Connection, ServiceAnswer
from protoslice.credentials import SavedToken
from protoslice.server.services import ServerState
from protoslice.server.settings import Settings


@pytest.fixture(scope="module")
def team(closed: Any) -> dict[str, str]:
    """Return the environment of an admin of the space `team`."""
    with httpx.Client(base_url=closed.url, headers={"authorization": f"Bearer {closed.admin}"}) as http:
        http.put("/v1/spaces/team").raise_for_status()
    return {"PROTOSLICE_URL": f"{closed.url}/spaces/team", "PROTOSLICE_TOKEN": closed.admin}


def test_lists_of_tokens_show_when_each_was_created(call: Any, team: dict[str, str]) -> None:
    made = json.loads(call("token", "create", "dated", "--scope", "read", "--json", **team).stdout)
    head, *rows = call("token", "ls", **team).stdout.splitlines()
    (row,) = [each for each in rows if made["id"] in each]
    assert head.split()[-3:] == ["created", "used", "ends"]
    assert made["created"][:16].replace("T", " ") in row


def test_part_of_a_store_is_signed(closed: Any, team: dict[str, str]) -> None:
    with Client(team["PROTOSLICE_URL"], token=closed.admin) as client:
        client.push(b"\x0a\x22\x0a\x20" + bytes(b"a" * 32), type="tensorflow.GraphDef", tags=["signed:1"])
        part = client.sign("signed:1", "merge", [("path", "node[0].name")])
    assert httpx.get(part).content == b"a" * 32


@pytest.mark.parametrize("size", [6, 9 << 20, 65 << 20])
@pytest.mark.parametrize("base", [[], ["--base", "0123456789abcdef"]])
def test_a_token_that_only_writes_pushes(
    call: Any, team: dict[str, str], tmp_path: Path, size: int, base: list[str]
) -> None:
    robot = team | {"PROTOSLICE_TOKEN": call("token", "create", "w", "--scope", "write", **team).stdout.strip()}
    (tmp_path / "m.bin").write_bytes(bytes(range(6)) * (size // 6))
    pushed = json.loads(call("push", tmp_path / "m.bin", "--tag", "w:2", "--json", *base, **robot).stdout)
    assert (pushed["sent"], pushed["copied"]) == (size // 6 * 6, 0)
    call("pull", "w:2", tmp_path / "again.bin", **team)
    assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "m.bin").read_bytes()
    refused = call("rm", "w:2", code=6, **robot).stderr
    assert refused.index("delete") < refused.index("read")


def test_s3_keys_are_printed_in_every_form(call: Any, team: dict[str, str]) -> None:
    reader = team | {"PROTOSLICE_TOKEN": call("token", "create", "s3", "--scope", "read", **team).stdout.strip()}
    keys = json.loads(call("token", "s3", "--json", **reader).stdout)
    assert call("token", "s3", **reader).stdout.splitlines() == [
        f"export AWS_ACCESS_KEY_ID={keys['access_key_id']}",
        f"export AWS_SECRET_ACCESS_KEY={keys['secret_access_key']}",
    ]
    assert json.loads(call("token", "s3", "--credential-process", **reader).stdout) == {
        "Version": 1,
        "AccessKeyId": keys["access_key_id"],
        "SecretAccessKey": keys["secret_access_key"],
    }


HOSTILE = {"access_key_id": "$(id) `id`", "secret_access_key": "a'; id", "session_token": None, "expires": None}


def test_s3_keys_of_a_hostile_service_are_quoted_for_the_shell(
    call: Any, team: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "call", lambda *_, **__: ServiceAnswer(200, {}, json.dumps(HOSTILE).encode()))
    printed = call("token", "s3", **team).stdout
    assert [shlex.split(line)[1:] for line in printed.splitlines()] == [
        ["AWS_ACCESS_KEY_ID=$(id) `id`"],
        ["AWS_SECRET_ACCESS_KEY=a'; id"],
    ]


@pytest.mark.parametrize("answer", [[], {"access_key_id": 1}, "keys"])
def test_s3_keys_of_another_form_are_refused(
    call: Any, team: dict[str, str], monkeypatch: pytest.MonkeyPatch, answer: object
) -> None:
    monkeypatch.setattr(Connection, "call", lambda *_, **__: ServiceAnswer(200, {}, json.dumps(answer).encode()))
    assert "no valid S3 keys" in call("token", "s3", code=3, **team).stderr


STORES = "/spaces/own/v1/stores"
REQUESTS = [
    ("GET", STORES, "allowed"),
    ("HEAD", f"{STORES}/x/files/a", "allowed"),
    ("PUT", f"{STORES}?tag=ci-1", "allowed"),
    ("PUT", f"{STORES}?tag=ci-1&tag=prod", "403"),
    ("PUT", "/spaces/own/v1/tags/prod", "403"),
    ("DELETE", f"{STORES}/x", "403"),
    ("GET", "/v1/stores", "404"),
    ("GET", "/metrics", "404"),
    ("GET", "/spaces/own/metrics", "404"),
    ("GET", "/livez", "allowed"),
    ("GET", "/spaces/own/team/m/resolve/feat%2Fx/f", "allowed"),
]


@pytest.mark.parametrize(("method", "path", "decision"), REQUESTS)
def test_a_request_of_a_jwt_is_decided_as_the_gate_does(
    call: Any, tmp_path: Path, method: str, path: str, decision: str
) -> None:
    with running_issuer() as issuer:
        settings = {"PROTOSLICE_ISSUERS": str(trust_file(tmp_path, issuer)), "PROTOSLICE_STORAGE": "memory://"}
        code = 0 if decision == "allowed" else 6
        done = call("auth", "explain", issuer.token(), method, path, "--json", code=code, **settings)
    found = json.loads(done.stdout)
    assert (found["caller"], found["decision"]) == ("robot", decision)


def test_reasons_name_the_claim_and_the_mistake(call: Any, tmp_path: Path) -> None:
    with running_issuer() as issuer:
        settings = {"PROTOSLICE_ISSUERS": str(trust_file(tmp_path, issuer)), "PROTOSLICE_STORAGE": "memory://"}
        other = call("auth", "explain", issuer.token(sub="x"), "GET", STORES, code=6, **settings).stdout
        wrong = call("auth", "explain", issuer.token(aud="x"), "GET", STORES, code=6, **settings).stdout
        call("auth", "explain", "x", "GET", "/nothing/here/at/all", code=4, **settings)
    assert other.startswith("x: 404\n")
    assert "no match, by sub: tokens where sub is robot get read write in the space own, on the tags ci-*" in other
    assert wrong.startswith("nobody: 401\n")
    assert "aud" in wrong


def test_a_token_of_the_storage_is_explained(call: Any, tmp_path: Path) -> None:
    uri = tmp_path.as_uri()

    async def start() -> None:
        services = ServerState(Settings(storage=uri, space_watermark_bytes=0))
        await services.open()
        await services.close()

    asyncio.run(start())
    made = call("token", "create", "t", "--storage", uri, "--scope", "read", "--every-space")
    token = made.stdout.strip()
    done = call("auth", "explain", token, "GET", "/metrics", "--storage", uri)
    assert done.stdout.startswith("t: allowed\n")
    done = call("auth", "explain", "psl_x", "GET", "/metrics", "--storage", uri, code=6)
    assert "lists no issuers" in done.stdout


@dataclass(frozen=True)
class Site:
    """A service that requires tokens: its URL and its admin token."""

    url: str
    admin: str


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Site]]:
    """Two services."""
    found = []
    with (
        service_process(settings=_settings(tmp_path_factory)) as one,
        service_process(settings=_settings(tmp_path_factory)) as other,
    ):
        for service in (one, other):
            assert service.running.stdout is not None
            found.append(Site(service.url, service.running.stdout.readline().strip().rpartition(" ")[2]))
        yield found


def _settings(folders: pytest.TempPathFactory) -> dict[str, str]:
    return {"PROTOSLICE_STORAGE": folders.mktemp("site").as_uri(), "PROTOSLICE_AUTH": "tokens"}


@pytest.fixture
def at_home(call: Any, tmp_path: Path) -> Callable[..., Result]:
    """Return a function that runs a verb without PROTOSLICE_URL, for a user whose configuration is empty at first."""
    return lambda *args, **more: call(*args, **{"url": "", "XDG_CONFIG_HOME": str(tmp_path), **more})


def test_a_token_that_was_kept_goes_to_its_service_alone(at_home: Callable[..., Result], sites: list[Site]) -> None:
    one, other = sites
    at_home("ls", "--url", one.url, code=6)
    at_home("login", one.url, given=f"{one.admin}\n")
    at_home("ls", "--url", one.url)
    at_home("ls", "--url", f"{one.url}/spaces/default/")
    at_home("ls", "--url", other.url, code=6)
    at_home("ls", "--url", one.url.replace("127.0.0.1", "localhost"), code=6)
    at_home("logout", one.url)
    at_home("ls", "--url", one.url, code=6)
    assert "No token is saved" in at_home("logout", one.url, code=4).stderr


def test_the_environment_goes_before_the_file(at_home: Callable[..., Result], sites: list[Site]) -> None:
    one, other = sites
    at_home("login", one.url, given=one.admin)
    at_home("ls", url=one.url, PROTOSLICE_TOKEN="psl_no_token_at_all", code=6)
    # The environment's token is for the service of PROTOSLICE_URL; any other service gets its saved token.
    at_home("ls", "--url", one.url, url=other.url, PROTOSLICE_TOKEN=other.admin)


def test_a_token_that_the_service_does_not_know_is_not_kept(
    at_home: Callable[..., Result], sites: list[Site], tmp_path: Path
) -> None:
    refused = at_home("login", sites[0].url, given=sites[1].admin, code=6).stderr
    assert "Invalid token: unknown, expired or revoked; check it" in refused
    assert "protoslice login" not in refused
    at_home("login", sites[0].url, given=" \n", code=2)
    at_home("login", sites[0].url, given="psl_ä", code=2)
    assert not (tmp_path / "protoslice/credentials.json").exists()


def test_a_robot_that_may_only_write_is_let_in(at_home: Callable[..., Result], sites: list[Site]) -> None:
    admin = {"url": sites[0].url, "PROTOSLICE_TOKEN": sites[0].admin}
    robot = at_home("token", "create", "ci", "--scope", "write", **admin).stdout.strip()
    at_home("login", sites[0].url, given=robot)


def test_the_file_is_its_owners_alone(at_home: Callable[..., Result], sites: list[Site], tmp_path: Path) -> None:
    at_home("login", sites[0].url, given=sites[0].admin)
    file = tmp_path / "protoslice/credentials.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert json.loads(file.read_text()) == {sites[0].url: sites[0].admin}
    file.chmod(0o640)
    assert "chmod 600" in at_home("ls", "--url", sites[0].url, code=2).stderr
    file.chmod(0o600)
    file.write_text("[]")
    assert "log in again" in at_home("ls", "--url", sites[0].url, code=2).stderr


def test_many_at_once_lose_no_token(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    origins = [f"https://host-{number}:443" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda origin: credentials.save_token(origin, SavedToken(f"token of {origin}")), origins))
    assert [credentials.saved_token(origin) for origin in origins] == [
        SavedToken(f"token of {origin}") for origin in origins
    ]


def test_curl_brings_a_token_out_of_netrc(sites: list[Site], tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text(f"machine 127.0.0.1 login anybody password {sites[0].admin}\n")
    command = ["curl", "--silent", "--fail", "--netrc-file", str(netrc), f"{sites[0].url}/v1/stores"]
    assert json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["items"] == []
    assert subprocess.run([*command[:-1], f"{sites[1].url}/v1/stores"], check=False).returncode == 22


def _jwt(claims: str) -> str:
    """Return an unsigned JWT with these claims as JSON."""
    return f"e30.{urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.AA"


def test_the_end_of_a_jwt_is_told_when_it_is_kept(at_home: Callable[..., Result], service: str) -> None:
    output = at_home("login", service, given=_jwt('{"exp": 32503680000}')).stderr
    assert output.endswith(", expires 3000-01-01T00:00:00Z\n")
    assert "ends at" not in at_home("login", service, given="psl_opaque").stderr


def test_a_kept_jwt_that_ended_is_named_as_the_reason(
    at_home: Callable[..., Result], sites: list[Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    credentials.save_token(sites[0].url, SavedToken(_jwt('{"exp": 1000000000.5}')))
    output = at_home("ls", "--url", sites[0].url, code=6).stderr
    assert "; the JWT expired at 2001-09-09T01:46:40" in output
    assert "; run protoslice login, or set PROTOSLICE_TOKEN" in output
    credentials.save_token(sites[0].url, SavedToken(_jwt('{"exp": 32503680000}')))
    output = at_home("ls", "--url", sites[0].url, code=6).stderr
    assert "ended at" not in output
    assert "; run protoslice login" in output


def test_the_way_in_follows_the_words_of_the_service(at_home: Callable[..., Result], sites: list[Site]) -> None:
    output = at_home("ls", "--url", sites[0].url, code=6).stderr
    assert output.startswith(f"protoslice: {sites[0].url}: this service needs a token; run protoslice login")


@pytest.mark.parametrize(
    "token",
    ["", "psl_abc", "a.b", "a..b", "a.%.b", "a.ä.b", *map(_jwt, ("", "[]", "{}", "1", "[" * 12000, '{"exp": "1"}')),
     *map(_jwt, ('{"exp": null}', '{"exp": 1e400}', '{"exp": NaN}', '{"exp": 1' + "0" * 5000 + "}"))],
)  # fmt: skip
def test_a_token_whose_end_cannot_be_read_has_none(token: str) -> None:
    assert credentials.end_of(token) is None


def _naming(site: FakeIssuer, issuer: FakeIssuer) -> None:
    """Make a server of fixed documents look like a service that names an issuer and its client."""
    terms = {"authorization_servers": [issuer.url], "client_id": AUDIENCE, "scopes_supported": ["openid"]}
    site.documents["/.well-known/oauth-protected-resource"] = json.dumps(terms).encode()
    site.documents["/v1/stores?limit=1000"] = b'{"items": []}'


@pytest.mark.parametrize("refresh", [{}, {"refresh_token": "r"}])
def test_no_service_gets_a_token_for_another_one(at_home: Callable[..., Result], refresh: dict[str, str]) -> None:
    with running_issuer() as issuer, running_issuer() as honest, running_issuer() as hostile:
        _naming(honest, issuer)
        _naming(hostile, issuer)
        begun = {"device_code": "d", "user_code": "A", "verification_uri": "https://i.example/", "interval": 1}
        issuer.answers = [(200, begun), (200, {"id_token": issuer.token(exp=32503680000), **refresh})]
        output = at_home("login", "--device", honest.url).stderr
        assert f"It can use every service that accepts the client {AUDIENCE!r} of {issuer.url} in your name" in output
        assert [form["resource"] for _, form in issuer.forms] == [honest.url] * 2
        issuer.answers = [(200, begun), (200, {"id_token": issuer.token(), **refresh})]
        output = at_home("login", "--device", hostile.url, code=6).stderr
        assert f"as {honest.url}: its operator could act there in your name" in output
        assert len(issuer.forms) == 2
        assert hostile.fetches == ["/.well-known/oauth-protected-resource"]
        at_home("logout", honest.url)
        at_home("login", "--device", hostile.url)
