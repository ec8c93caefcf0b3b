"""`erase` over a live service: of a store that every protocol names, only the listed records remain."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.server.registries.test_oci import descriptor, push, put_manifest
from tests.support.hub import commit, header, send
from tests.support.tus import tus_client

from protoslice.client import Client, Pushed

Call = Callable[..., Any]
RUN: Final = "/api/2.0/mlflow-artifacts/artifacts/7/run/artifacts"
KEPT: Final = {"audit", "deliveries"}
"""The tables that still name an erased store; `erase` reports them."""


@pytest.fixture
def http(service: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=service) as client:
        yield client


def rows(storage: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(storage / "catalog.sqlite")) as catalogue:
        return catalogue.execute(sql).fetchall()


def naming(storage: Path, digest: str) -> set[str]:
    """Return the tables with a row that has the id of a store, or of one of its commits, in any column."""
    listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    found = set()
    for (table,) in rows(storage, listed):
        for row in rows(storage, f"SELECT * FROM {table}"):
            said = b"\n".join(each if isinstance(each, bytes) else str(each).encode() for each in row)
            if digest[:40].encode() in said or bytes.fromhex(digest) in said:
                found.add(table)
    return found


def holding(storage: Path, data: bytes) -> list[Path]:
    """Return the storage's files that contain some bytes from the middle of `data`."""
    part = data[len(data) // 2 :][:200]
    return [path for path in (storage / "objects").rglob("*") if path.is_file() and part in path.read_bytes()]


def used(http: httpx.Client) -> tuple[int, int]:
    """Return the stored bytes and the stores of the default space."""
    space = http.get("/v1/spaces").json()["items"][0]
    return space["stored_bytes"], space["stores"]


def found(storage: Path, commits: Sequence[str]) -> list[str]:
    """Return the ids of the commits' stores."""
    stores = [digest for (digest,) in rows(storage, "SELECT digest FROM stores WHERE deleted IS NULL")]
    return [next(store for store in stores if store.startswith(each)) for each in commits]


def newest(storage: Path) -> str:
    """Return the id of the newest store."""
    return str(rows(storage, "SELECT digest FROM stores WHERE deleted IS NULL ORDER BY id DESC LIMIT 1")[0][0])


def by_tag(http: httpx.Client, data: bytes) -> None:
    with Client(str(http.base_url)) as client:
        client.push(data, tags=[f"erased:{data[0]}", "erased:last"])


def by_tus(http: httpx.Client, data: bytes) -> None:
    with tus_client(str(http.base_url)) as tus:
        tus.whole(data)


def by_hub(http: httpx.Client, data: bytes) -> None:
    http.post("/api/repos/create", json={"name": "erased", "organization": "ann"})
    assert commit(http, "models/ann/erased", {"secret.txt": b"-", "secret.bin": data}).status_code == 200
    refs = http.get("/ann/erased/info/refs").text
    assert http.get(f"/ann/erased/objects/{refs[:2]}/{refs[2:40]}").status_code == 200


def by_lfs(http: httpx.Client, data: bytes) -> None:
    http.post("/api/repos/create", json={"name": "erased-lfs", "organization": "ann"})
    file = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}
    batch = {"operation": "upload", "transfers": ["basic"], "objects": [file]}
    (planned,) = http.post("/ann/erased-lfs.git/info/lfs/objects/batch", json=batch).json()["objects"]
    assert http.put(planned["actions"]["upload"]["href"], content=data).status_code < 300
    pointer = ("lfsFile", {"path": "secret.bin", "algo": "sha256", **file})
    assert send(http, "models/ann/erased-lfs", header(), pointer).status_code == 200


def by_oci(http: httpx.Client, data: bytes) -> None:
    base = "/v2/ann/erased-image"
    for each in (data, b"{}"):
        push(http, each, base)
    put = put_manifest(http, "v1", base, config=descriptor(b"{}"), layers=[descriptor(data, "secret.bin")])
    assert put.status_code == 201, put.text


def by_mlflow(http: httpx.Client, data: bytes) -> None:
    assert http.put(f"{RUN}/secret/secret.bin", content=data).status_code == 200


def by_draft(http: httpx.Client, data: bytes) -> None:
    for name, part in (("a.bin", data[:9000]), ("b.bin", data[9000:])):  # the first file is stored in its row
        assert http.put(f"{RUN}/folder/{name}", content=part).status_code == 200
    assert http.post("/v1/drafts/7/run/artifacts/folder").status_code == 201


