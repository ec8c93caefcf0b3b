"""Stores by their names in registries, for every request that takes the reference of a store.

Stores with names in any protocol: the names are shown, and a removal needs all of them.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from tests.server.conftest import Serving
from tests.server.registries.test_oci import descriptor, digest_of, push, put_manifest
from tests.support.hub import commit
from tests.support.serve import LiveServer
from tests.support.stores import onnx

from protoslice.client import Client
from protoslice.errors import NotFound, StillNamed

OLD, NEW = onnx(1000, 2000), onnx(1000, 3000)


@pytest.fixture(scope="module")
def repository(client: httpx.Client) -> None:
    """Make the repository `ann/named` of two commits with a branch at the first, and the artifact `team/named:v1`."""
    client.post("/api/repos/create", json={"organization": "ann", "name": "named"})
    commit(client, "models/ann/named", {"m.onnx": OLD})
    client.post("/api/models/ann/named/branch/feat%2Fx", json={})
    commit(client, "models/ann/named", {"m.onnx": NEW, "README.md": b"# second"})
    base = "/v2/team/named"
    push(client, OLD, base)
    assert put_manifest(client, "v1", base, layers=[descriptor(OLD, "m.onnx")]).status_code == 201


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    ("ref", "content"),
    [
        ("ann/named@main", NEW),
        ("ann/named@feat/x", OLD),
        ("ann/named@refs/heads/feat/x", OLD),
        ("team/named:v1", OLD),
        ("team/named@v1", OLD),
        ("ann/named:latest", NEW),
    ],
)
def test_a_store_is_had_by_its_name(client: httpx.Client, ref: str, content: bytes) -> None:
    for spelled in (quote(ref, safe=""), quote(ref, safe="@:")):
        base = f"/v1/stores/{spelled}"
        found = client.get(base)
        store = found.json()["id"]
        assert found.headers["content-location"] == f"/v1/stores/{store}"
        got = client.get(f"{base}/files/m.onnx")
        assert got.content == content
        assert got.headers["content-location"] == f"/v1/stores/{store}/files/m.onnx"
        assert "immutable" not in got.headers["cache-control"]
        assert client.get(f"{base}/tree").json() == client.get(f"/v1/stores/{store}/tree").json()
        assert client.get(f"{base}/pieces").status_code == 200


@pytest.mark.usefixtures("repository")
def test_a_name_follows_its_branch(client: httpx.Client) -> None:
    client.post("/api/repos/create", json={"organization": "ann", "name": "moving"})
    for content in (OLD, NEW):
        commit(client, "models/ann/moving", {"m.onnx": content})
        assert client.get("/v1/stores/ann%2Fmoving@main/files/m.onnx").content == content


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    "name", ["mlflow-artifacts:/named/models/m/artifacts", "mlflow-artifacts://host:80/named/models/m/artifacts/"]
)
def test_a_folder_of_mlflow_is_a_store_by_its_uri(client: httpx.Client, name: str) -> None:
    base = f"/v1/stores/{quote(name, safe='')}"
    for content in (OLD, NEW):
        client.put("/api/2.0/mlflow-artifacts/artifacts/named/models/m/artifacts/m.onnx", content=content)
        assert client.get(f"{base}/files/m.onnx").content == content
        told = client.get(f"{base}/tensors")
        assert told.headers["content-location"] == f"/v1/stores/{client.get(base).json()['id']}/tensors"


@pytest.mark.usefixtures("repository")
def test_the_client_takes_names(service: LiveServer) -> None:
    with Client(service.url) as client:
        assert client.store("ann/named@main").id == client.store(client.store("ann/named@main").id).id
        assert len(client.merge("team/named:v1")) == len(OLD)
        with pytest.raises(NotFound):
            client.store("ann/nothing@main")


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize(
    "ref",
    [
        *(f"ann%2Fnamed{revision}" for revision in ("@nothing", ":v9", "@sha256:00")),
        *("nobody%2Fnamed@main", "a%2F..%2Fb@main"),
        *(f"mlflow-artifacts:%2F{folder}" for folder in ("none", "..%2Fx", "%2Fhost")),
    ],
)
def test_names_of_nothing_are_not_found(client: httpx.Client, ref: str) -> None:
    for view in ("", "/tree", "/files/m.onnx"):
        assert client.get(f"/v1/stores/{ref}{view}").status_code in {400, 404, 422}, ref


@pytest.mark.usefixtures("repository")
def test_a_store_is_not_removed_by_a_name(client: httpx.Client) -> None:
    assert client.delete("/v1/stores/ann%2Fnamed@main").status_code == 409
    assert client.get("/v1/stores/ann%2Fnamed@main").status_code == 200


MLFLOW = "/api/2.0/mlflow-artifacts/artifacts"


def new_model() -> bytes:
    """Return a model that no other test has."""
    return onnx(100, 200) + b"\x12\x20" + os.urandom(16).hex().encode()


def new_repository(client: httpx.Client, name: str) -> None:
    organization, _, short = name.partition("/")
    assert client.post("/api/repos/create", json={"organization": organization, "name": short}).status_code == 200


def store_of(client: httpx.Client, ref: str) -> str:
    answer = client.get(f"/v1/stores/{quote(ref, safe='@:')}")
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def names(client: httpx.Client, store: str) -> list[tuple[str, str]]:
    return pairs(client.get(f"/v1/stores/{store}").json()["names"])


def pairs(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(each["protocol"], each["name"]) for each in found]


def listed(client: httpx.Client, store: str) -> list[tuple[str, str]]:
    found = {each["id"]: each for each in client.get("/v1/stores?limit=1000").json()["items"]}
    return pairs(found[store]["names"])


def remove(client: httpx.Client, store: str, *force: str) -> httpx.Response:
    return client.delete(f"/v1/stores/{store}", params=[("force", name) for name in force])


def refused(answer: httpx.Response) -> list[tuple[str, str]]:
    problem: dict[str, Any] = answer.json()
    assert (answer.status_code, problem["type"]) == (409, "/problems/still-named"), problem
    assert all(each["name"] in problem["detail"] for each in problem["names"][:10])
    return pairs(problem["names"])


class Named:
    """A store that one name refers to, made by the requests of a client of the name's protocol."""

    def __init__(self, client: httpx.Client, protocol: str) -> None:
        self.client = client
        self.model = new_model()
        unique = os.urandom(4).hex()
        self.store, self.protocol = "", protocol
        getattr(self, f"_{protocol}")(unique)

    def _tag(self, unique: str) -> None:
        self.name = f"m{unique}:1"
        made = self.client.post("/v1/stores", params={"filename": "m.onnx", "tag": self.name}, content=self.model)
        self.store, self.url = made.json()["id"], f"/v1/stores/{self.name}/files/m.onnx"

    def _hub(self, unique: str) -> None:
        self.name, self.url = f"ann/m{unique}@main", f"/ann/m{unique}/resolve/main/m.onnx"
        new_repository(self.client, f"ann/m{unique}")
        assert commit(self.client, f"models/ann/m{unique}", {"m.onnx": self.model}).status_code == 200
        self.store = store_of(self.client, self.name)

    def _oci(self, unique: str) -> None:
        base = f"/v2/ann/o{unique}"
        push(self.client, self.model, base)
        made = put_manifest(self.client, "1", base, layers=[descriptor(self.model, "m.onnx")])
        self.store, self.name = made.headers["protoslice-store"], f"ann/o{unique}:1"
        self.url = f"{base}/blobs/{digest_of(self.model)}"

    def _mlflow(self, unique: str) -> None:
        folder = f"7/{unique}/artifacts"
        self.model += b"\x12\x82\x80\x04" + bytes(65_538)  # a large file is a store at once
        self.url = f"{MLFLOW}/{folder}/m.onnx"
        assert self.client.put(self.url, content=self.model).json() == {}
        self.name = f"mlflow-artifacts:/{folder}"
        self.store = self.client.get(self.url).headers["protoslice-store"]

    def read(self) -> int:
        """Read the file by its name; return the status."""
        answer = self.client.get(self.url)
        assert answer.status_code != 200 or answer.content == self.model
        return answer.status_code


