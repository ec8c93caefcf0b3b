"""Sign-in by the device flow, and renewal of saved tokens, once for many processes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.support.issuer import FakeIssuer, running_issuer

from protoslice import sign_in as issuers
from protoslice.credentials import (
    CredentialsWarning,
    RefreshGrant,
    SavedToken,
    credentials_file,
    save_token,
    saved_token,
)
from protoslice.errors import ProtosliceError, StorageDenied, StorageUnavailable, Unsupported
from protoslice.facts import SignInTerms
from protoslice.references import authorization
from protoslice.sign_in import Clock, DevicePrompt, sign_in

PENDING = (400, {"error": "authorization_pending"})
BEGUN = {"device_code": "d", "user_code": "ABCD", "verification_uri": "https://i.example/device", "expires_in": 600}


class Hurried(Clock):
    """A clock that only waiting moves."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def now(self) -> float:
        """Return the sum of all waits."""
        return sum(self.waits)

    def wait(self, seconds: float) -> None:
        """Return at once, and count the wait."""
        self.waits.append(seconds)


def signed_in(issuer: FakeIssuer, clock: Clock | None = None) -> tuple[SavedToken, list[DevicePrompt]]:
    """Return the result of a sign-in, and the prompts."""
    shown: list[DevicePrompt] = []
    terms = SignInTerms(issuer.url, "cli", ("openid", "email"))
    return sign_in(terms, shown.append, clock or Hurried()), shown


def test_a_person_is_waited_for(issuer: FakeIssuer) -> None:
    given = {"id_token": issuer.token(), "refresh_token": "r"}
    issuer.answers = [(200, {**BEGUN, "interval": 3}), PENDING, (401, {"error": "authorization_pending"}),
                      (400, {"error": "slow_down"}), (200, given)]  # fmt: skip
    clock = Hurried()
    found, shown = signed_in(issuer, clock)
    assert found.token == given["id_token"]
    assert found.grant is not None
    assert (found.grant.issuer, found.grant.client_id, found.grant.token) == (issuer.url, "cli", "r")
    assert shown == [DevicePrompt("https://i.example/device", "ABCD", None)]
    assert clock.waits == [3, 3, 3, 8]
    assert issuer.forms[0] == ("/device", {"client_id": "cli", "scope": "openid email"})
    grant = {"grant_type": "urn:ietf:params:oauth:grant-type:device_code", "device_code": "d", "client_id": "cli"}
    assert issuer.forms[1:] == [("/token", grant)] * 4
    for secret in (given["id_token"], "'r'"):
        assert secret not in repr(found.grant)


@pytest.mark.parametrize("refusal", [None, "invalid_target", "invalid_request"])
def test_a_token_is_asked_for_one_service(issuer: FakeIssuer, refusal: str | None) -> None:
    refused = [] if refusal is None else [(400, {"error": refusal})]
    issuer.answers = [*refused, (200, BEGUN), (200, {"id_token": issuer.token()})]
    terms = SignInTerms(issuer.url, "cli", ("openid",))
    sign_in(terms, lambda prompt: None, Hurried(), resource="https://models.example:443")
    sent = [form.get("resource") for _, form in issuer.forms]
    assert sent == (
        ["https://models.example:443"] * 2 if refusal is None else ["https://models.example:443", None, None]
    )


