"""Tokens: recognised without the storage, altered ones refused, secrets never shown."""

from __future__ import annotations

import pytest

from protoslice.server.access.tokens import new_token, parse_token


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
