"""Signatures of S3 (AWS Signature Version 4), in headers and in presigned URLs, over the request as it was sent."""

from __future__ import annotations

import hmac
import re
import time
from calendar import timegm
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import Final, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from starlette.types import Scope

from protoslice.server.auth.signatures import Purpose, Signer, UrlSignature, proof
from protoslice.server.auth.tokens import is_token_id
from protoslice.server.http.headers import HeaderMap, read_fields
from protoslice.server.registries.s3.errors import S3Error

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_EMPTY: Final = sha256(b"").hexdigest()
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_SKEW_SECONDS: Final = 900
"""Seconds by which the clock of a client may be wrong."""
_LONGEST_SECONDS: Final = 604_800
_PREFIX: Final = "PSL"
_ACCESS_KEY: Final = re.compile(rf"{_PREFIX}([0-9A-F]{{4}})([0-9A-Za-z]{{10}}|JWT)")
_SEALED: Final = re.compile(r"[0-9A-Za-z_-]{40,1600}")
_HEADER: Final = re.compile(
    rf"{_ALGORITHM} +Credential=([^,\s]+), *SignedHeaders=([a-z0-9;._-]+), *Signature=([0-9a-f]{{64}})"
)
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SPACES: Final = re.compile(" +")
_MOST_PARAMETERS: Final = 200
_OF_QUERY: Final = (
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature",
)  # fmt: skip


def keys_of(signer: Signer) -> tuple[str, str, str | None]:
    """Return access key, secret and, for a JWT, session token of a signer; nothing is stored."""
    of_token = is_token_id(signer.id)
    access_key = f"{_PREFIX}{_number(signer.key)}{signer.id if of_token else 'JWT'}"
    return access_key, _secret_of(signer.key), None if of_token else signer.id


def _secret_of(key: bytes) -> str:
    """Return the secret access key of a signer."""
    return proof(key, Purpose.S3, b"secret access key")


def _number(key: bytes) -> str:
    """Return four digits that tell the keys of a signer apart, so that one derivation is tried."""
    return proof(key, Purpose.S3, b"number")[:4].upper()


class S3Signature(UrlSignature):
    """A signature of S3, not proved yet: `signed` is the number of its key, date, region, and a hash for each URL."""

    known = False
    """True once a key of its number was tried: then the access key is right, and the rest may not be."""

    @property
    def is_valid(self) -> bool:
        """True until its end."""
        return time.time() < self.expires

    def proves(self, key: bytes) -> bool:
        """Return True when the signer of `key` made it; takes equally long for every wrong proof."""
        number, date, region, *requests = self.signed.decode().split("\n")
        if not hmac.compare_digest(number, _number(key)):
            return False
        self.known, found = True, False
        derived, place = _day_key(key, date[:8], region), f"{date[:8]}/{region}/s3/aws4_request"
        for request in requests:
            made = hmac.digest(derived, f"{_ALGORITHM}\n{date}\n{place}\n{request}".encode(), sha256).hex()
            found |= hmac.compare_digest(made, self.proof)
        return found and self.is_valid


@lru_cache(maxsize=1024)
def _day_key(key: bytes, day: str, region: str) -> bytes:
    derived = f"AWS4{_secret_of(key)}".encode()
    for part in (day, region, "s3", "aws4_request"):
        derived = hmac.digest(derived, part.encode(), sha256)
    return derived


