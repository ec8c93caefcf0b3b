"""Uploads are bound to who began them, through every protocol: a table of all that an id opens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from tarfile import TarInfo
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.calls import RULES
from tests.support.serve import Asked, ask
from tests.support.xet import shard_of, xorb_of

from protoslice.server.app import Application
from protoslice.server.auth.permissions import Scope

JSON: Final = {"content-type": "application/json"}
TUS: Final = {"tus-resumable": "1.0.0"}
BYTES: Final = {"content-type": "application/offset+octet-stream"}
DATA: Final = b"bytes of one caller alone " * 40
OID: Final = hashlib.sha256(DATA).hexdigest()
XORB: Final = xorb_of(DATA)
MLFLOW: Final = "/api/2.0/mlflow-artifacts"
LFS: Final = {"content-type": "application/vnd.git-lfs+json", "accept": "application/vnd.git-lfs+json"}
SESSION: Final = "/api/xet/{kind}/{name:repository}/{session}/v1"

Caller = Callable[..., Awaitable[Asked]]


async def tus(call: Caller, **more: str) -> str:
    """Id of an open upload of tus, of which some bytes have come."""
    begun = await call("POST", "/v1/uploads?filename=f", DATA[:10], TUS | BYTES | {"upload-length": "15"} | more)
    return begun.headers["location"].rpartition("/")[2]


async def part(call: Caller, data: bytes = DATA) -> str:
    """Id of a complete part."""
    begun = await call(
        "POST", "/v1/uploads", data, TUS | BYTES | {"upload-length": str(len(data)), "upload-concat": "partial"}
    )
    return begun.headers["location"].rpartition("/")[2]


async def archive(call: Caller) -> str:
    """Id of a complete part that is an archive of an empty file."""
    return await part(call, TarInfo("x").tobuf() + bytes(1024))


async def deferred(call: Caller) -> str:
    """Id of an empty upload whose length is not known yet."""
    begun = await call("POST", "/v1/uploads?filename=f", b"", TUS | {"upload-defer-length": "1"})
    return begun.headers["location"].rpartition("/")[2]


def last_of(url: str) -> str:
    """The last segment of the path of a URL."""
    return urlsplit(url).path.rpartition("/")[2]


async def repository(call: Caller) -> None:
    """A repository of the hub."""
    await call("POST", "/api/repos/create", b'{"name": "x", "organization": "a"}', JSON)


async def lfs(call: Caller) -> str:
    """Id of an upload that a batch of git-lfs begins."""
    await repository(call)
    wanted = json.dumps({"operation": "upload", "objects": [{"oid": OID, "size": len(DATA)}]}).encode()
    told = await call("POST", "/a/x.git/info/lfs/objects/batch", wanted, LFS)
    return last_of(json.loads(told.body)["objects"][0]["actions"]["upload"]["href"])


async def xet(call: Caller) -> str:
    """Id of a session of Xet, to which a xorb was sent."""
    await repository(call)
    told = await call("GET", "/api/models/a/x/xet-write-token/main")
    session = last_of(json.loads(told.body)["casUrl"])
    await call("POST", f"/api/xet/models/a/x/{session}/v1/xorbs/default/{XORB[0]}", XORB[1])
    return session


async def blob(call: Caller) -> str:
    """Id of an open upload of OCI."""
    return (await call("POST", "/v2/a/x/blobs/uploads/")).headers["location"].rpartition("/")[2]


async def parts(call: Caller) -> str:
    """Session and entity tag of a part of MLflow."""
    begun = await call("POST", f"{MLFLOW}/mpu/create/a", b'{"path": "big"}', JSON)
    session = json.loads(begun.body)["upload_id"]
    sent = await call("PUT", f"{MLFLOW}/parts/{session}/a?number=1", DATA)
    return f"{session} {sent.headers['etag'][1:-1]}"


class Use(NamedTuple):
    """A request that goes on with something, reads or ends it; `{}` stands for its id."""

    row: str
    begin: Callable[[Caller], Awaitable[str]]
    target: str
    body: bytes = b""
    headers: Mapping[str, str] = {}


PATCH: Final = TUS | BYTES | {"upload-offset": "10"}
OCTETS: Final = {"content-type": "application/octet-stream"}
USES: Final = {
    "tus, asked": Use("GET /v1/uploads/{upload}", tus, "/v1/uploads/{}"),
    "tus, appended to": Use("PATCH /v1/uploads/{upload}", tus, "/v1/uploads/{}", DATA[10:15], PATCH),
    "tus, appended to by POST": Use(
        "POST /v1/uploads/{upload}", tus, "/v1/uploads/{}", DATA[10:15], PATCH | {"x-http-method-override": "PATCH"}
    ),
    "tus, ended by POST": Use(
        "POST /v1/uploads/{upload}", tus, "/v1/uploads/{}", b"", TUS | {"x-http-method-override": "DELETE"}
    ),
    "tus, ended": Use("DELETE /v1/uploads/{upload}", tus, "/v1/uploads/{}", b"", TUS),
    "tus without a length, asked": Use("GET /v1/uploads/{upload}", deferred, "/v1/uploads/{}"),
    "tus without a length, appended to": Use(
        "PATCH /v1/uploads/{upload}",
        deferred,
        "/v1/uploads/{}",
        DATA,
        TUS | BYTES | {"upload-offset": "0", "upload-length": str(len(DATA))},
    ),
    "a part, asked": Use("GET /v1/uploads/{upload}", part, "/v1/uploads/{}"),
    "parts, joined": Use("POST /v1/uploads", part, "/v1/uploads", b"", TUS | {"upload-concat": "final;/v1/uploads/{}"}),
    "parts, assembled": Use("POST /v1/stores/assemble", part, "/v1/stores/assemble", b'{"uploads": {"f": "{}"}}', JSON),
    "an archive, assembled": Use(
        "POST /v1/stores/assemble", archive, "/v1/stores/assemble", b'{"archive": "{}"}', JSON
    ),
    "a file of git-lfs, sent": Use(
        "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}", lfs, "/api/lfs-uploads/models/a/x/{}", DATA
    ),
    "a file of git-lfs, ended by tus": Use("DELETE /v1/uploads/{upload}", lfs, "/v1/uploads/{}", b"", TUS),
    "a xorb, sent": Use(
        f"POST {SESSION}/xorbs/default/{{hash}}", xet, f"/api/xet/models/a/x/{{}}/v1/xorbs/default/{XORB[0]}", XORB[1]
    ),
    "a shard, sent": Use(
        f"POST {SESSION}/shards",
        xet,
        "/api/xet/models/a/x/{}/v1/shards",
        shard_of((DATA, [(XORB[0], len(DATA), 0, 1)])),
    ),
    "a blob, asked": Use("GET /v2/{name:path}/blobs/uploads/{upload}", blob, "/v2/a/x/blobs/uploads/{}"),
    "a blob, appended to": Use(
        "PATCH /v2/{name:path}/blobs/uploads/{upload}", blob, "/v2/a/x/blobs/uploads/{}", DATA, OCTETS
    ),
    "a blob, ended": Use(
        "PUT /v2/{name:path}/blobs/uploads/{upload}",
        blob,
        f"/v2/a/x/blobs/uploads/{{}}?digest=sha256:{OID}",
        DATA,
        OCTETS,
    ),
    "a blob, dropped": Use("DELETE /v2/{name:path}/blobs/uploads/{upload}", blob, "/v2/a/x/blobs/uploads/{}"),
    "parts of MLflow, joined": Use(
        f"POST {MLFLOW}/mpu/complete/{{name:path}}",
        parts,
        f"{MLFLOW}/mpu/complete/a",
        b'{"path": "big", "upload_id": "{session}", "parts": [{"part_number": 1, "etag": "{}"}]}',
        JSON,
    ),
    "a part of MLflow, asked by tus": Use("GET /v1/uploads/{upload}", parts, "/v1/uploads/{}"),
}
UNKNOWN: Final = f"{'0' * 32} {'0' * 10}-{'0' * 20}"
FREE: Final = {
    "OPTIONS /v1/uploads/{upload}",  # tells of no upload
    "GET /v1/uploads/{upload}/records",  # for readers: see the test below
    f"PUT {MLFLOW}/parts/{{session}}/{{name:path}}",  # begins an upload of its own
}


def test_the_table_has_every_route_that_takes_an_id() -> None:
    wanted = {row for row in RULES if "{upload}" in row or "{session}" in row}
    assert wanted - FREE <= {use.row for use in USES.values()}


def plain(got: Asked, id: str) -> str:
    """An answer without its own id and that of what it is about."""
    text = got.text.replace(got.headers["x-request-id"], "")
    for each in id.split():
        text = text.replace(each, "")
    return text


def caller(app: Application, token: str | None) -> Caller:
    """Requests in the space `own` with a token."""

    async def call(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Asked:
        return await ask(app, method, f"/spaces/own{path}", body, {**(headers or {}), **bearer(token)})

    return call


def request_of(use: Use, id: str) -> tuple[str, str, bytes, dict[str, str]]:
    """The request of a use of what has this id."""
    session, _, last = id.rpartition(" ")
    body = use.body.replace(b"{session}", session.encode())
    body = body.replace(b"{}", last.encode()) if use.headers is JSON else body
    headers = {name: value.replace("{}", last) for name, value in use.headers.items()}
    return use.row.partition(" ")[0], use.target.replace("{}", last), body, headers


@pytest.mark.parametrize("name", USES)
async def test_nobody_but_who_began_an_upload_goes_on_with_it_reads_it_or_ends_it(name: str, app: Application) -> None:
    use, mine = USES[name], caller(app, await token_for(app, Scope.READ, Scope.WRITE))
    id = await use.begin(mine)
    for who, token, refused in (
        ("another writer", await token_for(app, Scope.READ, Scope.WRITE), None),
        ("an admin of the space", await token_for(app, Scope.ADMIN), None),
        ("a writer elsewhere", await token_for(app, Scope.WRITE, space="other"), 404),
        ("a reader", await token_for(app, Scope.READ), 403),
        ("an anonymous caller", None, 401),
    ):
        got, none = [await caller(app, token)(*request_of(use, each)) for each in (id, UNKNOWN)]
        assert got.status == (refused or none.status) >= 400, (who, got)
        assert plain(got, id) == plain(none, UNKNOWN), "as if there were none"
    done = await mine(*request_of(use, id))
    assert done.status < 300, done


async def test_records_of_an_upload_are_for_those_who_may_read_and_were_told_its_id(app: Application) -> None:
    mine = caller(app, await token_for(app, Scope.READ, Scope.WRITE))
    at = f"/v1/uploads/{await tus(mine)}/records?framing=delimited"
    assert (await caller(app, await token_for(app, Scope.READ))("GET", at)).status == 200
    assert (await caller(app, await token_for(app, Scope.WRITE))("GET", at)).status == 403
    assert (await caller(app, await token_for(app, Scope.READ, space="other"))("GET", at)).status == 404


async def test_a_parts_url_of_mlflow_goes_by_the_token_that_signed_it(app: Application) -> None:
    first, second = [caller(app, await token_for(app, Scope.READ, Scope.WRITE)) for _ in range(2)]
    begun = json.loads((await first("POST", f"{MLFLOW}/mpu/create/a", b'{"path": "big"}', JSON)).body)
    url = urlsplit(begun["credentials"][0]["url"])
    assert (await ask(app, "PUT", url.path + "?number=1", DATA)).status == 401
    sent = await ask(app, "PUT", f"{url.path}?{url.query}", DATA)
    assert sent.status == 200, sent
    done = {"path": "big", "upload_id": begun["upload_id"]}
    done |= {"parts": [{"part_number": 1, "etag": sent.headers["etag"]}]}
    for who, status in ((second, 404), (first, 200)):
        assert (await who("POST", f"{MLFLOW}/mpu/complete/a", json.dumps(done).encode(), JSON)).status == status
