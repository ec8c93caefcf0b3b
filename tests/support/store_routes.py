"""Requests to all routes that read a store, with parameters taken from its own answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote

from tests.support.asgi import Asked, ask

from protoslice.formats.tensors.reading import FORMS
from protoslice.server.access.rules import RULES
from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application, create_app
from protoslice.server.settings import Settings

ROUTES: Final = tuple(row.removeprefix("GET ") for row in RULES if row.startswith(f"GET {PREFIX}"))
"""Templates of the routes that read a store, from the application's own table."""
_ACCEPTED: Final = sorted({accepted for view in VIEWS if view.rendered for accepted in view.media_types})
_FEW: Final = 6
"""Tensors, nodes and paths of a store that are asked for one by one."""


@asynccontextmanager
async def open_service(**given: Any) -> AsyncIterator[Application]:
    """Open a service over memory, without a socket."""
    app = create_app(Settings(**{"storage": "memory://", "space_watermark_bytes": 0, **given}))
    app.middleware_stack = app.build_middleware_stack()
    await app.services.open()
    try:
        yield app
    finally:
        await app.services.close()


async def every_answer(app: Application, store: str, before: str) -> list[tuple[str, Asked]]:
    """The answers to a GET of every route below `store`, which is also compared with `before`."""
    reader = _Reader(app, store)
    found = await reader.facts()
    for template in ROUTES:
        for target in targets(template, found, before):
            await reader.get(target)
            if any(view.rendered and view.path == template for view in VIEWS):
                for accepted in _ACCEPTED:
                    await reader.get(target, {"accept": accepted})
    return reader.answers


class _Reader:
    def __init__(self, app: Application, store: str) -> None:
        self._app = app
        self._base = f"/v1/stores/{store}"
        self.answers: list[tuple[str, Asked]] = []

    async def get(self, target: str, headers: Mapping[str, str] | None = None) -> Asked:
        answer = await ask(self._app, "GET", target.replace(PREFIX, self._base), headers=headers)
        self.answers.append((f"GET {target} {dict(headers or {})}", answer))
        return answer

    async def facts(self) -> dict[str, list[str]]:
        """Values of parameters: files, tensors, paths and nodes, as the routes themselves list them."""
        store = await self._json("")
        tensors = (await self._json("/tensors")).get("items", [])[:_FEW]
        tree = _flat((await self._json("/tree?depth=16")).get("items", []))
        nodes = (await self._json("/graph")).get("nodes", [])[:_FEW]
        return {
            "path": [each["path"] for each in store["files"][:_FEW]],
            "name": [*dict.fromkeys(each[key] for each in tensors for key in ("name", "address"))],
            "place": [each["path"] for each in [*tree[:_FEW], *[each for each in tree if each["text"]][:_FEW]]],
            "node": [*dict.fromkeys(each[key] for each in nodes for key in ("path", "name") if each[key])],
            "n": ["0", "1"],
            "shard": ["model.safetensors", "model.safetensors.index.json"],
            "file": ["model.onnx", "weights.bin", "single.onnx"],
        }

    async def _json(self, rest: str) -> dict[str, Any]:
        answer = await self.get(PREFIX + rest)
        return dict(json.loads(answer.body)) if answer.status < 500 else {}


def _flat(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for node in nodes for each in [node, *_flat(node.get("children", []))]]


def targets(template: str, found: Mapping[str, list[str]], before: str) -> Iterator[str]:
    """Targets of a route: with each value of a parameter in its path, and with its own queries."""
    names, places, nodes = ([quote(each, safe="") for each in found[kind]] for kind in ("name", "place", "node"))
    path = template.removeprefix(PREFIX)
    queries: dict[str, list[str]] = {
        "/diff": [f"before={before}"],
        "/diff/{name:path}": [f"before={before}", f"before={before}&sample=0"],
        "/graph": [*(f"around={node}" for node in nodes), "search=a"],
        "/groups": [f"prefix={name}" for name in names],
        "/onnx/{file}": ["align=1", "outputs=y", *(f"outputs={name}" for name in names)],
        "/merge": [
            *(f"path={place}" for place in places),
            *(f"{what}={place}" for what in ("fields", "omit") for place in places),
        ],
        "/moves": [f"before={before}", f"before={before}&sample=1&limit=1"],
        "/records": ["summary=true", "format=json"],
        "/safetensors": [f"name={name}" for name in names],
        "/safetensors/{shard}": ["align=4096", "dtype=BF16", "shards=1KiB", "shards=4KiB&align=256"],
        "/tensors": [*(f"name={name}" for name in names), "sort=name", "search=a", "prefix=%5C", "regex=x"],
        "/tensors/{name:path}": [*(f"format={form}" for form in (*FORMS, "stats")), "slice=0", "format=stats&sample=0"],
        "/tree": [f"path={place}&depth=2" for place in places],
        "/tensortree": ["limit=1", "start=1&tensors=1", *(f"prefix={name}" for name in names)],
        "/treemap": ["min_share=0", *(f"path={place}" for place in places)],
    }
    bases = [template]
    if "{" in path:
        _, _, parameter = path.rpartition("{")
        kind = parameter.rstrip("}").partition(":")[0]
        # A new parameter in a path fails here until `facts` has values of it.
        bases = [template.replace("{" + parameter, quote(value, safe="")) for value in found[kind]]
    for base in bases:
        yield base
        yield from (f"{base}?{query}" for query in queries.get(path, ()))
