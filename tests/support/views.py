"""Requests that read a store, from the table of calls: for each view, and for every route that reads a store."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum, auto
from itertools import product
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from tests.support.calls import READING, RULES
from tests.support.serve import Asked, ask

from protoslice.server.api.view_router import ViewRoutes
from protoslice.server.api.views import PREFIX, VIEWS, View
from protoslice.server.app import Application

FILE: Final = "dir/mödel.onnx"
STREAM: Final = {"words": b"\x05hello\x05world"}
"""A stream of two records, in the same store as the model."""
WITHOUT_ROOT: Final = {"files/{path}", "archive.tar", "records", "records/{n}"}
"""The views that a store without a root proto has too."""
FOR_EVER: Final = {"files/{path}", "metadata", "chunks/{n}", "merge"}
"""The views whose bytes no later program may change."""
BY_BYTES: Final = {"safetensors", "safetensors/{shard}"}
"""The views whose entity tag depends on their bytes."""
_NAMES: Final = {"file": FILE, "name": "path:graph.initializer[1]", "field": "graph"}
_OF_STREAM: Final = "file=words&framing=delimited"


class Tag(Enum):
    """The input of a view's entity tag."""

    STORE = auto()
    """The store's id: the bytes stay the same forever."""
    VERSION = auto()
    """The store's id and a version: a later program may return other bytes under another tag."""
    BYTES = auto()
    """The bytes, which a later program may change."""


class ViewCase(NamedTuple):
    """A request for a view of a store with the ONNX model `FILE` and with `STREAM`."""

    path: str
    """The path and query below the store."""
    accept: str = "*/*"

    @property
    def view(self) -> View:
        """The view that the path names."""
        found = ViewRoutes(VIEWS).find(f"/v1/stores/any/{self.path.partition('?')[0]}")
        assert found is not None, self.path
        return found.view

    @property
    def tag(self) -> Tag:
        """The input of the view's entity tag."""
        if self._name in BY_BYTES:
            return Tag.BYTES
        return Tag.STORE if self._name in FOR_EVER and self.accept == "*/*" else Tag.VERSION

    @property
    def needs_root(self) -> bool:
        """False if a store without a root proto has the view too."""
        return self._name not in WITHOUT_ROOT

    @property
    def _name(self) -> str:
        return self.view.path.removeprefix("/v1/stores/{ref}/").replace(":path}", "}")


def _cases() -> list[ViewCase]:
    """Return one request for every path of a view, and each view's first request with a query."""
    found = dict[str, ViewCase]()
    views = {f"GET {view.path}" for view in VIEWS}
    for call in READING:
        of, _, path = call.target.partition("}/")
        if call.method != "GET" or call.route not in views or call.refused is not None or "={name}" in path:
            continue  # each model has other tensor names
        key = call.route if "?" in path else path
        if of == "/v1/stores/{store":
            found.setdefault(key, ViewCase(unquote(path.format_map(_NAMES))))
        elif of == "/v1/stores/{stream":
            found.setdefault(key, ViewCase(f"{path}{'&' if '?' in path else '?'}{_OF_STREAM}"))
    return [*found.values()]


PLAIN: Final = (
    *_cases(),
    ViewCase("chunks/1"),
    ViewCase("merge?omit_larger_than=1KiB"),
    ViewCase("tensors/path:graph.initializer[1]?format=npy"),
)
"""The requests for the bytes of a view, not for a rendering."""
CASES: Final = (
    *PLAIN,
    ViewCase("metadata", accept="application/json"),
    ViewCase("merge", accept="application/json"),
    ViewCase("merge", accept="text/plain"),
)


ROUTES: Final = tuple(row.removeprefix("GET ") for row in RULES if row.startswith(f"GET {PREFIX}"))
"""The templates of all routes that read a store, from the application's table."""
_ACCEPTED: Final = sorted({accepted for view in VIEWS if view.rendered for accepted in view.media_types})
_OF_STORES: Final = ("/v1/stores/{store}", "/v1/stores/{stream}")
_NAME: Final = re.compile(r"{(\w+)}")
_FEW: Final = 3
"""The number of tensors, nodes and paths of a store that are requested one by one."""


async def every_answer(app: Application, store: str, before: str) -> list[tuple[str, Asked]]:
    """Request every route below `store`, and return the answers; the store is also compared with `before`."""
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
        """Return parameter values from the routes' lists: files, tensors, paths and nodes."""
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
    """Yield the targets of a route's calls with each parameter value; targets without a query come first."""
    calls = [call.target for call in READING if call.route == f"GET {template}" and call.target.startswith(_OF_STORES)]
    filled = {"store": [PREFIX], "stream": [PREFIX], "mine": [before]}
    filled |= {kind: [quote(value, safe="") for value in values] for kind, values in found.items()}
    for target in dict.fromkeys([target.partition("?")[0] for target in calls] + calls):
        names = _NAME.findall(target)
        for values in product(*(filled[name] for name in names)):
            yield target.format_map(dict(zip(names, values, strict=True))).replace(f"/v1/stores/{PREFIX}", PREFIX)
