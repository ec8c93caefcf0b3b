"""Search of stores, and cursors of all lists.

Lists of repositories: of every protocol, by pages, at a cost that depends only on the page.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

import httpx
import pytest
from tests.server.api.test_preconditions import filled
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.registries.test_oci import MANIFEST, descriptor, digest_of, push, put_manifest
from tests.server.test_store_names import new_model, new_repository
from tests.support.hub import commit
from tests.support.serve import LiveServer, ask, serve
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import NotFound
from protoslice.server.app import create_app
from protoslice.server.auth.permissions import Scope
from protoslice.server.settings import Settings

Shown = TypeVar("Shown")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return a service with three stores: a large one, one of a repository, and one without a root."""
    with (
        serve(storage=tmp_path_factory.mktemp("site").as_uri(), space_watermark_bytes=0) as live,
        httpx.Client(base_url=live.url, timeout=30) as client,
    ):
        assert client.put("/v1/stores?filename=m.onnx&tag=ResNet:1&tag=zoo", content=onnx(5000)).status_code == 201
        new_repository(client, "ann/bert")
        assert commit(client, "models/ann/bert", {"m.onnx": new_model()}).status_code == 200
        assert client.put("/v1/stores?filename=a.bin&tag=plain", content=b"\xff" * 9).status_code == 201
        yield client


def found(client: httpx.Client, **search: Any) -> list[str]:
    """Return the first names of the stores that a search finds, over all its pages of one store."""
    return found_by(client, "/v1/stores", lambda each: str(each["names"][0]["name"]), **search)


def found_by(client: httpx.Client, place: str, shown: Callable[[Any], Shown], **search: Any) -> list[Shown]:
    """Return the content of a list's items, over all its pages of one item."""
    names, params = list[Shown](), {"limit": 1, **search}
    for _ in range(20):
        answer = client.get(place, params=params)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        names += [shown(each) for each in page["items"]]
        if page.get("next") is None:
            return names
        params["cursor"] = page["next"]
    raise AssertionError("the list does not end")


def test_searches_find_names_of_all_protocols(site: httpx.Client) -> None:
    assert found(site, name="resnet") == ["ResNet:1"]
    assert found(site, name="NN/BERT@ma") == ["ann/bert@main"]
    assert found(site, name="zo") == ["ResNet:1"]
    assert found(site, name="oo") == []
    assert found(site, name="") == ["plain", "ann/bert@main", "ResNet:1"]


def test_lists_are_sorted_and_filtered(site: httpx.Client) -> None:
    assert found(site, sort="size") == ["plain", "ann/bert@main", "ResNet:1"]
    assert found(site, sort="-size") == ["ResNet:1", "ann/bert@main", "plain"]
    assert found(site, sort="name") == ["ann/bert@main", "plain", "ResNet:1"]
    assert found(site, type="onnx.ModelProto", sort="created") == ["ResNet:1", "ann/bert@main"]
    assert found(site, min_size=10, max_size=2000) == ["ann/bert@main"]
    assert found(site, since="2020-01-01", until="2020-01-02") == []
    assert len(found(site, since="2020-01-01T00:00:00%2B02:00".replace("%2B", "+"))) == 3
    assert found(site, uploader="nobody") == []


def test_stores_are_found_by_their_files_until_they_are_removed(site: httpx.Client) -> None:
    def ids(name: str, **search: Any) -> list[str]:
        return [each["id"] for each in site.get("/v1/stores", params={"name": name, **search}).json()["items"]]

    path = "/v1/stores?filename=Final-Röntgen%20v2.onnx"
    untagged, tagged = (site.put(path + more, content=onnx(64 + len(more))).json()["id"] for more in ("", "&tag=x:1"))
    folder = {"files": ("unet/Weights.bin", b"12345"), "file": ("a/first.txt", b"1")}
    many = site.post("/v1/stores", files=folder).json()["id"]
    for term in ("röntgen", "final-RÖNT", "v2.onnx"):
        assert ids(term) == [tagged, untagged]
        assert ids(term, sort="name") == ids(term, sort="size") == [untagged, tagged]
    assert ids("unet/weights") == ids("first.TXT") == [many]
    listed = [each["id"] for each in site.get("/v1/stores?sort=name").json()["items"]]
    assert listed[3:] == [tagged, untagged, many], "those without a name come last, by their files"
    site.delete("/v1/tags/x:1").raise_for_status()
    for store in (untagged, tagged, many):
        site.delete(f"/v1/stores/{store}").raise_for_status()
    assert ids("röntgen") == ids("first.txt") == []
    assert site.put(path, content=onnx(64)).json()["id"] == untagged
    assert ids("röntgen", sort="name") == [untagged], "it was sent again"
    site.delete(f"/v1/stores/{untagged}").raise_for_status()