@pytest.fixture(params=["tag", "hub", "oci", "mlflow"])
def named(client: httpx.Client, request: pytest.FixtureRequest) -> Named:
    """Return a named store, once for each protocol."""
    return Named(client, request.param)


def test_a_named_store_is_removed_by_all_of_its_names_and_keeps_them(client: httpx.Client, named: Named) -> None:
    found = [(named.protocol, named.name)]
    assert names(client, named.store) == listed(client, named.store) == found
    without = pairs(client.get(f"/v1/stores/{named.store}?names=false").json()["names"])
    assert without == [each for each in found if named.protocol == "tag"], "names of registries are left out"
    assert refused(remove(client, named.store[:16], "other:1", named.name + "x")) == found
    later = f"later{named.store[:8]}"
    assert client.put(f"/v1/tags/{later}", json={"store": named.store}).status_code in {200, 201}
    assert refused(remove(client, named.store, named.name)) == [("tag", later)], "a name made since"
    assert client.delete(f"/v1/tags/{later}").status_code == 204
    assert named.read() == 200
    assert remove(client, named.store, named.name, "absent:1").status_code == 200
    assert named.read() == 404
    assert remove(client, named.store, named.name).status_code == 404
    assert client.post(f"/v1/stores/{named.store}/restore").status_code == 200
    assert names(client, named.store) == refused(remove(client, named.store)) == found
    assert named.read() == 200


