"""Tokens: recognised without the storage, altered ones refused, secrets never shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.asgi import ask

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.tokens import new_token, parse_token


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
    monkeypatch.setattr("protoslice.server.auth.authenticator.KNOWN_SECONDS", 0.0)  # each request looks the token up
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
