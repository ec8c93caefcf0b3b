"""Stores in lists, tags with compare-and-set, and schemas.

Types of uploaded schemas: extensions have their printed paths, and well-known types look as in the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.protobuf import descriptor_pb2
from tests.engine.test_places import SET
from tests.schema import test_well_known as well_known
from tests.support.calls import RULES
from tests.support.canonical import delimited
from tests.support.serve import assert_problem
from tests.support.stores import onnx


@pytest.fixture(scope="module")
def stores(client: httpx.Client) -> list[str]:
    return [
        client.put(f"/v1/stores?tag=named:{n}", content=b"\x0a\x01" + bytes([97 + n])).json()["id"] for n in range(5)
    ]


@pytest.mark.contract
def test_stores_are_filtered(client: httpx.Client, stores: list[str]) -> None:
    assert [store["id"] for store in client.get("/v1/stores?tag=named:3").json()["items"]] == [stores[3]]
    assert len(client.get("/v1/stores?tag=named:").json()["items"]) == 5
    assert client.get("/v1/stores?type=no.Such").json()["items"] == []
    assert len(client.get("/v1/stores?limit=99999999").json()["items"]) >= 5


@pytest.mark.contract
def test_a_store_is_found_by_any_name_until_it_is_deleted(client: httpx.Client) -> None:
    store = client.put("/v1/stores?tag=doomed", content=b"\x0a\x06doomed").json()
    found = [store["id"], store["id"][:12], "doomed"]
    assert {client.get(f"/v1/stores/{ref}").json()["id"] for ref in found} == {store["id"]}
    removed = client.delete(f"/v1/stores/{store['id'][:20]}?force=doomed")
    assert (removed.status_code, removed.json()["id"], removed.json()["tags"]) == (200, store["id"], ["doomed"])
    for path in (*(f"/v1/stores/{ref}" for ref in found), f"/v1/stores/{store['id']}/merge", "/v1/tags/doomed"):
        answer = client.get(path)
        assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="not-found")
    for _ in range(2):  # the answer was lost, and the client sends the request again
        restored = client.post(f"/v1/stores/{store['id']}/restore")
        assert (restored.status_code, restored.json()) == (200, store | {"tags_taken": []})
    assert client.get("/v1/stores/doomed").json()["id"] == store["id"]
    assert client.post(f"/v1/stores/{'0' * 64}/restore").status_code == 404


@pytest.mark.contract
def test_tags_move(client: httpx.Client, stores: list[str]) -> None:
    made = client.put("/v1/tags/mover", json={"store": stores[0]})
    assert made.status_code == 201
    assert made.json()["store"] == stores[0]
    moved = client.put("/v1/tags/mover", json={"store": stores[1]})
    assert moved.status_code == 200
    assert moved.headers["etag"] != made.headers["etag"]
    assert client.get("/v1/stores/mover").json()["id"] == stores[1]
    assert client.get("/v1/tags/mover").headers["etag"] == moved.headers["etag"]
    assert client.delete("/v1/tags/mover").status_code == 204
    assert client.get("/v1/tags/mover").status_code == 404
    assert client.get(f"/v1/stores/{stores[1]}").status_code == 200


@pytest.mark.contract
@pytest.mark.parametrize(
    ("name", "store", "expected"),
    [("bad%20name", None, 400), ("0123456789abcdef", None, 400), ("x", "0" * 64, 404), ("x", "nobody", 404)],
)
def test_tags_that_cannot_be(
    client: httpx.Client, stores: list[str], name: str, store: str | None, expected: int
) -> None:
    answer = client.put(f"/v1/tags/{name}", json={"store": store or stores[0]})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected)


def descriptor_set(file_name: str = "own.proto") -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package="own", syntax="proto3")
    message = file.message_type.add(name="Thing")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="label", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


@pytest.mark.contract
def test_an_uploaded_schema_names_types(client: httpx.Client) -> None:
    body = b"\x0a\x05hello"
    assert client.put("/v1/stores?type=own.Thing", content=body).status_code == 422
    made = client.put("/v1/schemas/own", content=descriptor_set(), headers={"content-type": "application/protobuf"})
    assert made.status_code == 201
    assert made.json()["messages"] == 1
    fetched = client.get("/v1/schemas/own")
    assert fetched.content == descriptor_set()
    assert client.get("/v1/schemas/own", headers={"if-none-match": fetched.headers["etag"]}).status_code == 304
    assert [schema["name"] for schema in client.get("/v1/schemas").json()["items"]] == ["own"]
    store = client.put("/v1/stores?type=own.Thing", content=body)
    assert store.status_code == 201
    assert client.delete("/v1/schemas/own").status_code == 204
    assert client.get("/v1/schemas/own").status_code == 404
    shown = client.get(f"/v1/stores/{store.json()['id']}/merge", headers={"accept": "application/json"})
    assert shown.json() == {"label": "hello"}
    path = client.get(f"/v1/stores/{store.json()['id']}/merge?path=label")
    assert path.content == b"hello"


@pytest.mark.contract
@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [(b"\xff\xff", {}, 400), (b"", {}, 400), (b"x", {"content-type": "text/plain"}, 415)],
)
def test_schemas_that_cannot_be(client: httpx.Client, content: bytes, headers: dict[str, Any], expected: int) -> None:
    answer = client.put("/v1/schemas/bad", content=content, headers=headers)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected)


def fixed_names() -> list[str]:
    """Return the fixed segments of routes at places where other routes have a store's, tag's or repository's name."""
    rows = [row.partition(" ")[2].split("/") for row in RULES if row.partition(" ")[2].startswith("/v1/")]
    places = [("/".join(parts[:place]), part) for parts in rows for place, part in enumerate(parts)]
    named = {before for before, part in places if part.startswith("{")}
    found = {part for before, part in places if before in named and not part.startswith("{")}
    return sorted(found | {"restore", "stores", "merge", "tree"})


