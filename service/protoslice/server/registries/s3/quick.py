"""Objects of S3 on the fast path. They are files of stores whose keys contain the store's id."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from protoslice.catalog.syntax import is_id
from protoslice.server.auth.signatures import UrlSignature
from protoslice.server.context import RequestContext
from protoslice.server.http.headers import HeaderMap, header_lines
from protoslice.server.http.planner import CommonHeaders, ResponsePlan, ResponsePolicy
from protoslice.server.registries.s3.documents import amz_headers
from protoslice.server.registries.s3.names import STORES
from protoslice.server.registries.s3.objects import Place, S3Object, without_location
from protoslice.server.registries.s3.requests import (
    TAG_FIELDS,
    S3Request,
    bucket_of_hosts,
    hosts_of,
    is_path_of_s3,
    take_signature,
)
from protoslice.server.registries.s3.signatures import PRESIGNED
from protoslice.server.services import ServerState
from protoslice.serving import OpenStore, Representation

_WITHOUT_EFFECT: Final = PRESIGNED | {"x-id"}
"""Parameters that do not change the answer. Some clients name the call in `x-id`."""
_DATES: Final = frozenset({b"if-modified-since", b"if-unmodified-since"})


class QuickObject:
    """An object of S3 that is a file of a store. The fast path can answer requests for it."""

    route: Final = "/s3/bucket/key"

    def __init__(self, asked: S3Request, path: str, place: Place, state: ServerState) -> None:
        self.path = path
        self.space = asked.bucket
        self.ref = place.name
        self.any_host = asked.by_host
        self._asked = asked
        self._file = place.path
        self._state = state

    def take_signature(self, fields: HeaderMap) -> UrlSignature | None:
        """Return a request's signature, and remove the header that has the signature.

        Return None if the request has no signature, or if the service requires no tokens.
        """
        return take_signature(self._asked, fields, hosts_of(fields, None, self._state), self._state)

    def accepts(self, fields: HeaderMap, representation: Representation) -> bool:
        """Return False for a request that depends on the object's time, or that has an unquoted entity tag."""
        return _DATES.isdisjoint(fields) and all('"' in fields.get(name, '"') for name in TAG_FIELDS)

    def select(self, store: OpenStore) -> Representation | None:
        """Return the file. Return None for a view, which may have to be computed."""
        return store.file(self._file) if self._file in store.files else None

    def policy(self, representation: Representation, state: ServerState) -> ResponsePolicy:
        """Return the policy of answers."""
        return ResponsePolicy(location="", private=state.authenticator.closed, max_ranges=1)

    def head(
        self, store: OpenStore, representation: Representation
    ) -> Callable[[ResponsePlan, HeaderMap, RequestContext], bytes]:
        """Return a function that makes the header lines of the response."""
        found, settings = S3Object(representation, store.info.created, store.info.id), self._state.settings

        def lines(plan: ResponsePlan, fields: HeaderMap, context: RequestContext) -> bytes:
            headers = found.headers(plan.headers, plan.status, fields)
            return _lines(plan.common_headers) + header_lines([*headers, *amz_headers(context.id, settings)])

        return lines


@lru_cache(maxsize=1024)
def _lines(common: CommonHeaders) -> bytes:
    return header_lines(without_location(common.headers))


def find_object(target: bytes, host: str, state: ServerState) -> QuickObject | None:
    """Return the object that a GET's target names; None for any other target. Raise `S3Error` like other GETs."""
    raw, _, query = target.partition(b"?")
    virtual = bucket_of_hosts([host], state)
    if (virtual is None and not is_path_of_s3(raw)) or not raw.startswith(b"/") or not raw.isascii():
        return None
    asked = S3Request.of("GET", raw, query, virtual, state)
    if not asked.signed.parameters.keys() <= _WITHOUT_EFFECT or not asked.key.startswith(STORES):
        return None
    place = Place.of(asked.key)
    return QuickObject(asked, unquote(raw.decode()), place, state) if is_id(place.name) else None