def signature_of(scope: Scope, *, region: str, hosts: Sequence[str], prefix: str) -> S3Signature | None:
    """Return the signature of a request; None without one. Raise `S3Error` for one that S3 would not take.

    `hosts` are names by which the client may have asked, `prefix` the public path that a proxy takes off.
    """
    fields, query = read_fields(scope), parse_query(scope["query_string"])
    authorization = fields.get(b"authorization", "")
    names = {name for name, _ in query}
    if names & {"AWSAccessKeyId", "Signature"} or authorization.startswith("AWS "):
        raise S3Error("InvalidRequest", "Signature version 2 is not supported: use AWS4-HMAC-SHA256")
    in_query = not names.isdisjoint(_OF_QUERY)
    if authorization.startswith("AWS4-") and in_query:
        raise S3Error("InvalidArgument", "Sign the request once: in `Authorization`, or in the URL")
    if in_query:
        given = _of_query(query)
    elif authorization.startswith("AWS4-"):
        given = _of_header(authorization, fields, reads=scope["s3"].method in {"GET", "HEAD"})
    else:
        return None
    place, number, signer = given.scope(region)
    _check_signed(given.signed, fields)
    if given.payload.startswith("STREAMING-"):
        raise S3Error("InvalidRequest", "Bodies that are signed in chunks are not supported")
    targets = {prefix + _path(scope), _path(scope)}
    signed = [_signed_line(name, fields) for name in given.signed]
    rest = [(name, value) for name, value in query if name != "X-Amz-Signature"]
    hashes = [
        sha256(
            "\n".join(
                (
                    scope["s3"].method, canonical_path(target), canonical_query(rest),
                    *(f"{name}:{host if name == 'host' else value}" for name, value in signed),
                    "", ";".join(given.signed), given.payload,
                )
            ).encode()
        ).hexdigest()
        for target, host in product(sorted(targets), dict.fromkeys(hosts))
    ]  # fmt: skip
    signed_text = "\n".join((number, given.date, place, *hashes)).encode()
    return S3Signature(signer, int(given.expires), signed_text, given.proof, Purpose.S3)


class _Given(NamedTuple):
    """What a request says of its signature."""

    credential: str
    signed: tuple[str, ...]
    proof: str
    date: str
    expires: float
    payload: str
    token: str | None
    malformed: str
    """Code of an error in it."""

    def scope(self, region: str) -> tuple[str, str, str]:
        """Return region, number of the key, and signer; raise `S3Error` for a scope that is not ours."""
        parts = self.credential.split("/")
        if len(parts) != 5 or parts[1] != self.date[:8] or parts[3:] != ["s3", "aws4_request"]:
            raise S3Error(self.malformed, "Invalid credential: use ACCESS-KEY/YYYYMMDD/REGION/s3/aws4_request")
        if region and parts[2] != region:
            raise S3Error(self.malformed, f"Wrong region {parts[2][:64]!r}: use {region!r}")
        found = _ACCESS_KEY.fullmatch(parts[0])
        if found is None or (found[2] == "JWT") is (self.token is None):
            raise S3Error("InvalidAccessKeyId", "Unknown access key: `protoslice token s3` prints yours")
        if self.token is not None and not _SEALED.fullmatch(self.token):
            raise S3Error("InvalidAccessKeyId", "Invalid session token: `protoslice token s3` prints yours")
        return parts[2], found[1], self.token or found[2]


def _of_header(authorization: str, fields: HeaderMap, *, reads: bool) -> _Given:
    found = _HEADER.fullmatch(authorization)
    if found is None:
        kind = authorization.partition(" ")[0]
        if kind != _ALGORITHM:
            raise S3Error("InvalidRequest", f"{kind[:40]} is not supported: use {_ALGORITHM}")
        raise S3Error(
            "AuthorizationHeaderMalformed", "Invalid `Authorization`: send Credential, SignedHeaders, Signature"
        )
    moment = _moment(fields.get(b"x-amz-date", ""), "AccessDenied")
    if abs(time.time() - moment) > _SKEW_SECONDS:
        raise S3Error("RequestTimeTooSkewed", "The clock of the client differs by more than 15 minutes")
    payload = fields.get(b"x-amz-content-sha256")
    if payload is None:
        raise S3Error("InvalidRequest", "Missing header x-amz-content-sha256")
    if reads and payload not in {_EMPTY, _UNSIGNED} and not payload.startswith("STREAMING-"):
        raise S3Error("XAmzContentSHA256Mismatch", "x-amz-content-sha256 is not the digest of an empty body")
    token = fields.get(b"x-amz-security-token")
    return _Given(
        found[1], tuple(found[2].split(";")), found[3], fields[b"x-amz-date"], moment + _SKEW_SECONDS, payload, token,
        "AuthorizationHeaderMalformed",
    )  # fmt: skip


