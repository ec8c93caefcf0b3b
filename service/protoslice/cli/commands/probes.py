"""The checks of a proxy in front of a service. The checks send each request once, exactly as it is written."""

from __future__ import annotations

import http.client
import json
import re
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from protoslice.errors import InvalidInput, ProtosliceError, StorageUnavailable
from protoslice.references import authorization, same_origin
from protoslice.sizes import format_size

PATIENCE_SECONDS: Final = 5.0
"""Seconds that a service may take to refuse an upload after it has received the header section."""
PAUSE_SECONDS: Final = 6.0
"""Seconds of a pause in an upload. The pause is longer than the typical timeouts of proxies for web pages."""
UNREAD_SECONDS: Final = 4.0
"""Seconds within which a buffering proxy has read a whole response from the service."""
_SECONDS: Final = 30.0
_COUNTED_SECONDS: Final = 4.0
_AGAIN_SECONDS: Final = 0.25
_TUS: Final = {"Tus-Resumable": "1.0.0"}
_REFUSED: Final = "/v1/stores?tag=%20"
"""Request target of an upload that every service refuses as soon as it has read the request line."""
_LENGTHS: Final = (2 << 20, 128 << 20, 3 << 30, 64 << 30)
"""Lengths of test uploads in bytes. Each length is above the default limit of some proxies."""
_CODINGS: Final = "gzip, deflate, br, zstd"
_SENT: Final = re.compile(r'^protoslice_sent_bytes_total\{.*/tensors/\{name:path\}".*\} (\S+)$', re.MULTILINE)


