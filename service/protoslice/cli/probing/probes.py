"""Probes, one for each thing that a proxy can do to requests and answers."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from protoslice.cli.probing.probed_service import TUS, CannotTell, ProbedService
from protoslice.cli.probing.waiting import answers_wait, uploads_may_pause
from protoslice.errors import ProtosliceError
from protoslice.sizes import format_size

LENGTHS: Final = (2 << 20, 128 << 20, 3 << 30, 64 << 30)
"""Uploads that are announced: beyond the limits that proxies come with."""
CODINGS: Final = "gzip, deflate, br, zstd"


@dataclass(frozen=True, slots=True)
class Probe:
    """Something that should hold, how it is found out, and what to do where it does not."""

    promise: str
    look: Callable[[ProbedService], str | None]
    """Says in a sentence what is wrong; None when the promise holds."""
    advice: str
    """Remedy, in the words of nginx's configuration."""

    def found(self, service: ProbedService) -> str | None:
        """The fault that `look` finds, or None; a missing answer is a fault too. Raises `CannotTell`."""
        try:
            return self.look(service)
        except TimeoutError:
            return "no response for a long time"
        except ProtosliceError as error:
            return error.message


def _uploads_stream(service: ProbedService) -> str | None:
    if service.announce(1 << 20) is not None:
        return None
    return "the proxy buffers whole uploads: they fill its disk and are lost when interrupted"


def _chunked_uploads_stream(service: ProbedService) -> str | None:
    if service.announce(None) is not None:
        return None
    return "the proxy buffers uploads of unknown length until they are complete"


def _uploads_may_be_long(service: ProbedService) -> str | None:
    if not _refused(service, LENGTHS[-1]):
        return None
    length = next(each for each in LENGTHS if each == LENGTHS[-1] or _refused(service, each))
    return f"an upload of {format_size(length)} is rejected before it reaches the service"


def _refused(service: ProbedService, length: int) -> bool:
    answer = service.announce(length)
    return answer is not None and answer.status == 413 and not answer.is_ours


def _uploads_are_found_again(service: ProbedService) -> str | None:
    made, place = service.begin_upload(1)
    if place is None:
        return f"starting a resumable upload returns {made.status} without an upload URL"
    if urlsplit(place).netloc != urlsplit(service.url).netloc:
        return f"the upload URL is {place}, which is not the address used here"
    status = service.ask("HEAD", place, TUS).status
    service.ask("DELETE", place, TUS)
    return None if status in {200, 204} else f"the upload URL is {place}, which returns {status}"


def _ranges_pass(service: ProbedService) -> str | None:
    start, end = service.size // 3, min(service.size, service.size // 3 + 1000)
    answer = service.get(Range=f"bytes={start}-{end - 1}")
    if answer.status != 206:
        return f"a range request returns {answer.status} with {len(answer.body)} bytes"
    said = answer.headers.get("content-range")
    if said != f"bytes {start}-{end - 1}/{service.size}" or len(answer.body) != end - start:
        return f"{end - start} bytes were requested; {len(answer.body)} were received, with Content-Range {said!r}"
    if service.content is not None and answer.body != service.content[start:end]:
        return "a range returns the wrong bytes"
    return None


def _ranges_are_the_services(service: ProbedService) -> str | None:
    if service.ask("GET", service.path, {"Range": "bytes=0-9"}).status == 206:
        return (
            "the proxy answers range requests for responses that have no ranges, such as lists: clients take "
            "a part for the whole list"
        )
    if service.size < 64:
        return None
    answer = service.get(Range=f"bytes=0-1,{service.size - 2}-{service.size - 1}")
    boundary = answer.headers.get("content-type", "").partition("boundary=")[2]
    if answer.status != 206:  # told already, where one range is not answered either
        single = service.get(Range="bytes=0-0").status
        return "requests with two ranges are not passed on or not answered correctly" if single == 206 else None
    if re.fullmatch("[0-9a-f]{32}", boundary):
        return None
    return "the proxy serves ranges itself: the service has to send it the whole file for every range"


