"""Keys of issuers: fetched at most so often, kept while the issuer is away, from nowhere else."""

from __future__ import annotations

import asyncio
import base64
import json
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
from protoslice.server.auth.oidc.issuers import read_issuers
from protoslice.server.auth.oidc.keys import IssuerKeys, public_keys


@asynccontextmanager
async def issuer_keys(folder: Path, more: str = "") -> AsyncIterator[tuple[IssuerKeys, FakeIssuer]]:
    """Open the keys of an issuer, before anything was fetched; give both."""
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
        for n in range(20):  # one after the other, as well
            assert await keys.find(f"later-{n}") is None
        assert (await keys.find("first")) is not None
        assert issuer.fetches == ["/.well-known/openid-configuration", "/keys"]


async def test_a_new_key_is_found_and_a_withdrawn_one_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0)
    async with issuer_keys(tmp_path) as (keys, issuer):
        assert await keys.find("first") is not None
        issuer.keys = [rsa("second")]
        assert await keys.find("first") is not None  # known, and not asked about
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
    # Nothing is asked of an issuer before its certificate is good.
    assert issuer.fetches == (["/.well-known/openid-configuration", "/keys"] if found else [])


MODULUS = base64.urlsafe_b64encode(b"\xff" * 192).decode()
"""Modulus of 1536 bits."""


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