class Inconclusive(Exception):
    """The exception that a check raises if it has no result. The text of the exception is the reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A response exactly as it arrived."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ours(self) -> bool:
        """True if the response is an error of the service itself, as opposed to an error of a proxy."""
        return self.headers.get("content-type", "").startswith("application/problem+json")

    def json(self) -> Mapping[str, Any]:
        """Return the body as a JSON object; return an empty object if the body is not a JSON object."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Target:
    """A service behind a proxy, and a file of a store for the checks."""

    url: str
    path: str
    """URL path of the store."""
    file: str
    size: int
    content: bytes | None
    """Content of the file, or None for a store that the user has chosen.

    If the content is known, this program has pushed the store. Then the checks may also tag the store.
    """
    large: tuple[str, int] | None
    """URL path and size in bytes of a response that exceeds all buffers of a proxy, or None without such a response."""

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Send a request for `path` below the service's URL, without normalizing the path."""
        target = path if path.startswith(("http://", "https://")) else self.url + path
        with closing(_connection(target, _SECONDS)) as connection:
            place = urlsplit(target)
            asked = place.path + (f"?{place.query}" if place.query else "")
            return _exchange(
                lambda: connection.request(method, asked, body, self._authorization(target) | dict(headers or {})),
                connection,
            )

    def get(self, **headers: str) -> Answer:
        """Request the file. `headers` become request headers; underscores in their names become hyphens."""
        return self.ask("GET", self.path + self.file, {name.replace("_", "-"): text for name, text in headers.items()})

    def start_upload(self, length: int | None) -> Answer | None:
        """Send the header section and one byte of an upload that the service refuses, and return the response.

        Return None if no response arrives in time. If `length` is None, the upload uses chunked transfer coding.
        """
        framing = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
        with closing(_connection(self.url, PATIENCE_SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("POST", urlsplit(self.url).path + _REFUSED)
                connection.putheader("Content-Type", "application/octet-stream")
                for name, value in (framing, *self._authorization(self.url).items()):
                    connection.putheader(name, value)
                connection.endheaders(b"1\r\n\n\r\n" if length is None else b"\n")

            try:
                return _exchange(send, connection)
            except TimeoutError:
                return None

    def create_upload(self, length: int) -> tuple[Answer, str | None]:
        """Create a resumable upload; return the response and the upload's URL.

        The URL is None if the upload was not created.
        """
        made = self.ask("POST", "/v1/uploads", _TUS | {"Upload-Length": str(length)}, b"")
        where = made.headers.get("location")
        return made, None if made.status != 201 or where is None else urljoin(f"{self.url}/v1/uploads", where)

    @contextmanager
    def upload(self, length: int) -> Iterator[str]:
        """Create a resumable upload, yield its URL, and remove the upload at the end."""
        place = self.create_upload(length)[1]
        if place is None or self.ask("HEAD", place, _TUS).status != 200:
            raise Inconclusive("The service does not find a test upload that it has just started")
        try:
            yield place
        finally:
            self.ask("DELETE", place, _TUS)

    def send_slowly(self, place: str, body: bytes, pause_seconds: float) -> Answer:
        """Send `body` to the upload at `place`, with a pause of `pause_seconds` after the first byte."""
        with closing(_connection(place, _SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("PATCH", urlsplit(place).path)
                for name, value in (_TUS | self._authorization(place)).items():
                    connection.putheader(name, value)
                connection.putheader("Content-Type", "application/offset+octet-stream")
                connection.putheader("Upload-Offset", "0")
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body[:1])
                select.select([connection.sock], [], [], pause_seconds)  # ends early if the proxy responds or closes
                connection.send(body[1:])

            return _exchange(send, connection)

    @contextmanager
    def unread(self, path: str) -> Iterator[None]:
        """Request `path`, and do not read the response during the `with` block."""
        with closing(_connection(self.url, _SECONDS)) as connection:
            try:
                connection.connect()
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
                connection.request("GET", urlsplit(self.url + path).path, headers=self._authorization(self.url))
            except OSError as error:
                raise StorageUnavailable(f"The request was interrupted ({type(error).__name__})") from error
            yield

    def local_address(self) -> str:
        """Return the network address that this machine uses for connections to the service."""
        with closing(_connection(self.url, _SECONDS)) as connection:
            try:
                connection.connect()
                return str(connection.sock.getsockname()[0])
            except OSError as error:
                raise StorageUnavailable(f"The connection was interrupted ({type(error).__name__})") from error

    def _authorization(self, target: str) -> dict[str, str]:
        """Return the Authorization header for requests to the URL `target`, or an empty mapping for another origin."""
        return authorization(self.url) if same_origin(target, self.url) else {}


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    if place.hostname is None:
        raise InvalidInput(f"The URL {url} has no host")
    if place.scheme.lower() == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(place.hostname, place.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)


def _exchange(send: Callable[[], None], connection: http.client.HTTPConnection) -> Answer:
    try:
        send()
        answer = connection.getresponse()
        headers = {name.lower(): text for name, text in answer.getheaders()}
        return Answer(answer.status, headers, answer.read(64 << 20))
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise StorageUnavailable(f"The response was interrupted ({type(error).__name__})") from error


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one property of a proxy, with advice for the case that the check fails."""

    title: str
    run: Callable[[Target], str | None]
    """Function that returns a description of the fault, or None if there is no fault."""
    fix: str
    """Advice in the syntax of nginx's configuration."""

    def fault(self, target: Target) -> str | None:
        """Run the check, and return a description of the fault, or None if there is no fault.

        A missing response is a fault too. Raise `Inconclusive` if the check has no result.
        """
        try:
            return self.run(target)
        except TimeoutError:
            return "no response for a long time"
        except ProtosliceError as error:
            return error.message


def _uploads_stream(target: Target) -> str | None:
    if target.start_upload(1 << 20) is not None:
        return None
    return "the proxy buffers whole uploads: they fill its disk and are lost when interrupted"


def _chunked_uploads_stream(target: Target) -> str | None:
    if target.start_upload(None) is not None:
        return None
    return "the proxy buffers uploads of unknown length until they are complete"


def _uploads_may_be_long(target: Target) -> str | None:
    if not _refused(target, _LENGTHS[-1]):
        return None
    length = next(each for each in _LENGTHS if each == _LENGTHS[-1] or _refused(target, each))
    return f"an upload of {format_size(length)} is rejected before it reaches the service"


def _refused(target: Target, length: int) -> bool:
    answer = target.start_upload(length)
    return answer is not None and answer.status == 413 and not answer.is_ours


def _uploads_are_found_again(target: Target) -> str | None:
    made, place = target.create_upload(1)
    if place is None:
        return f"starting a resumable upload returns {made.status} without an upload URL"
    if urlsplit(place).netloc != urlsplit(target.url).netloc:
        return f"the upload URL is {place}, which is not the address used here"
    status = target.ask("HEAD", place, _TUS).status
    target.ask("DELETE", place, _TUS)
    return None if status in {200, 204} else f"the upload URL is {place}, which returns {status}"


def _ranges_pass(target: Target) -> str | None:
    start, end = target.size // 3, min(target.size, target.size // 3 + 1000)
    answer = target.get(Range=f"bytes={start}-{end - 1}")
    if answer.status != 206:
        return f"a range request returns {answer.status} with {len(answer.body)} bytes"
    said = answer.headers.get("content-range")
    if said != f"bytes {start}-{end - 1}/{target.size}" or len(answer.body) != end - start:
        return f"{end - start} bytes were requested; {len(answer.body)} were received, with Content-Range {said!r}"
    if target.content is not None and answer.body != target.content[start:end]:
        return "a range returns the wrong bytes"
    return None


def _ranges_are_the_services(target: Target) -> str | None:
    if target.ask("GET", target.path, {"Range": "bytes=0-9"}).status == 206:
        return (
            "the proxy answers range requests for responses that have no ranges, such as lists: clients take "
            "a part for the whole list"
        )
    if target.size < 64:
        return None
    answer = target.get(Range=f"bytes=0-1,{target.size - 2}-{target.size - 1}")
    boundary = answer.headers.get("content-type", "").partition("boundary=")[2]
    if answer.status != 206:  # if a single range fails too, the check "ranges are exact" reports that
        single = target.get(Range="bytes=0-0").status
        return "requests with two ranges are not passed on or not answered correctly" if single == 206 else None
    if re.fullmatch("[0-9a-f]{32}", boundary):
        return None
    return "the proxy serves ranges itself: the service has to send it the whole file for every range"


def _tags_are_strong(target: Target) -> str | None:
    plain, coded = target.get(), target.get(Accept_Encoding=_CODINGS)
    for answer in (plain, coded):
        tag = answer.headers.get("etag")
        if tag is None:
            return "the proxy removes the ETag: partial downloads cannot be combined or resumed"
        if tag.startswith("W/"):
            return "the proxy weakens the ETag: partial downloads cannot be resumed"
    if plain.headers["etag"] != coded.headers["etag"]:
        return "the ETag changes from request to request"
    again = target.get(If_None_Match=plain.headers["etag"])
    return None if again.status == 304 else f"If-None-Match is not passed on: got {again.status} instead of 304"


def _digests_pass(target: Target) -> str | None:
    if target.content is None:
        raise Inconclusive("not tested with --store, because the digest of that store's file is unknown")
    if "repr-digest" in target.get().headers:
        return None
    return "the proxy removes Repr-Digest: downloads cannot be verified"


def _binaries_stay(target: Target) -> str | None:
    answer = target.get(Accept_Encoding=_CODINGS)
    coding = answer.headers.get("content-encoding", "identity")
    if coding != "identity":
        return f"the proxy compresses files ({coding}), which disables ranges"
    if target.content is not None and answer.body != target.content:
        return f"a file of {target.size} bytes arrives with other content ({len(answer.body)} bytes)"
    return None


def _paths_stay(target: Target) -> str | None:
    for name, what in (
        ("no//body", "repeated slashes are merged"),
        ("no%2Fbody%2F%2Fnone", "escaped characters are decoded"),
    ):
        answer = target.ask("GET", f"{target.path}/files/{name}")
        if name.replace("%2F", "/") not in str(answer.json().get("detail", "")):
            return f"{what} in paths: tensors and files with such names cannot be found"
    return None


def _changes_are_seen(target: Target) -> str | None:
    if target.content is None:
        raise Inconclusive("not tested with --store, because that would add a tag to the store")
    tag, store = f"/v1/tags/doctor-{secrets.token_hex(6)}", target.path.rpartition("/")[2]
    target.ask("PUT", tag, {"Content-Type": "application/json"}, f'{{"store": "{store}"}}'.encode())
    before = target.ask("GET", tag).status
    target.ask("DELETE", tag)
    if before == 200 and target.ask("GET", tag).status != 404:
        return "the proxy caches responses that may change: moved or removed tags keep their old content"
    return None


def _uploads_may_pause(target: Target) -> str | None:
    with target.upload(3) as place:
        try:
            answer = target.send_slowly(place, b"\x08\x01", PAUSE_SECONDS)
        except (StorageUnavailable, TimeoutError):
            answer = None
    if answer is not None and (answer.status == 204 or answer.is_ours):
        return None
    if answer is not None and answer.status not in {408, 502, 504}:
        return f"PATCH, which resumes an upload, returns {answer.status}"
    said = "interrupted" if answer is None else f"answered with {answer.status}"
    return f"an upload that pauses for {PAUSE_SECONDS:g} seconds is {said}: slow clients have to start over"


def _answers_wait(target: Target) -> str | None:
    if target.large is None:
        raise Inconclusive("not tested with --store, because that store may be too small")
    path, size = target.large
    before = _sent(target)
    with target.unread(path):
        if _passes(lambda: _sent(target) == before + size, UNREAD_SECONDS):
            return f"the proxy buffers responses: it read {size >> 20} MiB that the client had not asked for yet"
    if not _passes(lambda: _sent(target) != before, _COUNTED_SECONDS):
        raise Inconclusive("not tested, because /metrics shows the numbers of another process or service")
    return None


def _sent(target: Target) -> float:
    """Return the number of tensor bytes that the service has sent, according to its metrics.

    Only complete responses count. The request has a unique query, so that no cache answers it.
    """
    answer = target.ask("GET", f"/metrics?{secrets.token_hex(8)}", headers={"cache-control": "no-cache"})
    if answer.status != 200 or b"protoslice_sent_bytes" not in answer.body:
        raise Inconclusive("not tested, because /metrics is not reachable here")
    return sum(map(float, _SENT.findall(answer.body.decode("utf-8", "replace"))))


def _passes(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait until the condition is true, and return True; return False if it stays false for `seconds`."""
    end = time.monotonic() + seconds
    while not (true := condition()) and time.monotonic() < end:
        time.sleep(_AGAIN_SECONDS)
    return true


def _links_lead_here(target: Target) -> str | None:
    url = str(_reached(target)["url"])
    if same_origin(url, target.url):
        return None
    return f"links in responses begin with {url}, which is not the address used here"


def _clients_are_known(target: Target) -> str | None:
    reached = _reached(target)
    client, here = reached["client"], target.local_address()
    if reached["proxy"] == "untrusted":
        return "the service does not trust the proxy: all clients share the limits of one client"
    if reached["proxy"] == "silent" or client is None:
        return "the proxy does not name the client: all clients share the limits of one client"
    if reached["proxy"] is None and str(client).removeprefix("::ffff:") != here:
        raise Inconclusive(
            f"the service sees {client} instead of {here}: a proxy does not name the client, or the network "
            "translates addresses"
        )
    return None


def _reached(target: Target) -> Mapping[str, Any]:
    """Return how the request reached the service: the members `url`, `client` and `proxy` of the session."""
    found = target.ask("GET", "/session").json()
    if not found.keys() >= {"url", "client", "proxy"}:
        raise Inconclusive("not tested, because the service does not say how it was reached")
    return found


_TRUST: Final = "and set PROTOSLICE_TRUSTED_PROXIES of the service to the proxy's address"
_BUFFERS: Final = "proxy_request_buffering off; proxy_http_version 1.1;"
_CACHES: Final = (
    "proxy_cache off; proxy_force_ranges off; no slice; and pass on Range and If-Range (to cache "
    "parts of files, use docker/nginx-cache.conf)"
)

CHECKS: Final = (
    Check("uploads are streamed", _uploads_stream, _BUFFERS),
    Check("chunked uploads are streamed", _chunked_uploads_stream, _BUFFERS),
    Check(
        "large uploads are accepted",
        _uploads_may_be_long,
        "client_max_body_size 0; (the service has its own limit: PROTOSLICE_MAX_UPLOAD)",
    ),
    Check(
        "uploads can be resumed",
        _uploads_are_found_again,
        "proxy_set_header Host $http_host; and for a path prefix such as /models/: proxy_redirect / /models/;",
    ),
    Check(
        "uploads may pause", _uploads_may_pause, "client_body_timeout 60s; (between two reads, not for the whole body)"
    ),
    Check("responses to slow clients are not buffered", _answers_wait, "proxy_buffering off;"),
    Check("ranges are exact", _ranges_pass, _CACHES),
    Check("ranges are served by the service", _ranges_are_the_services, _CACHES),
    Check(
        "entity tags stay strong",
        _tags_are_strong,
        "gzip off; and no proxy_hide_header ETag; (nginx weakens the ETag of compressed responses)",
    ),
    Check("digests are passed on", _digests_pass, "no proxy_hide_header Repr-Digest;"),
    Check("binaries are not compressed", _binaries_stay, "gzip off; and no sub_filter"),
    Check(
        "paths are passed on unchanged",
        _paths_stay,
        "proxy_pass http://protoslice; without a path (with a path prefix: proxy_pass "
        "http://protoslice$rest; and map $request_uri $rest { ~^/models(?<path>/.*)$ $path; })",
    ),
    Check(
        "changes are visible at once", _changes_are_seen, "no proxy_ignore_headers Cache-Control; or proxy_cache off;"
    ),
    Check(
        "links lead to this address",
        _links_lead_here,
        f"proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme; {_TRUST}",
    ),
    Check(
        "clients are distinguished",
        _clients_are_known,
        f'proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header Forwarded ""; {_TRUST}',
    ),
)
"""All checks, in the order in which they run."""
