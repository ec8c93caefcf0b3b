"""Issuers: their file and rules, and their keys, which are fetched seldom and only from the issuer."""

from __future__ import annotations

import asyncio
import base64
import json
import tomllib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.server.auth.oidc.trusting import trust_file
from tests.support.certificates import certificate
from tests.support.issuer import FakeIssuer, curve, rsa, running_issuer

from protoslice.errors import InvalidInput, StorageDenied
from protoslice.server.auth.oidc import keys as module
from protoslice.server.auth.oidc.issuers import parse_issuers, read_issuers
from protoslice.server.auth.oidc.keys import IssuerKeys, public_keys
from protoslice.server.auth.permissions import Grant, Scope


@asynccontextmanager
async def issuer_keys(folder: Path, more: str = "") -> AsyncIterator[tuple[IssuerKeys, FakeIssuer]]:
    """Open the keys of an issuer before anything was fetched; yield both."""
    with running_issuer() as issuer:
        keys = IssuerKeys(read_issuers(trust_file(folder, issuer, more=more))[0])
        try:
            yield keys, issuer
        finally:
            issuer.hangs.set()
            await keys.close()


async def test_a_thousand_unknown_ids_cost_one_fetch(tmp_path: Path) -> None:
    async with issuer_keys(tmp_path) as (keys, issuer):
        found = await asyncio.gather(*(keys.find(f"unknown-{n}") for n in range(1000)))
        assert set(found) == {None}
        for n in range(20):  # also one after the other
            assert await keys.find(f"later-{n}") is None
        assert (await keys.find("first")) is not None
        assert issuer.fetches == ["/.well-known/openid-configuration", "/keys"]


async def test_a_new_key_is_found_and_a_withdrawn_one_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    async with issuer_keys(tmp_path) as (keys, issuer):
        assert await keys.find("first") is not None
        issuer.keys = [rsa("second")]
        assert await keys.find("first") is not None  # the key is known, so nothing is fetched
        assert await keys.find("second") is not None
        assert await keys.find("first") is None