def _tags_are_strong(service: ProbedService) -> str | None:
    plain, coded = service.get(), service.get(Accept_Encoding=CODINGS)
    for answer in (plain, coded):
        tag = answer.headers.get("etag")
        if tag is None:
            return "the proxy removes the ETag: partial downloads cannot be combined or resumed"
        if tag.startswith("W/"):
            return "the proxy weakens the ETag: partial downloads cannot be resumed"
    if plain.headers["etag"] != coded.headers["etag"]:
        return "the ETag changes from request to request"
    again = service.get(If_None_Match=plain.headers["etag"])
    return None if again.status == 304 else f"If-None-Match is not passed on: got {again.status} instead of 304"


def _digests_pass(service: ProbedService) -> str | None:
    if service.content is None:
        raise CannotTell("not tested with --store, because the digest of that store's file is unknown")
    if "repr-digest" in service.get().headers:
        return None
    return "the proxy removes Repr-Digest: downloads cannot be verified"


def _binaries_stay(service: ProbedService) -> str | None:
    answer = service.get(Accept_Encoding=CODINGS)
    coding = answer.headers.get("content-encoding", "identity")
    if coding != "identity":
        return f"the proxy compresses files ({coding}), which disables ranges"
    if service.content is not None and answer.body != service.content:
        return f"a file of {service.size} bytes arrives with other content ({len(answer.body)} bytes)"
    return None


def _paths_stay(service: ProbedService) -> str | None:
    for name, what in (
        ("no//body", "repeated slashes are merged"),
        ("no%2Fbody%2F%2Fnone", "escaped characters are decoded"),
    ):
        answer = service.ask("GET", f"{service.path}/files/{name}")
        if name.replace("%2F", "/") not in str(answer.said().get("detail", "")):
            return f"{what} in paths: tensors and files with such names cannot be found"
    return None


def _changes_are_seen(service: ProbedService) -> str | None:
    if service.content is None:
        raise CannotTell("not tested with --store, because that would add a tag to the store")
    tag, store = f"/v1/tags/doctor-{secrets.token_hex(6)}", service.path.rpartition("/")[2]
    service.ask("PUT", tag, {"Content-Type": "application/json"}, f'{{"store": "{store}"}}'.encode())
    before = service.ask("GET", tag).status
    service.ask("DELETE", tag)
    if before == 200 and service.ask("GET", tag).status != 404:
        return "the proxy caches responses that may change: moved or removed tags keep their old content"
    return None


_BUFFERS: Final = "proxy_request_buffering off; proxy_http_version 1.1;"
_CACHES: Final = (
    "proxy_cache off; proxy_force_ranges off; no slice; and pass on Range and If-Range (to cache "
    "parts of files, use docker/nginx-cache.conf)"
)

PROBES: Final = (
    Probe("uploads are streamed", _uploads_stream, _BUFFERS),
    Probe("chunked uploads are streamed", _chunked_uploads_stream, _BUFFERS),
    Probe(
        "large uploads are accepted",
        _uploads_may_be_long,
        "client_max_body_size 0; (the service has its own limit: PROTOSLICE_MAX_UPLOAD)",
    ),
    Probe(
        "uploads can be resumed",
        _uploads_are_found_again,
        "proxy_set_header Host $http_host; and for a path prefix such as /models/: proxy_redirect / /models/;",
    ),
    Probe(
        "uploads may pause", uploads_may_pause, "client_body_timeout 60s; (between two reads, not for the whole body)"
    ),
    Probe("responses to slow clients are not buffered", answers_wait, "proxy_buffering off;"),
    Probe("ranges are exact", _ranges_pass, _CACHES),
    Probe("ranges are served by the service", _ranges_are_the_services, _CACHES),
    Probe(
        "entity tags stay strong",
        _tags_are_strong,
        "gzip off; and no proxy_hide_header ETag; (nginx weakens the ETag of compressed responses)",
    ),
    Probe("digests are passed on", _digests_pass, "no proxy_hide_header Repr-Digest;"),
    Probe("binaries are not compressed", _binaries_stay, "gzip off; and no sub_filter"),
    Probe(
        "paths are passed on unchanged",
        _paths_stay,
        "proxy_pass http://protoslice; without a path (with a path prefix: proxy_pass "
        "http://protoslice$rest; and map $request_uri $rest { ~^/models(?<path>/.*)$ $path; })",
    ),
    Probe(
        "changes are visible at once", _changes_are_seen, "no proxy_ignore_headers Cache-Control; or proxy_cache off;"
    ),
)
"""All of them, in the order in which they are told."""
