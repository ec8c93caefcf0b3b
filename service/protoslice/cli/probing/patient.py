"""A service as it is seen from here: requests as they are sent, answers as they come, nothing tried twice."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from protoslice.cli.models.addresses import authorization
from protoslice.errors import InvalidInput, StorageUnavailable

__all__ = ["Answer", "Patient"]

PATIENCE_SECONDS: Final = 5.0
"""How long a service may take to refuse an upload of which it has seen the head."""
SECONDS: Final = 30.0
REFUSED: Final = "/v1/stores?tag=%20"
"""An upload that no service takes, as it can tell from the first line."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, as it came."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_ours(self) -> bool:
        """Whether a refusal comes from the service, and not from something before it."""
        return self.headers.get("content-type", "").startswith("application/problem+json")

    def said(self) -> Mapping[str, Any]:
        """The JSON object that it is; an empty one where it is none."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return {}
        return said if isinstance(said, dict) else {}


@dataclass(frozen=True, slots=True)
class Patient:
    """The service, and a file there that can be read."""

    url: str
    path: str
    """Of a store."""
    file: str
    size: int
    content: bytes | None
    """What is in the file, where we know. Then the store is ours, and may have tags."""

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """The answer to a request for `path`, as it stands below the address of the service."""
        target = path if path.startswith(("http://", "https://")) else self.url + path
        with closing(_connection(target, SECONDS)) as connection:
            place = urlsplit(target)
            asked = place.path + (f"?{place.query}" if place.query else "")
            return _exchange(
                lambda: connection.request(method, asked, body, authorization() | dict(headers or {})), connection
            )

    def get(self, **headers: str) -> Answer:
        """The answer to a request for the file; underscores in names of headers stand for hyphens."""
        return self.ask("GET", self.path + self.file, {name.replace("_", "-"): text for name, text in headers.items()})

    def announce(self, length: int | None) -> Answer | None:
        """The answer to an upload to be refused, of which only a byte is sent; None if none comes for long.

        Without a length the upload is a chunked one.
        """
        framing = ("Transfer-Encoding", "chunked") if length is None else ("Content-Length", str(length))
        with closing(_connection(self.url, PATIENCE_SECONDS)) as connection:

            def send() -> None:
                connection.putrequest("POST", urlsplit(self.url).path + REFUSED)
                connection.putheader("Content-Type", "application/octet-stream")
                for name, value in (framing, *authorization().items()):
                    connection.putheader(name, value)
                connection.endheaders(b"1\r\n\n\r\n" if length is None else b"\n")

            try:
                return _exchange(send, connection)
            except TimeoutError:
                return None


def _connection(url: str, timeout: float) -> http.client.HTTPConnection:
    place = urlsplit(url)
    if place.hostname is None:
        raise InvalidInput(f"{url} names no host")
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
        raise StorageUnavailable(f"the answer broke off ({type(error).__name__})") from error