def test_removed_names_do_not_protect_a_store(client: httpx.Client, named: Named) -> None:
    gone = {
        "tag": ("DELETE", f"/v1/tags/{named.name}", None),
        "hub": ("DELETE", "/api/repos/delete", {"organization": "ann", "name": named.name[4:].partition("@")[0]}),
        "oci": ("DELETE", named.url.partition("/blobs/")[0] + "/manifests/1", None),
        "mlflow": ("DELETE", named.url.rpartition("/")[0], None),
    }
    method, path, body = gone[named.protocol]
    if named.protocol == "oci":  # a manifest without tags can still be read by its digest
        digest = client.head(path).headers["docker-content-digest"]
        assert client.request(method, path).status_code == 202
        assert names(client, named.store) == [("oci", f"{named.name.partition(':')[0]}@{digest}")]
        path = path.rpartition("/")[0] + f"/{digest}"
    assert client.request(method, path, json=body).status_code < 300
    if named.protocol in {"hub", "oci"}:  # stores of commits and manifests are removed with their last name
        assert client.get(f"/v1/stores/{named.store}").status_code == 404
        return
    assert names(client, named.store) == []
    assert remove(client, named.store).status_code == 200


def test_every_protocol_of_one_store_is_named(client: httpx.Client) -> None:
    one = Named(client, "hub")
    name, _, _ = one.name.partition("@")
    new_repository(client, "ben/" + name[4:])
    assert commit(client, f"models/ben/{name[4:]}", {"m.onnx": one.model}).status_code == 200
    assert client.post(f"/api/models/{name}/tag/main", json={"tag": "v1"}).status_code == 201
    assert client.put(f"/v1/tags/{name[4:]}", json={"store": one.store}).status_code in {200, 201}
    push(client, one.model, f"/v2/{name}")
    made = put_manifest(client, "latest", f"/v2/{name}", layers=[descriptor(one.model, "m.onnx")])
    assert made.headers["protoslice-store"] == one.store
    wanted = [
        ("tag", name[4:]),
        ("hub", f"{name}@main"),
        ("hub", f"{name}@v1"),
        ("hub", f"ben/{name[4:]}@main"),
        ("oci", f"{name}:latest"),
    ]
    assert names(client, one.store) == listed(client, one.store) == refused(remove(client, one.store)) == wanted
    assert remove(client, one.store, *(each for _, each in wanted)).status_code == 200


