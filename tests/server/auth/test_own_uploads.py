"""Uploads are bound to the caller who began them, in every protocol: the table has all uses of an id.

Responses to a token that may write but not read reveal no content of others.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from random import Random
from tarfile import TarInfo
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.calls import CALLS, RULES
from tests.support.hub import shard_of, xorb_of
from tests.support.serve import Asked, ask

from protoslice.catalog.spaces import SpaceTable
from protoslice.recipes import MEDIA_TYPE, RecipeWriter
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
    """Return the id of an open tus upload that has some bytes."""
    begun = await call("POST", "/v1/uploads?filename=f", DATA[:10], TUS | BYTES | {"upload-length": "15"} | more)
    return begun.headers["location"].rpartition("/")[2]


async def part(call: Caller, data: bytes = DATA) -> str:
    """Return the id of a complete part."""
    begun = await call(
        "POST", "/v1/uploads", data, TUS | BYTES | {"upload-length": str(len(data)), "upload-concat": "partial"}
    )
    return begun.headers["location"].rpartition("/")[2]


async def archive(call: Caller) -> str:
    """Return the id of a complete part that is an archive of an empty file."""
    return await part(call, TarInfo("x").tobuf() + bytes(1024))


async def deferred(call: Caller) -> str:
    """Return the id of an empty upload of unknown length."""
    begun = await call("POST", "/v1/uploads?filename=f", b"", TUS | {"upload-defer-length": "1"})
    return begun.headers["location"].rpartition("/")[2]


def last_of(url: str) -> str:
    """Return the last segment of a URL's path."""
    return urlsplit(url).path.rpartition("/")[2]


async def repository(call: Caller) -> None:
    """Return a hub repository."""
    await call("POST", "/api/repos/create", b'{"name": "x", "organization": "a"}', JSON)


async def lfs(call: Caller) -> str:
    """Return the id of an upload that a git-lfs batch begins."""
    await repository(call)
    wanted = json.dumps({"operation": "upload", "objects": [{"oid": OID, "size": len(DATA)}]}).encode()
    told = await call("POST", "/a/x.git/info/lfs/objects/batch", wanted, LFS)
    return last_of(json.loads(told.body)["objects"][0]["actions"]["upload"]["href"])


async def xet(call: Caller) -> str:
    """Return the id of an Xet session with one xorb."""
    await repository(call)
    told = await call("GET", "/api/models/a/x/xet-write-token/main")
    session = last_of(json.loads(told.body)["casUrl"])
    await call("POST", f"/api/xet/models/a/x/{session}/v1/xorbs/default/{XORB[0]}", XORB[1])
    return session


async def blob(call: Caller) -> str:
    """Return the id of an open OCI upload."""
    return (await call("POST", "/v2/a/x/blobs/uploads/")).headers["location"].rpartition("/")[2]


async def parts(call: Caller) -> str:
    """Return the session and the entity tag of an MLflow part."""
    begun = await call("POST", f"{MLFLOW}/mpu/create/a", b'{"path": "big"}', JSON)
    session = json.loads(begun.body)["upload_id"]
    sent = await call("PUT", f"{MLFLOW}/parts/{session}/a?number=1", DATA)
    return f"{session} {sent.headers['etag'][1:-1]}"


class Use(NamedTuple):
    """A request that continues, reads or ends something; `{}` is its id."""

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
    "OPTIONS /v1/uploads/{upload}",  # reveals no upload
    "GET /v1/uploads/{upload}/records",  # for readers: see the test below
    f"PUT {MLFLOW}/parts/{{session}}/{{name:path}}",  # begins a separate upload
}


def test_the_table_has_every_route_that_takes_an_id() -> None:
    wanted = {row for row in RULES if "{upload}" in row or "{session}" in row}
    assert wanted - FREE <= {use.row for use in USES.values()}


