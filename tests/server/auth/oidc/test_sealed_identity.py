"""URLs signed by JWTs: they end with the JWT, and with all that it was believed by."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.test_verification import STORES, part
from tests.server.auth.oidc.trusting import RULES, trust_file
from tests.server.auth.test_signatures import BENT, DATA, FILE, signed_target
from tests.support.issuer import FakeIssuer, rsa, running_issuer
from tests.support.serve import Asked, ask

from protoslice.server.app import Application
from protoslice.server.auth import authenticator, signatures
from protoslice.server.auth.oidc import keys as issuer_keys
from protoslice.server.auth.oidc.issuers import read_issuers
from protoslice.server.auth.oidc.sign_in import seal, unseal
from protoslice.server.auth.oidc.verification import Verifier
from protoslice.server.auth.permissions import Scope


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered: each request is judged by what stands now."""
    for module, name in ((authenticator, "KNOWN_SECONDS"), (signatures, "REMEMBERED_SECONDS")):
        monkeypatch.setattr(module, name, 0.0)
    monkeypatch.setattr(issuer_keys, "AGAIN_SECONDS", 0.0)


@asynccontextmanager
async def readable_store(folder: Path) -> AsyncIterator[tuple[Application, FakeIssuer]]:
    """Open a service with a store in the space `own`; give it, and an issuer whose JWTs may read there."""
    with running_issuer() as issuer:
        async with closed_service(issuers=trust_file(folder, issuer)) as app:
            token = await token_for(app, Scope.WRITE)
            put = f"{STORES}?filename=m.onnx&tag=m"
            assert (await ask(app, "PUT", put, DATA, bearer(token))).status == 201
            yield app, issuer


async def trusting_anew(app: Application, folder: Path, *issuers: FakeIssuer, **terms: Any) -> None:
    """Start the authenticator again, as a replica that reads the file of issuers now."""
    tokens = app.services.authenticator.tokens
    verifier = Verifier(read_issuers(trust_file(folder, *issuers, **terms)))
    await app.services.authenticator.start(tokens, verifier, signatures.SigningKey(tokens._database))


async def got(app: Application, target: str) -> Asked:
    """The answer to a GET without a credential."""
    return await ask(app, "GET", target)


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


@pytest.mark.parametrize("name", ENDS)
async def test_a_url_ends_with_what_its_jwt_was_believed_by(tmp_path: Path, name: str) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        target = await signed_target(app, issuer.token())
        assert (await got(app, target)).status == 200
        await ENDS[name](app, issuer, tmp_path)
        assert (await got(app, target)).status in {401, 403, 404}


def bent_statement(target: str, change: Callable[[str], str]) -> str:
    """`target` with another statement in it."""
    head, _, rest = target.partition("psl-token=")
    statement, _, proof = rest.partition("&")
    return f"{head}psl-token={change(statement)}&{proof}"


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


async def test_a_statement_of_another_jwt_does_not_fit_a_proof(tmp_path: Path) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        one = await signed_target(app, issuer.token())
        other = (await signed_target(app, issuer.token())).partition("psl-token=")[2].partition("&")[0]
        assert (await got(app, bent_statement(one, lambda _: other))).status == 401


async def test_a_jwt_that_matches_too_many_rules_is_told_so(tmp_path: Path) -> None:
    async with readable_store(tmp_path) as (app, issuer):
        many = [RULES[0].replace("ci-*", f"ci-{number}") for number in range(100)]
        await trusting_anew(app, tmp_path, issuer, rules=many)
        headers = bearer(issuer.token()) | {"content-type": "application/json"}
        output = await ask(app, "POST", "/spaces/own/v1/sign", json.dumps({"path": FILE}).encode(), headers)
        assert "Cannot sign URLs with this JWT" in output.text


def test_a_text_sealed_for_one_purpose_or_by_one_key_is_none_for_another() -> None:
    key = bytes(range(32))
    text = seal(key, "login", b"data")
    assert unseal([key], "login", text) == b"data"
    assert unseal([key], "caller", text) is None
    assert unseal([bytes(32)], "login", text) is None
    for bent in ("", "A", text[:-1], text + "=", text + "A", part(b"x" * 40), "\xff", text.upper(), "A" * 5000):
        assert unseal([key], "login", bent) is None