def test_a_commit_that_no_branch_is_at_is_named_by_its_id(client: httpx.Client) -> None:
    one = Named(client, "hub")
    name = one.name.partition("@")[0]
    assert commit(client, f"models/{name}", {"m.onnx": new_model()}).status_code == 200
    assert names(client, one.store) == [("hub", f"{name}@{one.store[:40]}")]
    assert client.get(f"/{name}/resolve/{one.store[:40]}/m.onnx").content == one.model
    assert refused(remove(client, one.store)) == [("hub", f"{name}@{one.store[:40]}")]


def test_a_store_made_of_a_folder_of_mlflow_is_named_while_the_folder_is_the_same(client: httpx.Client) -> None:
    one = Named(client, "mlflow")
    assert client.put(one.url.replace("m.onnx", "note.txt"), content=os.urandom(8)).status_code == 200
    sealed = store_of(client, one.name)
    assert sealed != one.store
    assert names(client, sealed) == refused(remove(client, sealed)) == [("mlflow", one.name)]
    assert client.put(one.url.replace("m.onnx", "more.txt"), content=b"more").status_code == 200
    assert names(client, sealed) == []


def test_names_of_another_space_do_not_protect_a_store(client: httpx.Client) -> None:
    one = Named(client, "hub")
    client.put("/v1/spaces/apart")
    made = client.post("/spaces/apart/v1/stores?filename=m.onnx", content=one.model).json()
    assert (made["id"], made["names"]) == (one.store, [])
    assert client.delete(f"/spaces/apart/v1/stores/{one.store}").status_code == 200
    assert one.read() == 200


def test_many_names_are_shown_in_part(client: httpx.Client) -> None:
    made = client.post("/v1/stores?filename=m.onnx", content=new_model()).json()
    tags = [f"many{made['id'][:6]}:{n:03}" for n in range(130)]
    for tag in tags:
        client.put(f"/v1/tags/{tag}", json={"store": made["id"]})
    assert len(names(client, made["id"])) == 100
    answer = remove(client, made["id"])
    assert refused(answer) == [("tag", tag) for tag in tags[:100]]
    assert answer.json()["more"] is True
    rest = remove(client, made["id"], *tags[:100])
    assert (refused(rest), rest.json()["more"]) == ([("tag", tag) for tag in tags[100:]], False)
    assert remove(client, made["id"], *tags).status_code == 200


def test_blobs_shared_with_a_removed_store_are_read_from_the_other(client: httpx.Client) -> None:
    """The removal of an old version leaves every file of a new version that shares some of its bytes."""
    one, other = Named(client, "oci"), new_model()
    base = one.url.partition("/blobs/")[0]
    push(client, other, base)
    made = put_manifest(client, "2", base, layers=[descriptor(one.model, "m.onnx"), descriptor(other, "new.onnx")])
    assert made.headers["protoslice-store"] != one.store
    assert remove(client, one.store, one.name).status_code == 200
    for data in (one.model, other):
        answer = client.get(f"{base}/blobs/{digest_of(data)}")
        assert (answer.status_code, answer.content) == (200, data)


def test_the_client_removes_no_tag_that_it_was_not_given(serving: Serving) -> None:
    with serving() as live, Client(live.url) as client:
        made = client.push(new_model(), type="onnx.ModelProto", tags=["mine:1", "theirs:1"]).store
        for force in ((), ("mine:1",)):
            with pytest.raises(StillNamed, match="theirs:1") as caught:
                client.remove(made.id, force=force)
            assert ("tag", "theirs:1") in caught.value.names
        assert {tag.name for tag in client.tags()} == {"mine:1", "theirs:1"}
        assert client.remove(made.id, force=["mine:1", "theirs:1"]).tags == ("mine:1", "theirs:1")
