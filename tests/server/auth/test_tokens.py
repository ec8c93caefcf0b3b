"""Tokens: their format, and the table that keeps only hashes; every replica stops accepting a caller in time."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.serve import ask

from protoslice.catalog import open_database
from protoslice.database import Database
from protoslice.errors import DatabaseUnavailable, InvalidInput, NotFound
from protoslice.server.app import Application
from protoslice.server.auth import authenticator
from protoslice.server.auth.authenticator import KNOWN_SECONDS, Authenticator, secret_in
from protoslice.server.auth.permissions import EVERY_SPACE, Grant, Scope
from protoslice.server.auth.tokens import Token, TokenRecord, Tokens, new_token, parse_token


def test_a_token_is_read_back() -> None:
    token = new_token()
    assert parse_token(token.text) == token
    assert token.proves(token.hash)
    assert not new_token().proves(token.hash)


def test_no_altered_character_passes() -> None:
    text = new_token().text
    for at, old in enumerate(text):
        for new in {"0", "z", "_", "\0", "\u0661"} - {old}:
            assert parse_token(text[:at] + new + text[at + 1 :]) is None


@pytest.mark.parametrize("text", ["", "psl_", "psl_" + "0" * 47, "psl_" + "0" * 49, "x" * 52, "psl_" + "\ud800" * 48])
def test_any_other_text_is_no_token(text: str) -> None:
    assert parse_token(text) is None


def test_secrets_are_not_shown() -> None:
    token = new_token()
    assert token.secret not in repr(token)
    assert token.secret not in f"{[token]}"


async def test_list_of_tokens_shows_the_hour_of_the_last_use(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protoslice.server.auth.authenticator.KNOWN_SECONDS", 0.0)  # each request reads the token's row
    text, admin = await token_for(app, Scope.READ), bearer(await token_for(app, Scope.ADMIN))
    assert app.services.database is not None
    database, written = app.services.database, list[str]()
    monkeypatch.setattr(database, "observer", lambda kind, seconds, error: written.append(kind))

    async def used() -> str | None:
        items: list[Mapping[str, Any]] = json.loads(
            (await ask(app, "GET", "/spaces/own/v1/tokens", headers=admin)).body
        )["items"]
        (found,) = [each["used"] for each in items if each["id"] == text[4:14]]
        return None if found is None else str(found)

    assert await used() is None
    assert (await ask(app, "GET", "/spaces/own/v1/stores", headers=bearer(text[:-1] + "x"))).status == 401
    assert await used() is None
    written.clear()
    for _ in range(5):
        assert (await ask(app, "GET", "/spaces/own/v1/stores", headers=bearer(text))).status == 200
    assert written.count("write") == 1
    first = await used()
    assert first is not None
    await database.write(lambda tx: tx.run("UPDATE tokens SET used = used - 3600000001"))
    early = await used()
    assert early is not None
    assert early < first
    assert (await ask(app, "GET", "/spaces/own/v1/stores", headers=bearer(text))).status == 200
    assert str(await used()) >= first


async def reader(tokens: Tokens, space: str | None = "team", expires: float | None = None) -> tuple[Token, TokenRecord]:
    """Create a token that reads in a space."""
    return await tokens.create("ci", space, [Scope.READ], expires=expires)


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(authenticator, "time", made)
    return made


async def knowing(tokens: Tokens) -> Authenticator:
    """Return a replica's authenticator, which remembers callers."""
    made = Authenticator(closed=True)
    await made.start(tokens)
    return made


@pytest.fixture
async def database(catalogue: str) -> AsyncIterator[Database]:
    """Return a new catalogue, of each engine in turn."""
    async with open_database(catalogue, "memory://") as database:
        yield database


async def test_of_many_replicas_one_makes_the_first_token(database: Database) -> None:
    made = await asyncio.gather(*(Tokens(database).create_initial_admin() for _ in range(8)))
    (token,) = [each for each in made if each is not None]
    page = await Tokens(database).page(EVERY_SPACE, 100, None)
    assert [record.id for record in page.items] == [token.id], "the others took theirs back"
    record = await Tokens(database).find(token)
    assert record is not None
    assert record.grant == Grant(EVERY_SPACE, frozenset({Scope.ADMIN}))
    assert await Tokens(database).create_initial_admin() is None


async def test_no_secret_is_kept(database: Database) -> None:
    token, _ = await reader(Tokens(database))
    row = await database.read(lambda tx: tx.first("SELECT * FROM tokens"))
    assert token.secret not in str(row)
    assert bytes.fromhex(token.hash) in (row or ())


async def test_a_token_of_another_secret_is_not_found(database: Database) -> None:
    tokens = Tokens(database)
    token, _ = await reader(tokens)
    assert await tokens.find(Token(token.id, "x" * len(token.secret))) is None
    assert await tokens.find(Token("0" * 10, token.secret)) is None


