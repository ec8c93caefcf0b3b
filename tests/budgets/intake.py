"""The worst bodies: files, forms, tars, chunked protos, recipes, objects in place."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any, Final

from tests.budgets.harness import Wire
from tests.budgets.materials import (
    bomb,
    form,
    medium,
    missing_files,
    nothings,
    one_over_another,
    recipe_of_copies,
    schemas,
    tar,
    wide_schema,
)
from tests.budgets.rows import KIB, MIB, Budget, Row, request
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
    """Begins sixteen uploads and says no more; then somebody at another address sends a store."""
    with ExitStack() as held:
        for _ in range(16):
            connection = held.enter_context(wire.open("127.0.0.2"))
            wire.send(connection, b"PUT /v1/stores HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nx")
        time.sleep(0.3)
        return wire.exchange(_post("filename=model.onnx", onnx(13)))[0]


def drops(wire: Wire, given: Any) -> int:
    """Sends ten thousand chunks of a byte each."""
    head = b"POST /v1/stores?filename=model.onnx HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    body = onnx(9900)
    return wire.exchange(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")[0]


def _register(files: int, tags: int = 0) -> bytes:
    said = {"files": {f"{n}": f"file:///nowhere/{n}" for n in range(files)}, "tags": [f"t{n}:x" for n in range(tags)]}
    return request("POST", "/v1/stores/register", json.dumps(said).encode(), content_type="application/json")


INTAKE: Final = (
    Row(
        route="POST /v1/stores",
        worst="a store with five hundred tags",
        ask=_post(f"filename=model.onnx&{_TAGS}", onnx(14)),
        status=(400, 422),
        budget=Budget(held=35_000),  # the names are checked before the framework reads the query
    ),
    Row(
        route="POST /v1/stores",
        worst="a type that none of three large schemas has",
        ask=_post("type=no.Such", b"\x08\x01"),
        given=schemas,
        status=422,
        budget=Budget(calls=20),
    ),
    Row(
        route="POST /v1/stores",
        worst="two bytes of a type of 38 000 fields, which is kept with the store",
        ask=_post("type=wide.M&filename=m.pb", b"\x08\x01"),
        given=wide_schema,
        status=201,
        budget=Budget(calls=24, written_room=MIB + 64 * KIB),
    ),
    Row(
        route="POST /v1/stores",
        worst="128 MiB of zeros in a chunked proto of brotli, where a mebibyte may be sent",
        ask=_post("filename=model.cpb", bomb(128)),
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"},
        status=413,
        budget=Budget(calls=20, written=2, written_room=2 * MIB),
    ),
    Row(
        route="POST /v1/stores",
        worst="128 MiB of zeros in a chunked proto of zstd, where a mebibyte may be sent",
        ask=_post("filename=model.cpb", bomb(128, "zstd")),
        settings={"PROTOSLICE_MAX_UPLOAD": "1MiB"},
        status=413,
        budget=Budget(calls=20, written=2, written_room=2 * MIB),
    ),
    Row(
        route="POST /v1/stores",
        worst="a recipe of copies that comes to 160 MiB, where 32 may be sent",
        ask=lambda store: request("POST", "/v1/stores", recipe_of_copies(store, 16 << 20, 10), content_type=RECIPE),
        given=medium,
        settings={"PROTOSLICE_MAX_UPLOAD": "32MiB"},
        status=413,
        budget=Budget(calls=20),
    ),
    Row(
        route="POST /v1/stores",
        worst="five hundred files in a tar",
        ask=_post("", tar({f"{n}": b"x" for n in range(500)} | {"model.onnx": onnx(15)}), _TAR),
        status=201,
        budget=Budget(held=14_000, loop=600_000, work=2900 * 500, memory=6, **_STORED),
    ),
    Row(
        route="POST /v1/stores",
        worst="five hundred files in a form",
        ask=_post("", form(500, named=b'name="f"; filename="%d.onnx"'), _FORM),
        status=(201, 400, 422),
        budget=Budget(
            held=17_000, loop=800_000, work=2900 * 500, memory=30, written=4, written_room=64 * KIB, calls=20
        ),
    ),
    Row(
        route="POST /v1/stores",
        worst="five thousand parts of a form that are no files",
        ask=_post("", form(5000, named=b'name="f%d"'), _FORM),
        status=400,
        budget=Budget(**_STORED),
    ),
    Row(
        route="POST /v1/stores",
        worst="200 000 empty tensors",
        ask=_post("filename=model.onnx", b"\x08\x08" + field(7, b"\x2a\x00" * 200_000 + field(8, varint(1)))),
        status=201,
        budget=Budget(written=8, written_room=64 * KIB, calls=20),
    ),
    Row(
        route="POST /v1/stores",
        worst="a report on two thousand tensors in files that are missing",
        ask=_post("filename=model.onnx&report=true", missing_files(2000)),
        status=201,
        budget=Budget(written=2, written_room=64 * KIB, calls=33, work=330 * 2000),
    ),
    Row(
        route="POST /v1/stores",
        worst="a report on 200 000 empty tensors",  # of which it looks at 20 000, each as above
        ask=_post("filename=model.onnx&report=true", nothings(200_000, 17)),
        status=201,
        budget=Budget(written=8, written_room=64 * KIB, calls=33, work=240 * 20_000, memory_room=40 * MIB),
    ),
    Row(
        route="POST /v1/stores",
        worst="two thousand tensors in missing files, where a sound model is asked for",
        ask=_post("filename=model.onnx&strict=true", missing_files(2001)),
        status=422,
        budget=Budget(written=2, written_room=64 * KIB, calls=26, work=375 * 2000),
    ),
    Row(
        route="POST /v1/stores",
        worst="a thousand tensors of the same mebibyte and a sum for each, where a sound model is asked for",
        ask=_post("strict=true", one_over_another(1000, MIB), _TAR),
        status=422,
        budget=Budget(written=2, written_room=64 * KIB, calls=42, work=410 * 1000),
    ),
    Row(
        route="POST /v1/stores",
        worst="200 000 messages, each a chunk of its own",
        ask=_post("filename=model.onnx&min_chunk=1&max_chunk=1", b"\x08\x08" + field(7, b"\x2a\x02\x42\x00" * 200_000)),
        status=413,
        budget=Budget(written=2, calls=20),
    ),
    Row(
        route="POST /v1/stores",
        worst="groups a thousand deep",
        ask=_post("filename=model.onnx", b"\x0b" * 60_000),
        status=(201, 413, 422),
        budget=Budget(calls=20, written=2, written_room=64 * KIB),
    ),
    Row(
        route="POST /v1/stores",
        worst="a text of 4 000 nodes",
        ask=_post("filename=model.pbtxt&type=onnx.ModelProto", b"graph{" + b"node{}" * 4000 + b"}"),
        status=201,
        budget=Budget(calls=30, written=4, written_room=64 * KIB, work=300 * 4000),
    ),
    Row(
        route="POST /v1/stores",
        worst="ten thousand chunks of a byte",
        play=drops,
        status=201,
        budget=Budget(held=150_000, **_STORED),
    ),
    Row(
        route="PUT /v1/stores",
        worst="sixteen silent clients, and one who sends",
        play=silent,
        status=201,
        budget=Budget(calls=30, written_room=12 * KIB),
    ),
    Row(
        route="POST /v1/stores/register",
        worst="ten thousand objects where none is allowed",
        ask=_register(10_000),
        status=422,
        budget=Budget(held=30_000),
    ),
    Row(
        route="POST /v1/stores/register",
        worst="fifty thousand tags",
        ask=_register(1, 50_000),
        status=(400, 422),
        budget=Budget(held=60_000),
    ),
)
