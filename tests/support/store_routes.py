"""Requests to all routes that read a store, with parameters taken from its own answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final
from urllib.parse import quote

from tests.support.calls import READING, RULES
from tests.support.serve import Asked, ask

from protoslice.server.api.views import PREFIX, VIEWS
from protoslice.server.app import Application

ROUTES: Final = tuple(row.removeprefix("GET ") for row in RULES if row.startswith(f"GET {PREFIX}"))
"""Templates of the routes that read a store, from the application's own table."""
_ACCEPTED: Final = sorted({accepted for view in VIEWS if view.rendered for accepted in view.media_types})
_OF_STORES: Final = ("/v1/stores/{store}", "/v1/stores/{stream}")
_NAMES: Final = re.compile(r"{(\w+)}")
_FEW: Final = 6
"""Tensors, nodes and paths of a store that are asked for one by one."""


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
            "file": [each["path"] for each in store["files"][:_FEW]],
            "name": [*dict.fromkeys(each[key] for each in tensors for key in ("name", "address"))],
            "field": [each["path"] for each in [*tree[:_FEW], *[each for each in tree if each["text"]][:_FEW]]],
            "node": [*dict.fromkeys(each[key] for each in nodes for key in ("path", "name") if each[key])],
        }

    async def _json(self, rest: str) -> dict[str, Any]:
        answer = await self.get(PREFIX + rest)
        return dict(json.loads(answer.body)) if answer.status < 500 else {}


def _flat(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [each for node in nodes for each in [node, *_flat(node.get("children", []))]]


def targets(template: str, found: Mapping[str, list[str]], before: str) -> Iterator[str]:
    """Targets of the calls of a route, with each value of a parameter, first those without a query."""
    calls = [call.target for call in READING if call.route == f"GET {template}" and call.target.startswith(_OF_STORES)]
    filled = {"store": [PREFIX], "stream": [PREFIX], "mine": [before]}
    filled |= {kind: [quote(value, safe="") for value in values] for kind, values in found.items()}
    for target in dict.fromkeys([target.partition("?")[0] for target in calls] + calls):
        names = _NAMES.findall(target)
        for values in product(*(filled[name] for name in names)):
            yield target.format_map(dict(zip(names, values, strict=True))).replace(f"/v1/stores/{PREFIX}", PREFIX)