def _of_query(query: Sequence[tuple[str, str]]) -> _Given:
    code = "AuthorizationQueryParametersError"
    values = dict(query)
    names = [name for name, _ in query]
    for name in (*_OF_QUERY, "X-Amz-Security-Token"):
        if names.count(name) > 1 or (name not in values and name in _OF_QUERY):
            raise S3Error(code, f"A presigned URL has {name} once")
    if values["X-Amz-Algorithm"] != _ALGORITHM:
        raise S3Error("InvalidRequest", f"{values['X-Amz-Algorithm'][:40]} is not supported: use {_ALGORITHM}")
    seconds = values["X-Amz-Expires"]
    if not re.fullmatch(r"[0-9]{1,6}", seconds) or not 1 <= int(seconds) <= _LONGEST_SECONDS:
        raise S3Error(code, f"X-Amz-Expires is a number of seconds from 1 to {_LONGEST_SECONDS}")
    if not re.fullmatch(r"[0-9a-f]{64}", values["X-Amz-Signature"]):
        raise S3Error(code, "Invalid X-Amz-Signature: send 64 hexadecimal digits")
    moment, now = _moment(values["X-Amz-Date"], code), time.time()
    if moment > now + _SKEW_SECONDS:
        raise S3Error("AccessDenied", "The URL is not valid yet")
    if moment + int(seconds) <= now:
        raise S3Error("AccessDenied", "Request has expired")
    return _Given(
        values["X-Amz-Credential"], tuple(values["X-Amz-SignedHeaders"].split(";")), values["X-Amz-Signature"],
        values["X-Amz-Date"], moment + int(seconds), _UNSIGNED, values.get("X-Amz-Security-Token"), code,
    )  # fmt: skip


def _moment(text: str, code: str) -> int:
    try:
        if _DATE.fullmatch(text):
            return timegm(time.strptime(text, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        pass
    raise S3Error(code, "X-Amz-Date is missing or invalid: use YYYYMMDDTHHMMSSZ")


def _check_signed(signed: Sequence[str], fields: HeaderMap) -> None:
    """Raise `S3Error` unless Host and every header of Amazon is signed, once."""
    sent = {name.decode("latin-1") for name in fields if name.startswith(b"x-amz-")}
    missing = sorted(({"host"} | sent) - set(signed))
    if missing or len(set(signed)) != len(signed) or list(signed) != sorted(signed):
        raise S3Error(
            "AccessDenied", f"Headers that must be signed and are not: {', '.join(missing) or 'invalid list'}"
        )


def _signed_line(name: str, fields: HeaderMap) -> tuple[str, str]:
    value = fields.get(name.encode())
    if value is None:
        raise S3Error("SignatureDoesNotMatch", f"The signed header {name[:80]!r} was not sent")
    return name, _SPACES.sub(" ", value.strip(" \t"))


def _path(scope: Scope) -> str:
    raw: bytes = scope["s3"].raw_path
    return raw.decode("latin-1")


def canonical_path(raw: str) -> str:
    """Return a path decoded once and encoded again, as S3 wants it: `/` stays."""
    return quote(unquote_to_bytes(raw.encode("latin-1")), safe="/~")


def canonical_query(query: Sequence[tuple[str, str]]) -> str:
    """Return the parameters encoded and sorted."""
    return "&".join("=".join(pair) for pair in sorted((_encoded(name), _encoded(value)) for name, value in query))


def _encoded(text: str) -> str:
    return quote(text.encode("utf-8", "surrogateescape"), safe="~")


def parse_query(query: bytes) -> list[tuple[str, str]]:
    """Return the parameters of a query, decoded; raise `S3Error` for too many of them."""
    if query.count(b"&") >= _MOST_PARAMETERS:
        raise S3Error("InvalidRequest", f"A URL has at most {_MOST_PARAMETERS} parameters")
    return list(_pairs(query))


def _pairs(query: bytes) -> Iterator[tuple[str, str]]:
    for pair in filter(None, query.split(b"&")):
        name, _, value = pair.partition(b"=")
        yield _decoded(name), _decoded(value)


def _decoded(text: bytes) -> str:
    return unquote_to_bytes(text.replace(b"+", b" ")).decode("utf-8", "surrogateescape")
