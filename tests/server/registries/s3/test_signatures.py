"""Signatures: an altered, replayed, repeated or partly unsigned request is refused. Keys end with their token."""

from __future__ import annotations

import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from tests.server.auth.closed import bearer, closed_service, token_for
from tests.server.auth.oidc.trusting import trust_file
from tests.support.issuer import running_issuer
from tests.support.serve import Asked, ask

from protoslice.server.app import Application
from protoslice.server.auth import authenticator, signatures
from protoslice.server.auth.permissions import Scope
from protoslice.server.transport.run import fast_path

EMPTY: Final = sha256(b"").hexdigest()
DATA: Final = b"\x0a\x03abc"
ALGORITHM: Final = "AWS4-HMAC-SHA256"


@dataclass
class Keys:
    """The keys of a caller."""

    id: str
    secret: str
    session: str | None = None


@dataclass
class Made:
    """A request that is signed by Amazon's documented algorithm, except for a test's changes."""

    keys: Keys
    path: str = "/s3/own/tags/m/m.pb"
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    date: float | None = None
    region: str = "us-east-1"
    service: str = "s3"
    signed: str | None = None

    def sent(self) -> dict[str, str]:
        """Return the headers with a signature over `path` and the sorted `query`, which are in canonical form."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.date or time.time()))
        found = {"host": "localhost", "x-amz-date": date, "x-amz-content-sha256": EMPTY, **self.headers}
        if self.keys.session is not None:
            found["x-amz-security-token"] = self.keys.session
        names = sorted(found) if self.signed is None else self.signed.split(";")
        scope = f"{date[:8]}/{self.region}/{self.service}/aws4_request"
        proof = self.proof(date, scope, self.query, {name: found.get(name, "") for name in names}, EMPTY)
        said = f"Credential={self.keys.id}/{scope}, SignedHeaders={';'.join(names)}, Signature={proof}"
        return {**found, "authorization": f"{ALGORITHM} {said}"}

    def presigned(self, seconds: int = 60) -> str:
        """Return the target of a presigned URL."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(self.date or time.time()))
        scope = f"{date[:8]}/{self.region}/{self.service}/aws4_request"
        said = {"X-Amz-Algorithm": ALGORITHM, "X-Amz-Credential": f"{self.keys.id}/{scope}", "X-Amz-Date": date,
            "X-Amz-Expires": str(seconds), "X-Amz-SignedHeaders": "host"}  # fmt: skip
        pairs = [f"{name}={quote(value, safe='~')}" for name, value in said.items()]
        query = "&".join(sorted([*pairs, *filter(None, self.query.split("&"))]))
        proof = self.proof(date, scope, query, {"host": "localhost"}, "UNSIGNED-PAYLOAD")
        return f"{self.path}?{query}&X-Amz-Signature={proof}"

    def proof(self, date: str, scope: str, query: str, headers: Mapping[str, str], payload: str) -> str:
        lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
        canonical = f"{self.method}\n{self.path}\n{query}\n{lines}\n{';'.join(headers)}\n{payload}"
        key = f"AWS4{self.keys.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        return hmac.digest(key, text.encode(), "sha256").hex()


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """The service caches no decisions: each request is judged by the current state."""
    for module, name in ((authenticator, "KNOWN_SECONDS"), (signatures, "REMEMBERED_SECONDS")):
        monkeypatch.setattr(module, name, 0.0)


@asynccontextmanager
async def bucket(**given: Any) -> AsyncIterator[tuple[Application, Keys]]:
    """Open a service with an object in the bucket `own`; yield it, and keys that may read there."""
    async with closed_service(**given) as app:
        for space in ("own", "other"):
            token = await token_for(app, Scope.WRITE, space=space)
            put = f"/spaces/{space}/v1/stores?filename=m.pb&tag=m"
            assert (await ask(app, "PUT", put, DATA, bearer(token))).status == 201
        yield app, await keys_of(app, await token_for(app, Scope.READ))


async def keys_of(app: Application, token: str, space: str = "own") -> Keys:
    made = json.loads((await ask(app, "POST", f"/spaces/{space}/v1/s3-keys", b"", bearer(token))).body)
    return Keys(made["access_key_id"], made["secret_access_key"], made.get("session_token"))


async def got(app: Application, made: Made, headers: Mapping[str, str] | None = None, method: str = "GET") -> Asked:
    query = f"?{made.query}" if made.query else ""
    return await ask(app, method, made.path + query, b"", {**made.sent(), **(headers or {})})


def code(answer: Asked) -> str:
    return answer.body.decode().partition("<Code>")[2].partition("</Code>")[0] or str(answer.status)


