"""JWTs: a trusted issuer's JWT identifies its caller; every other JWT counts as no credential.

URLs that are signed with a JWT end with it, and with every rule and key that made it valid.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from joserfc.jwk import RSAKey
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.trusting import RULES, STORES, trust_file
from tests.server.auth.test_signatures import BENT, DATA, FILE, signed_target
from tests.support.issuer import FakeIssuer, curve, rsa, running_issuer
from tests.support.serve import Asked, ask

from protoslice.server.app import Application
from protoslice.server.auth import authenticator, signatures
from protoslice.server.auth.oidc import keys as issuer_keys
from protoslice.server.auth.oidc.issuers import read_issuers
from protoslice.server.auth.oidc.sign_in import seal, unseal
from protoslice.server.auth.oidc.verification import NotValid, Verifier
from protoslice.server.auth.permissions import Scope


def part(data: object) -> str:
    """Return a part of a JWT."""
    text = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def unsigned(issuer: FakeIssuer, **header: Any) -> str:
    """Return a JWT without a signature."""
    return f"{part({'alg': 'none', 'kid': 'first', **header})}.{part(issuer.claims())}."


def swapped(issuer: FakeIssuer) -> str:
    """Return a JWT by HS256, whose secret is the issuer's public key."""
    signed = f"{part({'alg': 'HS256', 'kid': 'first'})}.{part(issuer.claims())}"
    secret = rsa("first").as_pem(private=False)
    return f"{signed}.{part(hmac.new(secret, signed.encode(), sha256).digest())}"


def altered(issuer: FakeIssuer) -> str:
    """Return a JWT whose claims were changed after the signature."""
    header, _, signature = issuer.token().split(".")
    return f"{header}.{part(issuer.claims(sub='admin'))}.{signature}"


def of_own_key(issuer: FakeIssuer) -> str:
    """Return a JWT that contains the key that signed it."""
    return issuer.token(rsa("mine"), {"kid": "first", "jwk": rsa("mine").as_dict(private=False)})


def raw(issuer: FakeIssuer, claims: bytes) -> str:
    """Return a JWT of these bytes, with another JWT's signature."""
    return f"{part({'alg': 'RS256', 'kid': 'first'})}.{part(claims)}.{issuer.token().split('.')[2]}"


