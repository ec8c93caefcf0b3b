"""Cursors of all lists: each continues the list that it came from, and no other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pytest
from tests.server.api.test_preconditions import filled
from tests.support.serve import ask
from tests.support.stores import onnx

REQUIRED: Final = {"before": "other"}
"""Parameters that a list needs."""
OF_A_PAGE: Final = {"cursor", "limit", "from"}
SPACE: Final = "/spaces/team"
VALUES: Final = {"boolean": ("true", "false"), "integer": ("1", "2"), "number": ("0.1", "0.2")}


def lists(document: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Paths of operations that take a cursor, with their other parameters, from the document."""
    for path, operations in document["paths"].items():
        found = {
            each["name"]: each for each in operations.get("get", {}).get("parameters", ()) if each["in"] == "query"
        }
        if "cursor" in found:
            yield path, {name: each for name, each in found.items() if name not in OF_A_PAGE}


def other_values(parameters: Mapping[str, Any]) -> Iterator[str]:
    """Queries that ask for another list by one parameter."""
    for name, each in parameters.items():
        kind = next((part.get("type") for part in each["schema"].get("anyOf", [each["schema"]])), "string")
        yield from (f"{name}={value}" for value in VALUES.get(kind, ("name", "2026-11-01")))


@pytest.mark.anyio
async def test_a_cursor_is_for_the_parameters_that_it_came_with() -> None:
    continued, cursors = set(), dict[str, str]()
    async with filled() as (app, caller, things):
        targets = dict[str, str]()
        more = json.dumps({"store": "mine"}).encode()
        typed = {**caller, "content-type": "application/json"}
        assert (await ask(app, "PUT", "/v1/spaces/team", b"{}", typed)).status == 201
        assert (await ask(app, "PUT", "/v1/tags/more", more, typed)).status == 201
        assert (await ask(app, "PUT", "/v1/stores?filename=m.onnx&tag=other", onnx(7, 9), caller)).status == 201
        for path, parameters in lists(app.openapi()):
            named = path.replace("/webhooks/{name}", "/webhooks/mine").replace("{name}", things["repository"])
            needed = "".join(f"&{name}={REQUIRED[name]}" for name in parameters if name in REQUIRED)
            targets[path] = f"{named.replace('{ref}', 'mine')}?limit=1{needed}"
            for foreign in ("0", "x", "1~00000000000", "~" * 12):
                got = await ask(app, "GET", f"{targets[path]}&cursor={foreign}", headers=caller)
                assert (got.status, "cursor" in got.text) == (400, True), (path, got)
            got = await ask(app, "GET", targets[path], headers=caller)
            assert got.status == 200, (path, got)
            following = json.loads(got.body)["next"]
            if following is None:
                continue
            cursors[path] = following
            longer = targets[path].replace("limit=1", "limit=10")
            again = await ask(app, "GET", f"{longer}&cursor={following}", headers=caller)
            link = got.headers["link"].partition(">")[0].removeprefix("<")
            for right in (again, await ask(app, "GET", link, headers=caller)):
                assert right.status == 200, (path, right)
                assert json.loads(right.body)["items"] != json.loads(got.body)["items"]
            for other in other_values(parameters):
                if other.partition("=")[0] not in REQUIRED:
                    wrong = await ask(app, "GET", f"{targets[path]}&cursor={following}&{other}", headers=caller)
                    assert wrong.status == 400, (path, other, wrong)
            continued.add(path)
        for path, cursor in cursors.items():
            for other in [SPACE + targets[path], *(targets[each] for each in targets.keys() - {path})]:
                wrong = await ask(app, "GET", f"{other}&cursor={cursor}", headers=caller)
                assert (wrong.status, "for another list" in wrong.text) == (400, True), (path, other, wrong)
    assert {"/v1/stores", "/v1/tags", "/v1/spaces", "/v1/audit", "/v1/stores/{ref}/moves"} <= continued


@pytest.mark.anyio
async def test_integers_in_queries_are_digits() -> None:
    async with filled() as (app, caller, _):
        asked = 0
        for path, operations in app.openapi()["paths"].items():
            parameters = [each for each in operations.get("get", {}).get("parameters", ()) if each["in"] == "query"]
            needed = "".join(f"&{each['name']}=mine" for each in parameters if each.get("required"))
            target = re.sub("{[a-z_]+}", "mine", path.replace("{n}", "0"))
            for each in parameters:
                kinds = {part.get("type") for part in each["schema"].get("anyOf", [each["schema"]])}
                if kinds - {"null"} != {"integer"}:
                    continue
                for text in ("1_0", "%2B1", "%201", "1%20", "%D9%A1"):
                    got = await ask(app, "GET", f"{target}?{each['name']}={text}{needed}", headers=caller)
                    assert got.status == 400, (target, each["name"], text, got)
                    assert unquote(text) in json.loads(got.body)["detail"], (target, each["name"], text, got)
                    asked += 1
        assert asked > 100
