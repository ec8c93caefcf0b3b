"""GGUF files of repositories as Ollama pulls them.

Refusals that clients of registries print: their text is where each client looks for it.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.hub import commit, header, inline, lines_of
from tests.support.serve import ask

from protoslice.artifacts import ManifestUnknown, exports
from protoslice.errors import Unsupported
from protoslice.server.auth.permissions import Scope

AGENT = {"user-agent": "ollama/0.6.5 (amd64 linux) Go/go1.24.0"}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(fill: bytes, **strings: str) -> bytes:
    """Return a file of one tensor of 2 048 elements."""
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 2 + len(strings))
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("general.file_type") + struct.pack("<II", 4, 15)
    for key, value in strings.items():
        head += text(key.replace("__", ".")) + struct.pack("<I", 8) + text(value)
    head += text("w") + struct.pack("<IQQIQ", 2, 32, 64, 0, 0)
    return head + bytes(-len(head) % 32) + fill * 8192


CHAT = gguf(b"c", tokenizer__chat_template="{{ '<|start_header_id|>' }}", general__license="mit")
PLAIN = gguf(b"p")
FILES = {"m-Q4_K_M.gguf": CHAT, "m-Q8_0.gguf": PLAIN, "mmproj-m.gguf": gguf(b"v"), "README.md": b"#"}


@pytest.fixture(scope="module")
def name(client: httpx.Client) -> str:
    """Make a repository whose name has capitals."""
    client.post("/api/repos/create", json={"organization": "Ann", "name": "Tiny-GGUF"})
    assert commit(client, "models/Ann/Tiny-GGUF", FILES).status_code == 200
    return "Ann/Tiny-GGUF"


def layers(client: httpx.Client, name: str, tag: str) -> dict[str, bytes]:
    """Return the verified blobs of a manifest, by kind."""
    answer = client.get(f"/v2/{name}/manifests/{tag}", headers=AGENT)
    assert (answer.status_code, answer.headers["content-type"]) == (200, exports.MEDIA_TYPE), answer.text
    found = dict[str, bytes]()
    for each in [answer.json()["config"], *answer.json()["layers"]]:
        blob = client.get(f"/v2/{name}/blobs/{each['digest']}").content  # without its name, as Ollama does
        assert (len(blob), f"sha256:{hashlib.sha256(blob).hexdigest()}") == (each["size"], each["digest"])
        found[each["mediaType"].rpartition(".")[2]] = blob
    return found


@pytest.mark.parametrize("tag", ["latest", "main", "Q4_K_M", "q4_k_m"])
def test_a_model_has_the_layers_that_its_header_tells(client: httpx.Client, name: str, tag: str) -> None:
    found = layers(client, name, tag)
    assert (found["model"], found["projector"], found["license"]) == (CHAT, FILES["mmproj-m.gguf"], b"mit")
    assert found["template"].startswith(b"{{ if .System }}<|start_header_id|>system<|end_header_id|>\n\n{{ .System }}")
    assert json.loads(found["params"]) == {"stop": ["<|start_header_id|>", "<|eot_id|>"]}
    config: dict[str, Any] = json.loads(found["v1+json"])
    assert (config["model_family"], config["model_type"], config["file_type"]) == ("llama", "2K", "Q4_K_M")


def test_a_quantization_is_chosen_and_files_of_text_go_first(client: httpx.Client, name: str) -> None:
    assert set(layers(client, name, "Q8_0")) == {"model", "projector", "v1+json"}
    commit(client, f"models/{name}", {"template": b"{{ .Prompt }}", "params": b"{}", "LICENSE": b"own"})
    found = layers(client, name, "Q4_K_M")
    assert (found["template"], found["params"], found["license"]) == (b"{{ .Prompt }}", b"{}", b"own")


@pytest.mark.parametrize(
    ("tag", "path"), [("latest", "m-Q4_K_M.gguf"), ("main", "m-Q4_K_M.gguf"), ("q8_0", "m-Q8_0.gguf")]
)
def test_llama_cpp_learns_which_files_to_download(client: httpx.Client, name: str, tag: str, path: str) -> None:
    asked = {"user-agent": "llama-cpp", "accept": "application/json"}
    found = client.get(f"/v2/{name}/manifests/{tag}", headers=asked).raise_for_status().json()
    assert found["ggufFile"] == {"rfilename": path, "size": len(FILES[path])}
    assert found["mmprojFile"]["rfilename"] == "mmproj-m.gguf"
    read = client.get(f"/{name}/resolve/main/{path}", headers=asked, follow_redirects=True)
    assert read.content == FILES[path]
    assert client.get(f"/v2/{name}/manifests/Q2_K", headers=asked).status_code == 400


def test_names_with_capitals_are_not_in_the_catalog(client: httpx.Client, name: str) -> None:
    layers(client, name, "Q8_0")
    client.post("/api/repos/create", json={"organization": "zoe", "name": "last"})
    commit(client, "models/zoe/last", {"a.md": b"1"})
    assert client.get("/v2/zoe/last/manifests/main").status_code == 200
    url, found = "/v2/_catalog?n=1", list[str]()
    while url:
        answer = client.get(url)
        assert answer.status_code == 200, answer.text
        found += answer.json()["repositories"]
        url = answer.links.get("next", {}).get("url", "")
    assert "zoe/last" in found
    assert all(each == each.lower() for each in found)
    assert client.get("/v2/_catalog?last=a b").json()["errors"][0]["code"] == "NAME_INVALID"


def test_other_clients_get_all_files_and_no_capitals(client: httpx.Client, name: str) -> None:
    assert client.get(f"/v2/{name}/manifests/main").status_code == 400
    client.post("/api/repos/create", json={"organization": "ann", "name": "small"})
    commit(client, "models/ann/small", FILES)
    assert len(client.get("/v2/ann/small/manifests/main").json()["layers"]) == len(FILES)
    assert client.get("/v2/ann/small/manifests/latest", headers=AGENT).headers["content-type"] == exports.MEDIA_TYPE


@pytest.mark.parametrize("tag", ["Q2_K", "x" * 128])
def test_a_missing_quantization_is_refused_with_the_names_of_others(client: httpx.Client, name: str, tag: str) -> None:
    answer = client.get(f"/v2/{name}/manifests/{tag}", headers=AGENT)
    assert (answer.status_code, "m-Q4_K_M.gguf" in answer.text) == (400, True)
    missing = client.get(f"/v2/ann/none/manifests/{tag}", headers=AGENT)
    assert (missing.status_code, missing.json()["errors"][0]["code"]) == (404, "MANIFEST_UNKNOWN")


def test_a_damaged_file_is_an_error(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "damaged"})
    commit(client, "models/ann/damaged", {"m.gguf": b"GGUF" + b"\xff" * 100})
    assert client.get("/v2/ann/damaged/manifests/latest", headers=AGENT).status_code == 422


@pytest.mark.parametrize(
    ("files", "quantization", "path"),
    [
        (["a-Q8_0.gguf", "a-Q4_0.gguf"], None, "a-Q4_0.gguf"),
        (["b.gguf", "a.gguf"], None, "a.gguf"),
        (["x/IQ4_XS.gguf", "x-Q4_XS.gguf"], "iq4_xs", "x/IQ4_XS.gguf"),
        (["model-IQ3_S.GGUF"], "IQ3_S", "model-IQ3_S.GGUF"),
    ],
)
def test_the_file_of_a_quantization(files: list[str], quantization: str | None, path: str) -> None:
    assert exports.chosen(files, quantization) == path


def test_splits_are_refused() -> None:
    splits = ["m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"]
    for quantization in (None, "Q8_0"):
        assert exports.chosen(splits, quantization, splits=True) == splits[1]
    with pytest.raises(Unsupported):
        exports.chosen(["m-00001-of-00002.gguf"], None)
    with pytest.raises(ManifestUnknown):
        exports.chosen(["mmproj.gguf", "m.bin"], None)


@pytest.mark.parametrize("agent", [AGENT, {}])
async def test_a_reader_of_a_closed_service_gets_a_model_and_leaves_no_upload(agent: dict[str, str]) -> None:
    async with closed_service() as app:
        writer, reader = [
            bearer(await token_for(app, *scopes)) for scopes in ((Scope.READ, Scope.WRITE), (Scope.READ,))
        ]
        kind = {"content-type": "application/json"}
        body = b'{"organization":"ann","name":"m"}'
        assert (await ask(app, "POST", "/spaces/own/api/repos/create", body, writer | kind)).status == 200
        lines = lines_of(header(), inline("m.gguf", CHAT))
        done = await ask(app, "POST", "/spaces/own/api/models/ann/m/commit/main", lines, writer)
        assert done.status == 200, done.text
        answer = await ask(app, "GET", "/spaces/own/v2/ann/m/manifests/latest", headers=reader | agent)
        assert answer.status == 200, answer.text
        told = json.loads(answer.body)
        for each in (told["config"], *told["layers"]):
            blob = await ask(app, "GET", f"/spaces/own/v2/ann/m/blobs/{each['digest']}", headers=reader | agent)
            assert (blob.status, len(blob.body)) == (200, each["size"])
        stores = app.services.stores
        assert await stores.database.read(lambda tx: tx.first("SELECT COUNT(*) FROM uploads")) == (0,)


def removed(client: httpx.Client, store: str) -> None:
    """Remove a store, although names refer to it."""
    refused = client.delete(f"/v1/stores/{store}")
    names = [each["name"] for each in refused.json()["names"]] if refused.status_code == 409 else []
    assert client.delete(f"/v1/stores/{store}", params={"force": names}).status_code == 200


def test_a_model_is_pulled_after_the_store_of_an_earlier_commit_was_removed(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "removed"})
    commit(client, "models/ann/removed", {"m.gguf": CHAT})
    store = client.get("/v2/ann/removed/manifests/latest", headers=AGENT).headers["protoslice-store"]
    commit(client, "models/ann/removed", {"README.md": b"x"})
    removed(client, store)
    assert layers(client, "ann/removed", "latest")["model"] == CHAT


def test_a_layer_that_was_deleted_is_made_anew(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "deleted"})
    commit(client, "models/ann/deleted", {"m.gguf": CHAT})
    told = client.get("/v2/ann/deleted/manifests/latest", headers=AGENT).json()
    for each in [told["config"], *told["layers"]]:
        assert client.delete(f"/v2/ann/deleted/blobs/{each['digest']}").status_code == 202
    assert layers(client, "ann/deleted", "latest")["license"] == b"mit"


def test_a_model_is_pulled_by_its_name_in_another_case_and_its_former_name(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "Ann", "name": "First-GGUF"})
    assert commit(client, "models/Ann/First-GGUF", {"m-Q4_0.gguf": PLAIN}).status_code == 200
    body = {"fromRepo": "Ann/First-GGUF", "toRepo": "Ann/Last-GGUF"}
    assert client.post("/api/repos/move", json=body).status_code == 200
    agent = {"user-agent": "llama-cpp"}
    for other in ("Ann/Last-GGUF", "ann/last-gguf", "ANN/last-GGUF", "Ann/First-GGUF", "ann/first-gguf"):
        assert layers(client, other, "latest")["model"] == PLAIN
        told = client.get(f"/v2/{other}/manifests/latest", headers=agent).json()
        assert told["ggufFile"]["rfilename"] == "m-Q4_0.gguf"


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
    """With status 401, it would request a token at the realm, and print that this is no URL."""
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
