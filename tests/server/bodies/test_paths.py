"""A store whose files no disk can hold together is refused on every way in, with both names."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.problems import assert_problem

from protoslice.catalog.requests import FilePaths
from protoslice.defaults import MAX_FILES
from protoslice.errors import InvalidInput, LimitExceeded
from protoslice.recipes import MEDIA_TYPE, RecipeWriter

DATA = b"\x0a\x05paths"
CLASHES = [("a", "a/b"), ("a/b", "a"), ("x/y/z.pb", "x"), ("x", "x/y/z.pb")]


@pytest.fixture(scope="module")
def client(serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("models")
    (folder / "model.pb").write_bytes(DATA)
    with serving(register_allow=(folder.as_uri(),)) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        client.headers["x-folder"] = folder.as_uri()  # for `registered` alone
        yield client


def as_form(client: httpx.Client, paths: tuple[str, ...]) -> httpx.Response:
    return client.post("/v1/stores", files=[("file", (path, DATA)) for path in paths])


def as_tar(client: httpx.Client, paths: tuple[str, ...]) -> httpx.Response:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for path in paths:
            info = tarfile.TarInfo(path)
            info.size = len(DATA)
            tar.addfile(info, io.BytesIO(DATA))
    return client.post("/v1/stores", content=archive.getvalue(), headers={"content-type": "application/x-tar"})


def as_recipe(client: httpx.Client, paths: tuple[str, ...]) -> httpx.Response:
    writer, body = RecipeWriter(), b""
    for path in paths:
        body += writer.file(path) + writer.literal(len(DATA)) + DATA
        body += writer.end(len(DATA), hashlib.sha256(DATA).hexdigest())
    return client.post("/v1/stores", content=body + writer.done(), headers={"content-type": MEDIA_TYPE})


def assembled(client: httpx.Client, paths: tuple[str, ...]) -> httpx.Response:
    tus = {"tus-resumable": "1.0.0", "upload-length": str(len(DATA)), "upload-concat": "partial"}
    tus |= {"content-type": "application/offset+octet-stream"}
    uploads = {path: client.post("/v1/uploads", headers=tus, content=DATA).headers["location"] for path in paths}
    return client.post("/v1/stores/assemble", json={"uploads": uploads})


def registered(client: httpx.Client, paths: tuple[str, ...]) -> httpx.Response:
    place = client.headers["x-folder"] + "/model.pb"
    return client.post("/v1/stores/register", json={"files": dict.fromkeys(paths, place)})


@pytest.mark.parametrize("send", [as_form, as_tar, as_recipe, assembled, registered])
def test_a_file_that_is_a_folder_for_another_is_refused(send: Any, client: httpx.Client) -> None:
    for paths in CLASHES:
        refused = send(client, paths)
        problem = assert_problem(
            refused.status_code, refused.headers, refused.content, expected=400, slug="invalid-input"
        )
        assert all(repr(path) in problem["detail"] for path in paths)
    assert send(client, ("a", "a-b", "a.b/c", "ab", "b/a")).status_code in {200, 201}


@pytest.mark.parametrize("path", ["/v1/stores/register", "/v1/stores/assemble"])
def test_more_files_than_a_store_holds_are_refused_before_any_is_looked_at(client: httpx.Client, path: str) -> None:
    named = {f"f{number}": "x" for number in range(MAX_FILES + 1)}
    refused = client.post(path, json={"files": named} if "register" in path else {"uploads": named})
    assert_problem(refused.status_code, refused.headers, refused.content, expected=413, slug="limit-exceeded")


def test_a_store_holds_only_so_many_files() -> None:
    found = FilePaths()
    for number in range(MAX_FILES):
        found.add(f"f{number}")
    with pytest.raises(LimitExceeded, match=str(MAX_FILES)):
        found.add("one more")


@given(st.lists(st.text("a/-", min_size=1, max_size=5), max_size=6))
def test_paths_go_together_as_on_a_disk(paths: list[str]) -> None:
    plain = [path for path in paths if "" not in path.split("/")]
    together = all(
        one != other and not other.startswith(one + "/") for one in set(plain) for other in set(plain) - {one}
    )
    found = FilePaths()
    try:
        for path in plain:
            found.add(path)
        accepted = True
    except InvalidInput:
        accepted = False
    assert accepted == (together and len(set(plain)) == len(plain))
