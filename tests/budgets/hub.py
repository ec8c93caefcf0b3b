"""The worst requests to model repositories by Hugging Face's clients, and to buckets by S3 clients."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

import httpx
from tests.budgets.rows import KIB, MIB, Budget, Row, get, request, row
from tests.support.stores import onnx

_JSON: Final = "application/json"
_FORM: Final = "application/x-www-form-urlencoded"
_FILES: Final = 1000
_LONG: Final = "/".join("abcdefgh" * 4 for _ in range(8))
_KIND: Final = "/api/{kind}/{name:repository}"
_XET: Final = "/api/xet/{kind}/{name:repository}/{session}/v1"


def _commit(*operations: tuple[str, dict[str, Any]]) -> bytes:
    lines = [("header", {"summary": "s"}), *operations]
    return b"\n".join(json.dumps({"key": key, "value": value}).encode() for key, value in lines)


def _repository(name: str, kind: str = "model", count: int = _FILES) -> Any:
    """Make a repository of long paths, with branches and tags."""

    def make(http: httpx.Client) -> str:
        if http.post("/api/repos/create", json={"organization": "ann", "name": name, "type": kind}).status_code == 409:
            return name
        content = b64encode(b"x").decode()
        files = [("file", {"content": content, "path": f"{_LONG}/{number}"}) for number in range(count)]
        told = http.post(f"/api/{kind}s/ann/{name}/commit/main", content=_commit(*files))
        assert told.status_code == 200, told.text
        for number in range(20):
            http.post(f"/api/{kind}s/ann/{name}/tag/main", json={"tag": f"t{number}"})
        return name

    return make


def _model(http: httpx.Client) -> str:
    """Make a repository of a model of many tensors."""
    if http.post("/api/repos/create", json={"organization": "ann", "name": "onnx"}).status_code == 409:
        return "onnx"
    content = b64encode(onnx(*[4] * 2000)).decode()
    told = http.post(
        "/api/models/ann/onnx/commit/main", content=_commit(("file", {"content": content, "path": "m.onnx"}))
    )
    assert told.status_code == 200, told.text
    return "onnx"


_PLAIN: Final = Budget(held=13_000)
_LISTED: Final = Budget(held=20_000)
"""The budget of requests that read a commit's thousand files."""


def _row(route: str, worst: str, ask: bytes, *, budget: Budget = _LISTED, name: str = "m", **more: Any) -> Row:
    given = _repository(name, count=_FILES if name == "m" else 3)
    return row(route, worst, ask, given, service="hub", budget=budget, **more)


def _post(path: str, body: bytes | dict[str, Any], kind: str = _JSON) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return request("POST", path, data, content_type=kind)


_FIRST: Final = f"{_LONG}/0".replace("/", "%2F")
_MANY_PATHS: Final = b"&".join(b"paths=%d" % number for number in range(9000))