async def test_a_signed_request_is_answered_by_header_and_by_url() -> None:
    async with bucket() as (app, keys):
        assert (await got(app, Made(keys))).body == DATA
        assert (await ask(app, "GET", Made(keys).presigned())).body == DATA
        assert (await got(app, Made(keys, query="list-type=2", path="/s3/own"))).status == 200
        assert code(await ask(app, "GET", "/s3/own/tags/m/m.pb")) == "AccessDenied"


async def test_what_is_altered_behind_the_signature_is_refused() -> None:
    async with bucket() as (app, keys):
        made = Made(keys, headers={"range": "bytes=0-1", "x-amz-checksum-mode": "ENABLED"})
        whole = made.sent()
        assert (await ask(app, "GET", made.path, b"", whole)).status == 206
        for name, value in (("range", "bytes=0-2"), ("x-amz-checksum-mode", "DISABLED"), ("host", "127.0.0.1")):
            assert code(await ask(app, "GET", made.path, b"", {**whole, name: value})) == "SignatureDoesNotMatch", name
        for target in (
            "/s3/own/tags/m/m.pb?x=1",
            "/s3/own/tags/m/m.p",
            "/s3/own//tags/m/m.pb",
            "/s3/own/tags/m/./m.pb",
        ):
            assert code(await ask(app, "GET", target, b"", whole)) == "SignatureDoesNotMatch", target
        assert (await ask(app, "HEAD", made.path, b"", whole)).status == 403
        # Spellings of one path are one key, and one signature.
        assert (await ask(app, "GET", "/s3/own/tags/m/%6d.pb", b"", whole)).status == 206


async def test_unsigned_headers_of_amazon_are_refused() -> None:
    async with bucket() as (app, keys):
        assert (await got(app, Made(keys), {"x-amz-security-token": "x"})).status == 403
        for name in ("x-amz-checksum-mode", "x-amz-anything"):
            assert code(await got(app, Made(keys), {name: "x"})) == "AccessDenied", name
        for signed in (
            "host;x-amz-date",
            "x-amz-content-sha256;x-amz-date",
            "host;host;x-amz-content-sha256;x-amz-date",
            "x-amz-date;x-amz-content-sha256;host",
        ):
            assert code(await got(app, Made(keys, signed=signed))) == "AccessDenied", signed


async def test_a_request_lives_for_fifteen_minutes_and_a_url_as_long_as_it_says() -> None:
    async with bucket() as (app, keys):
        now = time.time()
        for seconds, expected in ((-890, "200"), (-910, "RequestTimeTooSkewed"), (910, "RequestTimeTooSkewed")):
            assert code(await got(app, Made(keys, date=now + seconds))) == expected, seconds
        for seconds, life, status in ((-59, 100, 200), (-61, 60, 403), (910, 60, 403), (0, 604_801, 400), (0, 0, 400)):
            answer = await ask(app, "GET", Made(keys, date=now + seconds).presigned(life))
            assert answer.status == status, (seconds, life)


async def test_date_stands_for_nothing_and_is_no_way_around_the_clock() -> None:
    async with bucket() as (app, keys):
        old = Made(keys, date=time.time() - 3600)
        fresh = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
        assert code(await got(app, old, {"date": fresh})) == "RequestTimeTooSkewed"
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        assert code(await got(app, old, {"x-amz-date": stamp})) == "SignatureDoesNotMatch"
        assert code(await got(app, old, {"x-amz-date": f"{stamp}, {stamp}"})) == "AccessDenied"


async def test_another_scope_is_refused() -> None:
    async with bucket(s3_region="eu-west-1") as (app, keys):
        assert (await got(app, Made(keys, region="eu-west-1"))).body == DATA
        assert code(await got(app, Made(keys, region="us-east-1"))) == "AuthorizationHeaderMalformed"
        assert code(await got(app, Made(keys, region="eu-west-1", service="iam"))) == "AuthorizationHeaderMalformed"
        yesterday = Made(keys, region="eu-west-1").sent()
        today = time.strftime("%Y%m%d", time.gmtime())
        yesterday["authorization"] = yesterday["authorization"].replace(today, "20200101")
        assert code(await ask(app, "GET", "/s3/own/tags/m/m.pb", b"", yesterday)) == "AuthorizationHeaderMalformed"


