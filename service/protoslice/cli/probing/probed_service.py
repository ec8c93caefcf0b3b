"""A service as seen from here: requests as sent, answers as they come, nothing tried twice."""

from __future__ import annotations

import http.client
import json
import select
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from protoslice.errors import InvalidInput, StorageUnavailable
from protoslice.references import authorization, same_origin

PATIENCE_SECONDS: Final = 5.0
"""Seconds that a service may take to refuse an upload once it has seen the head."""
SECONDS: Final = 30.0
TUS: Final = {"Tus-Resumable": "1.0.0"}
REFUSED: Final = "/v1/stores?tag=%20"
"""Target of an upload that every service refuses from the request line alone."""


class CannotTell(Exception):
    """Raised by a probe that cannot find out, with the reason."""


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """An answer, as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ours(self) -> bool:
        """True if a refusal comes from the service, and not from something before it."""
        return self.headers.get("content-type", "").startswith("application/problem+json")

    def said(self) -> Mapping[str, Any]:
        """The JSON object that it is; an empty one where it is none."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


@dataclass(frozen=True, slots=True)
class ProbedService:
    """The service, and a file there that can be read."""

    url: str
    path: str
    """Path of the store."""
    file: str
    size: int
    content: bytes | None
    """Content of the file, or None when unknown. If known, the store is ours, and may have tags."""
    large: tuple[str, int] | None
    """Path and size in bytes of an answer that exceeds all buffers on the way; None when there is none."""

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> ProbeAnswer:
        """The answer to a request for `path`, as it stands below the address of the service."""
        target = path if path.startswith(("http://", "https://")) else self.url + path
        with closing(_connection(target, SECONDS)) as connection:
            place = urlsplit(target)
            asked = place.path + (f"?{place.query}" if place.query else "")
            return _exchange(
                lambda: connection.request(method, asked, body, self._authorization(target) | dict(headers or {})),
                connection,
            )

    def get(self, **headers: str) -> ProbeAnswer:
        """The answer to a request for the file; underscores in names of headers stand for hyphens."""
        return self.ask("GET", self.path + self.file, {name.replace("_", "-"): text for name, text in headers.items()})

    def announce(self, length: int | None) -> ProbeAnswer | None:
        """The answer to an upload to be refused, of which only a byte is sent; None if none comes for long.

        Without a length the upload is a chunked one.
        """
        framing = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
        with closing(_connection(self.url, PATIENCE_SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("POST", urlsplit(self.url).path + REFUSED)
                connection.putheader("Content-Type", "application/octet-stream")
                for name, value in (framing, *self._authorization(self.url).items()):
                    connection.putheader(name, value)
                connection.endheaders(b"1\r\n\n\r\n" if length is None else b"\n")

            try:
                return _exchange(send, connection)
            except TimeoutError:
                return None

    def begin_upload(self, length: int) -> tuple[ProbeAnswer, str | None]:
        """The answer to the beginning of an upload that can be taken up again, and where it is to go on."""
        made = self.ask("POST", "/v1/uploads", TUS | {"Upload-Length": str(length)}, b"")
        where = made.headers.get("location")
        return made, None if made.status != 201 or where is None else urljoin(f"{self.url}/v1/uploads", where)

    @contextmanager
    def upload(self, length: int) -> Iterator[str]:
        """Context with the URL of a new upload, which is removed at the end."""
        place = self.begin_upload(length)[1]
        if place is None or self.ask("HEAD", place, TUS).status != 200:
            raise CannotTell("A test upload cannot be found right after it was started")
        try:
            yield place
        finally:
            self.ask("DELETE", place, TUS)

    def send_slowly(self, place: str, body: bytes, pause_seconds: float) -> ProbeAnswer:
        """The answer to a body that pauses for `pause_seconds` between its first byte and the others."""
        with closing(_connection(place, SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("PATCH", urlsplit(place).path)
                for name, value in (TUS | self._authorization(place)).items():
                    connection.putheader(name, value)
                connection.putheader("Content-Type", "application/offset+octet-stream")
                connection.putheader("Upload-Offset", "0")
                connection.putheader("Content-Length", str(len(body)))
                connection.endheaders(body[:1])
                select.select([connection.sock], [], [], pause_seconds)  # an end of the pause that is not ours
                connection.send(body[1:])

            return _exchange(send, connection)

    @contextmanager
    def unread(self, path: str) -> Iterator[None]:
        """While this lasts, an answer that has been asked for is not read."""
        with closing(_connection(self.url, SECONDS)) as connection:
            try:
                connection.connect()
                connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
                connection.request("GET", urlsplit(self.url + path).path, headers=self._authorization(self.url))
            except OSError as error:
                raise StorageUnavailable(f"The request was interrupted ({type(error).__name__})") from error
            yield

    def _authorization(self, target: str) -> dict[str, str]:
        """Authorization header of a request to `target`, an address that the service may have told."""
        return authorization(self.url) if same_origin(target, self.url) else {}


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    if place.hostname is None:
        raise InvalidInput(f"No host in {url}")
    if place.scheme.lower() == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(place.hostname, place.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(place.hostname, place.port, timeout=timeout)


def _exchange(send: Callable[[], None], connection: http.client.HTTPConnection) -> ProbeAnswer:
    try:
        send()
        answer = connection.getresponse()
        headers = {name.lower(): text for name, text in answer.getheaders()}
        return ProbeAnswer(answer.status, headers, answer.read(64 << 20))
    except TimeoutError:
        raise
    except (OSError, http.client.HTTPException) as error:
        raise StorageUnavailable(f"The response was interrupted ({type(error).__name__})") from error
