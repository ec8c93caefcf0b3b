"""The worst request bodies, and the worst requests of resumable uploads."""

from __future__ import annotations

import json
import time
from base64 import b64encode
from contextlib import ExitStack
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import (
    TUS,
    bomb,
    form,
    medium,
    missing_files,
    nothings,
    one_over_another,
    recipe_of_copies,
    schemas,
    tar,
    uploads,
    wide_schema,
)
from tests.budgets.rows import KIB, MIB, Row, get, request, row
from tests.support.protos.writer import varint
from tests.support.stores import field, onnx

from protoslice.recipes import MEDIA_TYPE as RECIPE

_FORM: Final = "multipart/form-data; boundary=b"
_TAR: Final = "application/x-tar"
_BYTES: Final = "application/octet-stream"
_STORED: Final = {"written": 2, "written_room": 64 * KIB, "calls": 20}
_TAGS: Final = "&".join(f"tag=t{n}:x" for n in range(500))


def _post(query: str, body: bytes, kind: str = _BYTES) -> bytes:
    return request("POST", f"/v1/stores?{query}", body, content_type=kind)


def silent(wire: Wire, given: Any) -> int:
    """Begin sixteen uploads and send nothing more; then a client at another address uploads a store."""
    with ExitStack() as held:
        for _ in range(16):
            connection = held.enter_context(wire.open("127.0.0.2"))
            wire.send(connection, b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nx")
        time.sleep(0.3)
        return wire.exchange(_post("filename=model.onnx", onnx(13)))[0]


def drops(wire: Wire, given: Any) -> int:
    """Send ten thousand chunks of a byte each."""
    head = b"POST /v1/stores?filename=model.onnx HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    body = onnx(9900)
    return wire.exchange(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")[0]


def _register(files: int, tags: int = 0) -> bytes:
    said = {"files": {f"{n}": f"file:///nowhere/{n}" for n in range(files)}, "tags": [f"t{n}:x" for n in range(tags)]}
    return request("POST", "/v1/stores/register", json.dumps(said).encode(), content_type="application/json")


def _sent(worst: str, query: str, body: bytes, kind: str = _BYTES, **more: Any) -> Row:
    return row("POST /v1/stores", worst, _post(query, body, kind), **more)


INTAKE: Final = (
    # the names are checked before the framework reads the query
    _sent("a store with five hundred tags", f"filename=model.onnx&{_TAGS}", onnx(14), status=(400, 422), held=35_000),
    _sent(
        "a type that none of three large schemas has", "type=no.Such", b"\x08\x01", given=schemas, status=422, calls=20,
    ),
    _sent(
        "two bytes of a type of 38 000 fields, which is kept with the store", "type=wide.M&filename=m.pb", b"\x08\x01",
        given=wide_schema, status=201, calls=24, written_room=MIB + 64 * KIB,
    ),
    _sent(
        "128 MiB of zeros in a chunked proto of brotli, where a mebibyte may be sent", "filename=model.cpb", bomb(128),
        status=413, settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"}, calls=20, written=2, written_room=2 * MIB,
    ),
    _sent(
        "128 MiB of zeros in a chunked proto of zstd, where a mebibyte may be sent", "filename=model.cpb",
        bomb(128, "zstd"), status=413, settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"}, calls=20, written=2,
        written_room=2 * MIB,
    ),
    row(
        "POST /v1/stores", "a recipe of copies that comes to 160 MiB, where 32 may be sent",
        lambda store: request("POST", "/v1/stores", recipe_of_copies(store, 16 << 20, 10), content_type=RECIPE), medium,
        status=413, settings={"PROTOSLICE_MAX_UPLOAD": "32MiB"}, calls=20,
    ),
    _sent(
        "five hundred files in a tar", "", tar({f"{n}": b"x" for n in range(500)} | {"model.onnx": onnx(15)}), _TAR,
        status=201, held=14_000, loop=600_000, work=2900 * 500, memory=6, **_STORED,
    ),
    _sent(
        "five hundred files in a form", "", form(500, named=b'name="f"; filename="%d.onnx"'), _FORM,
        status=(201, 400, 422), held=17_000, loop=800_000, work=2900 * 500, memory=30, written=4, written_room=64 * KIB,
        calls=20,
    ),
    _sent(
        "five thousand parts of a form that are no files", "", form(5000, named=b'name="f%d"'), _FORM, status=400,
        **_STORED,
    ),
    _sent(
        "200 000 empty tensors", "filename=model.onnx",
        b"\x08\x08" + field(7, b"\x2a\x00" * 200_000 + field(8, varint(1))), status=201, written=8,
        written_room=64 * KIB, calls=20,
    ),
    _sent(
        "a report on two thousand tensors in files that are missing", "filename=model.onnx&report=true",
        missing_files(2000), status=201, written=2, written_room=64 * KIB, calls=33, work=330 * 2000,
    ),
    # of which it looks at 20 000, each as above
    _sent(
        "a report on 200 000 empty tensors", "filename=model.onnx&report=true", nothings(200_000, 17), status=201,
        written=8, written_room=64 * KIB, calls=33, work=240 * 20_000, memory_room=40 * MIB,
    ),
    _sent(
        "two thousand tensors in missing files, where a sound model is asked for", "filename=model.onnx&strict=true",
        missing_files(2001), status=422, written=2, written_room=64 * KIB, calls=26, work=375 * 2000,
    ),
    _sent(
        "a thousand tensors of the same mebibyte and a sum for each, where a sound model is asked for", "strict=true",
        one_over_another(1000, MIB), _TAR, status=422, written=2, written_room=64 * KIB, calls=42, work=410 * 1000,
    ),
    _sent(
        "200 000 messages, each a chunk of its own", "filename=model.onnx&min_chunk=1&max_chunk=1",
        b"\x08\x08" + field(7, b"\x2a\x02\x42\x00" * 200_000), status=413, written=2, calls=20,
    ),
    _sent(
        "groups a thousand deep", "filename=model.onnx", b"\x0b" * 60_000, status=(201, 413, 422), calls=20, written=2,
        written_room=64 * KIB,
    ),
    _sent(
        "a text of 4 000 nodes", "filename=model.pbtxt&type=onnx.ModelProto", b"graph{" + b"node{}" * 4000 + b"}",
        status=201, calls=30, written=4, written_room=64 * KIB, work=300 * 4000,
    ),
    row(
        "POST /v1/stores", "ten thousand chunks of a byte", status=201, play=drops, held=150_000, written=2,
        written_room=64 * KIB, calls=20,
    ),
    row(
        "PUT /v1/stores", "sixteen silent clients, and one who sends", status=201, play=silent, calls=30,
        written_room=12 * KIB,
    ),
    row(
        "POST /v1/stores/register", "ten thousand objects where none is allowed", _register(10_000), status=422,
        held=30_000,
    ),
    row("POST /v1/stores/register", "fifty thousand tags", _register(1, 50_000), status=(400, 422), held=60_000),
)  # fmt: skip


_MANY: Final = 40
_PART: Final = uploads(_MANY)
_ONE: Final = uploads(1, b"y" * 100_000)
_EMPTY: Final = uploads(1, bytes(1_000_000))
_UPLOAD: Final = "/v1/uploads/{upload}"


def _metadata(count: int) -> str:
    tags = b64encode(" ".join(f"t{n}:x" for n in range(count)).encode()).decode()
    return f"filename {b64encode(b'model.onnx').decode()},tag {tags}"


def _begin(wire: Wire, given: Any) -> int:
    """Begin fifty uploads, which no client continues."""
    statuses = {wire.exchange(request("POST", "/v1/uploads", **TUS, upload_length="100"))[0] for _ in range(50)}
    return max(statuses)


def _patches(wire: Wire, given: Any) -> int:
    """Continue an upload byte by byte."""
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
    # FastAPI takes 230 steps for each of the nine parameters of the query.
    row(
        "POST /v1/uploads", "fifty that nobody goes on with", status=201, play=_begin, calls=50 * 4,
        written_room=50 * KIB, work=50 * 2000, loop=50 * 9_500,
    ),
    row(
        "POST /v1/uploads", "five thousand tags in its metadata",
        request("POST", "/v1/uploads", **TUS, upload_length="10", upload_metadata=_metadata(5000)), status=400,
    ),
    row(
        "POST /v1/uploads", f"joined from {_MANY} others",
        lambda parts: request("POST", "/v1/uploads", **TUS,
                              upload_concat="final;" + " ".join(f"/v1/uploads/{p}" for p in parts)),
        _PART, status=(201, 422), held=9_500, calls=_MANY * 7 + 20, written=2, written_room=_MANY * KIB,
        work=_MANY * 10_000,
    ),
    row(
        "POST /v1/uploads", "joined from one other, 1 500 times over",
        lambda parts: request("POST", "/v1/uploads", **TUS, upload_concat="final;" + " ".join(parts * 1500)), _ONE,
        status=(413, 422), settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"}, held=15_000, calls=20,
    ),
    row(
        f"GET {_UPLOAD}/records", "a million empty records, framed anew",
        lambda parts: get(f"/v1/uploads/{parts[0]}/records?framing=delimited&format=tfrecord"), _EMPTY, calls=20,
        got=2 * MIB,
    ),
    row(
        f"PATCH {_UPLOAD}", "a byte at a time", status=204, play=_patches, calls=30 * 30, written_room=30 * 4 * KIB,
        loop=30 * 35_000, work=30 * 12_000,
    ),
    row(
        "POST /v1/stores/assemble", "a thousand files of one upload",
        lambda parts: _assemble({"uploads": {f"{n}": parts[0] for n in range(1000)}}), _ONE, status=413,
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"}, held=24_000, calls=20,
    ),
    row(
        "POST /v1/stores/assemble", "one upload 1 500 times over",
        lambda parts: _assemble({"uploads": {"a": parts * 1500}}), _ONE, status=413,
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"}, held=17_000, calls=20,
    ),
    row(
        "POST /v1/stores/assemble", "an upload that is no archive", lambda parts: _assemble({"archive": parts[0]}),
        _ONE, status=(400, 422), held=24_000, calls=20,
    ),
    row(
        "POST /v1/stores/assemble", "two thousand tags",
        lambda parts: _assemble({"uploads": {"a": parts[0]}, "tags": [f"t{n}:x" for n in range(2000)]}), _ONE,
        status=(400, 422), calls=20,
    ),
)  # fmt: skip
