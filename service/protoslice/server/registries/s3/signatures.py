"""Signatures of S3 (AWS Signature Version 4) in headers and presigned URLs. They cover the request as it was sent."""

from __future__ import annotations

import hmac
import math
import re
import time
from calendar import timegm
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from hashlib import sha256
from itertools import product
from typing import Annotated, Final
from urllib.parse import quote, unquote_to_bytes

from protoslice.facts import SECRET
from protoslice.server.auth.signatures import Purpose, Signer, UrlSignature, proof
from protoslice.server.auth.tokens import is_token_id
from protoslice.server.http.headers import HeaderMap
from protoslice.server.registries.s3.errors import S3Error

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_EMPTY: Final = sha256(b"").hexdigest()
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_SKEW_SECONDS: Final = 900
"""The seconds by which a client's clock may be wrong."""
_LONGEST_SECONDS: Final = 604_800
_ACCESS_KEY: Final = re.compile(r"PSL([0-9A-F]{4})([0-9A-Za-z]{10}|JWT)")
_SEALED: Final = re.compile(r"[0-9A-Za-z_-]{40,1600}")
_HEADER: Final = re.compile(r"(AWS4-[0-9A-Z-]+) +Credential=([^,\s]+), *SignedHeaders=([^,\s]+), *Signature=([^,\s]+)")
_PROOF: Final = re.compile(r"[0-9a-f]{64}")
_LONGEST_CREDENTIAL: Final = 200
_DATE: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_NAMES: Final = re.compile(r"[a-z0-9;._-]{1,2000}")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
_SPACES: Final = re.compile(" +")
_MOST_PARAMETERS: Final = 200
_LONGEST_URL: Final = 16 << 10
READS: Final = frozenset({"GET", "HEAD"})
_RAW: Final = "surrogateescape"
"""The error handler that keeps bytes in texts even if they are not UTF-8."""
_REQUIRED: Final = (
    "X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders", "X-Amz-Signature",
)  # fmt: skip
_EACH: Final = frozenset(_REQUIRED)
PRESIGNED: Final = frozenset({*_REQUIRED, "X-Amz-Security-Token"})
"""The parameters of a presigned URL."""

Parameters = Mapping[str, str]
"""The decoded parameters of a query."""


@dataclass(frozen=True, slots=True)
class S3Keys:
    """The S3 keys of a caller. They expire with the caller's token or JWT."""

    access_key_id: str
    secret_access_key: Annotated[str, SECRET]
    session_token: Annotated[str | None, SECRET]
    """The token that clients send with keys that were made from a JWT; None for keys that were made from a token."""
    expires: datetime | None

    @classmethod
    def of(cls, signer: Signer) -> S3Keys:
        """Return the keys of a signer. Nothing is stored."""
        of_token = is_token_id(signer.id)
        access_key = f"PSL{_number(signer.key)}{signer.id if of_token else 'JWT'}"
        ends = None if math.isinf(signer.end) else datetime.fromtimestamp(signer.end, UTC)
        return cls(access_key, _secret_of(signer.key), None if of_token else signer.id, ends)


def _secret_of(key: bytes) -> str:
    return proof(key, Purpose.S3, b"secret access key")


@lru_cache(maxsize=1024)
def _number(key: bytes) -> str:
    """Return four digits that identify one of a signer's keys, so that the service derives only one signing key."""
    return proof(key, Purpose.S3, b"number")[:4].upper()


class S3Signature(UrlSignature):
    """A signature of S3 that is not verified yet.

    `signed` has lines for the signature's key number, date and region, and one hash per URL and host.
    """

    known = False
    """True once a key with the right number was tried.

    The access key is then correct, but the signature may be wrong.
    """

    @property
    def is_valid(self) -> bool:
        """True until the signature expires."""
        return time.time() < self.expires

    def proves(self, key: bytes) -> bool:
        """Return True if the signer with `key` made the signature.

        The comparison takes equally long for all wrong proofs.
        """
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


@dataclass(frozen=True)
class SignedRequest:
    """The parts of a request, except headers, that a signature covers.

    They are computed once for all requests of a URL.
    """

    method: str
    path: str
    """The path exactly as it was sent."""
    parameters: Parameters
    prefix: str
    """The public path, which a proxy may have removed."""

    @cached_property
    def heads(self) -> Sequence[str]:
        """The beginnings of the canonical request, one for each path that the client may have requested."""
        signed = canonical_query({name: text for name, text in self.parameters.items() if name != "X-Amz-Signature"})
        paths = dict.fromkeys((self.prefix + self.path, self.path))
        return [f"{self.method}\n{canonical_path(path)}\n{signed}\n" for path in paths]


