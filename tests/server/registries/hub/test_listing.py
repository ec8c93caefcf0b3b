"""Lists of repositories as clients ask for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from tests.support.hub import commit

from protoslice.catalog import repository_listing
from protoslice.server.registries.hub import listing


@pytest.fixture
def client(serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """A client of an empty service."""
    with serving(storage="memory://") as service, httpx.Client(base_url=service.url) as client:
        yield client


@pytest.fixture(name="several")
def make_several(client: httpx.Client) -> list[str]:
    """Repositories of two owners, in order of creation; the last one has no files."""
    names = ["zoe/bert-tiny", "ann/resnet", "ann/bert", "ann/empty"]
    for name in names:
        owner, _, plain = name.partition("/")
        assert client.post("/api/repos/create", json={"organization": owner, "name": plain}).status_code == 200
        if plain != "empty":
            assert commit(client, f"models/{name}", {"config.json": name.encode()}).status_code == 200
    client.post("/api/repos/create", json={"organization": "ann", "name": "bert-data", "type": "dataset"})
    return names


def listed(client: httpx.Client, query: str, kind: str = "models") -> list[dict[str, Any]]:
    """All pages."""
    url: str | None = f"/api/{kind}?{query}"
    found = list[dict[str, Any]]()
    while url is not None:
        answer = client.get(url)
        assert answer.status_code == 200, answer.text
        found += answer.json()
        url = answer.links.get("next", {}).get("url")
    return found


def ids(client: httpx.Client, query: str, kind: str = "models") -> list[str]:
    return [each["id"] for each in listed(client, query, kind)]


@pytest.mark.parametrize("page", ["", "&limit=1", "&limit=2"])
def test_models_are_listed_by_author_and_search(client: httpx.Client, several: list[str], page: str) -> None:
    assert ids(client, page) == sorted(several)
    assert ids(client, f"author=ann{page}") == ["ann/bert", "ann/empty", "ann/resnet"]
    assert ids(client, f"author=an{page}") == []
    assert ids(client, f"search=BERT{page}") == ["ann/bert", "zoe/bert-tiny"]
    assert ids(client, f"author=zoe&search=bert{page}") == ["zoe/bert-tiny"]
    assert ids(client, f"search=main{page}") == [], "branches are no part of a name"
    assert ids(client, f"search=re{page}") == ["ann/resnet"], "terms too short for the index are found too"
    assert ids(client, page, "datasets") == ["ann/bert-data"]


@pytest.mark.parametrize("page", ["", "&limit=1"])
def test_models_are_sorted_by_time(client: httpx.Client, several: list[str], page: str) -> None:
    assert ids(client, f"sort=createdAt{page}") == several[::-1]
    assert ids(client, f"sort=createdAt&direction=1{page}") == several
    assert commit(client, "models/ann/resnet", {"new": b"1"}).status_code == 200
    assert ids(client, f"sort=lastModified{page}")[0] == "ann/resnet"
    assert ids(client, f"sort=downloads{page}") == sorted(several)


def test_a_search_walks_names_when_many_match(
    client: httpx.Client, several: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (repository_listing, listing):
        monkeypatch.setattr(module, "WALKED", 2)
    assert ids(client, "search=bert") == ["ann/bert", "zoe/bert-tiny"]
    assert ids(client, "") == sorted(several)
    gated = client.get("/api/models?gated=true")
    assert (gated.json(), gated.links) == ([], {}), "no walk finds one"
    answer = client.get("/api/models?sort=createdAt")
    assert (answer.status_code, "Too many repositories" in answer.text) == (413, True)


def test_entries_have_the_commit_and_files_on_request(client: httpx.Client, several: list[str]) -> None:
    entry = listed(client, "author=ann&search=resnet")[0]
    assert entry["sha"] == client.get("/api/models/ann/resnet").json()["sha"]
    assert "siblings" not in entry
    for query in ("full=true", "expand=sha&expand=siblings"):
        entry = listed(client, f"author=ann&search=resnet&{query}")[0]
        assert entry["siblings"] == [{"rfilename": "config.json"}]


def test_an_artifact_is_listed_once(client: httpx.Client, several: list[str]) -> None:
    for name in ("ann/resnet", "team/pushed"):
        digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        client.post(f"/v2/{name}/blobs/uploads/?digest={digest}", content=b"{}")
        layer = {"mediaType": "application/octet-stream", "digest": digest, "size": 2}
        manifest = {"schemaVersion": 2, "config": layer, "layers": [layer]}
        kind = {"content-type": "application/vnd.oci.image.manifest.v1+json"}
        assert client.put(f"/v2/{name}/manifests/latest", json=manifest, headers=kind).status_code == 201
    assert ids(client, "") == sorted([*several, "team/pushed"])
    assert listed(client, "author=team")[0]["sha"] == client.get("/api/models/team/pushed").json()["sha"]


@pytest.mark.parametrize("query", ["filter=a", "pipeline_tag=x", "sort=mainSize", "num_parameters=min:1"])
def test_filters_that_are_not_supported_are_refused(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/api/models?{query}")
    assert answer.status_code == 422
    assert "upported" in answer.headers["x-error-message"] or "Cannot sort" in answer.headers["x-error-message"]
