"""The worst requests to repositories of the OCI API, and to MLflow's artifacts."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

import httpx
from tests.budgets.rows import KIB, MIB, Budget, Row, get, request, row

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONTENT: Final = b"a blob of a repository " * 4096


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(client: httpx.Client) -> str:
    """Create a repository with a blob; return the blob's digest."""
    client.post(f"/v2/a/b/blobs/uploads/?digest={digest_of(_CONTENT)}", content=_CONTENT).raise_for_status()
    return digest_of(_CONTENT)


def _tagged(client: httpx.Client) -> str:
    """Return the digest of a manifest of one blob with two hundred tags, to which two hundred manifests refer."""
    data = json.dumps({"schemaVersion": 2, "layers": [{"digest": _blob(client), "size": len(_CONTENT)}]}).encode()
    for number in range(200):
        put = client.put(f"/v2/a/b/manifests/t{number}", content=data, headers={"content-type": _MANIFEST})
        put.raise_for_status()
        about = {"schemaVersion": 2, "subject": {"digest": digest_of(data)}, "annotations": {"n": str(number)}}
        client.put(
            f"/v2/a/b/manifests/{digest_of(json.dumps(about).encode())}",
            content=json.dumps(about).encode(),
            headers={"content-type": _MANIFEST},
        ).raise_for_status()
    return digest_of(data)


def _upload(client: httpx.Client) -> str:
    """Begin an upload; return its path."""
    return httpx.URL(client.post("/v2/a/b/blobs/uploads/").headers["location"]).path


def _unknown(count: int) -> bytes:
    layers = [{"digest": f"sha256:{number:064x}", "size": 1} for number in range(count)]
    return json.dumps({"schemaVersion": 2, "layers": layers}).encode()


def _put_manifest(data: bytes) -> bytes:
    return request("PUT", "/v2/a/b/manifests/t", data, content_type=_MANIFEST)


_NAME: Final = "/v2/{name:path}"

_HELD: Final = 20_000
"""The limit for paths with slashes in a name; most of the steps are the framework's routing."""
_FEW: Final = Budget(held=_HELD, calls=12, written_room=16 * KIB)

OCI: Final = (
    row("GET /v2/_catalog", "a name that is none", get("/v2/_catalog?last=" + "a-" * 2000), status=400, budget=_FEW),
    row(
        f"GET {_NAME}/blobs/{{digest}}", "a blob that no manifest has named",
        lambda digest: get(f"/v2/a/b/blobs/{digest}", range="bytes=1-1"), _blob, status=206, fresh=True, held=_HELD,
        work=500_000, calls=60, written_room=64 * KIB,
    ),
    row(
        f"PUT {_NAME}/blobs/uploads/{{upload}}", "bytes of another digest",
        lambda path: request("PUT", f"{path}?digest=sha256:{'0' * 64}", b"x" * 64 * KIB), _upload, status=400,
        held=_HELD, work=500_000, calls=40, written=2, written_room=16 * KIB,
    ),
    row(
        f"PUT {_NAME}/manifests/{{ref}}", "ten thousand blobs that are not there", _put_manifest(_unknown(10_000)),
        status=400, held=100_000, calls=130, work=1_500_000, memory=12,
    ),
    row(
        f"PUT {_NAME}/manifests/{{ref}}", "nested a hundred thousand deep", _put_manifest(b"[" * 100_000), status=400,
        held=_HELD, work=1_000_000,
    ),
    row(
        f"PUT {_NAME}/manifests/{{ref}}", "more than clients read", _put_manifest(b" " * (5 * MIB)), status=413,
        budget=_FEW,
    ),
    row(f"GET {_NAME}/tags/list", "two hundred tags", get("/v2/a/b/tags/list"), _tagged, service="tagged", budget=_FEW),
    row(
        f"GET {_NAME}/referrers/{{digest}}", "a hundred of two hundred",
        lambda digest: get(f"/v2/a/b/referrers/{digest}"), _tagged, service="tagged", held=_HELD, calls=220,
    ),
    row(
        f"DELETE {_NAME}/manifests/{{ref}}", "a manifest with two hundred tags",
        lambda digest: request("DELETE", f"/v2/a/b/manifests/{digest}"), _tagged, status=202, service="tagged",
        held=_HELD, calls=1300, loop=1_000_000, work=600_000, written_room=16 * KIB,
    ),
)  # fmt: skip