NOW = int(time.time())
HOSTILE: dict[str, Callable[[FakeIssuer], str]] = {
    "alg none": unsigned,
    "alg None": lambda issuer: unsigned(issuer, alg="None"),
    "HS256 with the public key": swapped,
    "another algorithm of the same key": lambda issuer: issuer.token(header={"alg": "RS384"}),
    "altered": altered,
    "a key of its own": of_own_key,
    "a key of nobody": lambda issuer: issuer.token(rsa("mine"), {"kid": "first"}),
    "an unknown key id": lambda issuer: issuer.token(rsa("mine")),
    "a key id that is a list": lambda issuer: unsigned(issuer, alg="RS256", kid=["first"]),
    "an algorithm that is a list": lambda issuer: unsigned(issuer, alg=["RS256"]),
    "critical unknown extension": lambda issuer: unsigned(issuer, alg="RS256", crit=["x"], x=1),
    "no critical extensions": lambda issuer: issuer.token(header={"crit": []}),
    "another issuer": lambda issuer: issuer.token(iss="https://other.example"),
    "the issuer with a slash": lambda issuer: issuer.token(iss=issuer.url + "/"),
    "an issuer that is a list": lambda issuer: raw(issuer, b'{"iss":["a"]}'),
    "another audience": lambda issuer: issuer.token(aud="https://models.example.evil"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "an empty list of audiences": lambda issuer: issuer.token(aud=[]),
    "expired by a second": lambda issuer: issuer.token(exp=int(time.time()) - 1),
    "no end": lambda issuer: issuer.token(exp=None),
    "an end that is text": lambda issuer: issuer.token(exp=str(NOW + 60)),
    "an end that is true": lambda issuer: issuer.token(exp=True),
    "not before a minute": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "issued in a minute": lambda issuer: issuer.token(iat=int(time.time()) + 60),
    "no subject": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "longer than the longest": lambda issuer: issuer.token(x="y" * 12500),
    "a megabyte": lambda issuer: issuer.token(x="y" * (1 << 20)),
    "nested arrays": lambda issuer: raw(issuer, b'{"iss":' + b"[" * 9000),
    "claims that are a list": lambda issuer: raw(issuer, b"[]"),
    "claims that are no JSON": lambda issuer: raw(issuer, b"\xff\x00"),
    "a number of ten thousand digits": lambda issuer: raw(issuer, b'{"exp":' + b"9" * 9000 + b"}"),
    "NaN": lambda issuer: raw(issuer, b'{"exp":NaN}'),
    "two parts": lambda issuer: issuer.token().rpartition(".")[0],
    "five parts": lambda issuer: issuer.token() + ".a.b",
    "dots": lambda _: ".." * 100,
    "no base64": lambda _: "!.!.!",
}


@asynccontextmanager
async def trusted(
    folder: Path, keys: Sequence[Any] = (), **terms: Any
) -> AsyncIterator[tuple[Application, FakeIssuer]]:
    """Open a service that trusts an issuer of `keys`, and yield both."""
    with running_issuer() as issuer:
        issuer.keys = [*keys] or issuer.keys  # the service fetches them at its start
        async with closed_service(issuers=trust_file(folder, issuer, **terms)) as app:
            yield app, issuer


async def listed(app: Application, token: str, path: str = STORES) -> Asked:
    """Return the answer to a list of stores."""
    return await ask(app, "GET", path, headers=bearer(token))


async def test_a_jwt_brings_the_grants_of_its_rules(tmp_path: Path) -> None:
    async with trusted(tmp_path) as (app, issuer):
        token = issuer.token()
        assert (await listed(app, token)).status == 200
        assert (await listed(app, token, "/spaces/other/v1/stores")).status == 404
        refused = await ask(app, "PUT", f"{STORES}?filename=m&tag=prod", b"x", bearer(token))
        assert (refused.status, json.loads(refused.body)["scope"]) == (403, "write")
        basic = base64.b64encode(f"oauth2:{token}".encode()).decode()
        assert (await ask(app, "GET", STORES, headers={"authorization": f"Basic {basic}"})).status == 200
        assert (await listed(app, issuer.token(sub="somebody"))).status == 404  # a known caller, in no space


async def test_an_elliptic_key_and_a_beginning_a_little_ahead_are_taken(tmp_path: Path) -> None:
    keys = [curve("bent"), rsa("first")]
    async with trusted(tmp_path, keys) as (app, issuer):
        assert (await listed(app, issuer.token(nbf=int(time.time()) + 20))).status == 200
        assert (await listed(app, issuer.token(rsa("first"), aud=["a", "https://models.example"]))).status == 200


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_other_jwt_enters(tmp_path: Path, name: str) -> None:
    async with trusted(tmp_path) as (app, issuer):
        assert (await listed(app, issuer.token())).status == 200
        got = await listed(app, HOSTILE[name](issuer))
        assert got.status == 401, got
        assert 'error="invalid_token"' in got.headers["www-authenticate"]


async def test_an_algorithm_that_the_issuer_does_not_use_is_the_reason_of_the_refusal(tmp_path: Path) -> None:
    with running_issuer() as issuer:
        verifier = Verifier(read_issuers(trust_file(tmp_path, issuer)))
        try:
            with pytest.raises(NotValid, match=r"the algorithm is not one of RS256"):
                await verifier.verify(issuer.token(header={"alg": "RS384"}))
        finally:
            await verifier.close()


async def test_one_issuer_does_not_sign_for_another(tmp_path: Path) -> None:
    with running_issuer() as one, running_issuer() as other:
        other.keys = [rsa("second")]
        async with closed_service(issuers=trust_file(tmp_path, one, other)) as app:
            assert (await listed(app, other.token())).status == 200
            assert (await listed(app, one.token())).status == 200
            assert (await listed(app, other.token(iss=one.url))).status == 401


async def test_a_key_for_another_algorithm_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.0)
    async with trusted(tmp_path) as (app, issuer):
        assert (await listed(app, issuer.token())).status == 200, "the first fetch has ended"
        # The service fetches keys again only for keys that it does not know.
        for name, algorithm, status in (("second", "RS256", 200), ("third", "PS256", 401)):
            issuer.keys = [RSAKey.import_key(rsa(name).as_dict(private=True) | {"alg": algorithm})]
            assert (await listed(app, issuer.token(rsa(name)))).status == status