def signature_of(request: SignedRequest, fields: HeaderMap, hosts: Sequence[str], region: str) -> S3Signature | None:
    """Return the signature of a request.

    Return None if the request is not signed. Raise `S3Error` for signatures that S3 refuses. `hosts` are names that the
    client may have used. If `region` is not empty, the client must sign for this region.
    """
    authorization, names = fields.get(b"authorization", ""), request.parameters.keys()
    if authorization.startswith("AWS ") or not names.isdisjoint({"AWSAccessKeyId", "Signature"}):
        raise S3Error("InvalidRequest", "Signature version 2 is not supported: use AWS4-HMAC-SHA256")
    in_query, in_header = not names.isdisjoint(PRESIGNED), authorization.startswith("AWS4-")
    if in_header and in_query:
        raise S3Error(
            "InvalidArgument", "The request has two signatures: sign it either in `Authorization` or in the URL"
        )
    if not in_header and not in_query:
        return None
    given = request.parameters if in_query else _in_header(authorization, fields)
    code = "AuthorizationQueryParametersError" if in_query else "AuthorizationHeaderMalformed"
    if not given.keys() >= _EACH:
        raise S3Error(code, f"The signature is incomplete: it lacks {', '.join(sorted(_EACH - given.keys()))}")
    algorithm, credential, date, seconds, signed, made = (given[name] for name in _REQUIRED)
    if algorithm != _ALGORITHM:
        raise S3Error("InvalidRequest", f"{algorithm[:40]} is not supported: use {_ALGORITHM}")
    if not _PROOF.fullmatch(made) or len(credential) > _LONGEST_CREDENTIAL:
        raise S3Error(code, "Invalid signature or credential: sign the request again")
    expires = _end_of(date, seconds, code if in_query else "AccessDenied", in_query)
    payload = _UNSIGNED if in_query else _payload_of(fields, reads=request.method in READS)
    place, number, signer = _place_of(credential, date[:8], region, code)
    token = given.get("X-Amz-Security-Token")
    if (signer == "JWT") is (token is None) or not (token is None or _SEALED.fullmatch(token)):
        raise S3Error("InvalidAccessKeyId", "Invalid session token: run `protoslice token s3` to get a valid one")
    before, after = _signed_lines(signed, fields)
    rest = f"{after}\n{signed}\n{payload}"
    hashes = (
        sha256(f"{head}{before}host:{host}\n{rest}".encode()).hexdigest()
        for head, host in product(request.heads, hosts)
    )
    said = "\n".join((number, date, place, *hashes)).encode()
    return S3Signature(token or signer, expires, said, made, Purpose.S3)


def _in_header(authorization: str, fields: HeaderMap) -> Parameters:
    """Return the parameters of a signature in headers, under the names that they have in URLs."""
    found = _HEADER.fullmatch(authorization)
    if found is None:
        raise S3Error(
            "AuthorizationHeaderMalformed", "`Authorization` must have Credential, SignedHeaders and Signature"
        )
    algorithm, credential, signed, made = found.groups()
    given = {
        "X-Amz-Algorithm": algorithm, "X-Amz-Credential": credential, "X-Amz-SignedHeaders": signed,
        "X-Amz-Signature": made, "X-Amz-Date": fields.get(b"x-amz-date", ""), "X-Amz-Expires": str(_SKEW_SECONDS),
    }  # fmt: skip
    if b"x-amz-security-token" in fields:
        given["X-Amz-Security-Token"] = fields[b"x-amz-security-token"]
    return given


def _end_of(date: str, seconds: str, code: str, in_query: bool) -> int:
    """Return the end of a signature's validity. Raise `S3Error` if the signature has expired or is not valid yet."""
    if in_query and (not re.fullmatch(r"[0-9]{1,6}", seconds) or not 1 <= int(seconds) <= _LONGEST_SECONDS):
        raise S3Error(code, f"X-Amz-Expires must be a number of seconds from 1 to {_LONGEST_SECONDS}")
    begins, now = _moment(date, code), time.time()
    if not in_query and abs(now - begins) > _SKEW_SECONDS:
        raise S3Error(
            "RequestTimeTooSkewed",
            "The clock of the client differs from the service by more than 15 minutes: correct it",
        )
    if begins > now + _SKEW_SECONDS:
        raise S3Error("AccessDenied", "The URL is not valid yet: check the clock of the machine that signed it")
    if begins + int(seconds) <= now:
        raise S3Error("AccessDenied", "Request has expired")
    return begins + int(seconds)


