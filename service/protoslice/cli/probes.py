"""What something between us and a service can do to requests and answers, found by asking: one probe for each."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from protoslice.errors import InvalidInput, StorageUnavailable
from protoslice.sizes import format_size

__all__ = ["PROBES", "Finding", "Patient"]

PATIENCE_SECONDS: Final = 5.0
"""How long a service may take to refuse an upload of which it has seen the head."""
SECONDS: Final = 30.0
LENGTHS: Final = (2 << 20, 128 << 20, 3 << 30, 64 << 30)
"""Uploads that are announced: beyond the limits that proxies come with."""
REFUSED: Final = "/v1/stores?tag=%20"
"""An upload that no service takes, as it can tell from the first line."""
CODINGS: Final = "gzip, deflate, br, zstd"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be, and what to do about it."""

    found: str
    advice: str
    """Lines for nginx, and what they come to elsewhere."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Patient:
    """The service as seen from here, and a file there that can be read."""

    url: str
    path: str
    """Of a store."""
    file: str
    size: int
    content: bytes | None
    """What is in the file, where we know."""

    def ask(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """The answer to a request without a body."""
        with closing(_connection(self.url, SECONDS)) as connection:
            target, given = _base(self.url) + path, dict(headers or {})
            return _exchange(lambda: connection.request(method, target, headers=given), connection)

    def get(self, **headers: str) -> Answer:
        """The answer to a request for the file."""
        return self.ask("GET", self.path + self.file, {name.replace("_", "-"): text for name, text in headers.items()})

    def announce(self, length: int) -> Answer | None:
        """The answer to an upload to be refused, of which only a byte is sent; None if none comes for long."""
        with closing(_connection(self.url, PATIENCE_SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("POST", _base(self.url) + REFUSED)
                connection.putheader("Content-Type", "application/octet-stream")
                connection.putheader("Content-Length", str(length))
                connection.endheaders(b"\n")

            try:
                return _exchange(send, connection)
            except TimeoutError:
                return None


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    if place.hostname is None:
        raise InvalidInput(f"{url} names no host")
    if place.scheme.lower() == "https":
        return http.client.HTTPSConnection(
            place.hostname, place.port, timeout=timeout, context=ssl.create_default_context()
        )
    return http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)


def _base(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _exchange(send: Callable[[], None], connection: http.client.HTTPConnection) -> Answer:
    try:
        send()
        answer = connection.getresponse()
        headers = {name.lower(): text for name, text in answer.getheaders()}
        return Answer(answer.status, headers, answer.read(64 << 20))
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise StorageUnavailable(f"the service broke off ({type(error).__name__})") from error


def _uploads_stream(patient: Patient) -> Finding | None:
    if patient.announce(1 << 20) is not None:
        return None
    return Finding(
        "uploads are kept back until they are whole: they fill the proxy's disk, and what breaks off is lost",
        "proxy_request_buffering off; proxy_http_version 1.1;",
    )


def _uploads_may_be_long(patient: Patient) -> Finding | None:
    if not _refused(patient, LENGTHS[-1]):
        return None
    length = next(each for each in LENGTHS if each == LENGTHS[-1] or _refused(patient, each))
    return Finding(
        f"an upload of {format_size(length)} is refused before the service hears of it",
        "client_max_body_size 0; (the service has a limit of its own: PROTOSLICE_MAX_UPLOAD)",
    )


def _refused(patient: Patient, length: int) -> bool:
    answer = patient.announce(length)
    return answer is not None and answer.status == 413 and not _is_ours(answer)


def _ranges_pass(patient: Patient) -> Finding | None:
    start, end = patient.size // 3, min(patient.size, patient.size // 3 + 1000)
    answer = patient.get(Range=f"bytes={start}-{end - 1}")
    advice = (
        "proxy_set_header Range $http_range; proxy_set_header If-Range $http_if_range; proxy_cache off; "
        "(or docker/nginx-cache.conf, which keeps ranges right)"
    )
    if answer.status != 206:
        return Finding(f"a request for a range is answered {answer.status}, with {len(answer.body)} bytes", advice)
    said = answer.headers.get("content-range")
    if said != f"bytes {start}-{end - 1}/{patient.size}" or len(answer.body) != end - start:
        return Finding(f"{end - start} bytes were asked for; {len(answer.body)} came, as {said!r}", advice)
    if patient.content is not None and answer.body != patient.content[start:end]:
        return Finding("a range has other bytes than the file has there", advice)
    return None


def _tags_are_strong(patient: Patient) -> Finding | None:
    advice = "gzip off; and no proxy_hide_header ETag; (nginx weakens the ETag of what it compresses)"
    plain, coded = patient.get(), patient.get(Accept_Encoding=CODINGS)
    for answer in (plain, coded):
        tag = answer.headers.get("etag")
        if tag is None:
            return Finding(
                "the ETag is taken away: parts cannot be put together, nor a download taken up again", advice
            )
        if tag.startswith("W/"):
            return Finding(f"the ETag is made a weak one ({tag}): ranges cannot be taken up again", advice)
    if plain.headers["etag"] != coded.headers["etag"]:
        return Finding("the ETag is another one from request to request", advice)
    again = patient.get(If_None_Match=plain.headers["etag"])
    if again.status != 304:
        return Finding(f"If-None-Match is not passed on: the answer is {again.status} where 304 was due", advice)
    return None


def _digests_pass(patient: Patient) -> Finding | None:
    if patient.content is None or "repr-digest" in patient.get().headers:
        return None
    return Finding("Repr-Digest is taken away: what is pulled cannot be verified", "no proxy_hide_header Repr-Digest;")


def _binaries_stay(patient: Patient) -> Finding | None:
    answer = patient.get(Accept_Encoding=CODINGS)
    coding = answer.headers.get("content-encoding", "identity")
    if coding != "identity":
        return Finding(f"files are compressed on the way ({coding}), and have no ranges so", "gzip off;")
    if patient.content is not None and answer.body != patient.content:
        return Finding(
            f"a file of {patient.size} bytes comes as {len(answer.body)} others", "gzip off; and no sub_filter"
        )
    return None


def _paths_stay(patient: Patient) -> Finding | None:
    for name, what in (("no//body", "slashes are merged"), ("no%2Fbody%2F%2Fnone", "what is escaped is merged")):
        answer = patient.ask("GET", f"{patient.path}/files/{name}")
        wanted = name.replace("%2F", "/")
        if wanted not in str(_said(answer).get("detail", "")):
            return Finding(
                f"{what} in paths: tensors and files whose names have them are not found",
                "merge_slashes off; proxy_pass http://protoslice; (without a path of its own)",
            )
    return None


def _is_ours(answer: Answer) -> bool:
    return answer.headers.get("content-type", "").startswith("application/problem+json")


def _said(answer: Answer) -> Mapping[str, Any]:
    try:
        said = json.loads(answer.body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


PROBES: Final[Mapping[str, Callable[[Patient], Finding | None]]] = {
    "uploads go through as they come": _uploads_stream,
    "uploads may be long": _uploads_may_be_long,
    "ranges are exact": _ranges_pass,
    "entity tags stay strong": _tags_are_strong,
    "digests come along": _digests_pass,
    "binaries are not compressed": _binaries_stay,
    "paths stay as they are": _paths_stay,
}
"""What should hold, and how it is found out."""