async def test_a_body_signed_in_chunks_is_refused_to_reads_and_writes_are_denied_unread() -> None:
    async with bucket() as (app, keys):
        chunked = {"x-amz-content-sha256": "STREAMING-UNSIGNED-PAYLOAD-TRAILER"}
        assert code(await got(app, Made(keys, headers=chunked))) == "InvalidRequest"
        put = Made(keys, headers={"content-encoding": "aws-chunked"}, method="PUT")
        assert code(await ask(app, "PUT", put.path, b"3\r\nabc\r\n", put.sent())) == "AccessDenied"


async def test_two_signatures_and_two_values_are_refused() -> None:
    async with bucket() as (app, keys):
        made = Made(keys)
        assert code(await ask(app, "GET", made.presigned(), b"", made.sent())) == "InvalidArgument"
        assert code(await ask(app, "GET", made.presigned() + "&X-Amz-Expires=9", b"")) == "InvalidArgument"
        for query in ("prefix=a&prefix=b", "list-type=2&prefix=hub%2F&prefix=tags%2F"):
            assert code(await got(app, Made(keys, path="/s3/own", query=query))) == "InvalidArgument"


async def test_texts_that_no_client_sends_are_refused_and_not_failed_upon() -> None:
    async with bucket() as (app, keys):
        target = Made(keys).presigned()
        for old, new in (
            ("SignedHeaders=host", "SignedHeaders=host%3B%ff"),
            ("us-east-1", "us%0aeast"),
            ("us-east-1", "%ff"),
            ("X-Amz-Date=2", "X-Amz-Date=%ff2"),
            ("AWS4-HMAC", "%ed%a0%80"),
            ("X-Amz-Credential=", "X-Amz-Credential=%ff"),
            ("X-Amz-Expires=60", "X-Amz-Expires=6%C2%B2"),
        ):
            assert 400 <= (await ask(app, "GET", target.replace(old, new))).status < 500, new
        strange = f"{ALGORITHM} Credential=a/b, SignedHeaders=\xff, Signature={'0' * 64}"
        for text in (strange, ALGORITHM, "AWS4-", "AWS x:y", f"{ALGORITHM} " * 900):
            headers = {**Made(keys).sent(), "authorization": text}
            assert 400 <= (await ask(app, "GET", "/s3/own/tags/m/m.pb", b"", headers)).status < 500, text[:80]


async def test_another_space_is_denied_as_one_that_does_not_exist() -> None:
    async with bucket() as (app, keys):
        shown = set()
        for space in ("other", "nowhere"):
            for path, query in (
                (f"/s3/{space}/tags/m/m.pb", ""),
                (f"/s3/{space}", "list-type=2"),
                (f"/s3/{space}", "acl="),
            ):
                answer = await got(app, Made(keys, path=path, query=query))
                text = answer.body.decode().replace(space, "SPACE")
                shown.add((answer.status, text[: text.index("<RequestId>")].partition("<Resource>")[0]))
        assert {status for status, _ in shown} == {403}
        assert len({text.partition("<Message>")[0] for _, text in shown}) == 1
        buckets = await got(app, Made(keys, path="/s3"))
        assert b"<Name>own</Name>" in buckets.body
        assert b"other" not in buckets.body


async def test_keys_end_when_the_token_is_revoked() -> None:
    async with bucket() as (app, keys):
        assert (await got(app, Made(keys))).status == 200
        await app.services.authenticator.tokens.revoke(keys.id[7:], "own")
        assert (await got(app, Made(keys))).status == 403
        assert (await ask(app, "GET", Made(keys).presigned())).status == 403


async def test_keys_of_a_token_that_may_not_read_read_nothing() -> None:
    async with bucket() as (app, _):
        answer = await ask(app, "POST", "/spaces/own/v1/s3-keys", b"", bearer(await token_for(app, Scope.WRITE)))
        assert answer.status == 403


async def test_a_jwt_gets_keys_that_need_its_statement_and_end_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_issuer() as issuer:
        async with bucket(issuers=trust_file(tmp_path, issuer)) as (app, of_token):
            end = int(time.time()) + 50
            keys = await keys_of(app, issuer.token(exp=end))
            assert keys.id.endswith("JWT")
            assert keys.session is not None
            assert (await got(app, Made(keys))).body == DATA
            for wrong in (None, keys.session[:-3] + "AAA", "x"):
                bent = Made(Keys(keys.id, keys.secret, wrong))
                assert (await got(app, bent)).status == 403, wrong
            assert (await got(app, Made(Keys(of_token.id, of_token.secret, keys.session)))).status == 403
            assert (await got(app, Made(keys, path="/s3/other/tags/m/m.pb"))).status == 403
            monkeypatch.setattr(time, "time", lambda: end + 0.5)
            assert (await got(app, Made(keys))).status == 403


