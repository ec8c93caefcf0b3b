"""Worst requests that find, name and remove stored things: stores, tags, schemas, pieces by digest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import httpx
from tests.budgets.materials import FAR, descriptors, empty_tensors, far, long_paths, schemas, small, stored, tags, tar
from tests.budgets.rows import KIB, MIB, Budget, Row, get, request
from tests.support.stores import onnx

from protoslice.serving.finding import TAGS_SHOWN

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
    """A removed store of many files, which bore tags."""
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
    Row(
        route="GET /v1/stores",
        worst="four stores of a thousand long paths each",
        ask=get("/v1/stores?limit=1000"),
        given=long_paths,
        service="long paths",
        status=200,
        budget=Budget(calls=60),
    ),
    Row(
        route="GET /v1/stores",
        worst="only of a type that none has",
        ask=get("/v1/stores?type=no.Such&tag=many&limit=1000"),
        given=_MANY_TAGS,
        service="tags",
        status=200,
        budget=Budget(held=23_000, calls=40 + _TAGS),
    ),
    Row(
        route="GET /v1/stores/{ref}",
        worst=f"{_TAGS} tags, of which {TAGS_SHOWN} are shown",
        ask=lambda store: get(f"/v1/stores/{store}"),
        given=_MANY_TAGS,
        service="tags",
        status=200,
        budget=Budget(held=14_000, calls=2 * TAGS_SHOWN + 10),  # a stat and a read for each, as the index may be behind
    ),
    Row(
        route="GET /v1/stores/{ref}",
        worst="a thousand long paths",
        ask=lambda store: get(f"/v1/stores/{store}"),
        given=long_paths,
        status=200,
        budget=Budget(held=10_000, got=2 * MIB),
    ),
    Row(
        route="PATCH /v1/stores/{ref}",
        worst=f"{_TAGS} tags, of which {TAGS_SHOWN} are shown",
        ask=lambda store: request(
            "PATCH", f"/v1/stores/{store}", json.dumps({"description": "x" * 2000}).encode(), content_type=_JSON
        ),
        given=_MANY_TAGS,
        service="tags",
        status=200,
        budget=Budget(held=14_000, calls=10),
    ),
    Row(
        route="DELETE /v1/stores/{ref}",
        worst=f"beside {_TAGS} tags of others",
        ask=lambda given: request("DELETE", f"/v1/stores/{given}"),
        given=_removable,
        service="tags",
        status=200,
        # The manifest, with the small records in it; four listings look for names in registries.
        budget=Budget(held=8000, written_room=16 * KIB, calls=14),
    ),
    Row(
        route="POST /v1/stores/{id}/restore",
        worst="a thousand files and twenty tags",
        ask=lambda store: request("POST", f"/v1/stores/{store}/restore"),
        given=_removed,
        status=200,
        budget=Budget(held=30_000, work=190_000, calls=20 * 9, written_room=512 * KIB),
    ),
    Row(
        route="GET /v1/removed",
        worst="a store with its tags",
        ask=get("/v1/removed?limit=1000"),
        given=_removed,
        status=200,
        budget=Budget(held=30_000, work=190_000, calls=20),
    ),
    Row(
        route="GET /v1/tags",
        worst=f"{_TAGS} of them",
        ask=get("/v1/tags?limit=1000"),
        given=_MANY_TAGS,
        service="tags",
        status=200,
        budget=Budget(held=26_000, calls=_TAGS + 10),
    ),
    Row(
        route="PUT /v1/tags/{tag}",
        worst="a condition of 60 kB",
        ask=lambda store: request(
            "PUT",
            "/v1/tags/one:1",
            json.dumps({"store": store}).encode(),
            content_type=_JSON,
            if_match=",".join(['"a"'] * 15_000),
        ),
        given=_tagged,
        status=412,
    ),
    Row(
        route="PUT /v1/tags/{tag}",
        worst="a body of a mebibyte that is nested deep",
        ask=request("PUT", "/v1/tags/one:1", b"[" * 1_000_000, content_type=_JSON),
        given=_tagged,
        status=400,
    ),
    Row(
        route="DELETE /v1/tags/{tag}",
        worst="a condition of 60 kB",
        ask=request("DELETE", "/v1/tags/one:1", if_match=",".join(['"a"'] * 15_000)),
        given=_tagged,
        status=412,
    ),
    Row(
        route="GET /v1/schemas",
        worst="three of 10 000 fields",
        ask=get("/v1/schemas"),
        given=schemas,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route="GET /v1/schemas/{name}",
        worst="10 000 fields",
        ask=get("/v1/schemas/cost1"),
        given=schemas,
        status=200,
        budget=Budget(calls=20),
    ),
    Row(
        route="PUT /v1/schemas/{name}",
        worst="a type of 10 000 fields",
        ask=request("PUT", "/v1/schemas/fields", descriptors(b"fields")),
        status=201,
        budget=Budget(memory=60, written=1.1, written_room=KIB),
    ),
    Row(
        route="PUT /v1/schemas/{name}",
        worst="two million parts of two bytes",
        ask=request("PUT", "/v1/schemas/parts", b"\x0a\x00" * 2_000_000),
        status=413,  # after 250 000 parts, which are taken
        budget=Budget(memory_room=96 * MIB),
    ),
    Row(
        route="DELETE /v1/schemas/{name}",
        worst="one of three",
        ask=request("DELETE", "/v1/schemas/gone"),
        given=_removable_schema,
        status=204,
    ),
    Row(
        route="POST /v1/sign",
        worst="of an open service, with the longest path",
        ask=request("POST", "/v1/sign", b'{"path":"/v1/stores/%b"}' % (b"a" * 7_900), content_type=_JSON),
        status=422,
    ),
    Row(
        route="GET /v1/audit",
        worst="a thousand changes of many filters",
        ask=get("/v1/audit?limit=1000&what=tag.set&who=&subject=m"),
        status=200,
    ),
    Row(
        route="POST /v1/tokens",
        worst="a mebibyte of patterns",
        ask=request(
            "POST", "/v1/tokens", b'{"name":"x","scopes":[],"tags":["%b"]}' % (b'","' * 300_000), content_type=_JSON
        ),
        status=400,
        budget=Budget(held=3_000_000, loop=4_000_000, memory_room=96 * MIB),
    ),
    Row(
        route="GET /v1/spaces",
        worst="a hundred",
        ask=get("/v1/spaces?limit=1000"),
        given=_hundred_spaces,
        status=200,
        budget=Budget(calls=220, work=150_000),
    ),
    *(
        Row(route=f"{method} /v1/spaces/{{space}}", worst="a long name", ask=request(method, path), status=404)
        for method, path in (
            ("GET", f"/v1/spaces/{'a' * 60_000}"),
            ("DELETE", f"/v1/spaces/{'a' * 60_000}?with_stores=true"),
        )
    ),
    Row(route="PUT /v1/spaces/{space}", worst="a new one", ask=request("PUT", "/v1/spaces/new"), status=201),
    Row(
        route="PUT /v1/spaces/{space}",
        worst="a long name",
        ask=request("PUT", f"/v1/spaces/{'a' * 60_000}"),
        status=400,
        budget=Budget(held=8500),  # the first answer of a status makes the metrics of its labels, in 1000 steps
    ),
    Row(
        route="PATCH /v1/spaces/{space}",
        worst="all limits",
        ask=request(
            "PATCH", "/v1/spaces/default", b'{"quota_requests":1000,"quota_open_uploads":1000}', content_type=_JSON
        ),
        status=200,
    ),
    Row(
        route="POST /v1/chunks/missing",
        worst="ten thousand digests, in a store that has no pieces yet",
        ask=lambda store: _missing(store),
        given=far,
        status=200,
        budget=Budget(held=80_000, loop=1900 * FAR, calls=2 * FAR, memory_room=40 * MIB),
    ),
    Row(
        route="POST /v1/chunks/missing",
        worst="ten thousand digests, in sixteen stores by one name",
        ask=lambda store: _missing(*[store] * 16),
        given=empty_tensors(13),
        status=200,
        budget=Budget(held=80_000, calls=60),
    ),
    Row(
        route="POST /v1/chunks/missing",
        worst="ten thousand digests, in whatever store",
        ask=_missing(),
        given=small,
        status=200,
        budget=Budget(held=80_000, calls=100),
    ),
    Row(
        route="POST /v1/chunks/missing",
        worst="ten thousand digests, and sixteen tags that have no stores yet",
        ask=_missing(tags=[f"t{number}:1" for number in range(16)]),
        given=small,
        status=200,
        budget=Budget(held=80_000),
    ),
    Row(
        route="POST /v1/chunks/missing",
        worst="ten thousand digests of large files, wherever they are",
        ask=_missing(least=MIB),
        given=small,
        status=200,
        budget=Budget(held=120_000, calls=170),
    ),
)
