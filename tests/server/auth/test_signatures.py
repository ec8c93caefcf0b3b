"""Signed URLs: what they allow, for how long, and every way to alter them."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from tests.server.auth.closed import bearer, token_for
from tests.support.calls import RULES
from tests.support.catalogues import shared_catalogue
from tests.support.serve import Asked, ask
from tests.support.stores import onnx

from protoslice.server.app import Application
from protoslice.server.auth.authenticator import KNOWN_SECONDS
from protoslice.server.auth.permissions import Scope
from protoslice.server.auth.signatures import Purpose, Signer, SigningKey, UrlSignature, signed_alone
from protoslice.server.registries.hub import lfs

DATA = onnx(300)
FILE = "/v1/stores/m/files/m.onnx"


class Signed(NamedTuple):
    """A service with a store in the space `own`, a token, and a signed target that reads a file."""

    app: Application
    token: str
    target: str

    async def get(self, target: str, method: str = "GET", **headers: str) -> Asked:
        """Return the answer to a request without a token."""
        return await ask(self.app, method, target, headers=headers)


async def signed_target(app: Application, token: str, path: str = FILE, space: str = "own", seconds: int = 60) -> str:
    """A signed path and query."""
    body = json.dumps({"path": path, "expires_seconds": seconds}).encode()
    headers = bearer(token) | {"content-type": "application/json"}
    told = await ask(app, "POST", f"/spaces/{space}/v1/sign", body, headers)
    assert told.status == 201, told.text
    assert "no-store" in told.headers["cache-control"]
    parts = urlsplit(json.loads(told.body)["url"])
    return f"{parts.path}?{parts.query}"


@pytest.fixture
async def it(app: Application) -> Signed:
    """Return a signed target."""
    token = await token_for(app, Scope.READ, Scope.WRITE, Scope.ADMIN)
    put = "/spaces/own/v1/stores?filename=m.onnx&tag=m"
    assert (await ask(app, "PUT", put, DATA, bearer(token))).status == 201
    return Signed(app, token, await signed_target(app, token))


async def test_a_signed_url_reads_with_ranges_and_without_a_token(it: Signed) -> None:
    whole = await it.get(it.target)
    assert (whole.status, whole.body) == (200, DATA)
    assert "private" in whole.headers["cache-control"]
    assert whole.headers["referrer-policy"] == "no-referrer"
    assert not any("psl-signature" in value for value in whole.headers.values())
    part = await it.get(it.target, range="bytes=10-19")
    assert (part.status, part.body) == (206, DATA[10:20])
    assert (await it.get(it.target, "HEAD")).headers["content-length"] == str(len(DATA))
    assert (await it.get(it.target.partition("?")[0])).status == 401


async def test_the_query_that_was_signed_counts(it: Signed) -> None:
    target = await signed_target(it.app, it.token, "/v1/stores/m/tree?depth=1")
    found = await it.get(target)
    assert found.status == 200
    asked = await ask(it.app, "GET", "/spaces/own/v1/stores/m/tree?depth=1", headers=bearer(it.token))
    assert found.body == asked.body
    assert (await it.get(target.replace("depth=1", "depth=2"))).status == 401


BENT: dict[str, Callable[[str], str]] = {
    "another proof": lambda url: url[:-1] + ("0" if url[-1] != "0" else "1"),
    "no proof": lambda url: url.partition("&psl-signature")[0],
    "an empty proof": lambda url: url[:-64],
    "a longer proof": lambda url: url + "0",
    "upper case": lambda url: url[:-64] + url[-64:].upper() + "A",
    "a later end": lambda url: url.replace("psl-expires=", "psl-expires=9"),
    "another token": lambda url: url.replace("psl-token=", "psl-token=x")[:-1],
    "a parameter in front": lambda url: url.replace("?", "?depth=1&"),
    "a parameter between": lambda url: url.replace("&psl-signature", "&depth=1&psl-signature"),
    "a parameter behind": lambda url: url + "&depth=1",
    "another space": lambda url: url.replace("/own/", "/other/"),
    "the default space": lambda url: url.replace("/spaces/own", ""),
    "another file": lambda url: url.replace("m.onnx", "n.onnx"),
    "another view": lambda url: url.replace("/files/m.onnx", "/tree"),
    "double slash": lambda url: url.replace("/files/", "//files/"),
    "dots": lambda url: url.replace("/own/", "/other/../own/"),
    "an encoded dot": lambda url: url.replace("m.onnx", "m%2eonnx"),
    "an encoded slash": lambda url: url.replace("files/m", "files%2Fm"),
    "NUL": lambda url: url.replace("m.onnx", "m.onnx%00"),
    "a line": lambda url: url.replace("m.onnx", "m.onnx%0d%0aauthorization:x"),
}


@pytest.mark.parametrize("name", BENT)
async def test_a_bent_url_opens_nothing(name: str, it: Signed) -> None:
    bent = BENT[name](it.target)
    assert bent != it.target
    got = await it.get(bent)
    assert got.status in {401, 404}, got
    assert DATA not in got.body
    assert "psl-signature=" not in got.text


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"])
async def test_a_url_is_for_reading(method: str, it: Signed) -> None:
    assert (await it.get(it.target, method)).status in {401, 405}
    assert (await it.get(it.target, "GET", **{"x-http-method-override": "DELETE"})).status == 200
    store = it.target.replace("/files/m.onnx", "")
    assert (await it.get(store, "DELETE")).status == 401


async def test_a_proof_for_a_route_that_signatures_do_not_open_is_none(it: Signed) -> None:
    tokens = it.app.services.authenticator.tokens
    id = it.target.partition("psl-token=")[2][:10]
    record = await tokens.get(id)
    assert record is not None
    assert it.app.services.authenticator.key is not None
    signer = record.signer(await it.app.services.authenticator.key.get())
    end = int(time.time()) + 60
    for method, path in (("DELETE", "/v1/tags/m"), ("GET", "/v1/tokens"), ("POST", "/v1/chunks/missing")):
        target = signer.sign(method, f"/spaces/own{path}", end)[0]
        assert (await it.get(target, method)).status == 401, path
    assert (await it.get(signer.sign("GET", f"/spaces/own{FILE}", end)[0])).status == 200
    assert (await it.get(signer.sign("GET", f"/spaces/other{FILE}", end)[0])).status == 404


SIGNED_ROWS = {
    row
    for row in RULES
    if row.startswith("GET /v1/stores/{ref}") or row.startswith("GET /api/2.0/mlflow-artifacts/artifacts/{")
} | {
    "GET /s3/bucket",
    "GET /s3/bucket/key",
    *(f"{method} /s3{path}" for method in ("PUT", "POST", "DELETE") for path in ("", "/bucket", "/bucket/key")),
    "GET /api/lfs-files/{kind}/{name:repository}/{oid}",
    "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}",
    "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}",
    "PUT /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}/{number}",
    "PUT /api/2.0/mlflow-artifacts/parts/{session}/{name:path}",
}


async def test_signed_urls_open_a_closed_list_of_routes(it: Signed) -> None:
    assert {row for row, rule in RULES.items() if rule.signed} == SIGNED_ROWS
    record = await it.app.services.authenticator.tokens.get(it.target.partition("psl-token=")[2][:10])
    key = it.app.services.authenticator.key
    assert record is not None
    assert key is not None
    signer, end = record.signer(await key.get()), time.time() + 60
    for row, rule in RULES.items():
        method, _, template = row.partition(" ")
        path = "/spaces/own" + re.sub(r"\{\w+(?::\w+)?\}", "0", template.replace("{name:owned}", "0/0"))
        for asked in (method, "HEAD") if method == "GET" else (method,):
            target = signer.sign("GET" if asked == "HEAD" else asked, path, end)[0]
            got = await it.get(target, asked)
            refused = got.status == 401
            assert refused == (rule.scope is not None and not rule.signed), (row, got)


def test_no_signature_outlives_its_purpose(monkeypatch: pytest.MonkeyPatch) -> None:
    key, now = hashlib.sha256(b"key").digest(), 1_000_000
    monkeypatch.setattr(time, "time", lambda: now)
    for purpose, longest in ((Purpose.URL, 7 * 24 * 3600), (Purpose.SESSION, 8 * 3600)):
        for end, valid in ((now + longest, True), (now + longest + 1, False), (1_893_456_000, False), (now, False)):
            proof = Signer("0123456789", key).hmac(purpose, f"until {end}")
            other = Purpose.SESSION if purpose is Purpose.URL else Purpose.URL
            said = ("0123456789", end, f"until {end}".encode(), proof)
            assert UrlSignature(*said, purpose).proves(key) is valid
            assert not UrlSignature(*said, other).proves(key), "a proof for one purpose is none for another"
    assert Signer("0123456789", key).sign("GET", "/x", now + 1e9)[1] <= now + 7 * 24 * 3600


async def test_a_reader_of_a_record_cannot_forge(it: Signed) -> None:
    record = await it.app.services.authenticator.tokens.get(it.target.partition("psl-token=")[2][:10])
    assert record is not None
    end = int(time.time()) + 60
    said = f"/spaces/own{FILE}?psl-expires={end}&psl-token={record.id}"
    kept = bytes.fromhex(record.hash)
    for key in (kept, record.hash.encode(), b"", hmac.digest(kept, b"protoslice signed URLs", "sha256")):
        for signer in (Signer(record.id, key), record.signer(key)):
            proofs = {signer.hmac(purpose, f"GET {said}") for purpose in Purpose}
            proofs.add(hmac.digest(key, f"GET {said}".encode(), "sha256").hex())
            for proof in proofs:
                assert (await it.get(f"{said}&psl-signature={proof}")).status == 401
    for purpose, proof in (("session", it.target[-64:]),):
        cookie = f"protoslice-{purpose}={end}.{record.id}.{proof}"
        assert (await it.get("/spaces/own/v1/stores", cookie=cookie)).status == 401


async def test_service_key_depends_on_the_secret_of_the_operator(tmp_path: Path) -> None:
    async with shared_catalogue(tmp_path / "catalog.sqlite") as database:
        secrets: tuple[list[str], ...] = ([], ["one secret " * 4], ["another secret " * 4])
        plain, one, other, again = [await SigningKey(database, each).get() for each in (*secrets, secrets[1])]
        assert len({plain, one, other}) == 3
        assert one == again
        assert await database.read(lambda tx: tx.first("SELECT service_key FROM meta")) == (plain,)


def test_a_url_ends_by_the_second(monkeypatch: pytest.MonkeyPatch) -> None:
    key, now = hashlib.sha256(b"key").digest(), 1_000_000
    said, _ = Signer("0123456789", key).sign("GET", "/x", now + 60)
    signature = UrlSignature("0123456789", now + 60, b"GET " + said.partition("&psl-sig")[0].encode(), said[-64:])
    assert "psl-signature" not in repr(signature)
    for clock, valid in ((now + 59.9, True), (now + 60, False)):
        monkeypatch.setattr(time, "time", lambda clock=clock: clock)
        assert signature.proves(key) is valid
    assert not signature.proves(hashlib.sha256(b"other").digest())


async def test_a_revoked_token_takes_its_urls_with_it(monkeypatch: pytest.MonkeyPatch, it: Signed) -> None:
    monkeypatch.setattr("protoslice.server.auth.authenticator.KNOWN_SECONDS", 0.0)
    assert (await it.get(it.target)).status == 200
    await it.app.services.authenticator.tokens.revoke(it.target.partition("psl-token=")[2][:10], "own")
    assert (await it.get(it.target)).status == 401


async def test_paths_that_are_no_view_are_not_signed(it: Signed) -> None:
    headers = bearer(it.token) | {"content-type": "application/json"}
    for path in ("/v1/tokens", "//v1/stores/x", "/spaces/other/v1/stores/x", "/v1/stores/a b", "/v1/stores/a#b",
                 "/v1/stores/a\r\nb", "/v1/stores/a\n", "/v1/stores/\x00", "https://x/v1/stores/a"):  # fmt: skip
        body = json.dumps({"path": path}).encode()
        assert (await ask(it.app, "POST", "/spaces/own/v1/sign", body, headers)).status == 400, path


async def test_lfs_uploads_go_to_urls_that_need_no_token(it: Signed) -> None:
    headers = bearer(it.token) | {"content-type": "application/json"}
    made = json.dumps({"name": "a/x", "type": "model"}).encode()
    assert (await ask(it.app, "POST", "/spaces/own/api/repos/create", made, headers)).status == 200
    oid = hashlib.sha256(DATA).hexdigest()
    asked = {"operation": "upload", "transfers": ["basic"], "objects": [{"oid": oid, "size": len(DATA)}]}
    wanted = json.dumps(asked).encode()
    told = await ask(it.app, "POST", "/spaces/own/a/x.git/info/lfs/objects/batch", wanted, headers)
    parts = urlsplit(json.loads(told.body)["objects"][0]["actions"]["upload"]["href"])
    target = f"{parts.path}?{parts.query}"
    assert (await ask(it.app, "PUT", parts.path, DATA)).status == 401
    assert (await ask(it.app, "PUT", target.replace("/own/", "/other/"), DATA)).status == 401
    assert (await ask(it.app, "PUT", target, DATA)).status == 200
    again = await ask(it.app, "POST", "/spaces/own/a/x.git/info/lfs/objects/batch", wanted, headers)
    assert "actions" not in json.loads(again.body)["objects"][0]


async def test_lfs_parts_go_to_urls_that_need_no_token(monkeypatch: pytest.MonkeyPatch, it: Signed) -> None:
    monkeypatch.setattr(lfs, "_PART_BYTES", len(DATA) - 1)
    headers = bearer(it.token) | {"content-type": "application/json"}
    made = json.dumps({"name": "a/x", "type": "model"}).encode()
    assert (await ask(it.app, "POST", "/spaces/own/api/repos/create", made, headers)).status == 200
    oid = hashlib.sha256(DATA).hexdigest()
    asked = {"operation": "upload", "transfers": ["multipart"], "objects": [{"oid": oid, "size": len(DATA)}]}
    wanted = json.dumps(asked).encode()
    told = await ask(it.app, "POST", "/spaces/own/a/x.git/info/lfs/objects/batch", wanted, headers)
    upload = json.loads(told.body)["objects"][0]["actions"]["upload"]
    end, first, second = (urlsplit(url) for url in (upload["href"], upload["header"]["1"], upload["header"]["2"]))
    sent: list[dict[str, object]] = []
    for url, data in ((first, DATA[:-1]), (second, DATA[-1:])):
        assert (await ask(it.app, "PUT", url.path, data)).status == 401
        assert (await ask(it.app, "PUT", f"{end.path}/{len(sent) + 1}?{url.query[:-1]}x", data)).status == 401
        answer = await ask(it.app, "PUT", f"{url.path}?{url.query}", data)
        assert answer.status == 200
        sent.append({"partNumber": len(sent) + 1, "etag": answer.headers["etag"]})
    assert (await ask(it.app, "PUT", f"{second.path}?{first.query}", DATA[-1:])).status == 401
    body, kind = json.dumps({"oid": oid, "parts": sent}).encode(), {"content-type": "application/json"}
    assert (await ask(it.app, "POST", end.path, body, kind)).status == 401
    assert (await ask(it.app, "POST", f"{end.path}?{first.query}", body, kind)).status == 401
    assert (await ask(it.app, "POST", f"{end.path}?{end.query}", body, kind)).status == 200


async def test_a_signer_is_known_for_seconds_on_the_early_path_too(monkeypatch: pytest.MonkeyPatch, it: Signed) -> None:
    assert (await it.get(it.target)).status == 200
    found = signed_alone(it.target.encode())
    assert found is not None
    authenticator, now = it.app.services.authenticator, time.monotonic()
    assert authenticator.cached_reader(None, found[1], "own") is not None
    assert authenticator.cached_reader(None, found[1], "other") is None
    monkeypatch.setattr(time, "monotonic", lambda: now + KNOWN_SECONDS + 1)
    assert authenticator.cached_reader(None, found[1], "own") is None


async def test_the_name_of_a_signer_is_no_credential(it: Signed) -> None:
    assert (await it.get(it.target)).status == 200
    signer = it.target.partition("psl-token=")[2].partition("&")[0]
    for sent in (signer, f"Bearer {signer}"):
        answer = await ask(it.app, "GET", it.target.partition("?")[0], headers={"authorization": sent})
        assert answer.status == 401