def time_parameters() -> Iterator[tuple[str, str]]:
    """Return from the document the paths of operations with a time parameter, and the parameter's name."""
    for path, operations in create_app(Settings(storage="memory://")).openapi()["paths"].items():
        for each in operations.get("get", {}).get("parameters", ()):
            if "date-time" in json.dumps(each.get("schema", {})):
                yield path, each["name"]


@pytest.mark.parametrize(("path", "name"), [*time_parameters()])
def test_times_are_those_of_rfc_3339(site: httpx.Client, path: str, name: str) -> None:
    for right in ("2026-11-01", "2026-11-01T12:00:00Z", "2026-11-01t12:00:00.123456789z", "0001-01-01T00:00:00+14:00"):
        assert site.get(path, params={name: right}).status_code == 200, right
    for wrong in (
        "2026", "1e9", "-1", "", "now", "2026-11", "20261101", "2026-11-31", "2026-11-01T12:00:00", "2026-11-01T12:00Z",
        "2026-W44-1", "2026-11-01 12:00:00Z", "2026-11-01T12:00:00 02:00", "\u0662026-11-01", "inf",
    ):  # fmt: skip
        answer = site.get(path, params={name: wrong})
        (mistake,) = answer.json()["errors"]
        assert (answer.status_code, mistake["name"]) == (400, name), wrong
        assert "2026-11-01T12:00:00Z" in mistake["detail"], mistake


def test_stores_without_a_name_are_listed(site: httpx.Client) -> None:
    def nameless(**search: Any) -> list[str]:
        with Client(str(site.base_url)) as client:
            return [each.id for each in client.stores(nameless=True, **search)]

    assert nameless() == []
    stores = [site.put(f"/v1/stores?filename=a.bin&tag=passing:{n}", content=b"x" * n).json()["id"] for n in (1, 2)]
    removing = pushed(site, "ann/passing")
    assert nameless() == []
    assert site.delete(removing).status_code == 202
    for number in (1, 2):
        site.delete(f"/v1/tags/passing:{number}").raise_for_status()
    assert nameless() == stores[::-1]
    assert nameless(sort="size") == stores
    assert nameless(max_size=1) == stores[:1]
    assert nameless(type="onnx.ModelProto") == []
    assert found_by(site, "/v1/stores", lambda each: each["id"], nameless=True) == stores[::-1]
    for store in stores:
        site.delete(f"/v1/stores/{store}").raise_for_status()


def pushed(client: httpx.Client, name: str) -> str:
    """Push a manifest without a tag, which names a store; return its URL."""
    push(client, b"passing", f"/v2/{name}")
    body = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "layers": [descriptor(b"passing")]}).encode()
    kind = {"content-type": MANIFEST}
    url = f"/v2/{name}/manifests/{digest_of(body)}"
    assert client.put(url, content=body, headers=kind).status_code == 201
    return url


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("sort=color", "Invalid sort"),
        ("nameless=true&name=a", "without a name"),
        ("nameless=true&sort=-name", "without a name"),
        ("nameless=true&tag=a", "use `name` instead"),
        ("tag=m&name=x", "use `name` instead"),
        ("tag=m&sort=size", "use `name` instead"),
        ("cursor=x", "cursor"),
        ("cursor=WyJzaXplIix0cnVlLDEsMl0", "cursor"),
        ("min_size=-1", "min_size"),
        ("max_size=9223372036854775808", "max_size"),
        ("since=yesterday", "since"),
        ("name=" + "x" * 300, "name"),
        *((f"{name}=a%00b", "NUL") for name in ("name", "type", "uploader")),
    ],
)
def test_bad_searches_are_refused(site: httpx.Client, query: str, said: str) -> None:
    answer = site.get(f"/v1/stores?{query}")
    assert answer.status_code in {400, 422}, answer.text
    assert said in answer.text