def test_an_issuer_that_is_away_meanwhile_is_asked_again_and_later(
    issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer.answers = [(200, BEGUN), PENDING, (200, {"id_token": issuer.token()})]
    clock, asked, real = Hurried(), [], issuers._answer

    async def failing(url: str, form: Any) -> Any:
        asked.append(url)
        if len(asked) == 4:
            raise TimeoutError
        return await real(url, form)

    monkeypatch.setattr(issuers, "_answer", failing)
    found, _ = signed_in(issuer, clock)
    assert found.grant is None
    assert clock.waits == [5, 5, 10]


def test_a_code_that_never_ends_ends_here(issuer: FakeIssuer) -> None:
    issuer.answers = [(200, {**BEGUN, "expires_in": 10**12, "interval": 0}), *[PENDING] * 2000]
    clock = Hurried()
    with pytest.raises(StorageDenied, match="code expired"):
        signed_in(issuer, clock)
    assert clock.now() < 1800
    assert min(clock.waits) == 1


@pytest.mark.parametrize("interval", [10**9, 1e308])
def test_an_interval_beyond_the_end_waits_for_nothing(issuer: FakeIssuer, interval: float) -> None:
    issuer.answers = [(200, {**BEGUN, "interval": interval})]
    with pytest.raises(StorageDenied, match="code expired"):
        signed_in(issuer)


FIRST: dict[str, tuple[int, Any]] = {
    "an error": (400, {"error": "unauthorized_client", "error_description": "no\x1b[2Jsuch client"}),
    "nothing": (200, b""),
    "a list": (200, []),
    "nested": (200, b"[" * 100_000),
    "gigabytes": (200, b" " * (1 << 20)),
    "a redirect": (302, BEGUN),
    "no code": (200, {**BEGUN, "user_code": None}),
    "a code that a terminal obeys": (200, {**BEGUN, "user_code": "\x1b]0;x\x07"}),
    "a long code": (200, {**BEGUN, "user_code": "A" * 65}),
    "a device code with a line": (200, {**BEGUN, "device_code": "a\nb"}),
    "a place without TLS": (200, {**BEGUN, "verification_uri": "http://i.example/device"}),
    "a place that is no address": (200, {**BEGUN, "verification_uri": "javascript:alert(1)"}),
    "a place that a terminal obeys": (200, {**BEGUN, "verification_uri": "https://i.example/\x1b[2J"}),
    "a place with a user": (200, {**BEGUN, "verification_uri": "https://bank.example@evil.example/"}),
    "a whole place without TLS": (200, {**BEGUN, "verification_uri_complete": "http://i.example/?c=A"}),
}


@pytest.mark.parametrize("name", FIRST)
def test_a_sign_in_begins_with_sound_answers_alone(issuer: FakeIssuer, name: str) -> None:
    issuer.answers = [FIRST[name]]
    with pytest.raises(ProtosliceError) as told:
        signed_in(issuer)
    assert told.value.message.isprintable()
    assert len(told.value.message) < 400
    assert "/elsewhere" not in issuer.fetches


LAST: dict[str, tuple[int, Any]] = {
    "refused": (400, {"error": "access_denied"}),
    "ended": (400, {"error": "expired_token"}),
    "an unknown error": (400, {"error": "invalid_grant"}),
    "no JSON": (500, b"<html>"),
    "no id token": (200, {"access_token": "x"}),
    "an opaque id token": (200, {"id_token": "opaque"}),
    "a number": (200, {"id_token": 1}),
    "an id token with a line": (200, {"id_token": "a.b\r\nx: y.c"}),
    "a long id token": (200, {"id_token": "a.b." + "c" * (16 << 10)}),
    "a refresh token with a line": (200, {"id_token": "a.b.c", "refresh_token": "a\nb"}),
    "a redirect": (302, {"id_token": "a.b.c"}),
    "gigabytes": (200, b" " * (1 << 20)),
}


@pytest.mark.parametrize("name", LAST)
def test_no_token_comes_of_an_answer_that_is_not_sound(issuer: FakeIssuer, name: str) -> None:
    issuer.answers = [(200, BEGUN), LAST[name]]
    with pytest.raises(StorageDenied):
        signed_in(issuer)


CONFIGURATIONS: dict[str, tuple[Callable[[str], Any], type[ProtosliceError]]] = {
    "another issuer": (lambda url: {"issuer": "https://other.example"}, StorageDenied),
    "does not support sign-in": (lambda url: {"issuer": url, "token_endpoint": url}, Unsupported),
    "no token endpoint": (lambda url: {"issuer": url, "device_authorization_endpoint": url}, Unsupported),
    "an address without TLS": (
        lambda url: {"issuer": url, "device_authorization_endpoint": "http://192.0.2.1/", "token_endpoint": url},
        StorageDenied,
    ),
    "an address that is a number": (
        lambda url: {"issuer": url, "device_authorization_endpoint": 1, "token_endpoint": url}, StorageDenied,
    ),
    "a list": (lambda url: [], StorageDenied),
}  # fmt: skip


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_an_issuer_is_asked_where_it_says_so_safely(issuer: FakeIssuer, name: str) -> None:
    said, error = CONFIGURATIONS[name]
    issuer.documents["/.well-known/openid-configuration"] = json.dumps(said(issuer.url)).encode()
    with pytest.raises(error):
        signed_in(issuer)
    assert issuer.forms == []


@pytest.mark.parametrize(
    "url", ["http://i.example", "ftp://127.0.0.1", "https://", "", "https://a b", "https://a\x00", "http://127.0.0.1@x/",
            "https://x\\@y", "https://" + "a" * 3000, "http://localhost.evil.example", "http://[::1", 1, None],
)  # fmt: skip
def test_no_issuer_without_tls_is_asked_but_those_of_this_machine(url: Any) -> None:
    with pytest.raises(StorageDenied, match="must use https"):
        issuers.checked_url(url)
    for good in ("https://i.example/x", "http://127.0.0.1:5556/dex", "http://[::1]:1/", "http://localhost/"):
        assert issuers.checked_url(good) == good


def test_an_issuer_that_hangs_is_left(issuer: FakeIssuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuers, "_SECONDS", 0.2)
    issuer.hangs.clear()
    with pytest.raises(StorageUnavailable, match="does not respond"):
        signed_in(issuer)


def test_a_document_of_an_issuer_with_an_unknown_certificate_is_not_asked_for(tmp_path: Any) -> None:
    from tests.support.certificates import certificate

    tls, _ = certificate(tmp_path, "localhost")
    with running_issuer(tls) as issuer:
        with pytest.raises(StorageUnavailable):
            signed_in(issuer)
        assert issuer.fetches == []


ORIGIN = "https://models.example:443"


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIssuer]:
    """Run an issuer, for a user whose configuration is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PROTOSLICE_URL", "PROTOSLICE_TOKEN", "PROTOSLICE_TOKEN_FILE", "PROTOSLICE_AUTHORIZATION"):
        monkeypatch.delenv(name, raising=False)
    with running_issuer() as found:
        yield found


def kept_ending_in(issuer: FakeIssuer, seconds: int) -> str:
    """Save a token of the issuer that expires in some seconds."""
    token = issuer.token(exp=int(time.time()) + seconds)
    save_token(ORIGIN, SavedToken(token, RefreshGrant(issuer.url, "cli", "r0")))
    return token


def sent() -> str:
    """Return the token that a verb would send now."""
    return authorization("https://models.example").get("authorization", "").removeprefix("Bearer ")


def test_a_token_is_renewed_before_its_end_and_the_next_way_is_kept(issuer: FakeIssuer) -> None:
    kept_ending_in(issuer, 30)
    following = issuer.token(exp=int(time.time()) + 3600)
    issuer.answers = [(200, {"id_token": following, "refresh_token": "r1"})]
    assert sent() == following
    form = {"grant_type": "refresh_token", "refresh_token": "r0", "client_id": "cli"}
    assert issuer.forms == [("/token", form)]
    assert saved_token(ORIGIN) == SavedToken(following, RefreshGrant(issuer.url, "cli", "r1"))
    assert sent() == following
    assert len(issuer.forms) == 1
    assert credentials_file().stat().st_mode & 0o777 == 0o600
    assert set(json.loads(credentials_file().read_text())[ORIGIN]) == {
        "id_token",
        "refresh_token",
        "issuer",
        "client_id",
    }


def test_a_token_whose_end_is_far_is_sent_as_it_is(issuer: FakeIssuer) -> None:
    token = kept_ending_in(issuer, 120)
    assert sent() == token
    assert (issuer.forms, issuer.fetches) == ([], [])


def test_many_at_once_renew_once(issuer: FakeIssuer) -> None:
    kept_ending_in(issuer, -5)
    following = issuer.token(exp=int(time.time()) + 3600)
    issuer.answers = [(200, {"id_token": following, "refresh_token": "r1"})]
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: sent(), range(8))) == {following}
    assert len(issuer.forms) == 1
    assert saved_token(ORIGIN) == SavedToken(following, RefreshGrant(issuer.url, "cli", "r1"))


@pytest.mark.parametrize(
    "answer",
    [
        (400, {"error": "invalid_grant"}),
        (200, {}),
        (200, {"id_token": "x"}),
        (302, {}),
        (200, b"x" * (1 << 20)),
        (500, b""),
    ],
)
def test_what_is_kept_stays_when_the_issuer_gives_nothing(issuer: FakeIssuer, answer: tuple[int, object]) -> None:
    token = kept_ending_in(issuer, 30)
    issuer.answers = [answer]
    with pytest.warns(CredentialsWarning, match="Could not renew"):
        assert sent() == token
    assert saved_token(ORIGIN) == SavedToken(token, RefreshGrant(issuer.url, "cli", "r0"))


def test_a_refresh_token_that_is_none_is_not_kept(issuer: FakeIssuer) -> None:
    kept_ending_in(issuer, 30)
    following = issuer.token(exp=int(time.time()) + 3600)
    issuer.answers = [(200, {"id_token": following, "refresh_token": "a\nb"})]
    assert sent() == following
    assert saved_token(ORIGIN) == SavedToken(following, RefreshGrant(issuer.url, "cli", "r0"))


def test_an_issuer_that_is_away_costs_a_line(issuer: FakeIssuer) -> None:
    token = kept_ending_in(issuer, 30)
    issuer.away = True
    with pytest.warns(CredentialsWarning, match="Could not renew"):
        assert sent() == token
