"""Requests of S3: finds bucket and key in the host and the path, and reads the signature."""

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
from protoslice.server.registries.s3.signatures import READS, S3Signature, SignedRequest, parse_query, signature_of
from protoslice.server.services import ServerState

_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LONGEST_KEY: Final = 4096
_LONGEST_PATH: Final = 16 << 10
TAG_FIELDS: Final = frozenset({b"if-match", b"if-none-match"})
_HIDDEN: Final = frozenset({b"authorization", b"cookie"})


@dataclass(slots=True)
class S3Request:
    """The bucket and key of a request, which are empty if the request lists buckets."""

    signed: SignedRequest
    bucket: str
    key: str
    by_host: bool
    """True if the request's host belongs to the S3 domain."""
    admitted: bool = False
    """True once the caller may read in the bucket's space."""

    @classmethod
    def of(cls, method: str, raw_path: bytes, query: bytes, virtual: str | None, state: ServerState) -> S3Request:
        """Parse a request. `virtual` is the bucket that `bucket_of_hosts` found in the host.

        Raise `S3Error` for a request that no bucket answers.
        """
        if len(raw_path) > _LONGEST_PATH:
            raise S3Error("InvalidURI", f"A path has at most {_LONGEST_PATH} bytes")
        try:
            path = unquote_to_bytes(raw_path if virtual is not None else raw_path[3:]).decode()
        except UnicodeDecodeError:
            raise S3Error("InvalidURI", "The key is not UTF-8 text") from None
        bucket, _, key = (f"{virtual}{path}" if virtual else path[1:]).partition("/")
        if "\0" in key or len(key) > _LONGEST_KEY:
            raise S3Error("InvalidURI", f"A key has at most {_LONGEST_KEY} characters, and no NUL")
        if bucket and not _BUCKET.fullmatch(bucket):
            raise S3Error("NoSuchBucket" if not state.authenticator.closed else "AccessDenied", "No such bucket")
        signed = SignedRequest(method, raw_path.decode("latin-1"), parse_query(query), state.settings.public_path)
        return cls(signed, bucket, key, virtual is not None)


def enter_s3(scope: Scope, fields: HeaderMap, state: ServerState) -> bool:
    """Prepare a request for the routes of S3, if it is a request of S3.

    Return True if the request's host is in the S3 domain. The route finds the `S3Request` in the scope, at `s3`. The
    authenticator finds the signature in the scope. Raise `S3Error` for a request that no bucket answers.
    """
    raw = scope.get("raw_path") or scope["path"].encode()
    by_path = is_path_of_s3(raw)
    if not by_path and not state.settings.s3_domain:  # a quick exit, because most requests are not of S3
        return False
    hosts = hosts_of(fields, scope["client"][0] if scope.get("client") else None, state)
    virtual = bucket_of_hosts(hosts, state)
    if virtual is None and not by_path:
        return False
    context_of(scope).render = lambda error, failure: render_s3(scope, error, failure)
    _route(scope, "/s3")
    request = scope["s3"] = S3Request.of(scope["method"], raw, scope["query_string"], virtual, state)
    if request.bucket:
        path = f"/spaces/{request.bucket}/s3/bucket"
        _route(scope, f"{path}/key" if request.key else path)
    if request.signed.method in READS and (fields.get(b"content-length", "0") != "0" or b"transfer-encoding" in fields):
        raise S3Error("InvalidRequest", "GET and HEAD have no body: send the request without one")
    signature = scope[SIGNATURE] = take_signature(request, fields, hosts, state)
    if signature is not None or fields.get(b"authorization", "").startswith("AWS"):
        scope["headers"] = [each for each in scope["headers"] if each[0] not in _HIDDEN]
    fields.pop(b"content-encoding", None)  # clients send `aws-chunked` with bodies, which are refused unread
    return request.by_host


def _route(scope: Scope, path: str) -> None:
    """Set the path that determines a request's space and route."""
    scope["path"], scope["raw_path"] = path, path.encode()


def take_signature(request: S3Request, fields: HeaderMap, hosts: list[str], state: ServerState) -> S3Signature | None:
    """Return the signature of a request, and remove the header that has the signature.

    Return None if the request has no signature, or if the service requires no tokens.
    """
    found = (
        signature_of(request.signed, fields, hosts, state.settings.s3_region) if state.authenticator.closed else None
    )
    if found is not None:
        fields.pop(b"authorization", None)
    return found


def is_path_of_s3(raw_path: bytes) -> bool:
    """Return True for the path `/s3`, below which buckets are."""
    return raw_path == b"/s3" or raw_path.startswith(b"/s3/")


def hosts_of(fields: HeaderMap, peer: str | None, state: ServerState) -> list[str]:
    """Return the hosts that the client may have requested. A host from a trusted proxy comes first."""
    found = [fields.get(b"host", "")]
    if b"x-forwarded-host" in fields and state.clients.is_proxy(peer):
        found.insert(0, fields[b"x-forwarded-host"].rpartition(",")[2].strip())
    if state.settings.public_url:
        found.append(urlsplit(state.settings.public_url).netloc)
    return [*dict.fromkeys(found)]


def bucket_of_hosts(hosts: list[str], state: ServerState) -> str | None:
    """Return the bucket in a host below the S3 domain, and "" for the domain itself. Return None for other hosts."""
    for host in hosts if (domain := state.settings.s3_domain) else ():
        name = (host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host).lower().removesuffix(".")
        bucket = name.removesuffix(domain)
        if bucket != name and (not bucket or bucket.endswith(".")):
            return bucket[:-1]
    return None