async def test_overrides_cannot_split_or_weaken_an_answer() -> None:
    async with bucket() as (app, keys):
        for value in ("text%2Fhtml%0D%0ASet-Cookie%3A%20a%3Db", "a%00b", "%E2%80%A8", "a%0Ab"):
            query = f"response-content-type={value}"
            assert code(await got(app, Made(keys, query=query))) == "InvalidArgument", value
        shown = await got(app, Made(keys, query="response-content-disposition=inline%3B%20filename%3Da"))
        assert shown.headers["content-disposition"] == "attachment; filename=a"
        query = "response-content-disposition=inline&response-content-type=text%2Fhtml"
        headers = (await got(app, Made(keys, query=query))).headers
        assert headers["content-disposition"] == "attachment"
        assert "sandbox" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        plain = await ask(app, "GET", f"/s3/own/tags/m/m.pb?{query}", b"", bearer(await token_for(app, Scope.READ)))
        assert code(plain) == "InvalidRequest"


async def test_listings_are_bounded_and_tokens_open_nothing() -> None:
    async with bucket() as (app, keys):

        async def listed(query: str) -> Asked:
            return await got(app, Made(keys, path="/s3/own", query=query))

        none = await listed("list-type=2&max-keys=0")
        assert (none.status, b"<Key>" in none.body, b"<IsTruncated>false" in none.body) == (200, False, True)
        assert b"<MaxKeys>1000<" in (await listed("list-type=2&max-keys=9999999999")).body
        for query in ("max-keys=-1", "max-keys=1e9", "max-keys=99999999999", "max-keys=%D9%A1", "encoding-type=x",
                      "continuation-token=%FF&list-type=2", "continuation-token=x&list-type=2"):  # fmt: skip
            assert code(await listed(query)) == "InvalidArgument", query
        for token in ("dGFncy8=", "", "c3BhY2VzL290aGVyL3RhZ3MvbS8=", "8J-YgA=="):
            answer = await listed(f"continuation-token={quote(token, safe='')}&list-type=2")
            assert answer.status == 200, token
            assert b"other" not in answer.body
        for prefix in (
            "../other/",
            "spaces/other/",
            "stores/../../other/",
            "tags/m/../",
            "%00",
            "%FF",
            "tags/%EF%BF%BF",
        ):
            answer = await listed(f"delimiter=%2F&list-type=2&prefix={prefix.replace('/', '%2F')}")
            assert answer.status in {200, 400}, prefix
            assert b"<Contents>" not in answer.body, prefix


async def test_the_fast_path_forgets_a_revoked_token_and_refuses_what_is_altered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authenticator, "KNOWN_SECONDS", 60.0)
    async with bucket(storage=tmp_path.as_uri(), trust_seconds=60, space_watermark_bytes=0) as (app, keys):
        quick = fast_path(app)
        assert quick is not None
        listed = await got(app, Made(keys, path="/s3/own", query="list-type=2&prefix=stores%2F"))
        key = listed.body.decode().partition("<Key>")[2].partition("</Key>")[0]
        assert key.startswith("stores/")

        def answered(made: Made, **altered: str) -> bytes | None:
            headers = [(name.encode(), text.encode()) for name, text in {**made.sent(), **altered}.items()]
            return quick(made.path.encode(), headers, "192.0.2.1", [])

        made = Made(keys, path=f"/s3/own/{key}", headers={"range": "bytes=0-1"})
        slow = await got(app, made)
        fast = answered(made)
        assert slow.body == DATA[:2]
        assert fast is not None
        assert fast.endswith(b"\r\n\r\n" + DATA[:2])
        names = {line.partition(b":")[0].decode() for line in fast.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]}
        assert names == {*slow.headers}
        assert answered(made, range="bytes=0-2") is None
        assert answered(made, **{"x-amz-date": "20200101T000000Z"}) is None
        theirs = await keys_of(app, await token_for(app, Scope.READ, space="other"), "other")
        assert (await got(app, Made(theirs, path=f"/s3/other/{key}"))).body == DATA
        assert answered(Made(theirs, path=f"/s3/other/{key}")) is not None
        assert answered(Made(keys, path=f"/s3/other/{key}")) is None
        dated = {"if-modified-since": "Thu, 01 Jan 1970 00:00:00 GMT"}
        assert answered(Made(keys, path=f"/s3/own/{key}", headers=dated)) is None
        assert answered(Made(Keys(keys.id, "0" * 64), path=f"/s3/own/{key}")) is None
        await app.services.authenticator.tokens.revoke(keys.id[7:], "own")
        monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 61)
        assert answered(made) is None
        assert (await got(app, made)).status == 403