def test_the_client_searches(site: httpx.Client) -> None:
    with Client(str(site.base_url)) as client:
        assert [each.tags for each in client.stores(name="resn", min_size="1KiB", sort="name")] == [("ResNet:1", "zoo")]
        assert [each.type for each in client.stores(sort="size")] == [None, "onnx.ModelProto", "onnx.ModelProto"]


async def test_uploaders_are_shown_to_readers() -> None:
    async with closed_service() as app:
        writer = await token_for(app, Scope.WRITE)
        path = "/spaces/own/v1/stores?filename=m.onnx"
        answer = await ask(app, "PUT", path, body=onnx(100), headers=bearer(writer))
        assert json.loads(answer.body)["uploader"] is None
        reader = bearer(await token_for(app, Scope.READ))
        path = "/spaces/own/v1/stores?uploader"
        shown = json.loads((await ask(app, "GET", f"{path}=t", headers=reader)).body)["items"]
        assert [each["uploader"] for each in shown] == ["t"]
        assert json.loads((await ask(app, "GET", f"{path}=x", headers=reader)).body)["items"] == []
        assert (await ask(app, "GET", "/spaces/other/v1/stores?uploader=t", headers=reader)).status == 404


def test_removed_stores_are_listed_until_they_are_restored(tmp_path: Path) -> None:
    with (
        serve(storage=tmp_path.as_uri(), space_watermark_bytes=0) as live,
        httpx.Client(base_url=live.url, timeout=30) as client,
    ):

        def listed() -> list[tuple[str, list[str]]]:
            return found_by(client, "/v1/removed", lambda each: (each["id"], each["tags"]))

        made = [client.put(f"/v1/stores?filename=m&tag=m:{n}", content=b"m" * n).json()["id"] for n in (1, 2, 3)]
        assert listed() == []
        removed = [client.delete(f"/v1/stores/{id}?force=m:{n}").json() for n, id in enumerate(made, 1)]
        assert listed() == [(id, [f"m:{n}"]) for n, id in reversed([*enumerate(made, 1)])]
        until = client.get("/v1/removed").json()["items"][0]["restorable_until"]
        assert abs(datetime.fromisoformat(until) - datetime.fromisoformat(removed[-1]["restorable_until"])).seconds < 60
        client.post(f"/v1/stores/{made[0]}/restore").raise_for_status()
        client.put("/v1/stores?filename=m", content=b"mm").raise_for_status()
        assert listed() == [(made[2], ["m:3"])], "what was restored or sent again is not removed"
        assert client.get("/v1/removed?cursor=1").status_code == 400
        assert client.get("/spaces/other/v1/removed").status_code == 404


REQUIRED: Final = {"before": "other"}
"""The parameters that a list needs."""
OF_A_PAGE: Final = {"cursor", "limit", "from"}
SPACE: Final = "/spaces/team"
VALUES: Final = {"boolean": ("true", "false"), "integer": ("1", "2"), "number": ("0.1", "0.2")}


