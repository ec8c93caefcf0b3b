"""Tags that a request names, read off its path, query and headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.types import Scope

from protoslice.server.auth.rules import TagPlace
from protoslice.server.http.headers import Fields
from protoslice.server.http.parameters import values_of
from protoslice.server.http.upload_metadata import pairs


def tags_of(place: TagPlace, scope: Scope, fields: Fields, parameters: Mapping[str, Any]) -> tuple[str, ...]:
    """Tags that the request sets or removes, as they stand at `place`; none of a body, which comes later."""
    if place is TagPlace.PATH:
        return (parameters["tag"],)
    if place is TagPlace.REPOSITORY:
        return (unquote(parameters["name"]),)  # routes of repositories match paths as they were spelled
    if place not in {TagPlace.QUERY, TagPlace.UPLOAD}:
        return ()
    query = values_of(scope["query_string"], "tag")
    if place is TagPlace.QUERY:
        return query
    return (*query, *pairs(fields.get(b"upload-metadata", "")).get("tag", "").split())