_JSON: Final = "application/json"
_BASE: Final = "/api/2.0/mlflow-artifacts"
_FILES: Final = 500
_SESSION: Final = "0" * 32


def _logged(http: httpx.Client) -> str:
    """Log five hundred small files in one folder, and as many folders of one file."""
    with http.stream("GET", f"{_BASE}/artifacts?path=run/folders") as there:
        if json.loads(there.read())["files"]:
            return "run"
    for number in range(_FILES):
        for path in (f"run/files/{number}", f"run/folders/{number}/x"):
            http.put(f"{_BASE}/artifacts/{path}", content=b"x" * 1000).raise_for_status()
    http.put(f"{_BASE}/artifacts/run/large", content=b"x" * 100_000).raise_for_status()
    return "run"


def _row(route: str, worst: str, ask: bytes, *, held: int = 16_000, **more: Any) -> Row:
    return row(route, worst, ask, _logged, service="mlflow", held=held, **more)


def _post(path: str, body: dict[str, Any]) -> bytes:
    return request("POST", path, json.dumps(body).encode(), content_type=_JSON)


_ETAGS: Final = [{"part_number": number, "etag": f"{number:032x}"} for number in range(1, 9000)]

MLFLOW: Final = (
    _row(
        f"GET {_BASE}/artifacts", "a folder of hundreds of files, each of which is read",
        get(f"{_BASE}/artifacts?path=run/files"), held=32_000, loop=1_000_000, work=300_000, calls=_FILES + 20,
    ),
    _row(
        f"GET {_BASE}/artifacts", "a folder of hundreds of folders", get(f"{_BASE}/artifacts?path=run/folders"),
        held=24_000,
    ),
    _row(f"GET {_BASE}/artifacts/{{name:path}}", "a file", get(f"{_BASE}/artifacts/run/large")),
    _row(
        f"GET {_BASE}/artifacts/{{name:path}}", "a deep path of nothing", get(f"{_BASE}/artifacts/{'a/' * 20}x"),
        status=404,
    ),
    _row(
        f"PUT {_BASE}/artifacts/{{name:path}}", "a byte more than lies in a record",
        request("PUT", f"{_BASE}/artifacts/run/new", b"x" * 16_385), held=20_000, loop=100_000, work=100_000, calls=60,
        written_room=MIB,
    ),
    _row(f"GET {_BASE}/presigned/{{name:path}}", "a file", get(f"{_BASE}/presigned/run/large")),
    _row(
        f"POST {_BASE}/mpu/create/{{name:path}}", "as many parts as there may be",
        _post(f"{_BASE}/mpu/create/run", {"path": "f", "num_parts": 10_000}), held=16_000, work=400_000, got=4 * MIB,
    ),
    _row(
        f"PUT {_BASE}/parts/{{session}}/{{name:path}}", "a byte",
        request("PUT", f"{_BASE}/parts/{_SESSION}/run?number=1", b"x"), held=16_000, loop=100_000, work=100_000,
        calls=40, written_room=MIB,
    ),
    _row(
        f"POST {_BASE}/mpu/complete/{{name:path}}", "thousands of parts that nobody sent",
        _post(f"{_BASE}/mpu/complete/run", {"path": "f", "upload_id": _SESSION, "parts": _ETAGS}), status=404,
        held=45_000, loop=1_000_000, work=400_000, calls=600,
    ),
    _row(
        f"POST {_BASE}/mpu/abort/{{name:path}}", "thousands of parts",
        _post(f"{_BASE}/mpu/abort/run", {"path": "f", "upload_id": _SESSION, "parts": _ETAGS}),
    ),
    _row(
        "POST /v1/drafts/{name:path}", "a folder of hundreds of files", request("POST", "/v1/drafts/run/files"),
        status=201, held=40_000, loop=2_000_000, work=None, calls=_FILES + 100, written_room=4 * MIB,
    ),
)  # fmt: skip