def lists(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return from the document the paths of operations that take a cursor, with their other parameters."""
    for path, operations in document["paths"].items():
        found = {
            each["name"]: each for each in operations.get("get", {}).get("parameters", ()) if each["in"] == "query"
        }
        if "cursor" in found:
            yield path, {name: each for name, each in found.items() if name not in OF_A_PAGE}


def other_values(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Yield queries that request another list by one parameter."""
    for name, each in parameters.items():
        kind = next((part.get("type") for part in each["schema"].get("anyOf", [each["schema"]])), "string")
        yield from (f"{name}={value}" for value in VALUES.get(kind, ("name", "2026-11-01")))


async def test_a_cursor_is_for_the_parameters_that_it_came_with() -> None:
    continued, cursors = set(), dict[str, str]()
    async with filled() as (app, caller, things):
        targets = dict[str, str]()
        more = json.dumps({"store": "mine"}).encode()
        typed = {**caller, "content-type": "application/json"}
        assert (await ask(app, "PUT", "/v1/spaces/team", b"{}", typed)).status == 201
        assert (await ask(app, "PUT", "/v1/tags/more", more, typed)).status == 201
        assert (await ask(app, "PUT", "/v1/stores?filename=m.onnx&tag=other", onnx(7, 9), caller)).status == 201
        for path, parameters in lists(app.openapi()):
            named = path.replace("/webhooks/{name}", "/webhooks/mine").replace("{name}", things["repository"])
            needed = "".join(f"&{name}={REQUIRED[name]}" for name in parameters if name in REQUIRED)
            targets[path] = f"{named.replace('{ref}', 'mine')}?limit=1{needed}"
            for foreign in ("0", "x", "1~00000000000", "~" * 12):
                got = await ask(app, "GET", f"{targets[path]}&cursor={foreign}", headers=caller)
                assert (got.status, "cursor" in got.text) == (400, True), (path, got)
            got = await ask(app, "GET", targets[path], headers=caller)
            assert got.status == 200, (path, got)
            following = json.loads(got.body)["next"]
            if following is None:
                continue
            cursors[path] = following
            longer = targets[path].replace("limit=1", "limit=10")
            again = await ask(app, "GET", f"{longer}&cursor={following}", headers=caller)
            link = got.headers["link"].partition(">")[0].removeprefix("<")
            for right in (again, await ask(app, "GET", link, headers=caller)):
                assert right.status == 200, (path, right)
                assert json.loads(right.body)["items"] != json.loads(got.body)["items"]
            for other in other_values(parameters):
                if other.partition("=")[0] not in REQUIRED:
                    wrong = await ask(app, "GET", f"{targets[path]}&cursor={following}&{other}", headers=caller)
                    assert wrong.status == 400, (path, other, wrong)
            continued.add(path)
        for path, cursor in cursors.items():
            for other in [SPACE + targets[path], *(targets[each] for each in targets.keys() - {path})]:
                wrong = await ask(app, "GET", f"{other}&cursor={cursor}", headers=caller)
                assert (wrong.status, "another list" in wrong.text) == (400, True), (path, other, wrong)
    assert {"/v1/stores", "/v1/tags", "/v1/spaces", "/v1/audit", "/v1/stores/{ref}/moves"} <= continued


async def test_integers_in_queries_are_digits() -> None:
    async with filled() as (app, caller, _):
        asked = 0
        for path, operations in app.openapi()["paths"].items():
            parameters = [each for each in operations.get("get", {}).get("parameters", ()) if each["in"] == "query"]
            needed = "".join(f"&{each['name']}=mine" for each in parameters if each.get("required"))
            target = re.sub("{[a-z_]+}", "mine", path.replace("{n}", "0"))
            for each in parameters:
                kinds = {part.get("type") for part in each["schema"].get("anyOf", [each["schema"]])}
                if kinds - {"null"} != {"integer"}:
                    continue
                for text in ("1_0", "%2B1", "%201", "1%20", "%D9%A1"):
                    got = await ask(app, "GET", f"{target}?{each['name']}={text}{needed}", headers=caller)
                    assert got.status == 400, (target, each["name"], text, got)
                    assert unquote(text) in json.loads(got.body)["detail"], (target, each["name"], text, got)
                    asked += 1
        assert asked > 100


OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)
RUN = "listed/7/models/m-1/artifacts"


@pytest.fixture(scope="module")
def repositories(client: httpx.Client) -> None:
    """Make hub repositories, one empty and one with an OCI tag; two OCI repositories; and two MLflow folders."""
    for name in ("bare", "both"):
        client.post("/api/repos/create", json={"organization": "listed", "name": name})
    commit(client, "models/listed/both", {"m.onnx": OLD})
    client.post("/api/models/listed/both/tag/main", json={"tag": "v1"})
    commit(client, "models/listed/both", {"m.onnx": NEW, "README.md": b"# second"})
    for name, tags in (("listed/both", ["pushed"]), ("listed/img", ["1", "latest", "0"]), ("listed/img-2", ["a", "b"])):
        push(client, OLD, f"/v2/{name}")
        for tag in tags:
            put_manifest(client, tag, f"/v2/{name}", layers=[descriptor(OLD, f"{tag}/m.onnx")])
    for name in ("m.onnx", "deeper/a.txt", "deeper/b.txt"):
        client.put(f"/api/2.0/mlflow-artifacts/artifacts/{RUN}/{name}", content=OLD)
    client.put("/api/2.0/mlflow-artifacts/artifacts/listed/plain/a.txt", content=b"x")