WAYS: Final = {
    "tag": by_tag, "tus": by_tus, "hub": by_hub, "lfs": by_lfs, "oci": by_oci, "mlflow": by_mlflow, "draft": by_draft,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_a_store_but_what_is_listed(call: Call, http: httpx.Client, storage: Path, way: str) -> None:
    others, data = (os.urandom(100_000) for _ in range(2))
    WAYS[way](http, others)
    call("gc", "--storage", storage, url="")
    before = used(http)
    WAYS[way](http, data)
    store = newest(storage)
    assert holding(storage, data)
    assert naming(storage, store) > naming(storage, store) & KEPT
    for _ in range(3):
        done = call("erase", store[:14], "--storage", storage, "--yes", "--json", url="")
        shared = [each for each in json.loads(done.stdout)["remains"] if each["what"].startswith("bytes shared with")]
        assert naming(storage, store) <= KEPT
        if not holding(storage, data):
            break
        assert shared, "what is left is listed"
        call(*shared[0]["sooner"].split()[1:], "--storage", storage, "--yes", url="")
    assert holding(storage, data) == []
    assert http.get(f"/v1/stores/{store}").status_code == 404
    assert http.post(f"/v1/stores/{store}/restore").status_code == 404
    call("gc", "--storage", storage, url="")
    assert used(http)[0] <= before[0] + 100, "but for an upload of `{}`"
    assert used(http)[1] == before[1]
    # Again, as after an interruption.
    done = call("erase", store[:14], "--storage", storage, "--yes", url="")
    assert f"Store {store} was erased already: nothing is left to erase." in done.stdout


def test_a_history_goes_on_without_the_files_of_an_erased_commit(call: Call, http: httpx.Client, storage: Path) -> None:
    http.post("/api/repos/create", json={"name": "history", "organization": "ann"})
    sent = [{"a.txt": b"a", "b.bin": os.urandom(50_000)}, {"secret.bin": os.urandom(50_000)}, {"c.txt": b"c"}]
    commits = [commit(http, "models/ann/history", files).json()["commitOid"] for files in sent]
    stores = found(storage, commits)
    call("erase", stores[1], "--storage", storage, "--yes", url="")
    titles = http.get("/api/models/ann/history/commits/main").json()
    assert len(titles) == 3
    assert http.get("/ann/history/resolve/main/c.txt").text == "c"
    # The last commit has the file too, so its store shares the bytes.
    assert http.get("/ann/history/resolve/main/secret.bin").content == sent[1]["secret.bin"]
    call("erase", stores[2], "--storage", storage, "--yes", url="")
    assert holding(storage, sent[1]["secret.bin"]) == []
    assert http.get("/api/models/ann/history/tree/main").json() == []
    assert commit(http, "models/ann/history", {"d.txt": b"d"}).status_code == 200
    assert [each["path"] for each in http.get("/api/models/ann/history/tree/main").json()] == ["d.txt"]
    assert http.get("/ann/history/resolve/" + commits[0] + "/a.txt").text == "a"
    assert http.get("/ann/history/info/refs").status_code == 200


def test_an_image_keeps_a_blob_that_it_shares_with_an_erased_one(call: Call, http: httpx.Client, storage: Path) -> None:
    base, shared, images = "/v2/ann/shares", os.urandom(30_000), [os.urandom(30_000) for _ in range(2)]
    stores = []
    for tag, image in zip(("one", "two"), images, strict=True):
        for each in (image, shared, b"{}"):
            push(http, each, base)
        layers = [descriptor(image, "own.bin"), descriptor(shared, "shared.bin")]
        assert put_manifest(http, tag, base, config=descriptor(b"{}"), layers=layers).status_code == 201
        stores.append(newest(storage))
    done = call("erase", stores[0], "--storage", storage, "--yes", url="")
    assert f"bytes shared with {stores[1][:12]}" in done.stdout
    assert [bool(holding(storage, each)) for each in images] == [False, True]
    assert [http.get(f"{base}/manifests/{tag}").status_code for tag in ("one", "two")] == [404, 200]
    for data, status in ((images[0], 404), (images[1], 200), (shared, 200), (b"{}", 200)):
        assert http.get(f"{base}/blobs/{descriptor(data)['digest']}").status_code == status


def test_what_goes_is_shown_and_nothing_goes_without_a_yes(call: Call, http: httpx.Client, storage: Path) -> None:
    by_tag(http, data := os.urandom(30_000))
    store = newest(storage)
    refused = call("erase", store, "--storage", storage, code=2, url="")
    assert refused.stderr == f"protoslice: Store {store[:12]} would be erased for good: pass --yes to erase it\n"
    assert [line.split()[:3] for line in refused.stdout.splitlines()] == [
        ["space", "erases"], ["default", "store", store], ["default", "name", f"erased:{data[0]}"],
        ["default", "name", "erased:last"],
    ]  # fmt: skip
    assert naming(storage, store)
    for wrong, code in (("erased:last", 2), (store[:11], 2), ("0" * 64, 4)):
        call("erase", wrong, "--storage", storage, "--yes", code=code, url="")
    call("erase", store, "--storage", storage, "--space", "nowhere", "--yes", code=4, url="")


@pytest.mark.parametrize("everywhere", [False, True])
def test_copies_in_other_spaces_are_listed_or_erased_too(
    call: Call, http: httpx.Client, storage: Path, everywhere: bool
) -> None:
    http.put("/v1/spaces/erased")
    data = os.urandom(30_000)
    by_tag(http, data)
    with Client(f"{http.base_url}/spaces/erased") as client:
        client.push(data)
    store = newest(storage)
    options = ["--every-space"] if everywhere else []
    done = call("erase", store, "--storage", storage, "--yes", *options, url="")
    assert ("space erased" in done.stdout) is not everywhere
    assert http.get(f"/spaces/erased/v1/stores/{store}").status_code == (404 if everywhere else 200)
    assert bool(holding(storage, data)) is not everywhere


def test_bytes_that_a_backup_holds_are_a_failure(call: Call, http: httpx.Client, storage: Path) -> None:
    by_tag(http, data := os.urandom(30_000))
    store = newest(storage)
    hold = "INSERT INTO holds (id, owner, expires) VALUES ('backup', 'x', (unixepoch() + 200) * 1000000)"
    with closing(sqlite3.connect(storage / "catalog.sqlite")) as catalogue, catalogue:
        catalogue.execute(hold)
    try:
        done = call("erase", store, "--storage", storage, "--yes", code=3, url="")
        assert f"Store {store} is not erased." in done.stdout
        assert "a backup or check has ended" in done.stdout
        assert holding(storage, data)
    finally:
        with closing(sqlite3.connect(storage / "catalog.sqlite")) as catalogue, catalogue:
            catalogue.execute("DELETE FROM holds")
    call("erase", store, "--storage", storage, "--yes", url="")
    assert holding(storage, data) == []


def test_bytes_in_an_object_that_another_store_uses_are_a_failure(
    call: Call, http: httpx.Client, storage: Path, tmp_path: Path
) -> None:
    path = tmp_path / "model.bin"

    def pushed(data: bytes, tag: str) -> Pushed:
        path.write_bytes(data)
        return client.push(path, tags=[tag])

    first = os.urandom(12 << 20)
    second = first[: 8 << 20] + os.urandom(4 << 20)
    secret = first[-100_000:]
    options = ["--storage", storage, "--yes"]
    with Client(str(http.base_url)) as client:
        one = pushed(first, "ranges:1").store.id
        two = pushed(second, "ranges:2")
        assert two.copied > 4 << 20
        for _ in range(2):  # a second time: the record of it is not removed
            done = call("erase", one, *options, code=3, url="")
            (line,) = [line for line in done.stdout.splitlines() if "no other store uses" in line]
            (object,) = holding(storage, secret)
            assert line.startswith(f"object {object.relative_to(storage)}")
            (size,) = re.findall(r"\(([0-9]+) B\)", line)
            assert 4 << 20 <= int(size) < 8 << 20
            assert two.store.id[:12] in line
            assert f"Store {one} is not erased." in done.stdout
        # Follow the advice: the other store is erased, and then the whole store is sent again.
        call("erase", two.store.id, *options, url="")
        assert holding(storage, secret) == []
        again = pushed(second, "ranges:2")
        assert (again.store.id, again.copied) == (two.store.id, 0)
        said = call("erase", one, *options, url="").stdout
        assert f"Store {one} was erased already: nothing is left to erase." in said


def test_bytes_that_others_use_too_or_that_an_earlier_store_left_are_no_failure(
    call: Call, http: httpx.Client, storage: Path, tmp_path: Path
) -> None:
    path, first = tmp_path / "model.bin", os.urandom(12 << 20)
    stores = list[Pushed]()
    with Client(str(http.base_url)) as client:
        for tag in ("chain:1", "chain:2", "chain:3"):
            path.write_bytes(first if not stores else first[: 8 << 20] + os.urandom(1 << 20))
            stores.append(client.push(path, tags=[tag]))
        assert all(each.copied for each in stores[1:])
        client.remove(stores[0].store.id, force=["chain:1"])
        call("gc", "--grace-seconds", "0", "--storage", storage, url="")
        done = call("erase", stores[1].store.id, "--storage", storage, "--yes", url="")
        assert "no other store uses" not in done.stdout
        assert client.store("chain:3").id == stores[2].store.id