async def test_a_revoked_token_ends_at_every_replica_within_ten_seconds(clock: Clock, database: Database) -> None:
    here, there = Tokens(database), Tokens(database)
    token, record = await reader(here)
    sent, callers = f"Bearer {token.text}", await knowing(there)
    assert await callers.find(sent) is not None
    await here.revoke(record.id, "team")
    assert callers.cached_reader(sent, None, "team") is not None
    clock.now += KNOWN_SECONDS
    assert KNOWN_SECONDS <= 10
    assert callers.cached_reader(sent, None, "team") is None
    assert await callers.find(sent) is None


async def test_a_token_ends_when_its_time_is_over_though_it_is_known(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr("protoslice.server.auth.tokens.time", clock)
    tokens = Tokens(database)
    token, _ = await reader(tokens, expires=clock.now + 1)
    sent, callers = f"Bearer {token.text}", await knowing(tokens)
    assert await callers.find(sent) is not None
    clock.now += 1
    assert callers.cached_reader(sent, None, "team") is None
    assert await callers.find(sent) is None


async def test_callers_are_believed_for_a_minute_while_the_database_is_away(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    monkeypatch.setattr("protoslice.server.auth.tokens.time", clock)
    tokens = Tokens(database)
    lasting, _ = await reader(tokens)
    ending, _ = await reader(tokens, expires=clock.now + 30)
    callers, known = await knowing(tokens), [f"Bearer {token.text}" for token in (lasting, ending)]
    for sent in known:
        assert await callers.find(sent) is not None

    async def away(_: object) -> None:
        raise DatabaseUnavailable("away")

    monkeypatch.setattr(tokens, "find", away)
    clock.now += 29
    for sent in known:
        assert await callers.find(sent) is not None
    other, _ = await reader(tokens)
    with pytest.raises(DatabaseUnavailable):
        await callers.find(f"Bearer {other.text}")
    clock.now += 2
    with pytest.raises(DatabaseUnavailable):
        await callers.find(known[1])  # the token has expired
    assert await callers.find(known[0]) is not None
    clock.now += 30
    with pytest.raises(DatabaseUnavailable):
        await callers.find(known[0])


async def test_only_its_own_space_lists_and_revokes_a_token(database: Database) -> None:
    tokens = Tokens(database)
    _, record = await reader(tokens)
    assert (await tokens.page("other", 100, None)).items == []
    for space, id in (("other", record.id), ("team", "x"), ("team", "../a/b/c/d"), ("team", "0" * 10)):
        with pytest.raises(NotFound):
            await tokens.revoke(id, space)
    await tokens.revoke(record.id, "team")
    with pytest.raises(NotFound):
        await tokens.revoke(record.id, "team")


async def test_a_page_tells_nothing_of_the_tokens_of_other_spaces(database: Database) -> None:
    tokens = Tokens(database)
    own = sorted([(await reader(tokens))[1].id for _ in range(3)])
    for space in (*["other"] * 20, None):
        await reader(tokens, space)
    found, cursor = list[str](), None
    for left in (2, 1, 0):
        page = await tokens.page("team", 1, cursor)
        found += [record.id for record in page.items]
        cursor = page.next
        assert (len(page.items), cursor) == (1, found[-1] if left else None)
    assert found == own


def test_a_credential_has_a_longest_length() -> None:
    scheme, longest = "Bearer ", 24 << 10
    assert secret_in(scheme + "a" * (longest - len(scheme))) == "a" * (longest - len(scheme))
    assert secret_in(scheme + "a" * (longest - len(scheme) + 1)) == ""
    assert secret_in("Basic " + b64encode(b"u:" + b"a" * longest).decode()) == ""


@pytest.mark.parametrize(
    ("name", "scopes", "tags", "words"),
    [
        ("", ["read"], (), "Invalid token name"),
        ("a\nb", ["read"], (), "Invalid token name"),
        ("a" * 129, ["read"], (), "Invalid token name"),
        ("a", [], (), "at least one scope"),
        ("a", ["read", "fly"], (), "Unknown scope fly: use read, write"),
        ("a", ["read"], ("x",) * 65, "Invalid tag patterns"),
        ("a", ["read"], ("",), "Invalid tag patterns"),
    ],
)
async def test_terms_that_no_token_may_have(
    name: str, scopes: list[str], tags: tuple[str, ...], words: str, database: Database
) -> None:
    with pytest.raises(InvalidInput, match=words):
        await Tokens(database).create(name, "team", scopes, tags=tags)


async def test_credentials_are_read_as_clients_send_them(database: Database) -> None:
    token, _ = await reader(Tokens(database))
    basic = b64encode(f"any:{token.text}".encode()).decode()
    for sent in (f"Bearer {token.text}", f"bearer  {token.text} ", f"Basic {basic}", f"BASIC {basic}"):
        assert parse_token(secret_in(sent)) == token
    for sent in (
        token.text,
        f"Token {token.text}",
        f"Bearer {token.text}, x",
        f"Bearer {token.text}0",
        "Basic e30=",
    ):
        assert parse_token(secret_in(sent)) is None
