"""Requests of @huggingface/hub from npm, of the Rust crate hf-hub, and of model cards."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.serve import ask

from protoslice.repositories.git_format import blob_id
from protoslice.server.auth.permissions import Scope

Made = Callable[..., str]

FILES = {"config.json": b'{"a": 1}', "sub/a b.bin": bytes(range(256)) * 300, "empty": b""}


@pytest.mark.parametrize("kind", ["model", "dataset"])
@pytest.mark.parametrize("path", FILES)
def test_raw_serves_the_bytes_of_resolve(client: httpx.Client, made: Made, kind: str, path: str) -> None:
    name = made(FILES, kind)
    root = f"/{name}" if kind == "model" else f"/datasets/{name}"
    for revision in ("main", "refs%2Fheads%2Fmain"):
        head, got = (client.request(method, f"{root}/raw/{revision}/{path}") for method in ("HEAD", "GET"))
        assert (head.status_code, got.status_code, got.content) == (200, 200, FILES[path])
        assert got.headers["x-repo-commit"] == head.headers["x-repo-commit"]
    missing = client.head(f"{root}/raw/main/none")
    assert (missing.status_code, missing.headers["x-error-code"]) == (404, "EntryNotFound")


def test_paths_info_takes_json(client: httpx.Client, made: Made) -> None:
    name = made(FILES)

    def listed(body: Any, kind: str = "application/json") -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return client.post(f"/api/models/{name}/paths-info/main", content=content, headers={"content-type": kind})

    told = listed({"paths": ["config.json", "sub", "none", "config.json"], "expand": False}).json()
    assert [(each["path"], each["type"]) for each in told] == [("config.json", "file"), ("sub", "directory")]
    assert told[0]["oid"] == blob_id(FILES["config.json"])
    assert [each["path"] for each in listed({"paths": "empty"}, "Application/JSON; charset=utf-8").json()] == ["empty"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"paths": 3}',
        b'{"paths": [3]}',
        b'{"paths": ["\\ud800"]}',
        b'{"paths":' + b"[" * 100_000,
        b"\xff",
    ],
)
def test_paths_info_refuses_other_json(client: httpx.Client, made: Made, body: bytes) -> None:
    name = made(FILES)
    headers = {"content-type": "application/json"}
    answer = client.post(f"/api/models/{name}/paths-info/main", content=body, headers=headers)
    assert (answer.status_code, "paths" in answer.headers["x-error-message"]) == (400, True)


def test_head_names_the_main_branch(client: httpx.Client, made: Made) -> None:
    name = made(FILES)
    commit = client.get(f"/api/models/{name}/revision/main").json()["sha"]
    assert client.get(f"/api/models/{name}/revision/HEAD?expand=sha").json()["sha"] == commit
    assert client.get(f"/{name}/resolve/HEAD/config.json").content == FILES["config.json"]
    assert client.post(f"/api/models/{name}/branch/HEAD", json={}).status_code == 201
    send = {"content-type": "application/x-ndjson"}
    lines = [("header", {"summary": "x"}), ("file", {"content": "eA==", "path": "config.json"})]
    body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in lines)
    assert client.post(f"/api/models/{name}/commit/HEAD", content=body, headers=send).status_code == 200
    assert client.get(f"/{name}/resolve/HEAD/config.json").content == b"x", "a branch of that name goes first"
    assert client.get(f"/{name}/resolve/main/config.json").content == FILES["config.json"]


def test_an_empty_file_tells_its_size_to_a_range(client: httpx.Client, made: Made) -> None:
    name = made(FILES)
    answer = client.get(f"/{name}/resolve/main/empty", headers={"range": "bytes=0-0"})
    assert (answer.status_code, answer.content, answer.headers["content-range"]) == (200, b"", "bytes */0")
    assert "content-range" not in client.get(f"/{name}/resolve/main/config.json").headers


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_xet_is_chosen_when_it_is_offered(client: httpx.Client, made: Made, kind: str) -> None:
    data = b"known"
    name = made({"a": data}, kind)
    root = name if kind == "model" else f"datasets/{name}"
    known, new = hashlib.sha256(data).hexdigest(), "0" * 64
    body = {
        "operation": "upload", "transfers": ["basic", "multipart", "xet"], "hash_algo": "sha256",
        "ref": {"name": "main"}, "objects": [{"oid": known, "size": len(data)}, {"oid": new, "size": 20 << 20}],
    }  # fmt: skip
    told = client.post(f"/{root}.git/info/lfs/objects/batch", json=body).json()
    assert told["transfer"] == "xet"
    assert ["actions" in each for each in told["objects"]] == [False, True]
    token = client.get(told["objects"][1]["actions"]["upload"]["href"]).json()
    assert token["casUrl"].startswith(str(client.base_url))
    assert client.post(f"{token['casUrl']}/v1/shards", content=b"").status_code == 400, "a session that is open"


async def test_a_card_is_checked_without_a_token() -> None:
    async with closed_service() as app:
        body = json.dumps({"repoType": "model", "content": "---\nlicense: mit\n---\n"}).encode()
        headers = {"content-type": "application/json", "accept": "text/plain"}
        for root in ("", "/spaces/own", "/spaces/none"):
            told = await ask(app, "POST", f"{root}/api/validate-yaml", body, headers)
            assert (told.status, json.loads(told.body)) == (200, {"errors": [], "warnings": []})


async def test_a_token_may_begin_as_those_of_hugging_face_do() -> None:
    async with closed_service() as app:
        token = await token_for(app, Scope.READ)
        strict = f"hf_{token.removeprefix('psl_')}"
        assert re.fullmatch("hf_[A-Za-z0-9]+", strict), "llama.cpp sends no other token"
        basic = f"Basic {b64encode(f'robot:hf_{token}'.encode()).decode()}"
        for headers in (bearer(f"hf_{token}"), bearer(strict), {"authorization": basic}):
            assert (await ask(app, "GET", "/spaces/own/v1/stores", headers=headers)).status == 200
        for wrong in (f"hf_hf_{token}", f"hf_{token[:-6]}aaaaaa", "hf_", f"HF_{token}", strict[3:], f"hf_{strict}"):
            assert (await ask(app, "GET", "/spaces/own/v1/stores", headers=bearer(wrong))).status == 401


def test_the_next_page_of_a_tree_is_in_the_same_space(client: httpx.Client) -> None:
    assert client.put("/v1/spaces/pages").status_code in {200, 201}
    root = "/spaces/pages"
    client.post(f"{root}/api/repos/create", json={"name": "Ann/pages"}).raise_for_status()
    lines = [("header", {"summary": "x"}), *(("file", {"content": "", "path": f"{n:04}"}) for n in range(1001))]
    body = "\n".join(json.dumps({"key": key, "value": value}) for key, value in lines)
    client.post(f"{root}/api/models/Ann/pages/commit/main", content=body).raise_for_status()
    first = client.get(f"{root}/api/models/Ann/pages/tree/main")
    assert len(first.json()) == 1000
    assert [each["path"] for each in client.get(first.links["next"]["url"]).json()] == ["1000"]
