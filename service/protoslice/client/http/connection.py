"""One service over HTTP: requests are tried again when that may help, and answers that are failures are exceptions."""

from __future__ import annotations

import hashlib
import random
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from json import dumps, loads
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from protoslice.client.http.digests import digest_in, digest_of
from protoslice.client.http.failures import error_of_answer, error_of_transport, may_pass
from protoslice.client.http.outgoing import outgoing
from protoslice.client.http.redirects import Following
from protoslice.client.http.transport import Wire
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, ProtosliceError

__all__ = ["Connection", "Params", "Patience", "ServiceAnswer", "path_of"]

T = TypeVar("T")
Params = Sequence[tuple[str, str]]
Body = bytes | Callable[[], Iterator[bytes]]

LONGEST_ANSWER: Final = 64 << 20
"""Of answers that are read whole: JSON and problems. Nothing the service says is longer."""
SLOW_SECONDS: Final = 900.0
"""How long an answer may take that the service has to read whole models for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Patience: the number of attempts, and the pauses between them."""

    attempts: int = 6
    first_seconds: float = 0.1
    longest_seconds: float = 10.0
    longest_retry_after_seconds: float = 120.0

    def pause(self, failures: int, error: ProtosliceError, *, anyway: bool = False) -> float | None:
        """Seconds to wait after so many failures in a row; none when it is time to give up.

        An error that would only come again is one to give up at, unless it is to be tried `anyway`.
        """
        asked = error.retry_after_seconds or 0.0
        hopeless = not (anyway or may_pass(error)) or asked > self.longest_retry_after_seconds
        if failures >= self.attempts or hopeless:
            return None
        backoff = min(self.longest_seconds, self.first_seconds * 2.0 ** (failures - 1))
        return max(asked, backoff * random.uniform(0.5, 1.0))

    def wait(self, failures: int, error: ProtosliceError, *, anyway: bool = False) -> None:
        """Wait after so many failures in a row; raise the last when it is time to give up."""
        pause = self.pause(failures, error, anyway=anyway)
        if pause is None:
            raise error
        time.sleep(pause)

    def insist(self, work: Callable[[], T]) -> T:
        """The result of `work`, tried again after failures that may pass."""
        failures = 0
        while True:
            try:
                return work()
            except ProtosliceError as error:
                failures += 1
                self.wait(failures, error)


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """A successful answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Body of the answer, parsed as JSON."""
        try:
            return loads(self.body)
        except ValueError:
            raise IntegrityError("the service answered with something that is no JSON: is it a protoslice?") from None


class Connection:
    """Asks one service. Threads may share it."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None, timeout_seconds: float, patience: Patience):
        self.url = url.rstrip("/")
        self.patience = patience
        # Identity: what is compressed on the way has no ranges and other digests.
        given = {"accept-encoding": "identity", "user-agent": "protoslice", **(headers or {})}
        self._timeout = httpx.Timeout(timeout_seconds)
        self._slow = httpx.Timeout(timeout_seconds, read=max(timeout_seconds, SLOW_SECONDS))
        self._client = httpx.Client(headers=given, transport=Wire(_address(self.url)))
        self._following = Following(self._client, headers or ())
        # A file system of fsspec is never closed: its connections go with it.
        self.close = weakref.finalize(self, self._client.close)
        """Gives back the connections."""

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        json: object = None,
        body: Body | None = None,
        headers: Mapping[str, str] | None = None,
        again: bool = True,
        slow: bool = False,
    ) -> ServiceAnswer:
        """The answer; tried again when the service is not there for the moment, unless `again` forbids it.

        A `slow` one may take the service minutes of work before its first byte.
        """
        if json is not None:
            body, headers = dumps(json).encode(), {"content-type": "application/json", **(headers or {})}
        if isinstance(body, bytes):
            headers = {"content-digest": digest_of(body), **(headers or {})}

        def attempt() -> ServiceAnswer:
            content = body() if callable(body) else body
            with self.stream(method, path, params=params, content=content, headers=headers, slow=slow) as answer:
                return _whole(answer)

        return self.patience.insist(attempt) if again else attempt()

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params = (),
        content: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        slow: bool = False,
    ) -> Iterator[httpx.Response]:
        """A successful answer whose body is still to come. Failures, then and while it comes, are our exceptions.

        What the iterator of a body raises is raised as it is. The iterator is closed when the request has ended.
        """
        with outgoing(content) as body:
            try:
                request = self._client.build_request(
                    method,
                    self.url + path,
                    params=list(params) or None,
                    content=body,
                    headers=headers,
                    timeout=self._slow if slow else self._timeout,
                )
                again = content is None or isinstance(content, bytes)
                with closing(self._following.send(request, again=again)) as answer:
                    if answer.status_code >= 400:
                        raise error_of_answer(answer.status_code, answer.headers, _read(answer, 1 << 20, cut=True))
                    yield answer
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise error_of_transport(error) from error


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidInput(f"{url!r} is no address of a service: http://… or https://… is due")
    return address


def path_of(*segments: str) -> str:
    """The path of a URL with these segments, whatever is in them."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


def _whole(answer: httpx.Response) -> ServiceAnswer:
    body = _read(answer, LONGEST_ANSWER, cut=False)
    expected = digest_in(answer.headers.get("repr-digest"))
    if expected is not None and hashlib.sha256(body).digest() != expected:
        raise IntegrityError("the answer of the service does not have the digest it came with")
    return ServiceAnswer(answer.status_code, answer.headers, body)


def _read(answer: httpx.Response, limit: int, *, cut: bool) -> bytes:
    body = bytearray()
    for piece in answer.iter_raw():
        body += piece
        if len(body) > limit:
            if cut:
                break
            raise LimitExceeded(f"the service answered with more than {limit} bytes")
    return bytes(body[:limit])
