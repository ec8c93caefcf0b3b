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
            return "no answer came for long"
        except ProtosliceError as error:
            return error.message


def _uploads_stream(service: ProbedService) -> str | None:
    if service.announce(1 << 20) is not None:
        return None
    return "uploads are kept back until they are whole: they fill the proxy's disk, and what breaks off is lost"


def _chunked_uploads_stream(service: ProbedService) -> str | None:
    if service.announce(None) is not None:
        return None
    return "uploads whose length is not known before are kept back until they are whole"


def _uploads_may_be_long(service: ProbedService) -> str | None:
    if not _refused(service, LENGTHS[-1]):
        return None
    length = next(each for each in LENGTHS if each == LENGTHS[-1] or _refused(service, each))
    return f"an upload of {format_size(length)} is refused before the service hears of it"


def _refused(service: ProbedService, length: int) -> bool:
    answer = service.announce(length)
    return answer is not None and answer.status == 413 and not answer.is_ours


def _uploads_are_found_again(service: ProbedService) -> str | None:
    made, place = service.begin_upload(1)
    if place is None:
        return f"an upload that can be taken up again is answered {made.status}, and not with its address"
    if urlsplit(place).netloc != urlsplit(service.url).netloc:
        return f"uploads are said to go on at {place}, which is not where we came from"
    status = service.ask("HEAD", place, TUS).status
    service.ask("DELETE", place, TUS)
    return None if status in {200, 204} else f"uploads are said to go on at {place}, where the answer is {status}"


def _ranges_pass(service: ProbedService) -> str | None:
    start, end = service.size // 3, min(service.size, service.size // 3 + 1000)
    answer = service.get(Range=f"bytes={start}-{end - 1}")
    if answer.status != 206:
        return f"a request for a range is answered {answer.status}, with {len(answer.body)} bytes"
    said = answer.headers.get("content-range")
    if said != f"bytes {start}-{end - 1}/{service.size}" or len(answer.body) != end - start:
        return f"{end - start} bytes were asked for; {len(answer.body)} came, as {said!r}"
    if service.content is not None and answer.body != service.content[start:end]:
        return "a range has other bytes than the file has there"
    return None


def _ranges_are_the_services(service: ProbedService) -> str | None:
    if service.ask("GET", service.path, {"Range": "bytes=0-9"}).status == 206:
        return "ranges are made of answers that have none: a list comes in part and is taken for the whole"
    if service.size < 64:
        return None
    answer = service.get(Range=f"bytes=0-1,{service.size - 2}-{service.size - 1}")
    boundary = answer.headers.get("content-type", "").partition("boundary=")[2]
    if answer.status != 206:  # told already, where one range is not answered either
        single = service.get(Range="bytes=0-0").status
        return "two ranges at once are not passed on, or not answered so" if single == 206 else None
    if re.fullmatch("[0-9a-f]{32}", boundary):
        return None
    return "ranges are cut out on the way: the service has to send a whole file for every part of it"


def _tags_are_strong(service: ProbedService) -> str | None:
    plain, coded = service.get(), service.get(Accept_Encoding=CODINGS)
    for answer in (plain, coded):
        tag = answer.headers.get("etag")
        if tag is None:
            return "the ETag is taken away: parts cannot be put together, nor a download taken up again"
        if tag.startswith("W/"):
            return "the ETag is made a weak one: ranges cannot be taken up again"
    if plain.headers["etag"] != coded.headers["etag"]:
        return "the ETag is another one from request to request"
    again = service.get(If_None_Match=plain.headers["etag"])
    return None if again.status == 304 else f"If-None-Match is not passed on: {again.status} came where 304 was due"


def _digests_pass(service: ProbedService) -> str | None:
    if service.content is None:
        raise CannotTell("the store is not ours: its digest may not be known")
    if "repr-digest" in service.get().headers:
        return None
    return "Repr-Digest is taken away: what is pulled cannot be verified"


def _binaries_stay(service: ProbedService) -> str | None:
    answer = service.get(Accept_Encoding=CODINGS)
    coding = answer.headers.get("content-encoding", "identity")
    if coding != "identity":
        return f"files are compressed on the way ({coding}), and have no ranges so"
    if service.content is not None and answer.body != service.content:
        return f"a file of {service.size} bytes comes as {len(answer.body)} others"
    return None


def _paths_stay(service: ProbedService) -> str | None:
    for name, what in (("no//body", "slashes are merged"), ("no%2Fbody%2F%2Fnone", "what is escaped is merged")):
        answer = service.ask("GET", f"{service.path}/files/{name}")
        if name.replace("%2F", "/") not in str(answer.said().get("detail", "")):
            return f"{what} in paths: tensors and files whose names have them are not found"
    return None


def _changes_are_seen(service: ProbedService) -> str | None:
    if service.content is None:
        raise CannotTell("the store is not ours to tag")
    tag, store = f"/v1/tags/doctor-{secrets.token_hex(6)}", service.path.rpartition("/")[2]
    service.ask("PUT", tag, {"Content-Type": "application/json"}, f'{{"store": "{store}"}}'.encode())
    before = service.ask("GET", tag).status
    service.ask("DELETE", tag)
    if before == 200 and service.ask("GET", tag).status != 404:
        return "what may change is kept on the way: a tag that is moved or removed goes on as it was"
    return None


_BUFFERS: Final = "proxy_request_buffering off; proxy_http_version 1.1;"
_CACHES: Final = (
    "proxy_cache off; proxy_force_ranges off; no slice; and pass on Range and If-Range "
    "(to keep parts of files use docker/nginx-cache.conf)"
)

PROBES: Final = (
    Probe("uploads go through as they come", _uploads_stream, _BUFFERS),
    Probe("chunked uploads go through as they come", _chunked_uploads_stream, _BUFFERS),
    Probe(
        "uploads may be long",
        _uploads_may_be_long,
        "client_max_body_size 0; (the service has a limit of its own: PROTOSLICE_MAX_UPLOAD)",
    ),
    Probe(
        "uploads are found again",
        _uploads_are_found_again,
        "proxy_set_header Host $http_host; and below a path of its own, such as /models/: proxy_redirect / /models/;",
    ),
    Probe("uploads may pause", uploads_may_pause, "client_body_timeout 60s; (between two reads, not for the whole)"),
    Probe("answers wait for their reader", answers_wait, "proxy_buffering off;"),
    Probe("ranges are exact", _ranges_pass, _CACHES),
    Probe("ranges come from the service", _ranges_are_the_services, _CACHES),
    Probe(
        "entity tags stay strong",
        _tags_are_strong,
        "gzip off; and no proxy_hide_header ETag; (nginx weakens the ETag of what it compresses)",
    ),
    Probe("digests come along", _digests_pass, "no proxy_hide_header Repr-Digest;"),
    Probe("binaries are not compressed", _binaries_stay, "gzip off; and no sub_filter"),
    Probe(
        "paths stay as they are",
        _paths_stay,
        "proxy_pass http://protoslice; without a path of its own (below one, proxy_pass http://protoslice$rest; with a "
        "map $request_uri $rest { ~^/models(?<path>/.*)$ $path; })",
    ),
    Probe("changes are seen at once", _changes_are_seen, "no proxy_ignore_headers Cache-Control; or proxy_cache off;"),
)
"""All of them, in the order in which they are told."""
