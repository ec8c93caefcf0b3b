"""Well-known types of a store with a schema of its own, as JSON and as text."""

from __future__ import annotations

import httpx
from tests.schema.test_well_known import KINDS, SET, message_of, rendered_by_the_runtime


def test_well_known_types_are_served_as_the_runtime_shows_them(client: httpx.Client) -> None:
    kind = {"content-type": "application/protobuf"}
    assert client.put("/v1/schemas/well-known", content=SET.SerializeToString(), headers=kind).status_code == 201
    ids = {name: client.put("/v1/stores?type=own.All", content=message_of(name)).json()["id"] for name in KINDS}
    assert client.delete("/v1/schemas/well-known").status_code == 204
    for name, store in ids.items():
        shown = client.get(f"/v1/stores/{store}/merge", headers={"accept": "application/json"})
        assert shown.status_code == 200, (name, shown.text)
        assert shown.json() == rendered_by_the_runtime(message_of(name)), name
        assert client.get(f"/v1/stores/{store}/merge", headers={"accept": "text/plain"}).status_code == 200, name