def listed(client: httpx.Client, path: str = "", **query: Any) -> list[dict[str, Any]]:
    """Return the items of all pages."""
    found, cursor = list[dict[str, Any]](), ""
    while True:
        told = client.get(f"/v1/repositories{path}", params={**query, **({"cursor": cursor} if cursor else {})}).json()
        found += told["items"]
        if told["next"] is None:
            return found
        cursor = told["next"]


NAMES = [f"listed/{name}" for name in ("bare", "both", "img", "img-2")]


NAMES += [f"mlflow-artifacts:/{folder}" for folder in (RUN, "listed/plain")]


@pytest.mark.usefixtures("repositories")
@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_every_repository_is_listed_once(client: httpx.Client, limit: int) -> None:
    assert [each["name"] for each in listed(client, limit=limit)] == NAMES


@pytest.mark.usefixtures("repositories")
def test_a_repository_tells_of_its_head(client: httpx.Client) -> None:
    bare, both, image, second, run, _ = listed(client)
    assert (bare["protocol"], bare["ref"], bare["store"], bare["files"]) == ("hub", None, None, None)
    head = client.get("/v1/stores/listed%2Fboth@main").json()
    assert (both["protocol"], both["ref"], both["store"], both["type"]) == (
        "hub", "listed/both@main", head["id"], "onnx.ModelProto",
    )  # fmt: skip
    assert (both["size"], both["files"]) == (len(NEW) + 8, 2)
    assert (image["protocol"], image["ref"], image["files"]) == ("oci", "listed/img:latest", 1)
    assert second["ref"] == "listed/img-2:b", "the tag set last, where there is no latest"
    assert (run["protocol"], run["ref"], run["store"]) == ("mlflow", f"mlflow-artifacts:/{RUN}", None)
    made = client.get(f"/v1/stores/{run['ref'].replace('/', '%2F')}").json()
    asked = listed(client, prefix=run["name"])[0]
    assert (asked["store"], asked["type"], asked["files"]) == (made["id"], "onnx.ModelProto", 3)


@pytest.mark.usefixtures("repositories")
@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        ("listed/b", NAMES[:2]),
        ("listed/img-", NAMES[3:4]),
        ("mlflow-artifacts:/listed/7/mod", NAMES[4:5]),
        ("mlflow", NAMES[4:]),
        ("LISTED", []),
        ("<ü>", []),
        ("x" * 300, []),
    ],
)
def test_repositories_are_found_by_the_beginning_of_their_names(
    client: httpx.Client, prefix: str, names: list[str]
) -> None:
    for limit in (1, 50):
        assert [each["name"] for each in listed(client, prefix=prefix, limit=limit)] == names


@pytest.mark.usefixtures("repositories")
def test_branches_and_tags_are_versions(client: httpx.Client) -> None:
    found = listed(client, "/listed/both", limit=1)
    assert [(each["name"], each["kind"], each["ref"]) for each in found] == [
        ("main", "branch", "listed/both@main"),
        ("v1", "tag", "listed/both@v1"),
        ("pushed", "tag", "listed/both:pushed"),
    ]
    for each in found:
        assert client.get(f"/v1/stores/{each['ref'].replace('/', '%2F')}").json()["id"] == each["store"]
    bare = client.get("/v1/repositories/listed/bare").json()
    assert (bare["items"], bare["next"].partition(" ")[0]) == ([], "oci")
    assert client.get("/v1/repositories/listed/none").status_code == 404


@pytest.mark.usefixtures("repositories")
@pytest.mark.parametrize("cursor", ["else x", "hub " + "x" * 2000, "mlflow ../x", "hub a/b"])
def test_a_cursor_of_another_call_is_refused(client: httpx.Client, cursor: str) -> None:
    for path in ("/v1/repositories", "/v1/repositories/listed/both"):
        assert client.get(path, params={"cursor": cursor}).status_code in {200, 400}
    assert client.get("/v1/repositories", params={"cursor": "else x"}).status_code == 400


@pytest.mark.usefixtures("repositories")
def test_the_client_lists_them(service: LiveServer) -> None:
    with Client(service.url) as client:
        assert [each.name for each in client.repositories("listed/")] == NAMES[:4]
        assert [each.ref for each in client.versions("listed/img")] == [
            f"listed/img:{tag}" for tag in ("0", "1", "latest")
        ]
        with pytest.raises(NotFound):
            list(client.versions("listed/none"))
