"""Lists of repositories, as clients request them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx
import pytest
from tests.support.hub import commit

from protoslice.catalog import repositories
from protoslice.server.registries.hub import cards
from protoslice.server.registries.hub import repositories as hub_repositories
from protoslice.server.registries.hub.cards import parse_card


@pytest.fixture
def client(serving: Callable[..., Any]) -> Iterator[httpx.Client]:
    """Return a client of an empty service."""
    with serving(storage="memory://") as service, httpx.Client(base_url=service.url) as client:
        yield client


@pytest.fixture(name="several")
def make_several(client: httpx.Client) -> list[str]:
    """Make repositories of two owners, in order of creation; the last one has no files."""
    names = ["zoe/bert-tiny", "ann/resnet", "ann/bert", "ann/empty"]
    for name in names:
        owner, _, plain = name.partition("/")
        assert client.post("/api/repos/create", json={"organization": owner, "name": plain}).status_code == 200
        if plain != "empty":
            assert commit(client, f"models/{name}", {"config.json": name.encode()}).status_code == 200
    client.post("/api/repos/create", json={"organization": "ann", "name": "bert-data", "type": "dataset"})
    return names


def listed(client: httpx.Client, query: str, kind: str = "models") -> list[dict[str, Any]]:
    """Return the items of all pages."""
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
    assert ids(client, f"search=empt{page}") == ["ann/empty"], "no file is needed to be found"
    assert ids(client, page, "datasets") == ["ann/bert-data"]


@pytest.mark.parametrize("files", [{}, {"a": b"1"}])
def test_a_repository_is_found_from_its_creation_to_its_removal(client: httpx.Client, files: dict[str, bytes]) -> None:
    def post(path: str, **body: str) -> None:
        client.post(f"/api/repos/{path}", json=body).raise_for_status()

    post("create", organization="Ann", name="Bert")
    if files:
        assert commit(client, "models/Ann/Bert", files).status_code == 200
    for term in ("ann/bert", "Ber", "BERT", "n/b"):
        assert ids(client, f"search={term}") == ["Ann/Bert"], term
    post("move", fromRepo="Ann/Bert", toRepo="Ann/bERT")
    assert ids(client, "search=bert") == ["Ann/bERT"]
    post("move", fromRepo="Ann/bERT", toRepo="bob/tiny")
    assert (ids(client, "search=bert"), ids(client, "search=tiny")) == ([], ["bob/tiny"])
    client.request("DELETE", "/api/repos/delete", json={"organization": "bob", "name": "tiny"}).raise_for_status()
    assert ids(client, "search=tiny") == []
    post("create", organization="bob", name="tiny")
    assert ids(client, "search=tiny") == ["bob/tiny"]


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
    for module in (repositories, hub_repositories):
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


CARDS: Final = {
    "ann/bert": "language: en\npipeline_tag: fill-mask\nlibrary_name: transformers\ntags: [bert, small]",
    "ann/gpt": "language: [en, fr]\npipeline_tag: text-generation\nlibrary_name: transformers\nlicense: mit",
    "bob/resnet": "library_name: timm\nlicense: mit\ndatasets: imagenet-1k\nbase_model: [ann/bert, x/y]",
    "bob/shout": "tags: BERT\nlibrary_name: [timm]",
}


@pytest.fixture(name="carded")
def make_carded(client: httpx.Client) -> None:
    """Make repositories with cards, one without a card, one without files, and a dataset."""
    for name, front in {**CARDS, "cal/plain": None, "dan/data": "language: en\ntask_categories: [qa]"}.items():
        owner, _, plain = name.partition("/")
        kind = "dataset" if plain == "data" else "model"
        client.post("/api/repos/create", json={"organization": owner, "name": plain, "type": kind})
        files = {"w.bin": b"w"} if front is None else {"README.md": f"---\n{front}\n---\n# {name}".encode()}
        assert commit(client, f"{kind}s/{name}", files).status_code == 200
    client.post("/api/repos/create", json={"organization": "cal", "name": "empty"})


@pytest.mark.parametrize("looked_at", [100, 2])
@pytest.mark.parametrize("page", ["", "&limit=1"])
def test_models_are_filtered_by_their_cards(
    client: httpx.Client, carded: None, monkeypatch: pytest.MonkeyPatch, page: str, looked_at: int
) -> None:
    monkeypatch.setattr(hub_repositories, "_LOOKED_AT", looked_at)
    monkeypatch.setattr(hub_repositories, "_CARD_BYTES", 1)
    mit = ["ann/gpt", "bob/resnet"]
    for query, found in {
        "": sorted([*CARDS, "cal/empty", "cal/plain"]),
        "filter=bert": ["ann/bert"],
        "filter=transformers": ["ann/bert", "ann/gpt"],
        "filter=transformers&filter=fr": ["ann/gpt"],
        "filter=transformers&filter=timm": [],
        "filter=fill-mask": ["ann/bert"],
        "filter=en&author=bob": [],
        "filter=license:mit": mit,
        "filter=license:mit&sort=createdAt": mit[::-1],
        "filter=license:mit&sort=createdAt&direction=1": mit,
        "filter=dataset:imagenet-1k": ["bob/resnet"],
        "filter=base_model:x/y&search=res": ["bob/resnet"],
        "pipeline_tag=text-generation": ["ann/gpt"],
        "pipeline_tag=text-generation&filter=bert": [],
        "library=timm": ["bob/resnet"],
        "tags=small&tags=en": ["ann/bert"],
        "tags=language:en": [],
        "search=ann&search=b": ["ann/bert"],
        "search=b&search=ann": ["ann/bert"],
        "search=a&search=resnet": [],
    }.items():
        assert ids(client, query + page) == found, query
    for query, found in {"filter=language:en": ["dan/data"], "filter=task_categories:qa": ["dan/data"]}.items():
        assert ids(client, query + page, "datasets") == found
    assert ids(client, f"filter=en{page}", "datasets") == []


def test_entries_have_the_metadata_of_their_cards(client: httpx.Client, carded: None) -> None:
    for name in [*CARDS, "cal/plain", "cal/empty"]:
        described = client.get(f"/api/models/{name}").json()
        for query in ("cardData=True", "expand=cardData"):
            (entry,) = listed(client, f"search={name}&{query}") or listed(client, f"author=cal&{query}")[:1]
            for member in ("tags", "pipeline_tag", "library_name", "cardData"):
                assert entry.get(member) == described.get(member), (name, member)
    assert not any("cardData" in each for each in listed(client, ""))


def test_a_card_is_read_once_and_a_page_looks_at_few(
    client: httpx.Client, carded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_repositories, "_LOOKED_AT", 2)
    monkeypatch.setattr(hub_repositories, "_CARD_BYTES", 1)
    parsed = list[bytes]()

    def parse(text: bytes) -> cards.Card:
        parsed.append(text)
        return parse_card(text)

    monkeypatch.setattr(cards, "parse_card", parse)
    answer, counts = client.get("/api/models?filter=none"), [len(parsed)]
    while "next" in answer.links:
        answer = client.get(answer.links["next"]["url"])
        counts.append(len(parsed))
    assert counts == [2, 4, 4], "cards read after each page"
    assert ids(client, "filter=bert") == ["ann/bert"]
    assert client.get("/api/models/ann/bert").json()["pipeline_tag"] == "fill-mask"
    assert len(parsed) == counts[-1]
    commit(client, "models/ann/gpt", {"README.md": b"---\ntags: bert\n---\n"})
    assert ids(client, "filter=bert") == ["ann/bert", "ann/gpt"]
    assert len(parsed) == counts[-1] + 1


@pytest.mark.parametrize(
    "query",
    [
        "apps=vllm&apps=x",
        "inference=warm",
        "inference_provider=all",
        "sort=mainSize",
        "num_parameters=min:1",
    ],
)
def test_filters_that_are_not_supported_are_refused(client: httpx.Client, query: str) -> None:
    answer = client.get(f"/api/models?{query}")
    assert answer.status_code == 422
    assert "upported" in answer.headers["x-error-message"] or "Cannot sort" in answer.headers["x-error-message"]


@pytest.mark.parametrize("query", ["language=en", "license=mit", "author=a&author=b", "pipeline_tag=a&pipeline_tag=b"])
@pytest.mark.parametrize("kind", ["models", "datasets"])
def test_what_is_no_parameter_of_a_list_is_refused(client: httpx.Client, query: str, kind: str) -> None:
    answer = client.get(f"/api/{kind}?{query}")
    assert answer.status_code == 400
    assert query.partition("=")[0] in answer.headers["x-error-message"]
