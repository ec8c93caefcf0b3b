"""Parameters of a new upload, from Upload-Metadata, headers, and the query, as for any upload."""

from __future__ import annotations

from collections.abc import Mapping

from protoslice.errors import InvalidInput
from protoslice.server.bodies.paths import file_path
from protoslice.server.bodies.resumable.headers import number
from protoslice.server.http.digests import parse_digest
from protoslice.server.http.headers import Fields
from protoslice.server.http.parameters import Query
from protoslice.server.http.upload_metadata import pairs
from protoslice.sizes import parse_size
from protoslice.stores import IngestRequest
from protoslice.stores.uploads import NewUpload


def new_upload(fields: Fields, query: Query) -> NewUpload:
    """An upload as tus begins one."""
    client_metadata = fields.get(b"upload-metadata", "")
    words = pairs(client_metadata)
    length, deferred = number(fields, "upload-length"), fields.get(b"upload-defer-length")
    concat = fields.get(b"upload-concat", "")
    if deferred not in {None, "1"}:
        raise InvalidInput("Upload-Defer-Length must be 1")
    if concat.startswith("final"):
        if length is not None or deferred is not None:
            raise InvalidInput(
                "The length of a final upload is that of its partial uploads: leave out Upload-Length and "
                "Upload-Defer-Length"
            )
    elif (length is None) == (deferred is None):
        raise InvalidInput("Send either Upload-Length or Upload-Defer-Length: 1")
    name = words.get("filename") or words.get("name") or query.one("filename")
    return NewUpload(
        length=length,
        path=file_path(name) if name else None,
        request=_request(words, query),
        partial=concat == "partial",
        sha256=parse_digest(fields.get(b"repr-digest")),
        client_metadata=client_metadata,
    )


def _request(words: Mapping[str, str], query: Query) -> IngestRequest:
    """The metadata's word goes before the query's. `tag` may hold several, with spaces between them."""
    type_name = words.get("type")
    if type_name is None or "/" in type_name:
        type_name = query.one("type")  # uploaders for browsers send the media type under this name
    tags = tuple(dict.fromkeys((*words.get("tag", "").split(), *query.many("tag"))))
    plain = IngestRequest()
    sizes = {name: words.get(name) or query.one(name) for name in ("min_chunk", "max_chunk")}
    return IngestRequest(
        type=type_name or None,
        root=words.get("root") or query.one("root"),
        tags=tags,
        min_chunk=parse_size(sizes["min_chunk"]) if sizes["min_chunk"] else plain.min_chunk,
        max_chunk=parse_size(sizes["max_chunk"]) if sizes["max_chunk"] else plain.max_chunk,
        plan=words.get("plan") or query.one("plan"),
        rules=_rules(words.get("rule"), query),
        strict=_truth("strict", words.get("strict") or query.one("strict")),
    )


def _rules(word: str | None, query: Query) -> tuple[str, ...] | None:
    """Rules of the metadata's word, one a line, or of the query; None without either."""
    given = word.splitlines() if word is not None else query.many("rule")
    return tuple(filter(None, given)) if given or word is not None else None


def _truth(name: str, text: str | None) -> bool:
    """True or False for the text of a parameter, False for an absent one; `InvalidInput` for any other."""
    if text not in {None, "true", "false", "1", "0"}:
        raise InvalidInput(f"Invalid {name}: use true or false")
    return text in {"true", "1"}