HUB: Final = (
    _row(f"GET {_KIND}", "a thousand long paths", get("/api/models/ann/m?blobs=true")),
    _row(f"GET {_KIND}/revision/{{revision}}", "a thousand long paths", get("/api/models/ann/m/revision/t1")),
    _row(f"GET {_KIND}/tree/{{revision}}", "all files", get("/api/models/ann/m/tree/main?recursive=true")),
    _row(
        f"GET {_KIND}/tree/{{revision}}/{{folder:path}}", "a deep folder",
        get(f"/api/models/ann/m/tree/main/{_FIRST[:-4]}?recursive=true"),
    ),
    _row(
        f"POST {_KIND}/paths-info/{{revision}}", "thousands of paths that are not there",
        _post("/api/models/ann/m/paths-info/main", _MANY_PATHS, _FORM), held=20_000, work=400_000,
    ),
    _row(
        f"POST {_KIND}/paths-info/{{revision}}", "thousands of paths that are not there, in JSON",
        _post("/api/models/ann/m/paths-info/main", {"paths": [f"{number}" for number in range(9000)]}), held=20_000,
        work=400_000,
    ),
    _row(f"GET {_KIND}/refs", "many tags", get("/api/models/ann/m/refs"), held=12_000, calls=60),
    _row(f"GET {_KIND}/commits/{{revision}}", "a branch", get("/api/models/ann/m/commits/main")),
    row(
        f"GET {_KIND}/tree/{{revision}}", "the view of a model of 2 000 tensors, each of which is looked up once",
        get("/api/models/ann/onnx/tree/views%2Fmain"), _model, service="hub", held=30_000, work=None,
        written_room=64 * KIB,
    ),
    row(
        "GET /{name:repository_of_kind}/resolve/{revision}/{path:path}",
        "safetensors of 2 000 tensors, by the id of a view", get("/ann/onnx/resolve/views%2Fmain/model.safetensors"),
        _model, service="hub", held=30_000, work=None, written_room=64 * KIB,
    ),
    _row(
        "GET /v1/repositories", "all, one of which has a head of a thousand long paths",
        get("/v1/repositories?limit=1000&prefix="), held=20_000, calls=60,
    ),
    _row("GET /v1/repositories/{name:path}", "many tags", get("/v1/repositories/ann/m"), held=12_000, calls=60),
    _row(
        f"GET {_KIND}/tree/{{revision}}", "all files, with their last commits",
        get("/api/models/ann/m/tree/main?recursive=true&expand=true"),
    ),
    _row(
        f"POST {_KIND}/paths-info/{{revision}}", "a thousand paths, with their last commits",
        _post("/api/models/ann/m/paths-info/main",
              {"paths": [f"{_LONG}/{number}" for number in range(_FILES)], "expand": True}),
        held=20_000, work=400_000,
    ),
    *(
        # FastAPI reads the source of an endpoint at its first request
        _row(
            f"GET /api/{kind}", "all, by time, with their files",
            get(f"/api/{kind}?sort=lastModified&full=true&search=m&limit=1000"), held=22_000, calls=60,
        )
        for kind in ("models", "datasets")
    ),
    _row(f"GET {_KIND}/auth-check", "one with tags", get("/api/models/ann/m/auth-check"), budget=_PLAIN),
    _row(f"GET {_KIND}/auth-check/write", "one with tags", get("/api/models/ann/m/auth-check/write"), budget=_PLAIN),
    _row(
        f"POST {_KIND}/super-squash/{{branch}}", "a branch of a thousand files",
        _post("/api/models/ann/m/super-squash/main", {"message": "x" * 100_000}), held=13_000, written_room=128 * KIB,
    ),
    _row(
        "POST /api/repos/move", "one with tags",
        _post("/api/repos/move", {"fromRepo": "ann/moved", "toRepo": "ann/moved-to"}), name="moved", held=13_000,
        written_room=128 * KIB,
    ),
    _row(
        "GET /{name:owned}/info/refs", "a thousand files and twenty tags, which are prepared", get("/ann/m/info/refs"),
        held=40_000, loop=1_500_000, work=None, written_room=4 * MIB,
    ),
    _row(
        "GET /{name:owned}/HEAD", "a thousand files and twenty tags, which are prepared", get("/ann/m/HEAD"),
        held=40_000, loop=1_500_000, work=None, written_room=4 * MIB,
    ),
    _row(
        "GET /{name:owned}/objects/{start}/{rest}", "an object that nobody has", get(f"/ann/m/objects/00/{'0' * 38}"),
        status=404, budget=_PLAIN,
    ),
    *(
        _row(
            f"GET /{{name:repository_of_kind}}/{files}/{{revision}}/{{path:path}}", "a dataset that is not there",
            get(f"/datasets/ann/m/{files}/main/x"), status=404,
        )
        for files in ("resolve", "raw")
    ),
    *(
        _row(
            f"GET /{{name:repository_of_kind}}/{files}/{{revision}}/{{path:path}}", "one of a thousand files",
            get(f"/ann/m/{files}/main/{_LONG}/999"),
        )
        for files in ("resolve", "raw")
    ),
    _row(
        "POST /api/repos/create", "one that exists", _post("/api/repos/create", {"organization": "ann", "name": "m"}),
        status=409,
    ),
    _row(
        "DELETE /api/repos/delete", "one with tags",
        request("DELETE", "/api/repos/delete", b'{"organization":"ann","name":"gone"}', content_type=_JSON),
        name="gone", held=12_000, calls=100,
    ),
    _row("POST /api/validate-yaml", "a long card", _post("/api/validate-yaml", {"content": "x" * 200_000})),
    _row(
        f"POST {_KIND}/preupload/{{revision}}", "a thousand files",
        _post("/api/models/ann/m/preupload/main", {"files": [{"path": f"{n}", "size": n} for n in range(1000)]}),
    ),
    _row(
        f"POST {_KIND}/commit/{{revision}}", "one small file beside a thousand",
        _post("/api/models/ann/m/commit/main", _commit(("file", {"content": "eA==", "path": "new"}))), held=90_000,
        loop=4_000_000, work=None, calls=1100, written_room=2 * MIB,
    ),
    _row(
        f"POST {_KIND}/commit/{{revision}}", "thousands of digests that nobody has",
        _post("/api/models/ann/m/commit/main",
              _commit(*(("lfsFile", {"oid": f"{n:064x}", "path": f"new-{n}", "algo": "sha256"}) for n in range(2000)))),
        status=400, held=40_000, loop=1_000_000, calls=60,
    ),
    _row(
        f"POST {_KIND}/discussions", "a long description",
        _post("/api/models/ann/m/discussions", {"title": "t", "description": "x" * 200_000}), status=422, budget=_PLAIN,
    ),
    _row(
        f"POST {_KIND}/branch/{{branch}}", "a new one", _post("/api/models/ann/m/branch/b%2Fc", {}), status=201,
        budget=_PLAIN,
    ),
    _row(f"DELETE {_KIND}/branch/{{branch}}", "none", request("DELETE", "/api/models/ann/m/branch/none"), status=404),
    _row(
        f"POST {_KIND}/tag/{{revision}}", "a new one", _post("/api/models/ann/m/tag/main", {"tag": "new"}), status=201,
    ),
    _row(f"DELETE {_KIND}/tag/{{tag}}", "none", request("DELETE", "/api/models/ann/m/tag/none"), status=404),
    *(
        _row(
            "POST /{name:repository_of_kind}.git/info/lfs/objects/batch", f"256 new files{of}",
            _post(f"{prefix}ann/m.git/info/lfs/objects/batch",
                  {"operation": "upload", "objects": [{"oid": f"{n:064x}", "size": 1} for n in range(256)]}),
            status=status, held=100_000, loop=1_500_000, work=700_000, calls=1200, written_room=MIB,
        )
        for prefix, of, status in (("/", "", 200), ("/datasets/", " of a dataset that is not there", 404))
    ),
    _row(
        "GET /api/lfs-files/{kind}/{name:repository}/{oid}", "a digest that nobody has",
        get(f"/api/lfs-files/models/ann/m/{'0' * 64}"), status=404, held=20_000, calls=60,
    ),
    _row(
        "POST /{name:repository_of_kind}.git/info/lfs/objects/batch", "256 downloads that nobody has",
        _post("/ann/m.git/info/lfs/objects/batch",
              {"operation": "download", "objects": [{"oid": f"{n:064x}", "size": 1} for n in range(256)]}),
        held=60_000, loop=1_500_000, work=700_000, calls=1200,
    ),
    _row(
        "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}", "an upload that is not there",
        request("PUT", "/api/lfs-uploads/models/ann/m/none", b"x" * 100_000), status=404,
    ),
    _row(
        "PUT /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}/{number}", "a part beyond the last",
        request("PUT", f"/api/lfs-parts/models/ann/m/{'0' * 64}/400/1/401", b"x" * 100_000), status=404,
    ),
    _row(
        "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}", "hundreds of parts that are not there",
        _post(f"/api/lfs-parts/models/ann/m/{'0' * 64}/400/1",
              {"parts": [{"partNumber": n, "etag": f"{n:031x}"} for n in range(1, 401)]}),
        status=404, held=40_000, loop=1_500_000, calls=450, written_room=16 * KIB,
    ),
    _row(
        f"GET {_KIND}/xet-write-token/{{revision}}", "a new session", get("/api/models/ann/m/xet-write-token/main"),
        held=40_000, calls=24, written_room=16 * KIB,
    ),
    _row(
        f"POST {_XET}/xorbs/default/{{hash}}", "a session that is not there",
        request("POST", f"/api/xet/models/ann/m/none/v1/xorbs/default/{'0' * 64}", b"x" * 100_000), status=404,
    ),
    _row(
        f"POST {_XET}/shards", "a session that is not there",
        request("POST", "/api/xet/models/ann/m/none/v1/shards", b"x" * 100_000), status=404,
    ),
)  # fmt: skip