BAD: dict[str, Callable[[FakeIssuer], None]] = {
    "away": lambda issuer: setattr(issuer, "away", True),
    "no JSON": lambda issuer: issuer.documents.update({"/keys": b"<html>"}),
    "nested": lambda issuer: issuer.documents.update({"/keys": b"[" * 200_000}),
    "larger than": lambda issuer: issuer.documents.update({"/keys": b'{"keys": [], "x": "' + b"y" * 300_000 + b'"}'}),
    "no keys": lambda issuer: issuer.documents.update({"/keys": b'{"keys": {}}'}),
    "another issuer": lambda issuer: issuer.documents.update(
        {"/.well-known/openid-configuration": json.dumps({"issuer": "x", "jwks_uri": f"{issuer.url}/keys"}).encode()}
    ),
    "a redirect to this machine": lambda issuer: setattr(issuer, "redirect", f"{issuer.url}/elsewhere"),
    "keys in a file": lambda issuer: issuer.documents.update(
        {"/.well-known/openid-configuration": json.dumps({"issuer": issuer.url, "jwks_uri": "file:///k"}).encode()}
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_keys_are_kept_when_the_issuer_gives_none(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    async with issuer_keys(tmp_path) as (keys, issuer):
        kept = await keys.find("first")
        issuer.keys = [rsa("second")]
        BAD[name](issuer)
        assert await keys.find("second") is None
        assert kept is not None
        assert await keys.find("first") is kept
        assert "/elsewhere" not in issuer.fetches


async def test_an_issuer_that_hangs_keeps_a_request_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.05)
    async with issuer_keys(tmp_path) as (keys, issuer):
        issuer.hangs.clear()
        assert await keys.find("first") is None
        issuer.hangs.set()


async def test_private_addresses_are_not_visited_unless_listed(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        path = trust_file(tmp_path, issuer)
        path.write_text(path.read_text().replace("networks = ['127.0.0.1']", ""))
        keys = IssuerKeys(read_issuers(path)[0])
        assert await keys.find("first") is None
        with pytest.raises(StorageDenied, match="private address"):
            await keys._document()
        await keys.close()
        assert issuer.fetches == []


async def test_keys_come_from_a_file_where_it_is_named(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps({"keys": [curve("k").as_dict(private=False)]}))
    async with issuer_keys(tmp_path, f"keys_file = '{file}'") as (keys, issuer):
        assert await keys.find("k") is not None
        assert await keys.find(None) is not None
        assert issuer.fetches == []


@pytest.mark.parametrize("content", [None, "no certificate at all"])
async def test_a_ca_file_without_certificates_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidInput, match=r"no certificates in ca_file .*ca\.pem"):
        async with issuer_keys(tmp_path, f"ca_file = '{file}'"):
            pass


@pytest.mark.parametrize(("trusted", "found"), [("its", True), ("another", False), (None, False)])
async def test_an_issuer_with_a_private_certificate_needs_its_ca_file(
    tmp_path: Path, trusted: str | None, found: bool
) -> None:
    files: dict[str, Path] = {}
    for each in ("another", "its"):
        (tmp_path / each).mkdir()
        tls, files[each] = certificate(tmp_path / each, "localhost")

    async def run(issuer: FakeIssuer) -> None:
        more = "" if trusted is None else f"ca_file = '{files[trusted]}'"
        keys = IssuerKeys(read_issuers(trust_file(tmp_path, issuer, more=more))[0])
        assert (await keys.find("first") is not None) is found
        await keys.close()

    with running_issuer(tls) as issuer:
        await run(issuer)
    # Nothing is sent to an issuer before its certificate is verified.
    assert issuer.fetches == (["/.well-known/openid-configuration", "/keys"] if found else [])


MODULUS = base64.urlsafe_b64encode(b"\xff" * 192).decode()
"""A modulus of 1536 bits."""


def test_only_public_and_strong_keys_for_signatures_are_taken() -> None:
    good: dict[str, Any] = dict(rsa("first").as_dict(private=False))
    secret: dict[str, Any] = dict(rsa("first").as_dict(private=True))
    weak = {**good, "n": MODULUS, "kid": "weak"}
    listed: list[Any] = [
        None, 1, [], {"kty": "oct", "k": "AA", "kid": "oct"}, {"kty": "RSA", "kid": "empty"}, weak,
        {**good, "use": "enc", "kid": "enc"}, {"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA", "kid": "odd"},
        {**secret, "kid": "careless"}, {**good, "kid": ["a"]}, good,
        {name: value for name, value in good.items() if name != "kid"},
    ]  # fmt: skip
    found = public_keys({"keys": listed})
    assert found.keys() == {"careless", None, "first"}
    assert not any(key.is_private for key in found.values())
    assert public_keys({}) == public_keys({"keys": "x"}) == {}


GOOD = """
[[issuer]]
url = "https://ci.example"
audience = "https://models.example"
[[issuer.allow]]
claims = { sub = "robot" }
space = "team"
scopes = ["read"]
"""

PAGE = GOOD.replace(
    "[[issuer.allow]]", 'login_client = "https://models.example"\nlogin_secret_file = "FILE"\n[[issuer.allow]]'
)

MISTAKES = {
    "": "issuer: add at least one table",
    "issuer = 1": "issuer: add at least one table",
    "other = 1\n" + GOOD: "unknown key 'other'",
    GOOD + GOOD: "listed twice",
    GOOD.replace('url = "https://ci.example"', ""): r"issuer\[0\].url: use a string",
    GOOD.replace("https://ci", "ftp://ci"): r"issuer\[0\].url: invalid issuer",
    GOOD.replace("https://ci", "https://a@ci"): "invalid issuer",
    GOOD.replace('audience = "https://models.example"', ""): r"issuer\[0\].audience: use a string or a list",
    GOOD.replace('"https://models.example"', "[]"): r"issuer\[0\].audience",
    GOOD.replace("[[issuer.allow]]", 'algorithms = ["HS256"]\n[[issuer.allow]]'): "'HS256' is not one of RS256",
    GOOD.replace("[[issuer.allow]]", 'algorithms = ["none"]\n[[issuer.allow]]'): "'none' is not one of",
    GOOD.replace("[[issuer.allow]]", 'networks = ["all"]\n[[issuer.allow]]'): "networks",
    GOOD.replace('{ sub = "robot" }', "{}"): r"allow\[0\].claims: name a claim",
    GOOD.replace('"robot"', "[]"): r"claims.sub: use a string",
    GOOD.replace('"robot"', "1"): r"claims.sub: use a string",
    GOOD.replace('"team"', '"../x"'): "neither a space",
    GOOD.replace('["read"]', '["reed"]'): "'reed' is not one of read, write",
    GOOD.replace('["read"]', "[]"): r"allow\[0\].scopes",
    GOOD + 'tag = "x"': r"allow\[0\]: unknown key 'tag'",
    GOOD.replace("[[issuer.allow]]", 'login_secret_file = "x"\n[[issuer.allow]]'): "needs a `login_client`",
    GOOD.replace("[[issuer.allow]]", 'device_client = "x"\n[[issuer.allow]]'): "needs a `login_client`",
    GOOD.replace("[[issuer.allow]]", 'login_client = "x"\n[[issuer.allow]]'): "login_client: add 'x'",
    PAGE.replace("FILE", "/none"): "login_secret_file: /none: No such file",
    PAGE.replace("FILE", "/dev/null"): "login_secret_file: /dev/null is empty",
    PAGE.replace("FILE", "/none").replace("[[issuer.a", 'device_client = "x"\n[[issuer.a'): "device_client: add 'x'",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_told_by_its_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "issuers.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=MISTAKES[text]) as output:
        read_issuers(path)
    assert output.value.message.startswith(f"{path}: ")


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_issuers(tmp_path / "none")
    (tmp_path / "odd").write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match="not valid TOML"):
        read_issuers(tmp_path / "odd")
    (tmp_path / "long").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InvalidInput, match="at most"):
        read_issuers(tmp_path / "long")


MATCHES: list[tuple[str, dict[str, Any], bool]] = [
    ('{ sub = "robot" }', {"sub": "robot"}, True),
    ('{ sub = "robot" }', {"sub": "robots"}, False),
    ('{ sub = "robot" }', {}, False),
    ('{ sub = "robot" }', {"sub": {"robot": 1}}, False),
    ('{ sub = "robot" }', {"sub": None}, False),
    ('{ sub = "*" }', {"sub": 1.5}, False),
    ('{ repository = "acme/*" }', {"repository": "acme/models"}, True),
    ('{ repository = "acme/*" }', {"repository": "evil/acme/models"}, False),
    ('{ groups = ["a", "b*"] }', {"groups": ["x", "bc"]}, True),
    ('{ groups = ["a", "b*"] }', {"groups": ["x", ["a"]]}, False),
    ('{ groups = "a", sub = "s" }', {"groups": ["a"], "sub": "t"}, False),
    ('{ ok = "true", email = "*@acme.example" }', {"ok": True, "email": "a@acme.example"}, True),
    ('{ ok = "true" }', {"ok": 1}, False),
    ('{ project = "42" }', {"project": 42}, True),
    ('{ "/kubernetes.io/namespace" = "ci" }', {"kubernetes.io": {"namespace": "ci"}}, True),
    ('{ "/kubernetes.io/namespace" = "ci" }', {"kubernetes.io": ["ci"]}, False),
    ('{ "/a~1b/c~0d" = "x" }', {"a/b": {"c~d": "x"}}, True),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "claims", "matches"), MATCHES)
def test_claims_match_as_rules_say(rule: str, claims: dict[str, Any], matches: bool) -> None:
    (issuer,) = parse_issuers(tomllib.loads(GOOD.replace('{ sub = "robot" }', rule)))
    expected = (Grant("team", frozenset({Scope.READ})),) if matches else ()
    assert tuple(rule.grant for rule in issuer.matching(claims)) == expected


def test_a_secret_is_shown_to_nobody_and_the_command_line_has_none(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    (issuer,) = parse_issuers(tomllib.loads(PAGE.replace("FILE", str(tmp_path / "secret"))))
    assert (issuer.login_secret, issuer.device_client) == ("s3cret", None)
    assert "s3cret" not in repr(issuer) + "".join(issuer.describe())
    assert "command line users sign in with tokens only" in "\n".join(issuer.describe())
