"""Requests of S3: the bucket and the key that a host and a path name, and the signature that comes with them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.types import Scope

from protoslice.server.auth.signatures import SIGNATURE
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap
from protoslice.server.registries.s3.errors import S3Error, render_s3
from protoslice.server.registries.s3.signatures import signature_of
from protoslice.server.services import ServerState

_PATH: Final = re.compile(rb"/s3(?:/|$)")
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_KEY: Final = 4096
_HIDDEN: Final = frozenset({b"authorization", b"cookie"})


@dataclass(slots=True)
class S3Request:
    """What a request asks for; neither bucket nor key for the list of buckets."""

    method: str
    raw_path: bytes
    region: str
    bucket: str = ""
    key: str = ""
    admitted: bool = False
    """True once the caller may read in the space of the bucket."""

    @property
    def resource(self) -> str:
        """The path in errors."""
        return f"/{self.bucket}/{self.key}" if self.bucket else "/"


def enter_s3(scope: Scope, fields: HeaderMap, state: ServerState) -> bool:
    """Prepare a request for the routes of S3, if it is one; return True if its host is the domain of S3.

    The route finds `S3Request` at `s3` in the scope, and the authenticator the signature. Raise `S3Error` for a request
    that no bucket answers.
    """
    settings = state.settings
    domain, raw = settings.s3_domain, scope.get("raw_path") or scope["path"].encode()
    by_path = _PATH.match(raw) is not None
    if not domain and not by_path:  # most requests, which this must not cost anything
        return False
    hosts = _hosts(scope, fields, state)
    virtual = next((found for host in hosts if (found := _bucket_of(host, domain)) is not None), None)
    if virtual is None and not by_path:
        return False
    request = scope["s3"] = S3Request(scope["method"], raw, settings.s3_region)
    context_of(scope).render = lambda error, failure: render_s3(scope, error, failure)
    _route(scope, "/s3")
    rest = raw if virtual is not None else raw[3:]
    try:
        path = unquote_to_bytes(rest).decode()
    except UnicodeDecodeError:
        raise S3Error("InvalidURI", "The key is not UTF-8 text") from None
    bucket, _, key = (f"{virtual}{path}" if virtual else path[1:]).partition("/")
    if "\0" in key or len(key) > _LONGEST_KEY:
        raise S3Error("InvalidURI", f"A key has at most {_LONGEST_KEY} characters, and no NUL")
    request.bucket, request.key = bucket, key
    if bucket:
        if not _BUCKET.fullmatch(bucket):
            raise S3Error("NoSuchBucket" if not state.authenticator.closed else "AccessDenied", "No such bucket")
        _route(scope, f"/spaces/{bucket}/s3/bucket/key" if key else f"/spaces/{bucket}/s3/bucket")
    reads = scope["method"] in {"GET", "HEAD"}
    if reads and (fields.get(b"content-length", "0") != "0" or b"transfer-encoding" in fields):
        raise S3Error("InvalidRequest", "GET and HEAD have no body: send the request without one")
    if state.authenticator.closed:
        scope[SIGNATURE] = signature_of(scope, region=settings.s3_region, hosts=hosts, prefix=settings.public_path)
    if scope.get(SIGNATURE) is not None or fields.get(b"authorization", "").startswith("AWS"):
        scope["headers"] = [each for each in scope["headers"] if each[0] not in _HIDDEN]
    return virtual is not None


def _route(scope: Scope, path: str) -> None:
    """Set the path by which the space and the route of a request are found."""
    scope["path"], scope["raw_path"] = path, path.encode()


def _hosts(scope: Scope, fields: HeaderMap, state: ServerState) -> list[str]:
    """Return the hosts by which the client may have asked: what a trusted proxy says comes first."""
    peer = scope["client"][0] if scope.get("client") else None
    found = [fields.get(b"host", "")]
    if b"x-forwarded-host" in fields and state.clients.is_proxy(peer):
        found.insert(0, fields[b"x-forwarded-host"].rpartition(",")[2].strip())
    if state.settings.public_url:
        found.append(urlsplit(state.settings.public_url).netloc)
    return [*dict.fromkeys(found)]


def _bucket_of(host: str, domain: str) -> str | None:
    """Return the bucket that a host below the domain names, "" for the domain itself; None for other hosts."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.lower().removesuffix(".")
    if not domain or not name.endswith(domain):
        return None
    bucket = name.removesuffix(domain)
    return "" if not bucket else bucket[:-1] if bucket.endswith(".") else None
