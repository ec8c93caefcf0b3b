"""Descriptions of stores, which change while files do not."""

from __future__ import annotations

import httpx
import pytest

TEXT = "Fine-tuned on the May data.\nNot for “production”."


def stored(client: httpx.Client, tag: str) -> str:
    id: str = client.put(f"/v1/stores?filename=m.bin&tag={tag}", content=tag.encode()).json()["id"]
    return id


def test_a_description_is_shown_and_outlasts_removal(client: httpx.Client) -> None:
    id, other = stored(client, "m:1"), stored(client, "m:2")
    etag = client.get("/v1/stores/m:1").headers["etag"]
    answer = client.patch("/v1/stores/m:1", json={"description": TEXT})
    assert (answer.status_code, answer.json()["description"], answer.json()["id"]) == (200, TEXT, id)
    assert client.get("/v1/stores/m:1", headers={"if-none-match": etag}).json()["description"] == TEXT
    assert client.get(f"/v1/stores/{other}").json()["description"] == ""
    listed = {each["id"]: each["description"] for each in client.get("/v1/stores").json()["items"]}
    tagged = {each["id"]: each["description"] for each in client.get("/v1/stores?tag=m:").json()["items"]}
    assert listed == tagged == {id: TEXT, other: ""}
    client.delete(f"/v1/stores/{id}?force=m:1").raise_for_status()
    assert client.patch(f"/v1/stores/{id}", json={"description": "x"}).status_code == 404
    assert client.post(f"/v1/stores/{id}/restore").json()["description"] == TEXT
    assert client.patch("/v1/stores/m:1", json={"description": ""}).json()["description"] == ""
    assert [each["subject"] for each in client.get("/v1/audit?what=store.described").json()["items"]] == [id, id]


@pytest.mark.parametrize(
    "body", [{"description": "x" * 2001}, {"description": "a\0b"}, {"description": None}, {}, {"tags": []}]
)
def test_other_bodies_are_refused(client: httpx.Client, body: object) -> None:
    id = stored(client, "refused:1")
    assert client.patch(f"/v1/stores/{id}", json=body).status_code == 400
    assert client.get(f"/v1/stores/{id}").json()["description"] == ""