@pytest.mark.contract
@pytest.mark.parametrize("name", fixed_names())
def test_names_of_routes_are_names_of_tags_too(client: httpx.Client, name: str) -> None:
    made = client.post(f"/v1/stores?filename=m.onnx&tag={name}", content=onnx(500)).json()
    for path in (f"/v1/stores/{name}", f"/v1/stores/{name}/tree", f"/v1/stores/{name}/merge", f"/v1/tags/{name}"):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
    assert client.get(f"/v1/stores/{name}").json()["id"] == made["id"]
    assert client.patch(f"/v1/stores/{name}", json={"description": name}).json()["description"] == name
    assert client.delete(f"/v1/tags/{name}").status_code == 204


DESCRIPTION = "Fine-tuned on the May data.\nNot for “production”."


def stored(client: httpx.Client, tag: str) -> str:
    id: str = client.put(f"/v1/stores?filename=m.bin&tag={tag}", content=tag.encode()).json()["id"]
    return id


@pytest.mark.contract
def test_a_description_is_shown_and_outlasts_removal(client: httpx.Client) -> None:
    id, other = stored(client, "m:1"), stored(client, "m:2")
    etag = client.get("/v1/stores/m:1").headers["etag"]
    answer = client.patch("/v1/stores/m:1", json={"description": DESCRIPTION})
    assert (answer.status_code, answer.json()["description"], answer.json()["id"]) == (200, DESCRIPTION, id)
    assert client.get("/v1/stores/m:1", headers={"if-none-match": etag}).json()["description"] == DESCRIPTION
    assert client.get(f"/v1/stores/{other}").json()["description"] == ""
    found = client.get("/v1/stores?limit=1000").json()["items"]
    listed = {each["id"]: each["description"] for each in found if each["id"] in {id, other}}
    tagged = {each["id"]: each["description"] for each in client.get("/v1/stores?tag=m:").json()["items"]}
    assert listed == tagged == {id: DESCRIPTION, other: ""}
    client.delete(f"/v1/stores/{id}?force=m:1").raise_for_status()
    assert client.patch(f"/v1/stores/{id}", json={"description": "x"}).status_code == 404
    assert client.post(f"/v1/stores/{id}/restore").json()["description"] == DESCRIPTION
    assert client.patch("/v1/stores/m:1", json={"description": ""}).json()["description"] == ""
    assert [each["subject"] for each in client.get("/v1/audit?what=store.described").json()["items"]][:2] == [id, id]