def plain(got: Asked, id: str) -> str:
    """Return an answer without the request's id and the id of the thing."""
    text = got.text.replace(got.headers["x-request-id"], "")
    for each in id.split():
        text = text.replace(each, "")
    return text


def caller(app: Application, token: str | None) -> Caller:
    """Return a caller with a token, which sends requests in the space `own`."""

    async def call(method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Asked:
        return await ask(app, method, f"/spaces/own{path}", body, {**(headers or {}), **bearer(token)})

    return call


def request_of(use: Use, id: str) -> tuple[str, str, bytes, dict[str, str]]:
    """Return the request of a use for the thing with this id."""
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


OLD: Final = b"of somebody else " * 100
NEW: Final = b"never seen before " * 100
PLACE: Final = "/spaces/own/v1/stores?filename=m.bin"


async def put(app: Application, headers: dict[str, str], data: bytes, query: str) -> tuple[int, dict[str, Any]]:
    answer = await ask(app, "PUT", f"/spaces/own/v1/stores?filename=m.bin{query}", data, headers)
    return answer.status, json.loads(answer.body)


async def test_uploads_tell_a_writer_neither_existence_nor_tags(app: Application) -> None:
    other = bearer(await token_for(app, Scope.READ, Scope.WRITE))
    assert (await put(app, other, OLD, "&tag=secret-name"))[0] == 201
    writer = bearer(await token_for(app, Scope.WRITE))
    old, new = await put(app, writer, OLD, "&tag=mine"), await put(app, writer, NEW, "&tag=mine-too")
    assert (old[0], new[0]) == (201, 201)
    assert (old[1]["tags"], new[1]["tags"]) == (["mine"], ["mine-too"])
    assert old[1].keys() == new[1].keys()
    assert old[1]["created"] >= new[1]["created"][:-3]
    assert sorted((await put(app, other, OLD, ""))[1]["tags"]) == ["mine", "secret-name"]
    assert (await put(app, other, OLD, ""))[0] == 200


async def test_tags_tell_a_writer_no_store_that_it_does_not_name(app: Application) -> None:
    other = bearer(await token_for(app, Scope.READ, Scope.WRITE))
    writer = bearer(await token_for(app, Scope.WRITE))
    id = (await put(app, other, OLD, "&tag=secret-name"))[1]["id"]
    for store in ("secret-name", "no-such-tag", id[:12], "0" * 12, id[:63]):
        body = json.dumps({"store": store}).encode()
        refused = await ask(app, "PUT", "/spaces/own/v1/tags/mine", body, writer | JSON)
        assert refused.status == 403, (store, refused.text)
        assert id not in refused.text
    body = json.dumps({"store": id}).encode()
    assert (await ask(app, "PUT", "/spaces/own/v1/tags/mine", body, writer | JSON)).status == 201
    absent = writer | JSON | {"if-none-match": "*"}
    failed = await ask(app, "PUT", "/spaces/own/v1/tags/secret-name", body, absent)
    assert failed.status == 412
    assert id not in failed.text
    assert id in (await ask(app, "PUT", "/spaces/own/v1/tags/secret-name", body, absent | other)).text


async def test_routes_that_show_content_refuse_callers_without_read(app: Application) -> None:
    caller = bearer(await token_for(app, *(set(Scope) - {Scope.READ, Scope.ADMIN})))
    calls = [call for call in CALLS if call.route and RULES[call.route].reads]
    assert {call.route for call in calls} == {route for route, rule in RULES.items() if rule.reads}
    for call in calls:
        refused = await ask(app, call.method, f"/spaces/own{call.anonymous}", headers=caller)
        assert refused.status == 403, (call.target, refused.text)
        assert "lacks the scope read" in refused.text


async def test_removing_shows_a_caller_without_read_no_names(app: Application) -> None:
    other = bearer(await token_for(app, *Scope))
    id = (await put(app, other, OLD, "&tag=secret-name"))[1]["id"]
    remover = bearer(await token_for(app, Scope.DELETE))
    for prefix in (id[:12], id[:63], "0" * 12):
        assert (await ask(app, "DELETE", f"/spaces/own/v1/stores/{prefix}", headers=remover)).status == 403
    refused = await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}", headers=remover)
    assert refused.status == 409
    assert "secret-name" not in refused.text
    assert "secret-name" in (await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}", headers=other)).text
    assert (await ask(app, "DELETE", f"/spaces/own/v1/stores/{id}?force=secret-name", headers=remover)).status == 200


