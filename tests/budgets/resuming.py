"""The worst of resumable uploads."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import TUS, uploads
from tests.budgets.rows import KIB, MIB, Budget, Row, get, request

_MANY: Final = 40
_PART: Final = uploads(_MANY)
_ONE: Final = uploads(1, b"y" * 100_000)
_EMPTY: Final = uploads(1, bytes(1_000_000))
_UPLOAD: Final = "/v1/uploads/{upload}"


def _metadata(count: int) -> str:
    tags = b64encode(" ".join(f"t{n}:x" for n in range(count)).encode()).decode()
    return f"filename {b64encode(b'model.onnx').decode()},tag {tags}"


def _begin(wire: Wire, given: Any) -> int:
    """Begins fifty uploads, which nobody goes on with."""
    statuses = {wire.exchange(request("POST", "/v1/uploads", **TUS, upload_length="100"))[0] for _ in range(50)}
    return max(statuses)


def _patches(wire: Wire, given: Any) -> int:
    """Goes on with an upload a byte at a time."""
    status, head = wire.exchange(request("POST", "/v1/uploads", **TUS, upload_length="300"))
    path = head.split(b"location: ")[1].split(b"\r\n")[0].decode()
    for offset in range(30):
        body = request(
            "PATCH", path, b"x", **TUS, upload_offset=str(offset), content_type="application/offset+octet-stream"
        )
        status, _ = wire.exchange(body)
    return status


def _assemble(said: Any) -> bytes:
    return request("POST", "/v1/stores/assemble", json.dumps(said).encode(), content_type="application/json")


RESUMING: Final = (
    Row(route="OPTIONS /v1/uploads", worst="as it is", ask=request("OPTIONS", "/v1/uploads"), status=204),
    Row(route=f"OPTIONS {_UPLOAD}", worst="as it is", ask=request("OPTIONS", "/v1/uploads/x"), status=204),
    Row(
        route="POST /v1/uploads",
        worst="fifty that nobody goes on with",
        play=_begin,
        status=201,
        # FastAPI takes 230 steps for each of the nine parameters of the query.
        budget=Budget(calls=50 * 4, written_room=50 * KIB, work=50 * 2000, loop=50 * 9_500),
    ),
    Row(
        route="POST /v1/uploads",
        worst="five thousand tags in its metadata",
        ask=request("POST", "/v1/uploads", **TUS, upload_length="10", upload_metadata=_metadata(5000)),
        status=400,
        budget=Budget(),
    ),
    Row(
        route="POST /v1/uploads",
        worst=f"joined from {_MANY} others",
        ask=lambda parts: request(
            "POST", "/v1/uploads", **TUS, upload_concat="final;" + " ".join(f"/v1/uploads/{p}" for p in parts)
        ),
        given=_PART,
        status=(201, 422),
        budget=Budget(held=9_500, calls=_MANY * 7 + 20, written=2, written_room=_MANY * KIB, work=_MANY * 10_000),
    ),
    Row(
        route="POST /v1/uploads",
        worst="joined from one other, 1 500 times over",
        ask=lambda parts: request("POST", "/v1/uploads", **TUS, upload_concat="final;" + " ".join(parts * 1500)),
        given=_ONE,
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"},
        status=(413, 422),
        budget=Budget(held=15_000, calls=20),
    ),
    Row(
        route=f"GET {_UPLOAD}",
        worst="one of many",
        ask=lambda parts: get(f"/v1/uploads/{parts[0]}"),
        given=_PART,
        status=200,
        budget=Budget(calls=10),
    ),
    Row(
        route=f"GET {_UPLOAD}/records",
        worst="a million empty records, framed anew",
        ask=lambda parts: get(f"/v1/uploads/{parts[0]}/records?framing=delimited&format=tfrecord"),
        given=_EMPTY,
        status=200,
        budget=Budget(calls=20, got=2 * MIB),
    ),
    Row(
        route=f"PATCH {_UPLOAD}",
        worst="a byte at a time",
        play=_patches,
        status=204,
        budget=Budget(calls=30 * 30, written_room=30 * 4 * KIB, loop=30 * 35_000, work=30 * 12_000),
    ),
    Row(
        route=f"DELETE {_UPLOAD}",
        worst="one that is not there",
        ask=request("DELETE", "/v1/uploads/" + "0" * 31, **TUS),
        status=404,
    ),
    Row(
        route=f"POST {_UPLOAD}",
        worst="another method in a header",
        ask=request("POST", "/v1/uploads/x", x_http_method_override="PATCH"),
        status=412,
        budget=Budget(held=10_500),
    ),
    Row(
        route="POST /v1/stores/assemble",
        worst="a thousand files of one upload",
        ask=lambda parts: _assemble({"uploads": {f"{n}": parts[0] for n in range(1000)}}),
        given=_ONE,
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"},
        status=413,
        budget=Budget(held=24_000, calls=20),
    ),
    Row(
        route="POST /v1/stores/assemble",
        worst="one upload 1 500 times over",
        ask=lambda parts: _assemble({"uploads": {"a": parts * 1500}}),
        given=_ONE,
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"},
        status=413,
        budget=Budget(held=17_000, calls=20),
    ),
    Row(
        route="POST /v1/stores/assemble",
        worst="an upload that is no archive",
        ask=lambda parts: _assemble({"archive": parts[0]}),
        given=_ONE,
        status=(400, 422),
        budget=Budget(held=24_000, calls=20),
    ),
    Row(
        route="POST /v1/stores/assemble",
        worst="two thousand tags",
        ask=lambda parts: _assemble({"uploads": {"a": parts[0]}, "tags": [f"t{n}:x" for n in range(2000)]}),
        given=_ONE,
        status=(400, 422),
        budget=Budget(calls=20),
    ),
)
