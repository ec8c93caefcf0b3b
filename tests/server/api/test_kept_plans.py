"""A chunked proto over HTTP: the chunks that came, and those by sizes when they are asked for."""

from __future__ import annotations

import httpx
import pytest
from tests.support.chunked import METADATA
from tests.support.golden import CHUNKED

FILE = (CHUNKED / "graph_many_nodes.max20000.cpb").read_bytes()
SIZES = {"min_chunk": "500", "max_chunk": "5000"}


def _made(client: httpx.Client, **query: str) -> dict[str, object]:
    answer = client.post("/v1/stores", params={"filename": "x.cpb", **SIZES, **query}, content=FILE)
    assert answer.is_success, answer.text
    made: dict[str, object] = answer.json()
    return made


def test_the_plan_that_came_and_the_one_by_sizes(client: httpx.Client) -> None:
    base = f"/v1/stores/{_made(client)['id']}"
    assert client.get(f"{base}/cpb").content == FILE
    metadata = METADATA.FromString(client.get(f"{base}/metadata").content)
    rows = client.get(f"{base}/chunks").json()["items"]
    assert [row["size"] for row in rows] == [chunk.size for chunk in metadata.chunks]
    by_sizes = METADATA.FromString(client.get(f"{base}/metadata", params={"plan": "policy"}).content)
    again = client.get(f"{base}/chunks", params={"plan": "policy"}).json()["items"]
    assert [row["size"] for row in again] == [chunk.size for chunk in by_sizes.chunks] != [row["size"] for row in rows]
    assert client.get(f"{base}/chunks/1?plan=policy").content != client.get(f"{base}/chunks/1").content
    shown = client.get(f"{base}/metadata?plan=policy", headers={"accept": "application/json"}).json()
    assert len(shown["chunks"]) == len(by_sizes.chunks)


def test_what_a_later_program_may_plan_otherwise_is_not_kept_for_ever(client: httpx.Client) -> None:
    base = f"/v1/stores/{_made(client)['id']}"
    for path in ("chunks/0", "metadata"):
        own, by_sizes = (client.get(f"{base}/{path}{query}") for query in ("", "?plan=policy"))
        assert "immutable" in own.headers["cache-control"]
        assert "immutable" not in by_sizes.headers["cache-control"]
        assert own.headers["etag"] != by_sizes.headers["etag"]


def test_a_plan_by_sizes_from_the_beginning(client: httpx.Client) -> None:
    kept, by_sizes = _made(client), _made(client, plan="policy")
    assert (kept["planner"], by_sizes["planner"]) == (3, 4)
    assert kept["chunks"] != by_sizes["chunks"]
    for path in ("chunks/0", "metadata", "cpb"):
        assert (
            client.get(f"/v1/stores/{by_sizes['id']}/{path}").content
            == client.get(f"/v1/stores/{kept['id']}/{path}?plan=policy").content
        )


@pytest.mark.parametrize("path", ["chunks", "chunks/0", "metadata", "cpb"])
def test_another_plan_is_refused(client: httpx.Client, path: str) -> None:
    answer = client.get(f"/v1/stores/{_made(client)['id']}/{path}?plan=mine")
    assert (answer.status_code, answer.json()["title"] != "") == (400, True)
    assert "Invalid plan 'mine'" in answer.json()["detail"]
