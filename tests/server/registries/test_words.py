"""Refusals that clients of registries print: they have the words where each client looks for them."""

from __future__ import annotations

import hashlib
import json

import httpx
import pytest
from tests.server.auth.closed import closed_service
from tests.support.serve import ask

MANIFEST = "application/vnd.oci.image.manifest.v1+json"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "discussions"), ("GET", "lfs-files"), ("POST", "duplicate"), ("PATCH", "tree/main")],
)
@pytest.mark.parametrize("root", ["", "/spaces/default"])
def test_a_call_of_the_hub_that_is_missing_says_so(client: httpx.Client, method: str, path: str, root: str) -> None:
    answer = client.request(method, f"{root}/api/models/ann/x/{path}")
    assert answer.status_code in {404, 405}
    assert answer.headers["x-error-message"] == "This call is not supported by this service"


async def test_ollama_prints_that_it_is_unauthorized() -> None:
    """Upon 401 it would ask for a token at the realm, and print that this is no URL."""
    async with closed_service() as app:
        for root in ("", "/spaces/own"):
            answer = await ask(app, "GET", f"{root}/v2/a/x/manifests/latest", headers={"user-agent": "ollama/0.6.5"})
            assert answer.status == 403
            assert json.loads(answer.body)["errors"][0]["message"].startswith(
                "unauthorized: Ollama cannot send a token"
            )
            assert (await ask(app, "GET", f"{root}/v2/a/x/manifests/latest")).status == 401


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_a_signature_is_no_revision_of_a_model(client: httpx.Client, algorithm: str) -> None:
    layer = b"layer of " + algorithm.encode()
    name, digest = f"signed/{algorithm}", f"sha256:{hashlib.sha256(layer).hexdigest()}"
    begun = client.post(f"/v2/{name}/blobs/uploads/")
    client.put(begun.headers["location"], params={"digest": digest}, content=layer).raise_for_status()
    blob = {"mediaType": "application/octet-stream", "digest": digest, "size": len(layer)}
    body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": blob, "layers": [blob]})
    signature = f"{algorithm}-{hashlib.new(algorithm, b'').hexdigest()[:64]}.sig"
    for tag in ("v1", signature):
        made = client.put(f"/v2/{name}/manifests/{tag}", content=body, headers={"content-type": MANIFEST})
        assert made.status_code == 201, made.text
    assert [each["name"] for each in client.get(f"/api/models/{name}/refs").json()["tags"]] == ["v1"]
    assert [line.split("\t")[1] for line in client.get(f"/{name}/info/refs").text.splitlines()] == ["refs/tags/v1"]
    assert signature in client.get(f"/v2/{name}/tags/list").json()["tags"]


@pytest.mark.parametrize(
    ("query", "headers"), [("?list-type=2&prefix=a", {}), ("", {"authorization": "AWS4-HMAC-SHA256 Credential=a"})]
)
def test_a_client_of_s3_gets_no_page(client: httpx.Client, query: str, headers: dict[str, str]) -> None:
    answer = client.get(f"/{query}", headers=headers)
    assert answer.status_code == 422
    assert "S3" in answer.json()["detail"]
