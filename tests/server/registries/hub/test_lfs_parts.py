"""Files that come in parts before the commit that names them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from tests.support.hub import header, send
from tests.support.stores import onnx

from protoslice.server.registries.hub import lfs

Made = Callable[..., str]

DATA = onnx(700_000, 300_000)
OID = hashlib.sha256(DATA).hexdigest()
PART = 400_000


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lfs, "_PART_BYTES", PART)


def batch(client: httpx.Client, name: str, *objects: tuple[str, int], offered: str = "multipart") -> dict[str, Any]:
    """The answer about objects, by default about the file here."""
    wanted = [{"oid": oid, "size": size} for oid, size in objects or ((OID, len(DATA)),)]
    body = {"operation": "upload", "transfers": ["basic", offered], "objects": wanted}
    told = client.post(f"/{name}.git/info/lfs/objects/batch", json=body)
    assert told.status_code == 200, told.text
    found: dict[str, Any] = told.json()
    return found


def action(client: httpx.Client, name: str) -> dict[str, Any]:
    """The upload action of the file."""
    told = batch(client, name)
    assert told["transfer"] == "multipart"
    found: dict[str, Any] = told["objects"][0]["actions"]["upload"]
    return found


def sent(client: httpx.Client, told: dict[str, Any], data: bytes = DATA) -> list[dict[str, object]]:
    """Sends all parts, the last one first; returns what ends the upload."""
    chunk, parts = int(told["header"]["chunk_size"]), []
    for number in range(len(told["header"]) - 1, 0, -1):
        piece = data[(number - 1) * chunk : number * chunk]
        answer = client.put(told["header"][str(number)], content=piece)
        assert answer.status_code == 200, answer.text
        parts.append({"partNumber": number, "etag": answer.headers["etag"]})
    return parts


def ended(client: httpx.Client, told: dict[str, Any], parts: list[dict[str, object]]) -> httpx.Response:
    """The answer to the end of an upload."""
    return client.post(told["href"], json={"oid": OID, "parts": parts})


def committed(client: httpx.Client, name: str) -> httpx.Response:
    """The answer to a commit of the file."""
    return send(client, f"models/{name}", header(), ("lfsFile", {"path": "m.onnx", "algo": "sha256", "oid": OID}))


def test_a_file_is_made_of_its_parts(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    assert len(told["header"]) == 1 + -(-len(DATA) // PART)
    parts = sent(client, told)
    assert "actions" in batch(client, name)["objects"][0]
    assert [ended(client, told, parts).status_code for _ in range(2)] == [200, 200]
    assert "actions" not in batch(client, name)["objects"][0]
    made_of = committed(client, name)
    assert made_of.status_code == 200
    assert client.get(f"/{name}/resolve/main/m.onnx").content == DATA
    assert client.get(f"/v1/stores/{made_of.json()['commitOid']}").json()["root"] == "m.onnx"


def test_parts_are_for_clients_that_know_them_and_large_files(client: httpx.Client, made: Made) -> None:
    name = made()
    assert batch(client, name, offered="ssh")["transfer"] == "basic"
    assert batch(client, name, (OID, PART))["transfer"] == "basic"
    both = batch(client, name, (OID, len(DATA)), ("1" * 64, 5))
    assert both["transfer"] == "multipart"
    # Clients of this transfer know no other way for any file of the batch.
    assert [len(each["actions"]["upload"]["header"]) for each in both["objects"]] == [4, 2]


def test_a_part_may_be_sent_again(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    sent(client, told)
    assert ended(client, told, sent(client, told)).status_code == 200
    assert committed(client, name).status_code == 200


def test_an_end_names_every_part_once(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    parts = sent(client, told)
    first, *rest = parts
    swapped = [{**first, "etag": rest[0]["etag"]}, *rest]
    for wrong in ([], rest, [*rest, {**first, "partNumber": 9}], swapped, [*rest, {**first, "etag": "none"}]):
        assert 400 <= ended(client, told, wrong).status_code < 500
        assert committed(client, name).status_code == 400
    assert ended(client, told, parts).status_code == 200


def test_other_bytes_are_no_file_and_their_parts_go(client: httpx.Client, made: Made) -> None:
    name = made()
    told = action(client, name)
    parts = sent(client, told, DATA[:-1] + b"?")
    assert ended(client, told, parts).status_code == 460
    assert ended(client, told, parts).status_code == 410
    assert committed(client, name).status_code == 400
    assert ended(client, told, sent(client, told)).status_code == 200
    assert committed(client, name).status_code == 200


@pytest.mark.parametrize("data", [DATA[:PART] + b"?", DATA[: PART - 1]])
def test_a_part_has_the_size_that_was_told(client: httpx.Client, made: Made, data: bytes) -> None:
    told = action(client, made())
    assert 400 <= client.put(told["header"]["1"], content=data).status_code < 500


def test_parts_of_another_repository_are_none_here(client: httpx.Client, made: Made) -> None:
    parts = sent(client, action(client, made()))
    name = made()
    assert ended(client, action(client, name), parts).status_code == 400
    assert committed(client, name).status_code == 400


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("{oid}/1000/100/11", 404), ("{oid}/1000/100/0", 400), ("{oid}/0/1/1", 400), ("{oid}/1000/0/1", 400),
        ("{oid}/1000/1/1", 400), ("{oid}/9223372036854775807/9223372036854775807/1", 413), ("x/1000/1000/1", 400),
        (f"{{oid}}/{10**30}/100/1", 400), ("{oid}/-5/100/1", 400),
    ],
)  # fmt: skip
def test_hostile_sizes_and_numbers_are_refused(client: httpx.Client, made: Made, end: str, status: int) -> None:
    url = f"/api/lfs-parts/models/{made()}/{end.format(oid=OID)}"
    told = client.put(url, content=b"x")
    assert told.status_code == status, told.text
    if status != 404:
        assert client.post(url.rpartition("/")[0], json={"parts": []}).status_code == 400


def test_a_batch_of_many_large_files_has_bounded_urls(client: httpx.Client, made: Made) -> None:
    wanted = [(f"{number:064x}", 60 << 20) for number in range(256)]
    told = batch(client, made(), *wanted)
    headers = [each["actions"]["upload"]["header"] for each in told["objects"]]
    assert sum(len(each) - 1 for each in headers) <= 10_000
    assert all((len(each) - 1) * int(each["chunk_size"]) >= 60 << 20 for each in headers)


def test_a_file_in_parts_is_no_larger_than_an_upload_may_be(client: httpx.Client, made: Made) -> None:
    body = {"operation": "upload", "transfers": ["multipart"], "objects": [{"oid": OID, "size": 1 << 62}]}
    assert client.post(f"/{made()}.git/info/lfs/objects/batch", json=body).status_code == 413


def test_a_dataset_has_parts_too(client: httpx.Client, made: Made) -> None:
    name = made(kind="dataset")
    told = action(client, f"datasets/{name}")
    assert urlsplit(told["href"]).path.startswith("/api/lfs-parts/datasets/")
    assert ended(client, told, sent(client, told)).status_code == 200
