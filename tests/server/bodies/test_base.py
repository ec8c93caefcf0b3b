"""Uploads over a base: an earlier version, of which nothing is stored again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx
import pytest
from tests.support.counted import counted_bucket
from tests.support.serve import ask, assert_problem, open_app
from tests.support.stores import OBJECTS, objects_in, onnx

MODEL = onnx(6_000_000)
CHANGED = MODEL[:-1] + bytes([MODEL[-1] ^ 1])


@pytest.mark.parametrize(
    ("query", "shares"),
    [
        ("tag=model:1", True),
        ("tag=model:2", True),
        ("base=model:1", True),
        ("tag=other:1&base=model:1", True),
        ("tag=other:1", False),
        ("tag=model", False),
        ("", False),
    ],
)
def test_a_version_over_another(query: str, shares: bool, tmp_path: Path) -> None:
    async def work() -> None:
        with counted_bucket() as bucket:
            async with open_app(
                storage=bucket.uri, database=f"sqlite:///{tmp_path}/catalog.sqlite", auth="open"
            ) as app:
                assert (await ask(app, "PUT", "/v1/stores?filename=m.onnx&tag=model:1", MODEL)).status == 201
                before = await objects_in(bucket.objects)
                made = await ask(app, "PUT", f"/v1/stores?filename=m.onnx&{query}", CHANGED)
                assert made.status == 201
                new = [item.size async for item in bucket.objects.iterate(OBJECTS) if item.key.text not in before]
                assert (sum(new) < 1 << 20) is shares
                store = json.loads(made.body)["id"]
                assert (await ask(app, "GET", f"/v1/stores/{store}/files/m.onnx")).body == CHANGED

    asyncio.run(work())


@pytest.mark.contract
def test_a_base_that_is_not_there(client: httpx.Client) -> None:
    answer = client.put("/v1/stores?filename=m.onnx&base=nobody", content=MODEL)
    assert_problem(answer.status_code, answer.headers, answer.content, expected=404, slug="not-found")