def digest(data: bytes) -> str:
    """Return the digest of a body, for a header."""
    return f"sha-256=:{b64encode(sha256(data).digest()).decode()}:"


async def put_by_tus(app: Application, headers: dict[str, str], data: bytes) -> Asked:
    """Upload in two requests, as a client does after an interruption."""
    tus = headers | {"tus-resumable": "1.0.0"}
    begun = await ask(
        app, "POST", "/spaces/own/v1/uploads?filename=m.bin", b"", tus | {"upload-length": str(len(data))}
    )
    if begun.status != 201:
        return begun
    kind = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
    return await ask(app, "PATCH", begun.headers["location"], data, tus | kind)


def recipe_of(data: bytes) -> bytes:
    """Return a recipe that copies nothing."""
    lines = RecipeWriter()
    parts = lines.file("m.bin"), lines.literal(len(data)), data, lines.end(len(data), sha256(data).hexdigest())
    return b"".join([*parts, lines.done()])


WAYS: Final[dict[str, Callable[[Application, dict[str, str], bytes], Awaitable[Asked]]]] = {
    "a body": lambda app, headers, data: ask(app, "PUT", PLACE, data, headers),
    "no length": lambda app, headers, data: ask(app, "PUT", PLACE, data, headers, sized=False),
    "a digest and no length": lambda app, headers, data: ask(
        app, "PUT", PLACE, data, headers | {"repr-digest": digest(data)}, sized=False
    ),
    "tus": put_by_tus,
    "a recipe": lambda app, headers, data: ask(
        app, "POST", "/spaces/own/v1/stores", recipe_of(data), headers | {"content-type": MEDIA_TYPE}
    ),
}
SIZES: Final = {"held in the manifest": 1500, "a pack": 300 << 10, "an object": 3 << 20}


@pytest.mark.parametrize("fresh", [0.0, 1e9])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
async def test_a_full_quota_tells_a_writer_nothing_of_content(
    way: str, size: str, fresh: float, app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known and unknown bytes get one answer, for any free quota, and for any expectation about it."""
    random, length = Random(1), SIZES[size]
    old = random.randbytes(length)
    writer = bearer(await token_for(app, Scope.WRITE))
    assert (await ask(app, "PUT", PLACE, old, bearer(await token_for(app, Scope.READ, Scope.WRITE)))).status == 201
    assert app.services.spaces is not None
    assert app.services.database is not None
    room, table = (await app.services.spaces.get("own")).quotas, SpaceTable(app.services.database)
    seen = set[int]()
    for left in (None, 0, length - 1, length, length + 100, length + 1000, 2 * length + 100_000):
        answers = list[tuple[int, str]]()
        for data in (old, random.randbytes(length)):
            await table.change_limits("own", {"quota_bytes": 0, "quota_stores": 0})
            await room.refresh()
            monkeypatch.setattr("protoslice.catalog.spaces.FRESH_SECONDS", fresh)
            used = room.used
            bytes, stores = (0, used.stores) if left is None else (used.stored_bytes + left, 0)
            await table.change_limits("own", {"quota_bytes": bytes, "quota_stores": stores})
            answer = await WAYS[way](app, writer, data)
            answers.append((answer.status, json.loads(answer.body).get("detail", "") if answer.status > 299 else ""))
        assert answers[0] == answers[1], left
        assert not re.search("[0-9]", answers[0][1]), "no totals of the space"
        seen.add(answers[0][0])
    assert len(seen) == 2, "some fit and some do not"