@pytest.mark.contract
@pytest.mark.parametrize(
    "body", [{"description": "x" * 2001}, {"description": "a\0b"}, {"description": None}, {}, {"tags": []}]
)
def test_other_bodies_are_refused(client: httpx.Client, body: object) -> None:
    id = stored(client, "refused:1")
    assert client.patch(f"/v1/stores/{id}", json=body).status_code == 400
    assert client.get(f"/v1/stores/{id}").json()["description"] == ""


LEAF = delimited(1, b"y" * 20)
"""An `x.M` with `bytes`."""


def message(size: int) -> bytes:
    inner = delimited(101, delimited(1, b"z" * size))
    return delimited(100, LEAF) + delimited(101, inner) + delimited(102, LEAF) * 2


@pytest.fixture(scope="module")
def extended(client: httpx.Client) -> Iterator[list[str]]:
    """Return the ids of two stores that differ in an extension of an extension."""
    kind = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/extended", content=SET.SerializeToString(), headers=kind).status_code == 201
    made = [client.put("/v1/stores?type=x.M&min_chunk=10", content=message(size)) for size in (30, 40)]
    yield [each.json()["id"] for each in made]
    assert client.delete("/v1/schemas/extended").status_code == 204


def paths(node: Any) -> Iterator[str]:
    if node.get("path"):
        yield node["path"]
    for child in node.get("children") or node.get("items") or ():
        yield from paths(child)


@pytest.mark.parametrize("view", ["tree?depth=8", "treemap?depth=8", "chunks", "diff"])
def test_printed_paths_are_accepted(client: httpx.Client, extended: list[str], view: str) -> None:
    before, after = extended
    query = f"?before={before}" if view == "diff" else ""
    answer = client.get(f"/v1/stores/{after}/{view}{query}")
    assert answer.status_code == 200, answer.text
    printed = [path for path in paths(answer.json()) if path != "model.pb" and ":" not in path]
    assert any("[x.ext]" in path for path in printed), answer.text
    for path in printed:
        if not path.startswith(("[", "x")):
            continue  # files of the stores
        for name, parameter in (("merge", "fields"), ("tree", "path"), ("treemap", "path")):
            got = client.get(f"/v1/stores/{after}/{name}", params={parameter: path})
            assert got.status_code == 200, (path, got.text)
    whole = client.get(f"/v1/stores/{after}/merge", params={"path": "[x.ext].[x.ext].bytes"})
    assert whole.content == b"z" * 40


def test_well_known_types_are_served_as_the_runtime_shows_them(client: httpx.Client) -> None:
    kind = {"content-type": "application/protobuf"}
    types, kinds = well_known.SET.SerializeToString(), well_known.KINDS
    assert client.put("/v1/schemas/well-known", content=types, headers=kind).status_code == 201
    made = {name: client.put("/v1/stores?type=own.All", content=well_known.message_of(name)) for name in kinds}
    assert client.delete("/v1/schemas/well-known").status_code == 204
    for name, stored in made.items():
        store = stored.json()["id"]
        shown = client.get(f"/v1/stores/{store}/merge", headers={"accept": "application/json"})
        assert shown.status_code == 200, (name, shown.text)
        assert shown.json() == well_known.rendered_by_the_runtime(well_known.message_of(name)), name
        assert client.get(f"/v1/stores/{store}/merge", headers={"accept": "text/plain"}).status_code == 200, name
