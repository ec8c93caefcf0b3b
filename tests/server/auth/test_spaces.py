"""Spaces over HTTP: every call works below `/spaces/{space}`, and every URL in an answer stays there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import httpx
import pytest
from tests.support.serve import LiveServer, exchange
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import NotFound
from protoslice.server.auth.spaces import space_path

MODEL = onnx(1000, 2000)


@pytest.fixture(scope="module")
def space(client: httpx.Client, service: LiveServer) -> Iterator[httpx.Client]:
    """A client of the space `team`."""
    assert client.put("/v1/spaces/team").status_code == 201
    with httpx.Client(base_url=f"{service.url}/spaces/team", timeout=30) as inside:
        yield inside


@pytest.fixture(scope="module")
def store(space: httpx.Client) -> str:
    """The id of a store of the space, tagged `m:1`."""
    answer = space.put("/v1/stores?filename=m.onnx&tag=m:1", content=MODEL)
    assert answer.status_code == 201
    return str(answer.json()["id"])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/stores", ("default", "", "/v1/stores")),
        ("/spaces/a-1/v1/x", ("a-1", "/spaces/a-1", "/v1/x")),
        ("/spaces/default/v1", ("default", "/spaces/default", "/v1")),
        ("/spaces/a/../b/v1", ("a", "/spaces/a", "/../b/v1")),
        ("/spaces/a/\n", ("a", "/spaces/a", "/\n")),
        *((path, ("default", "", path)) for path in (
            "/spaces", "/spaces/", "/spaces/a", "/spaces/A/v1", "/spaces//v1", "//spaces/a/v1", "/spaces/../v1",
            "/spaces/a\n/v1", "/spaces/a%2Fb/v1", "/spaces/" + "a" * 64 + "/v1", "*",
        )),
    ],
)  # fmt: skip
def test_a_path_names_one_space(path: str, expected: tuple[str, str, str]) -> None:
    assert space_path(path) == expected


def test_urls_in_answers_stay_in_the_space(space: httpx.Client, store: str) -> None:
    inside = f"/spaces/team/v1/stores/{store}"
    assert space.put("/v1/stores?filename=m.onnx", content=MODEL).headers["location"] == inside
    assert space.get("/v1/stores/m:1").headers["content-location"] == inside
    assert space.get("/v1/stores/m:1/files/m.onnx").headers["content-location"] == f"{inside}/files/m.onnx"
    assert space.get("/v1/stores/m:1/tree").headers["content-location"] == f"{inside}/tree"
    references = space.get("/v1/stores/m:1/references.json").json()["refs"]
    assert references["weight-0/0"][0].startswith(f"http://127.0.0.1:{space.base_url.port}{inside}/")
    assert httpx.get(references["weight-0/0"][0]).status_code == 200
    assert space.put("/v1/tags/m:2", json={"store": "m:1"}).headers["location"] == "/spaces/team/v1/tags/m:2"
    following = space.get("/v1/tags?limit=1").headers["link"]
    assert following.startswith("</spaces/team/v1/tags?")
    assert f'href="{inside}"' in space.get("/").text
    descriptors = b"\x0a\x03\x0a\x01x"
    assert space.put("/v1/schemas/s", content=descriptors).headers["location"] == "/spaces/team/v1/schemas/s"


def test_uploads_stay_in_the_space(space: httpx.Client, client: httpx.Client) -> None:
    begun = space.post(
        "/v1/uploads?filename=u.onnx", headers={"tus-resumable": "1.0.0", "upload-length": str(len(MODEL))}
    )
    url = begun.headers["location"]
    assert url.startswith("/spaces/team/v1/uploads/")
    said = {"tus-resumable": "1.0.0", "upload-offset": "0", "content-type": "application/offset+octet-stream"}
    sent = client.patch(url, content=MODEL, headers=said)
    assert sent.headers["link"].startswith("</spaces/team/v1/stores/")
    assert client.get(url.removeprefix("/spaces/team")).status_code == 404
    assert client.get(url).json()["state"] == "stored"


def test_nothing_of_a_space_is_seen_outside(space: httpx.Client, client: httpx.Client, store: str) -> None:
    assert client.put("/v1/spaces/other").status_code in {200, 201}
    for outside in ("", "/spaces/other", "/spaces/default"):
        assert client.get(f"{outside}/v1/stores").json()["items"] == []
        for path in (f"/v1/stores/{store}", f"/v1/stores/{store}/files/m.onnx", "/v1/tags/m:1", "/v1/stores/m:1/tree"):
            assert client.get(outside + path).status_code == 404, outside + path
            assert space.get(path).status_code == 200


def test_the_fast_path_keeps_spaces_apart(service: LiveServer, store: str, space: httpx.Client) -> None:
    """A plain range read is answered while it is parsed, once the store is open."""
    request = "GET {}/v1/stores/{}/files/m.onnx HTTP/1.1\r\nhost: localhost\r\nrange: bytes=0-9\r\n\r\n"
    for _ in range(3):
        inside = exchange(service, request.format("/spaces/team", store).encode())
        assert (inside.status, inside.body) == (206, MODEL[:10])
        for outside in ("", "/spaces/other", "/spaces/none"):
            assert exchange(service, request.format(outside, store).encode()).status == 404


def test_a_missing_space_is_404_for_every_method(client: httpx.Client) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        for path in ("/v1/stores/m:1", "/v1/tags/m:1"):
            assert client.request(method, f"/spaces/none{path}").status_code == 404
    assert client.put("/spaces/none/v1/stores?filename=m.onnx", content=MODEL).status_code == 404
    assert client.get("/spaces/none/v1/stores").json()["detail"] == "No space 'none'"


def test_spaces_are_created_and_listed(client: httpx.Client) -> None:
    assert client.put("/v1/spaces/listed").status_code == 201
    assert client.put("/v1/spaces/listed").status_code == 200
    assert client.put("/v1/spaces/Not-A-Name").status_code == 400
    names = [item["name"] for item in client.get("/v1/spaces").json()["items"]]
    assert names[0] == "default"
    assert "listed" in names
    page = client.get("/v1/spaces?limit=1").json()
    assert [each["name"] for each in page["items"]] == ["default"]
    following = client.get("/v1/spaces", params={"limit": 1, "cursor": page["next"]}).json()
    assert [each["name"] for each in following["items"]] == [names[1]]


def test_clients_take_a_space_for_a_service(service: LiveServer, store: str, tmp_path: Path) -> None:
    with Client(f"{service.url}/spaces/team") as inside, Client(service.url) as outside:
        assert inside.store("m:1").id == store
        with pytest.raises(NotFound):
            outside.store("m:1")
        inside.download("m:1", tmp_path / "got.onnx")
        assert (tmp_path / "got.onnx").read_bytes() == MODEL
        pushed = inside.push(onnx(70 << 10, seed=7), filename="big.onnx", tags=["pushed"])
        assert pushed.created
        assert [tag.name for tag in inside.tags() if tag.name == "pushed"] == ["pushed"]
    root = f"protoslice://{service.host}:{service.port}/spaces/team"
    with fsspec.open(f"{root}/m:1/files/m.onnx") as file:
        assert file.read() == MODEL
    fs = fsspec.filesystem("protoslice")
    assert f"{root.removeprefix('protoslice://')}/m:1" in fs.ls(root, detail=False)
