"""The verb `auth explain`: the decision of the service, with its reasons."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.server.auth.oidc.trusting import trust_file
from tests.support.issuer import running_issuer

from protoslice.server.services import ServerState
from protoslice.server.settings import Settings

STORES = "/spaces/own/v1/stores"
REQUESTS = [
    ("GET", STORES, "allowed"),
    ("HEAD", f"{STORES}/x/files/a", "allowed"),
    ("PUT", f"{STORES}?tag=ci-1", "allowed"),
    ("PUT", f"{STORES}?tag=ci-1&tag=prod", "403"),
    ("PUT", "/spaces/own/v1/tags/prod", "403"),
    ("DELETE", f"{STORES}/x", "403"),
    ("GET", "/v1/stores", "404"),
    ("GET", "/metrics", "404"),
    ("GET", "/spaces/own/metrics", "404"),
    ("GET", "/livez", "allowed"),
    ("GET", "/spaces/own/team/m/resolve/feat%2Fx/f", "allowed"),
]


@pytest.mark.parametrize(("method", "path", "decision"), REQUESTS)
def test_a_request_of_a_jwt_is_decided_as_the_gate_does(
    call: Any, tmp_path: Path, method: str, path: str, decision: str
) -> None:
    with running_issuer() as issuer:
        settings = {"PROTOSLICE_ISSUERS": str(trust_file(tmp_path, issuer)), "PROTOSLICE_STORAGE": "memory://"}
        code = 0 if decision == "allowed" else 6
        done = call("auth", "explain", issuer.token(), method, path, "--json", code=code, **settings)
    found = json.loads(done.stdout)
    assert (found["caller"], found["decision"]) == ("robot", decision)


def test_reasons_name_the_claim_and_the_mistake(call: Any, tmp_path: Path) -> None:
    with running_issuer() as issuer:
        settings = {"PROTOSLICE_ISSUERS": str(trust_file(tmp_path, issuer)), "PROTOSLICE_STORAGE": "memory://"}
        other = call("auth", "explain", issuer.token(sub="x"), "GET", STORES, code=6, **settings).stdout
        wrong = call("auth", "explain", issuer.token(aud="x"), "GET", STORES, code=6, **settings).stdout
        call("auth", "explain", "x", "GET", "/nothing/here/at/all", code=4, **settings)
    assert other.startswith("x: 404\n")
    assert "no match, by sub: tokens where sub is robot get read write in the space own, on the tags ci-*" in other
    assert wrong.startswith("nobody: 401\n")
    assert "aud" in wrong


def test_a_token_of_the_storage_is_explained(call: Any, tmp_path: Path) -> None:
    uri = tmp_path.as_uri()

    async def start() -> None:
        services = ServerState(Settings(storage=uri, space_watermark_bytes=0))
        await services.open()
        await services.close()

    asyncio.run(start())
    made = call("token", "create", "t", "--storage", uri, "--scope", "read", "--every-space")
    token = made.stdout.strip()
    done = call("auth", "explain", token, "GET", "/metrics", "--storage", uri)
    assert done.stdout.startswith("t: allowed\n")
    done = call("auth", "explain", "psl_x", "GET", "/metrics", "--storage", uri, code=6)
    assert "lists no issuers" in done.stdout