async def test_a_verified_jwt_is_not_verified_again_and_ends_with_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trusted(tmp_path) as (app, issuer):
        token, now = issuer.token(), time.monotonic()
        assert (await listed(app, token)).status == 200
        assert app.services.authenticator.cached_reader(f"Bearer {token}", None, "own") is not None
        monkeypatch.setattr(time, "monotonic", lambda: now + 61)
        assert app.services.authenticator.cached_reader(f"Bearer {token}", None, "own") is None


async def test_a_hidden_claim_cannot_make_the_log_lie(tmp_path: Path) -> None:
    async with trusted(tmp_path, more="name = 'repository'") as (app, issuer):
        token = issuer.token(sub="robot", repository="a\nb" + "c" * 500)
        assert (await listed(app, token)).status == 200
        principal = app.services.authenticator.cached_reader(f"Bearer {token}", None, "own")
        assert principal is not None
        assert principal.name == "ab" + "c" * 125


async def test_without_issuers_a_jwt_is_nothing() -> None:
    with running_issuer() as issuer:
        async with closed_service() as app:
            assert (await listed(app, issuer.token())).status == 401
            await asyncio.sleep(0)
            assert issuer.fetches == []


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service caches no decisions: each request is judged by the current rules."""
    for module, name in ((authenticator, "KNOWN_SECONDS"), (signatures, "REMEMBERED_SECONDS")):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.0)


@asynccontextmanager
async def readable_store(folder: Path) -> AsyncIterator[tuple[Application, FakeIssuer]]:
    """Open a service with a store in the space `own`; yield it, and an issuer whose JWTs may read there."""
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(folder, issuer)) as app:
            token = await token_for(app, Scope.WRITE)
            put = f"{STORES}?filename=m.onnx&tag=m"
            assert (await ask(app, "PUT", put, DATA, bearer(token))).status == 201
            yield app, issuer


async def trusting_anew(app: Application, folder: Path, *issuers: FakeIssuer, **terms: Any) -> None:
    """Start the authenticator again, like a replica that reads the file of issuers now."""
    tokens = app.services.authenticator.tokens
    verifier = Verifier(read_issuers(trust_file(folder, *issuers, **terms)))
    await app.services.authenticator.start(tokens, verifier, signatures.SigningKey(tokens._database))


async def got(app: Application, target: str) -> Asked:
    """Return the answer to a GET without a credential."""
    return await ask(app, "GET", target)


@pytest.mark.usefixtures("forgetful")
async def test_a_jwt_signs_urls_that_end_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        end = int(time.time()) + 50
        token = issuer.token(exp=end)
        headers = bearer(token) | {"content-type": "application/json"}
        body = json.dumps({"path": FILE, "expires_seconds": 600}).encode()
        output = json.loads((await ask(app, "POST", "/spaces/own/v1/sign", body, headers)).body)
        parts = urlsplit(output["url"])
        target = f"{parts.path}?{parts.query}"
        assert f"psl-expires={end}&" in target
        assert output["expires"] == time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end))
        assert (await got(app, target)).body == DATA
        assert not any(part in target for part in token.split("."))
        assert (await ask(app, "DELETE", target.replace("/files/m.onnx", ""))).status == 401
        monkeypatch.setattr(time, "time", lambda: end + 0.5)
        assert (await got(app, target)).status == 401


@pytest.mark.usefixtures("forgetful")
async def test_every_replica_knows_the_url_of_every_other(tmp_path: Path) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        target = await signed_target(app, issuer.token())
        await trusting_anew(app, tmp_path, issuer)
        assert (await got(app, target)).status == 200


ENDS: dict[str, Callable[[Application, FakeIssuer, Path], Awaitable[None]]] = {
    "the rule is gone": lambda app, issuer, folder: trusting_anew(
        app, folder, issuer, rules=[RULES[0].replace("robot", "other")]
    ),
    "the rule no longer reads": lambda app, issuer, folder: trusting_anew(
        app, folder, issuer, rules=[RULES[0].replace("'read', ", "")]
    ),
    "the audience is another": lambda app, issuer, folder: _another_audience(app, issuer, folder),
    "the key was withdrawn": lambda app, issuer, folder: _withdrawn(app, issuer),
    "the key of the service was removed": lambda app, issuer, folder: _keyless(app),
}


async def _another_audience(app: Application, issuer: FakeIssuer, folder: Path) -> None:
    path = trust_file(folder, issuer)
    path.write_text(path.read_text().replace("audience = ['", "audience = ['x"))
    tokens = app.services.authenticator.tokens
    await app.services.authenticator.start(
        tokens, Verifier(read_issuers(path)), signatures.SigningKey(tokens._database)
    )


async def _keyless(app: Application) -> None:
    await app.services.authenticator.tokens._database.write(lambda tx: tx.run("UPDATE meta SET service_key = NULL"))


async def _withdrawn(app: Application, issuer: FakeIssuer) -> None:
    issuer.keys = [rsa("second")]
    assert (await ask(app, "GET", STORES, headers=bearer(issuer.token()))).status == 200  # keys are fetched


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("name", ENDS)
async def test_a_url_ends_with_what_its_jwt_was_believed_by(tmp_path: Path, name: str) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        target = await signed_target(app, issuer.token())
        assert (await got(app, target)).status == 200
        await ENDS[name](app, issuer, tmp_path)
        assert (await got(app, target)).status in {401, 403, 404}


def bent_statement(target: str, change: Callable[[str], str]) -> str:
    """Return `target` with another statement in it."""
    head, _, rest = target.partition("psl-token=")
    statement, _, proof = rest.partition("&")
    return f"{head}psl-token={change(statement)}&{proof}"


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("name", [*BENT, "a bit of the statement", "a statement made by another key", "spelled twice"])
async def test_a_bent_url_of_a_jwt_opens_nothing(tmp_path: Path, name: str) -> None:
    changes: dict[str, Callable[[str], str]] = {
        "a bit of the statement": lambda text: ("A" if text[0] != "A" else "B") + text[1:],
        "a statement made by another key": lambda text: seal(bytes(32), "caller", b"[]" * 40),
        "spelled twice": lambda text: text + "A",
    }
    async with readable_store(tmp_path) as (app, issuer):
        target = await signed_target(app, issuer.token())
        change = changes.get(name)
        bent = BENT[name](target) if change is None else bent_statement(target, change)
        assert bent != target
        answer = await got(app, bent)
        assert answer.status in {401, 404}
        assert DATA not in answer.body


@pytest.mark.usefixtures("forgetful")
async def test_a_statement_of_another_jwt_does_not_fit_a_proof(tmp_path: Path) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        one = await signed_target(app, issuer.token())
        other = (await signed_target(app, issuer.token())).partition("psl-token=")[2].partition("&")[0]
        assert (await got(app, bent_statement(one, lambda _: other))).status == 401


@pytest.mark.usefixtures("forgetful")
async def test_a_jwt_that_matches_too_many_rules_is_told_so(tmp_path: Path) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        many = [RULES[0].replace("ci-*", f"ci-{number}") for number in range(100)]
        await trusting_anew(app, tmp_path, issuer, rules=many)
        headers = bearer(issuer.token()) | {"content-type": "application/json"}
        output = await ask(app, "POST", "/spaces/own/v1/sign", json.dumps({"path": FILE}).encode(), headers)
        assert "Cannot sign URLs with this JWT" in output.text


@pytest.mark.usefixtures("forgetful")
def test_a_text_sealed_for_one_purpose_or_by_one_key_is_none_for_another() -> None:
    key = bytes(range(32))
    text = seal(key, "login", b"data")
    assert unseal([key], "login", text) == b"data"
    assert unseal([key], "caller", text) is None
    assert unseal([bytes(32)], "login", text) is None
    for bent in ("", "A", text[:-1], text + "=", text + "A", part(b"x" * 40), "\xff", text.upper(), "A" * 5000):
        assert unseal([key], "login", bent) is None
