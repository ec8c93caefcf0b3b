"""Tokens that are kept: for exactly one origin, in a file that nobody else reads, once they are good."""

from __future__ import annotations

import json
import subprocess
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuer import AUDIENCE, FakeIssuer, running_issuer
from tests.support.serve import service_process
from typer.testing import Result

from protoslice import credentials
from protoslice.credentials import SavedToken


@dataclass(frozen=True)
class Site:
    """A service that asks for tokens: its URL and its admin token."""

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
    """Runs a verb without PROTOSLICE_URL, for a user whose configuration is empty at first."""
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
    # A token of the environment is for the service of PROTOSLICE_URL; another one gets what is kept for it.
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
    """A JWT that nobody signed, with these claims as JSON."""
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
    """Make a server of fixed documents a service that names an issuer and its client."""
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
        assert f"access as you to every service that accepts the client {AUDIENCE!r} of {issuer.url}" in output
        assert [form["resource"] for _, form in issuer.forms] == [honest.url] * 2
        issuer.answers = [(200, begun), (200, {"id_token": issuer.token(), **refresh})]
        output = at_home("login", "--device", hostile.url, code=6).stderr
        assert f"as {honest.url} does: its operator could act there as you" in output
        assert len(issuer.forms) == 2
        assert hostile.fetches == ["/.well-known/oauth-protected-resource"]
        at_home("logout", honest.url)
        at_home("login", "--device", hostile.url)
