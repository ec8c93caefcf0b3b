"""Renewal of kept id tokens: before their end, once for many processes, and never losing what is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.issuer import FakeIssuer, running_issuer

from protoslice.credentials import CredentialsWarning, Kept, Renewal, credentials_file, keep, kept_for
from protoslice.references import authorization

ORIGIN = "https://models.example:443"


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIssuer]:
    """An issuer, for a user whose configuration is empty."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PROTOSLICE_URL", "PROTOSLICE_TOKEN", "PROTOSLICE_TOKEN_FILE", "PROTOSLICE_AUTHORIZATION"):
        monkeypatch.delenv(name, raising=False)
    with running_issuer() as found:
        yield found


def kept_ending_in(issuer: FakeIssuer, seconds: int) -> str:
    """A token of the issuer that is kept, and ends in some seconds."""
    token = issuer.token(exp=int(time.time()) + seconds)
    keep(ORIGIN, Kept(token, Renewal(issuer.url, "cli", "r0")))
    return token


def sent() -> str:
    """The token that a verb would send now."""
    return authorization("https://models.example").get("authorization", "").removeprefix("Bearer ")


def test_a_token_is_renewed_before_its_end_and_the_next_way_is_kept(issuer: FakeIssuer) -> None:
    kept_ending_in(issuer, 30)
    following = issuer.token(exp=int(time.time()) + 3600)
    issuer.answers = [(200, {"id_token": following, "refresh_token": "r1"})]
    assert sent() == following
    form = {"grant_type": "refresh_token", "refresh_token": "r0", "client_id": "cli"}
    assert issuer.forms == [("/token", form)]
    assert kept_for(ORIGIN) == Kept(following, Renewal(issuer.url, "cli", "r1"))
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
    assert kept_for(ORIGIN) == Kept(following, Renewal(issuer.url, "cli", "r1"))


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
    assert kept_for(ORIGIN) == Kept(token, Renewal(issuer.url, "cli", "r0"))


def test_a_refresh_token_that_is_none_is_not_kept(issuer: FakeIssuer) -> None:
    kept_ending_in(issuer, 30)
    following = issuer.token(exp=int(time.time()) + 3600)
    issuer.answers = [(200, {"id_token": following, "refresh_token": "a\nb"})]
    assert sent() == following
    assert kept_for(ORIGIN) == Kept(following, Renewal(issuer.url, "cli", "r0"))


def test_an_issuer_that_is_away_costs_a_line(issuer: FakeIssuer) -> None:
    token = kept_ending_in(issuer, 30)
    issuer.away = True
    with pytest.warns(CredentialsWarning, match="Could not renew"):
        assert sent() == token
