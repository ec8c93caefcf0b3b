"""The worst requests of operators and users, many connections at once, and requests that find or remove content."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import httpx
from tests.budgets.harness import Wire
from tests.budgets.materials import FAR, descriptors, empty_tensors, far, long_paths, schemas, small, stored, tags, tar
from tests.budgets.reading import pipelined
from tests.budgets.rows import KIB, MIB, Budget, Play, Row, get, request, row
from tests.support.stores import onnx

from protoslice.serving.finding import TAGS_SHOWN

ANY: Final = "any"
ROUTED: Final = Budget(held=16_000)
"""The budget of paths that are compared with the templates of more than a hundred routes."""


def _one_by_one(wire: Wire, given: Any) -> int:
    """Send a head of 60 kB byte by byte, as far as a client can control this."""
    with wire.open() as connection:
        for byte in get("/livez", x_long="y" * 3000):
            wire.send(connection, bytes([byte]))
        return wire.read(connection)[0]


def at_once(path: str, count: int) -> Play:
    """Return a play (see `Row.play`) in which two clients request `path` over `count` connections together.

    The play returns the highest status. A client may have 512 concurrent requests, and on a slow machine all of them
    run at once.
    """

    def play(wire: Wire, given: Any) -> int:
        with ExitStack() as stack:
            connections = [stack.enter_context(wire.open(f"127.0.0.{3 + n % 2}")) for n in range(count)]
            for connection in connections:
                wire.send(connection, get(path.format(store=given)))
            return max(wire.read(connection)[0] for connection in connections)

    return play


def _crowd(route: str, count: int, *, loop: int, work: int = 0, calls: int = 0, **more: Any) -> Row:
    """A row for `count` connections, with budgets for each connection; the first request may also open the store."""
    budget = Budget(
        held=12_000,
        loop=10_000 + count * loop,
        work=5000 + count * work,
        calls=12 + count * calls,
        memory_room=4 * MIB + count * 40 * KIB,  # resident size, which varies with earlier requests
        got=count * 4 * KIB,
    )
    worst = f"over {count} connection{'s' * (count > 1)} at once"
    return row(f"GET {route}", worst, near=True, budget=budget, **more)


_CROWDS: Final = tuple(
    row
    for count in (1, 16, 1000)
    for row in (
        _crowd("/livez", count, play=at_once("/livez", count), loop=6200),
        # Each request opens, reads and closes the marker, and reads the free space: 220 steps, a few more in a crowd.
        _crowd("/readyz", count, play=at_once("/readyz", count), loop=9000, work=240, calls=2),
        _crowd(
            "/v1/stores/{ref}/files/{path:path}",
            count,
            play=at_once("/v1/stores/{store}/files/model.onnx", count),
            given=small,
            loop=4500,
            work=200,
            calls=1,
        ),
    )
)

OPERATING: Final = (
    *_CROWDS,
    row(
        "GET /livez", "ten thousand in a row and a reader that waits", play=pipelined("/livez", 10_000), loop=2_000_000,
    ),
    row("GET /livez", "a head that comes byte by byte", play=_one_by_one),
    row("GET /livez", "five thousand headers", get("/livez", **{f"x{n}": "" for n in range(5000)}), held=100_000),
    row("GET /livez", "headers of a mebibyte", get("/livez", x="y" * MIB), status=431),
    row("GET /metrics", "after everything else", get("/metrics"), work=400_000),
    row("GET /", "beside stores of many long paths", get("/"), long_paths, calls=40),
    # once in a process
    row("GET /openapi.json", "the first time", get("/openapi.json"), fresh=True, held=100_000, work=None),
    row("GET /session", "cookies of 16 kB", get("/session", cookie="protoslice-session=1;" * 780), held=30_000),
    row(
        "POST /session", "a token of 15 kB of a service that asks for none",
        request("POST", "/session", b'{"token": "%b"}' % (b"a" * 15_000), content_type="application/json"),
        status=(400, 403, 422, 501),
    ),
    *(
        row(f"GET {path}", "a query of 30 kB", get(f"{path}?next=/" + "a" * 30_000), status=(400, 404), held=20_000)
        for path in ("/session/login", "/session/callback")
    ),
    row(ANY, "a path of 60 kB", get("/v1/stores/" + "a/" * 30_000), status=404, budget=ROUTED),
    row(ANY, "a query of 30 000 parameters", get("/v1/stores/x/merge?" + "a&" * 30_000), status=400),
    row(ANY, "a method that no route has", request("BREW", "/v1/stores"), status=(400, 405)),
)  # fmt: skip


_JSON: Final = "application/json"
_TAGS: Final = 120
_MANY_TAGS: Final = tags(_TAGS)
_DIGESTS: Final = 10_000


def _missing(*stores: str, least: int = 1, tags: Sequence[str] = ()) -> bytes:
    chunks = [{"sha256": f"{n:064x}", "size": least + n} for n in range(_DIGESTS)]
    searched = {"stores": list(stores)} if stores else {"tags": list(tags)}
    body = json.dumps({"chunks": chunks} | searched, separators=(",", ":"))
    return request("POST", "/v1/chunks/missing", body.encode(), content_type=_JSON)


def _removable(http: httpx.Client) -> str:
    _MANY_TAGS(http)
    return stored(http, onnx(12))


def _removed(http: httpx.Client) -> str:
    """A removed store of many files, which had tags."""
    store = stored(http, tar({f"{n}": b"x" for n in range(1000)} | {"model.onnx": onnx(16)}), "application/x-tar")
    tags = [f"gone:{number}" for number in range(20)]
    for tag in tags:
        http.put(f"/v1/tags/{tag}", json={"store": store})
    http.delete(f"/v1/stores/{store}", params={"force": tags}).raise_for_status()
    return store


def _tagged(http: httpx.Client) -> str:
    store = small(http)
    http.put("/v1/tags/one:1", json={"store": store})
    return store


def _hundred_spaces(http: httpx.Client) -> None:
    for number in range(100):
        http.put(f"/v1/spaces/s-{number}")


def _removable_schema(http: httpx.Client) -> Any:
    return http.put("/v1/schemas/gone", content=descriptors(b"gone", 5000))


KEEPING: Final = (
    row(
        "GET /v1/stores", "four stores of a thousand long paths each", get("/v1/stores?limit=1000"), long_paths,
        service="long paths", calls=60,
    ),
    row(
        "GET /v1/stores", "only of a type that none has", get("/v1/stores?type=no.Such&tag=many&limit=1000"),
        _MANY_TAGS, service="tags", held=23_000, calls=40 + _TAGS,
    ),
    # a stat and a read for each, because the index may be out of date
    row(
        "GET /v1/stores/{ref}", f"{_TAGS} tags, of which {TAGS_SHOWN} are shown",
        lambda store: get(f"/v1/stores/{store}"), _MANY_TAGS, service="tags", held=14_000, calls=2 * TAGS_SHOWN + 10,
    ),
    row(
        "GET /v1/stores/{ref}", "a thousand long paths", lambda store: get(f"/v1/stores/{store}"), long_paths,
        held=10_000, got=2 * MIB,
    ),
    row(
        "PATCH /v1/stores/{ref}", f"{_TAGS} tags, of which {TAGS_SHOWN} are shown",
        lambda store: request("PATCH", f"/v1/stores/{store}",
                              json.dumps({"description": "x" * 2000}).encode(), content_type=_JSON),
        _MANY_TAGS, service="tags", held=14_000, calls=10,
    ),
    # The manifest with its small records, and four lists that look for names in registries.
    row(
        "DELETE /v1/stores/{ref}", f"beside {_TAGS} tags of others",
        lambda given: request("DELETE", f"/v1/stores/{given}"), _removable, service="tags", held=8000,
        written_room=16 * KIB, calls=14,
    ),
    row(
        "POST /v1/stores/{id}/restore", "a thousand files and twenty tags",
        lambda store: request("POST", f"/v1/stores/{store}/restore"), _removed, held=30_000, work=190_000, calls=20 * 9,
        written_room=512 * KIB,
    ),
    row(
        "GET /v1/removed", "a store with its tags", get("/v1/removed?limit=1000"), _removed, held=30_000, work=190_000,
        calls=20,
    ),
    row(
        "GET /v1/tags", f"{_TAGS} of them", get("/v1/tags?limit=1000"), _MANY_TAGS, service="tags", held=26_000,
        calls=_TAGS + 10,
    ),
    row(
        "PUT /v1/tags/{tag}", "a condition of 60 kB",
        lambda store: request("PUT", "/v1/tags/one:1", json.dumps({"store": store}).encode(),
                              content_type=_JSON, if_match=",".join(['"a"'] * 15_000)),
        _tagged, status=412,
    ),
    row(
        "PUT /v1/tags/{tag}", "a body of a mebibyte that is nested deep",
        request("PUT", "/v1/tags/one:1", b"[" * 1_000_000, content_type=_JSON), _tagged, status=400,
    ),
    row(
        "DELETE /v1/tags/{tag}", "a condition of 60 kB",
        request("DELETE", "/v1/tags/one:1", if_match=",".join(['"a"'] * 15_000)), _tagged, status=412,
    ),
    row("GET /v1/schemas", "three of 10 000 fields", get("/v1/schemas"), schemas, calls=20),
    row("GET /v1/schemas/{name}", "10 000 fields", get("/v1/schemas/cost1"), schemas, calls=20),
    row(
        "PUT /v1/schemas/{name}", "a type of 10 000 fields",
        request("PUT", "/v1/schemas/fields", descriptors(b"fields")), status=201, memory=60, written=1.1,
        written_room=KIB,
    ),
    # after 250 000 parts, which are accepted
    row(
        "PUT /v1/schemas/{name}", "two million parts of two bytes",
        request("PUT", "/v1/schemas/parts", b"\x0a\x00" * 2_000_000), status=413, memory_room=96 * MIB,
    ),
    row(
        "DELETE /v1/schemas/{name}", "one of three", request("DELETE", "/v1/schemas/gone"), _removable_schema,
        status=204,
    ),
    row(
        "POST /v1/sign", "of an open service, with the longest path",
        request("POST", "/v1/sign", b'{"path":"/v1/stores/%b"}' % (b"a" * 7_900), content_type=_JSON), status=422,
    ),
    row("GET /v1/audit", "a thousand changes of many filters", get("/v1/audit?limit=1000&what=tag.set&who=&subject=m")),
    row(
        "POST /v1/tokens", "a mebibyte of patterns",
        request("POST", "/v1/tokens",
                b'{"name":"x","scopes":[],"tags":["%b"]}' % (b'","' * 300_000), content_type=_JSON),
        status=400, held=3_000_000, loop=4_000_000, memory_room=96 * MIB,
    ),
    row("GET /v1/spaces", "a hundred", get("/v1/spaces?limit=1000"), _hundred_spaces, calls=220, work=150_000),
    *(
        row(f"{method} /v1/spaces/{{space}}", "a long name", request(method, path), status=404)
        for method, path in (
            ("GET", f"/v1/spaces/{'a' * 60_000}"),
            ("DELETE", f"/v1/spaces/{'a' * 60_000}?with_stores=true"),
        )
    ),
    row("PUT /v1/spaces/{space}", "a new one", request("PUT", "/v1/spaces/new"), status=201),
    # the first answer with a status makes the metrics for its labels, in 1000 steps
    row("PUT /v1/spaces/{space}", "a long name", request("PUT", f"/v1/spaces/{'a' * 60_000}"), status=400, held=8500),
    row(
        "PATCH /v1/spaces/{space}", "all limits",
        request("PATCH", "/v1/spaces/default",
                b'{"quota_requests":1000,"quota_open_uploads":1000}', content_type=_JSON),
    ),
    row(
        "POST /v1/chunks/missing", "ten thousand digests, in a store that has no pieces yet",
        lambda store: _missing(store), far, held=80_000, loop=1900 * FAR, calls=2 * FAR, memory_room=40 * MIB,
    ),
    row(
        "POST /v1/chunks/missing", "ten thousand digests, in sixteen stores by one name",
        lambda store: _missing(*[store] * 16), empty_tensors(13), held=80_000, calls=60,
    ),
    row(
        "POST /v1/chunks/missing", "ten thousand digests, in whatever store", _missing(), small, held=80_000, calls=100,
    ),
    row(
        "POST /v1/chunks/missing", "ten thousand digests, and sixteen tags that have no stores yet",
        _missing(tags=[f"t{number}:1" for number in range(16)]), small, held=80_000,
    ),
    row(
        "POST /v1/chunks/missing", "ten thousand digests of large files, wherever they are", _missing(least=MIB), small,
        held=120_000, calls=170,
    ),
)  # fmt: skip
