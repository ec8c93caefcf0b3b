"""Routes for the read operations of S3. Operations that write are refused before their body is read."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache, partial
from typing import Annotated, Final
from urllib.parse import quote
from xml.sax.saxutils import escape

from fastapi import Depends, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as ScopeOfAsgi

from protoslice.errors import NotFound, Unsupported
from protoslice.server.api.json_answers import json_answer
from protoslice.server.api.view_router import RepresentationResponse
from protoslice.server.auth.authenticator import AuthContext
from protoslice.server.auth.permissions import EVERY_SPACE, OPEN, READ, READ_SIGNED, Rule, Scope
from protoslice.server.auth.signatures import SIGNATURE
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap, Headers, read_fields
from protoslice.server.http.planner import ResponsePlanner, ResponsePolicy
from protoslice.server.http.responses import send_plan
from protoslice.server.problems import UNAUTHORIZED, HttpProblem
from protoslice.server.registries.s3.documents import Content, document, headers_of, xml_response
from protoslice.server.registries.s3.errors import S3Error, render_s3
from protoslice.server.registries.s3.objects import Bucket, Entry, S3Object, without_location
from protoslice.server.registries.s3.requests import TAG_FIELDS, S3Request
from protoslice.server.registries.s3.signatures import S3Keys
from protoslice.server.request.body import BodyLimits
from protoslice.server.routing import RouteGroup, endpoint
from protoslice.server.services import SERVICES, RequestServices, Services

router = RouteGroup(render=render_s3, strict=False, include_in_schema=False)

_MOST: Final = 1000
_BARE_TAG: Final = re.compile(r"[0-9A-Za-z._+=/-]+")
_DATES: Final = (b"if-modified-since", b"if-unmodified-since")
_VALUE: Final = re.compile(r"[\x20-\x7e]{1,1000}")
_OVERRIDES: Final = (
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires",
)  # fmt: skip
"""The headers that a request can set by parameters such as `response-expires`."""
_MISSING: Final[Mapping[str, str]] = {
    "cors": "NoSuchCORSConfiguration",
    "encryption": "ServerSideEncryptionConfigurationNotFoundError",
    "lifecycle": "NoSuchLifecycleConfiguration",
    "object-lock": "ObjectLockConfigurationNotFoundError",
    "policy": "NoSuchBucketPolicy",
    "replication": "ReplicationConfigurationNotFoundError",
    "tagging": "NoSuchTagSet",
}
"""The error code for each configuration that no bucket has. Objects, unlike buckets, have an empty set of tags."""
_CANONICAL: Final = 'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="CanonicalUser"'
_OWNER: Final[Content] = {"ID": "protoslice"}
_GRANT: Final[Content] = {f"Grantee {_CANONICAL}": _OWNER, "Permission": "FULL_CONTROL"}
_DOCUMENTS: Final[Mapping[str, tuple[str, Content]]] = {
    "acl": ("AccessControlPolicy", {"Owner": _OWNER, "AccessControlList": {"Grant": _GRANT}}),
    "notification": ("NotificationConfiguration", ""),
    "tagging": ("Tagging", {"TagSet": ""}),
    "versioning": ("VersioningConfiguration", ""),
}
"""The configurations that are the same for every bucket."""
_REFUSED: Final = frozenset({
    "accelerate", "analytics", "attributes", "intelligent-tiering", "inventory", "logging", "metrics",
    "ownershipControls", "publicAccessBlock", "requestPayment", "torrent", "uploads", "versions", "website",
})  # fmt: skip


def _asked(request: Request) -> S3Request:
    found: S3Request | None = request.scope.get("s3")
    if found is None:
        raise NotFound("No such URL")
    found.admitted = True
    return found


Asked = Annotated[S3Request, Depends(_asked)]


@endpoint(router, "GET /s3", OPEN)
async def list_buckets(request: Request, services: Services, asked: Asked) -> Response:
    """List the spaces in which the caller may read."""
    caller = await _caller(request, services)
    buckets, cursor = list[Content](), None
    while services.state.spaces is not None:
        page = await services.state.spaces.page(limit=_MOST, cursor=cursor)
        visible = (space.name for space in page.items if caller.may(Scope.READ, space.name))
        buckets += [{"Name": name, "CreationDate": _iso(datetime.fromtimestamp(0, UTC))} for name in visible]
        if (cursor := page.next) is None:
            break
    owner = {"ID": caller.id or "protoslice", "DisplayName": caller.name or "protoslice"}
    found: Content = {"Owner": owner, "Buckets": {"Bucket": buckets}}
    return xml_response(request.scope, document("ListAllMyBucketsResult", found))


async def _caller(request: Request, services: RequestServices) -> AuthContext:
    """Return the caller of a request without a bucket.

    Raise `HttpProblem` unless a signature or a token names the caller.
    """
    authenticator, signature = services.state.authenticator, request.scope.get(SIGNATURE)
    if not authenticator.closed:
        return services.auth
    if signature is None:
        found = await authenticator.find(read_fields(request.scope).get(b"authorization", ""))
    else:
        found = await authenticator.find_signer(signature)
    if found is None:
        raise HttpProblem(UNAUTHORIZED, "Sign the request, or send a token")
    context = context_of(request.scope).auth = AuthContext(EVERY_SPACE, found, authenticator.key)
    return context


@endpoint(router, "GET /s3/bucket", READ_SIGNED)
async def get_bucket(request: Request, services: Services, asked: Asked) -> Response:
    """List objects, or return facts about a bucket."""
    if context_of(request.scope).method == "HEAD":
        return Response(headers={name.decode(): value.decode() for name, value in headers_of(request.scope)})
    return _configuration(request, services, asked) or await _listed(request, services, asked)


def _configuration(request: Request, services: RequestServices, asked: S3Request) -> Response | None:
    """Return the requested configuration of a bucket or an object.

    Return None if the request names no configuration.
    """
    query, region = asked.signed.parameters, services.state.settings.s3_region
    for name in query:
        if name in _REFUSED:
            raise S3Error("NotImplemented", f"{name} is not supported")
        if name in _MISSING and (name != "tagging" or not asked.key):
            raise S3Error(_MISSING[name], f"The bucket has no configuration of {name}")
        if name in _DOCUMENTS:
            return xml_response(request.scope, document(*_DOCUMENTS[name]))
        if name == "location":
            return xml_response(request.scope, document("LocationConstraint", "" if region == "us-east-1" else region))
    return None


async def _listed(request: Request, services: RequestServices, asked: S3Request) -> Response:
    """Answer ListObjectsV2 and ListObjects."""
    query = asked.signed.parameters
    second, most, encoding = query.get("list-type") == "2", query.get("max-keys", ""), query.get("encoding-type", "")
    if not second and "list-type" in query:
        raise S3Error("InvalidArgument", "list-type must be 2 or absent")
    if not re.fullmatch(r"[0-9]{0,10}", most):
        raise S3Error("InvalidArgument", "max-keys must be a number, 0 or more")
    if encoding not in {"", "url"}:
        raise S3Error("InvalidArgument", "encoding-type must be url or absent")
    prefix, delimiter, limit = query.get("prefix", ""), query.get("delimiter", ""), min(int(most or _MOST), _MOST)
    after = _after(query) if second else query.get("marker", "")
    try:
        (prefix + after + delimiter).encode()
    except UnicodeEncodeError:
        raise S3Error("InvalidArgument", "prefix, delimiter, start-after and marker must be UTF-8") from None
    page = await Bucket(services.stores).list(prefix, after, delimiter, limit)
    shown: Callable[[str], str] = partial(quote, safe="/") if encoding else str
    members: dict[str, Content | Sequence[Content] | None] = {
        "Name": asked.bucket,
        "Prefix": shown(prefix),
        "MaxKeys": str(limit),
        "Delimiter": shown(delimiter) or None,
        "EncodingType": encoding or None,
        "IsTruncated": "false" if page.next is None else "true",
    }
    if second:
        members |= {
            "ContinuationToken": query.get("continuation-token"),
            "StartAfter": shown(query["start-after"]) if "start-after" in query else None,
            "KeyCount": str(len(page.entries) + len(page.prefixes)),
            "NextContinuationToken": None if page.next is None else urlsafe_b64encode(page.next.encode()).decode(),
        }
    else:
        members |= {"Marker": shown(after), "NextMarker": None if page.next is None else shown(page.next)}

    def answer() -> Response:
        members["CommonPrefixes"] = [{"Prefix": shown(common)} for common in page.prefixes]
        contents = "".join(_contents(entry, shown) for entry in page.entries)
        return xml_response(request.scope, document("ListBucketResult", members, contents))

    return await services.stores.worker.run_if_large(len(page.entries) << 10, answer)


def _after(query: Mapping[str, str]) -> str:
    """Return the key after which ListObjectsV2 begins."""
    token = query.get("continuation-token")
    if token is None:
        return query.get("start-after", "")
    try:
        return urlsafe_b64decode(token.encode()).decode()
    except (BadBase64, ValueError):
        raise S3Error("InvalidArgument", "The continuation token is not from this service") from None


def _contents(entry: Entry, shown: Callable[[str], str]) -> str:
    """Return the XML of an entry in a listing. It is formatted directly, because listings have many entries."""
    return (
        f"<Contents><Key>{escape(shown(entry.key))}</Key><LastModified>{_iso(entry.modified)}</LastModified>"
        f'<ETag>"{entry.etag}"</ETag><Size>{entry.size}</Size><StorageClass>STANDARD</StorageClass></Contents>'
    )


@endpoint(router, "GET /s3/bucket/key", READ_SIGNED)
async def get_object(request: Request, services: Services, asked: Asked) -> Response:
    """Serve an object."""
    query = asked.signed.parameters
    if query.get("versionId", "null") not in {"null", ""}:
        raise S3Error("NoSuchVersion", "Objects have a single version: leave out versionId, or send null")
    if query.get("partNumber", "1") != "1":
        raise S3Error("InvalidRange", "Objects have a single part: leave out partNumber, or send 1")
    configuration = _configuration(request, services, asked)
    if configuration is not None:
        return configuration
    found = await Bucket(services.stores).get(asked.key)
    context_of(request.scope).store = found.store
    fields = _conditions(read_fields(request.scope), found)
    if "partNumber" in query:
        fields[b"range"] = "bytes=0-"
    request.scope["headers"] = [(name, value.encode("latin-1")) for name, value in fields.items()]
    return _ObjectResponse(found, _overrides(request, services, query))


def _conditions(fields: HeaderMap, found: S3Object) -> HeaderMap:
    """Turn conditions on dates into conditions on entity tags, and return the resulting headers.

    Conditions on entity tags that the request already has take precedence.

    Entity tags get the quotes that some clients leave out. Raise `S3Error` if the object was modified after
    If-Unmodified-Since.
    """
    quoted = {
        name: f'"{value}"' if name in TAG_FIELDS and _BARE_TAG.fullmatch(value) else value
        for name, value in fields.items()
    }
    modified, since, until = found.modified.replace(microsecond=0), *(_date(fields.get(name)) for name in _DATES)
    if until is not None and b"if-match" not in fields and modified > until:
        raise S3Error("PreconditionFailed", "The object was modified after the time in If-Unmodified-Since")
    if since is not None and b"if-none-match" not in fields and modified <= since:
        quoted[b"if-none-match"] = f'"{found.representation.etag}"'
    return quoted


class _ObjectResponse(RepresentationResponse):
    """The answer with an object, the headers of S3, and the headers that the request selected."""

    def __init__(self, found: S3Object, overrides: Headers) -> None:
        super().__init__(found.representation, location="", max_ranges=1)
        self._found = found
        self._overrides = dict(overrides)

    async def __call__(self, scope: ScopeOfAsgi, receive: Receive, send: Send) -> None:
        """Send the answer to a GET or HEAD."""

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                planned = without_location(message["headers"])
                headers = self._found.headers(planned, message["status"], read_fields(scope))
                kept = [each for each in headers if each[0] not in self._overrides]
                message["headers"] = [*kept, *self._overrides.items(), *headers_of(scope)]
            await send(message)

        if context_of(scope).method == "HEAD":  # unlike HTTP, S3 also applies ranges to HEAD
            policy = ResponsePolicy(location="", private=scope[SERVICES].state.authenticator.closed, max_ranges=1)
            plan = ResponsePlanner(self._found.representation, policy).plan("GET", read_fields(scope))
            self._found.representation.check_budget(plan.length)
            await send_plan(sending, plan)
        else:
            await super().__call__(scope, receive, sending)


def _date(text: str | None) -> datetime | None:
    try:
        found = None if text is None else parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None  # HTTP ignores invalid dates
    return found if found is None or found.tzinfo is not None else found.replace(tzinfo=UTC)


def _overrides(request: Request, services: RequestServices, query: Mapping[str, str]) -> Headers:
    """Return the headers that the query sets. Content that browsers would execute remains an attachment."""
    chosen = {name: query[f"response-{name}"] for name in _OVERRIDES if f"response-{name}" in query}
    if chosen and services.state.authenticator.closed and request.scope.get(SIGNATURE) is None:
        raise S3Error("InvalidRequest", "Parameters such as response-content-type need a signed request")
    if bad := next((name for name, value in chosen.items() if not _VALUE.fullmatch(value)), None):
        raise S3Error("InvalidArgument", f"Invalid response-{bad}: use printable ASCII characters")
    if (said := chosen.get("content-disposition")) is not None:
        chosen["content-disposition"] = "attachment" + "".join(said.partition(";")[1:])
    return [(name.encode(), value.encode()) for name, value in chosen.items()]


_WRITE: Final = Rule(Scope.WRITE, signed=True)
_UNREAD: Final = BodyLimits(lambda settings: 1 << 62)
"""The limit for bodies that are refused unread, of any length."""


async def _refuse(asked: Asked) -> Response:
    raise S3Error("AccessDenied", "Buckets are read-only: push with `protoslice push` or the API of the service")


for _path in ("/s3", "/s3/bucket", "/s3/bucket/key"):
    for _method in ("PUT", "POST", "DELETE"):
        endpoint(router, f"{_method} {_path}", _WRITE, body=_UNREAD, operation=f"refuse_{_method.lower()}")(_refuse)


@lru_cache(maxsize=1024)
def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


keys_router = RouteGroup(tags=["tokens"])


@endpoint(
    keys_router,
    "POST /v1/s3-keys",
    READ,
    answer=S3Keys,
    status=201,
    fails=(422,),
    experimental=True,
    summary="Get S3 keys",
)
async def get_s3_keys(request: Request, services: Services) -> Response:
    """Return the caller's S3 access key and secret, which are derived from the caller's token and not stored.

    The keys have the token's read permission in `/s3`. They become invalid when the token is revoked.
    """
    if services.auth.principal is None:
        raise Unsupported("This service is open: S3 clients may send any keys")
    found = S3Keys.of(await services.auth.signer())
    return json_answer(request, found, status=201, headers={"cache-control": "no-store"})
