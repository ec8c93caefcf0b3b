"""Stores in lists, tags with compare-and-set, schemas."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from google.protobuf import descriptor_pb2
from tests.support.calls import RULES
from tests.support.serve import assert_problem
from tests.support.stores import onnx

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def stores(client: httpx.Client) -> list[str]:
    return [
        client.put(f"/v1/stores?tag=named:{n}", content=b"\x0a\x01" + bytes([97 + n])).json()["id"] for n in range(5)
    ]


def test_stores_come_newest_first_in_pages(client: httpx.Client, stores: list[str]) -> None:
    seen, cursor = [], ""
    while True:
        page = client.get(f"/v1/stores?limit=2{cursor}").json()
        seen += [store["id"] for store in page["items"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert set(stores) <= set(seen)
    assert len(seen) == len(set(seen))


def test_stores_are_filtered(client: httpx.Client, stores: list[str]) -> None:
    assert [store["id"] for store in client.get("/v1/stores?tag=named:3").json()["items"]] == [stores[3]]
    assert len(client.get("/v1/stores?tag=named:").json()["items"]) == 5
    assert client.get("/v1/stores?type=no.Such").json()["items"] == []
    assert len(client.get("/v1/stores?limit=99999999").json()["items"]) >= 5


def test_a_store_is_found_by_any_name_until_it_is_deleted(client: httpx.Client) -> None:
    store = client.put("/v1/stores?tag=doomed", content=b"\x0a\x06doomed").json()
    for ref in (store["id"], store["id"][:12], "doomed"):
        assert client.get(f"/v1/stores/{ref}").json()["id"] == store["id"]
    view = f"/v1/stores/{store['id']}/merge"
    assert client.get(view).status_code == 200
    refused = client.delete("/v1/stores/doomed")
    assert_problem(refused.status_code, refused.headers, refused.content, expected=409, slug="conflict")
    removed = client.delete(f"/v1/stores/{store['id'][:20]}?force=doomed")
    assert (removed.status_code, removed.json()["id"], removed.json()["tags"]) == (200, store["id"], ["doomed"])
    for path in (view, f"/v1/stores/{store['id']}", "/v1/stores/doomed", "/v1/tags/doomed"):
        answer = client.get(path)
        assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="not-found")
    assert client.delete(f"/v1/stores/{store['id']}").status_code == 404
    restored = client.post(f"/v1/stores/{store['id']}/restore")
    assert restored.json() == store | {"tags_taken": []}
    assert client.get("/v1/stores/doomed").json()["id"] == store["id"]
    again = client.post(f"/v1/stores/{store['id']}/restore")
    assert (again.status_code, again.json()) == (200, restored.json()), "the answer was lost, and the client asks again"
    assert client.post(f"/v1/stores/{'0' * 64}/restore").status_code == 404


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


def test_compare_and_set(client: httpx.Client, stores: list[str]) -> None:
    def put(store: str, **conditions: str) -> httpx.Response:
        headers = {name.replace("_", "-"): value for name, value in conditions.items()}
        return client.put("/v1/tags/cas", json={"store": store}, headers=headers)

    def refuse(answer: httpx.Response) -> None:
        assert_problem(answer.status_code, answer.headers, answer.content, expected=412, slug="precondition-failed")

    refuse(put(stores[0], if_match="*"))
    refuse(put(stores[0], if_match='"x"'))
    first = put(stores[0], if_none_match="*")
    assert first.status_code == 201
    refuse(put(stores[1], if_none_match="*"))
    refuse(put(stores[1], if_match='"other"'))
    refuse(put(stores[1], if_match="W/" + first.headers["etag"]))
    second = put(stores[1], if_match=first.headers["etag"])
    assert second.status_code == 200
    refuse(put(stores[2], if_match=first.headers["etag"]))
    assert put(stores[2], if_match="*").status_code == 200
    refuse(client.delete("/v1/tags/cas", headers={"if-match": first.headers["etag"]}))
    now = client.get("/v1/tags/cas").headers["etag"]
    assert client.get("/v1/tags/cas", headers={"if-none-match": now}).status_code == 304
    assert client.delete("/v1/tags/cas", headers={"if-match": now}).status_code == 204
    refuse(client.delete("/v1/tags/cas", headers={"if-match": now}))


def test_a_tag_is_passed_on_from_hand_to_hand(client: httpx.Client, stores: list[str]) -> None:
    seen = [client.put("/v1/tags/baton", json={"store": stores[0]}).headers["etag"]]
    for n in range(1, 12):
        body, held = {"store": stores[n % 5]}, client.get("/v1/tags/baton").headers["etag"]
        assert held == seen[-1]
        moved = client.put("/v1/tags/baton", json=body, headers={"if-match": f'"nobody\'s", {held}'})
        assert moved.status_code == 200, moved.text
        late = client.put("/v1/tags/baton", json=body, headers={"if-match": held})
        assert late.status_code == 412
        seen.append(moved.headers["etag"])
    assert len(set(seen)) == 12
    assert client.delete("/v1/tags/baton", headers={"if-match": seen[-1]}).status_code == 204


@pytest.mark.parametrize(
    ("name", "store", "expected"),
    [("bad%20name", None, 400), ("0123456789abcdef", None, 400), ("x", "0" * 64, 404), ("x", "nobody", 404)],
)
def test_tags_that_cannot_be(
    client: httpx.Client, stores: list[str], name: str, store: str | None, expected: int
) -> None:
    answer = client.put(f"/v1/tags/{name}", json={"store": store or stores[0]})
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected)


def test_tags_are_listed(client: httpx.Client, stores: list[str]) -> None:
    page = client.get("/v1/tags?limit=2").json()
    found = page["items"]  # may be fewer: on S3 the marks of removed tags count
    assert len(found) <= 2
    found += client.get(f"/v1/tags?cursor={page['next']}&limit=1000").json()["items"]
    names = [tag["name"] for tag in found]
    assert names == sorted(names)
    assert {f"named:{n}" for n in range(5)} <= set(names)


def descriptor_set(file_name: str = "own.proto") -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name=file_name, package="own", syntax="proto3")
    message = file.message_type.add(name="Thing")
    kinds = descriptor_pb2.FieldDescriptorProto
    message.field.add(name="label", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


def test_a_schema_is_read_again_only_when_it_has_changed(client: httpx.Client) -> None:
    kind = {"content-type": "application/protobuf"}
    seen: list[str] = []
    for n in range(6):
        made = client.put("/v1/schemas/changing", content=descriptor_set(f"{n}.proto"), headers=kind)
        tag = made.headers["etag"]
        assert (
            client.get("/v1/schemas/changing", headers={"if-none-match": ", ".join([*seen, '"x"'])}).status_code == 200
        )
        unchanged = client.get("/v1/schemas/changing", headers={"if-none-match": tag})
        assert (unchanged.status_code, unchanged.headers["etag"]) == (304, tag)
        seen.append(tag)
    assert client.delete("/v1/schemas/changing").status_code == 204


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


def test_a_type_that_is_declared_differently_is_a_conflict_that_names_both(client: httpx.Client) -> None:
    kind = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/own", content=descriptor_set(), headers=kind).status_code == 201
    assert client.put("/v1/schemas/same", content=descriptor_set("else.proto"), headers=kind).status_code == 201
    other = descriptor_set().replace(b"label", b"lapel")
    answer = client.put("/v1/schemas/0", content=other, headers=kind)
    problem = assert_problem(answer.status_code, answer.headers, answer.content, expected=409)
    for name in ("own.Thing", "'0'", "'own'"):
        assert name in problem["detail"]
    assert client.get("/v1/schemas/0").status_code == 404
    for name in ("own", "same"):
        client.delete(f"/v1/schemas/{name}")


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [(b"\xff\xff", {}, 400), (b"", {}, 400), (b"x", {"content-type": "text/plain"}, 415)],
)
def test_schemas_that_cannot_be(client: httpx.Client, content: bytes, headers: dict[str, Any], expected: int) -> None:
    answer = client.put("/v1/schemas/bad", content=content, headers=headers)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=expected)


def fixed_names() -> list[str]:
    """Segments of the routes that stand where others have the name of a store, a tag or a repository."""
    rows = [row.partition(" ")[2].split("/") for row in RULES if row.partition(" ")[2].startswith("/v1/")]
    named = {"/".join(parts[:place]) for parts in rows for place in range(len(parts)) if parts[place].startswith("{")}
    found = {
        parts[place]
        for parts in rows
        for place in range(len(parts))
        if "/".join(parts[:place]) in named and not parts[place].startswith("{")
    }
    return sorted(found | {"restore", "stores", "merge", "tree"})


@pytest.mark.parametrize("name", fixed_names())
def test_names_of_routes_are_names_of_tags_too(client: httpx.Client, name: str) -> None:
    made = client.post(f"/v1/stores?filename=m.onnx&tag={name}", content=onnx(500)).json()
    for path in (f"/v1/stores/{name}", f"/v1/stores/{name}/tree", f"/v1/stores/{name}/merge", f"/v1/tags/{name}"):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.text)
    assert client.get(f"/v1/stores/{name}").json()["id"] == made["id"]
    assert client.patch(f"/v1/stores/{name}", json={"description": name}).json()["description"] == name
    assert client.delete(f"/v1/tags/{name}").status_code == 204