_TENSORS: Final = 2000


def _names(http: httpx.Client) -> None:
    """Give a store of a thousand files fifty names, and a model of many tensors one name."""
    if http.get("/v1/tags/s3-0").status_code == 200:
        return
    files = [("file", (f"f/{number:04}", b"x")) for number in range(_FILES)]
    tags = "&".join(f"tag=s3-{number}" for number in range(50))
    http.post(f"/v1/stores?{tags}", files=files).raise_for_status()
    http.put("/v1/stores?filename=m.onnx&tag=s3-model", content=onnx(*[4] * _TENSORS)).raise_for_status()


def _listing(worst: str, query: str, budget: Budget, status: int = 200) -> Row:
    ask = get(f"/s3/default?{query}")
    return Row(route="GET /s3/bucket", worst=worst, ask=ask, given=_names, status=status, budget=budget)


_PAGE: Final = Budget(held=20_000, work=500_000)
"""The budget of a page of a thousand keys."""

S3: Final = (
    _listing("a page of keys of fifty names", "list-type=2&prefix=tags/s3-", _PAGE),
    _listing("a delimiter in every key", "list-type=2&delimiter=0&prefix=tags/s3-", Budget(held=20_000, work=500_000)),
    _listing("no key of a page is wanted", "list-type=2&max-keys=0", Budget()),
    _listing(
        "the view of a model of many tensors", "list-type=2&prefix=tags/s3-model/@safetensors/", Budget(work=2_000_000)
    ),
    _listing("a prefix of 60 kB", f"list-type=2&prefix={'tags/' * 12_000}", Budget(), 400),
    _listing("two hundred parameters", "&".join(f"{number}=" for number in range(200)), _PAGE),
    _listing("too many parameters", "&".join(f"{number}=" for number in range(10_000)), Budget(), 400),
    Row(
        route="GET /s3/bucket/key",
        worst="five thousand ranges",
        ask=get("/s3/default/tags/s3-0/f/0000", range="bytes=" + ",".join(["0-0"] * 5000)),
        given=_names,
        status=200,
        budget=Budget(held=13_000),
    ),
    Row(
        route="GET /s3/bucket/key",
        worst="signed headers of 50 kB",
        ask=get(
            "/s3/default/tags/s3-0/f/0000",
            authorization=f"AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders={';'.join(['host'] * 10 * KIB)}, Signature="
            + "0" * 64,
        ),
        given=_names,
        status=200,
        budget=Budget(),
    ),
)