def _payload_of(fields: HeaderMap, *, reads: bool) -> str:
    """Return the value of x-amz-content-sha256, which declares the body's digest. Raise `S3Error` if it is invalid."""
    payload = fields.get(b"x-amz-content-sha256", "")
    if not payload or (reads and payload.startswith("STREAMING-")):
        raise S3Error("InvalidRequest", "Send x-amz-content-sha256: the digest of an empty body, or UNSIGNED-PAYLOAD")
    if reads and payload not in {_EMPTY, _UNSIGNED}:
        raise S3Error("XAmzContentSHA256Mismatch", "x-amz-content-sha256 is not the digest of an empty body")
    return payload


@lru_cache(maxsize=1024)
def _place_of(credential: str, day: str, region: str, code: str) -> tuple[str, str, str]:
    """Return a credential's region, key number and signer. Raise `S3Error` if its scope is not of this service."""
    access_key, *scope = credential.split("/")
    if len(scope) != 4 or scope[0] != day or scope[2:] != ["s3", "aws4_request"] or not _REGION.fullmatch(scope[1]):
        raise S3Error(code, "Invalid credential: use ACCESS-KEY/YYYYMMDD/REGION/s3/aws4_request")
    if region and scope[1] != region:
        raise S3Error(code, f"Wrong region {scope[1][:64]!r}: use {region!r}")
    found = _ACCESS_KEY.fullmatch(access_key)
    if found is None:
        raise S3Error("InvalidAccessKeyId", "Unknown access key: run `protoslice token s3` to get a valid one")
    return scope[1], found[1], found[2]


@lru_cache(maxsize=1024)
def _moment(text: str, code: str) -> int:
    try:
        if _DATE.fullmatch(text):
            return timegm(time.strptime(text, "%Y%m%dT%H%M%SZ"))
    except ValueError:
        pass
    raise S3Error(code, "X-Amz-Date is missing or invalid: use YYYYMMDDTHHMMSSZ")


@lru_cache(maxsize=256)
def _names_of(signed: str) -> Mapping[str, bytes]:
    """Return the names of the signed headers in order. Raise `S3Error` if Host is not among them."""
    names = {name: name.encode() for name in signed.split(";")} if _NAMES.fullmatch(signed) else {}
    if "host" not in names or ";".join(sorted(names)) != signed:
        raise S3Error(
            "AccessDenied", "The list of signed headers must be sorted, contain `host`, and have each name once"
        )
    return names


def _signed_lines(signed: str, fields: HeaderMap) -> tuple[str, str]:
    """Return the lines of the signed headers before and after the line of Host.

    Raise `S3Error` unless all signed headers were sent, and all `x-amz-` headers that were sent are signed.
    """
    names = _names_of(signed)
    for sent in fields:
        if sent[:6] == b"x-amz-" and sent not in names.values():
            raise S3Error(
                "AccessDenied",
                f"The header {sent[:80].decode('latin-1')} must be signed, but the signature leaves it out",
            )
    lines = ""
    for name, sent in names.items():
        if (value := fields.get(sent)) is None:
            raise S3Error("SignatureDoesNotMatch", f"The signed header {name[:80]!r} was not sent")
        if name == "host":
            before, lines = lines, ""
        else:
            text = value.strip(" \t")
            lines += f"{name}:{_SPACES.sub(' ', text) if '  ' in text else text}\n"
    return before, lines


def canonical_path(raw: str) -> str:
    """Decode a path once and encode it again, as S3 requires. Each `/` remains unencoded."""
    return quote(unquote_to_bytes(raw.encode("latin-1")), safe="/~")


def canonical_query(query: Parameters) -> str:
    """Return the parameters, encoded and sorted."""
    pairs = ((quote(name, safe="~", errors=_RAW), quote(text, safe="~", errors=_RAW)) for name, text in query.items())
    return "&".join("=".join(pair) for pair in sorted(pairs))


def parse_query(query: bytes) -> Parameters:
    """Return the parameters of a query. Raise `S3Error` for too many parameters and for repeated parameters.

    Repeated parameters are refused because signatures do not cover their order.
    """
    pairs = [pair.partition(b"=") for pair in query.replace(b"+", b" ").split(b"&", _MOST_PARAMETERS) if pair]
    found = {_decoded(name): _decoded(text) for name, _, text in pairs} if len(query) <= _LONGEST_URL else {}
    if len(found) < len(pairs) or len(pairs) > _MOST_PARAMETERS:
        raise S3Error(
            "InvalidArgument", f"A query has at most {_MOST_PARAMETERS} parameters and 16 KiB, each name once"
        )
    return found


def _decoded(text: bytes) -> str:
    return unquote_to_bytes(text).decode(errors=_RAW)
