"""The HTTP connection to one service, with retries, redirects, and the errors of `protoslice.errors`."""

from __future__ import annotations

import hashlib
import random
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from json import dumps
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from protoslice.client.http.digests import digest_in, digest_of
from protoslice.client.http.errors import error_of_answer, error_of_transport, is_transient
from protoslice.client.http.transport import ServiceTransport
from protoslice.errors import IntegrityError, InvalidInput, LimitExceeded, ProtosliceError, StorageDenied, StorageError
from protoslice.json_text import parse_json

T = TypeVar("T")
Params = Sequence[tuple[str, str]]
Body = bytes | Callable[[], Iterator[bytes]]

LONGEST_ANSWER: Final = 64 << 20
"""Maximum number of bytes in a response that is read whole. JSON and problem documents are never longer."""
SLOW_SECONDS: Final = 900.0
"""Seconds to wait for a response for which the service may have to read whole models."""
_MOST_REDIRECTS: Final = 20
_SECRET: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that are never sent to another origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The maximum number of attempts without progress, and the pauses between the attempts."""

    attempts: int = 6
    first_seconds: float = 0.1
    longest_seconds: float = 10.0
    longest_retry_after_seconds: float = 120.0

    def run(self, work: Callable[[], T]) -> T:
        """Call `work` and return the result. After an error that may be temporary, repeat the call."""
        failures = FailuresInRow(self)
        while True:
            try:
                return work()
            except ProtosliceError as error:
                if not failures.wait(error):
                    raise


class FailuresInRow:
    """A counter of a transfer's failures since its last progress. After too many failures, the transfer gives up."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._count = 0

    def progressed(self) -> None:
        """Reset the counter, because the transfer made progress."""
        self._count = 0

    def pause(self, error: ProtosliceError, *, anyway: bool = False) -> float | None:
        """Count a failure and return the seconds to wait before the next attempt, or None to give up.

        Give up at once after an error that would recur, unless `anyway` is True.
        """
        self._count += 1
        policy, asked = self._policy, error.retry_after_seconds or 0.0
        hopeless = not (anyway or is_transient(error)) or asked > policy.longest_retry_after_seconds
        if self._count >= policy.attempts or hopeless:
            return None
        backoff = min(policy.longest_seconds, policy.first_seconds * 2.0 ** (self._count - 1))
        return max(asked, backoff * random.uniform(0.5, 1.0))

    def wait(self, error: ProtosliceError, *, anyway: bool = False) -> bool:
        """Count a failure, wait, and return True; return False without waiting if the transfer has to give up.

        The caller has to raise `error`. If this method raised the error, the frame of this method and the error would
        refer to each other. That reference cycle would leave connections open until the garbage collector runs.
        """
        pause = self.pause(error, anyway=anyway)
        if pause is not None:
            time.sleep(pause)
        return pause is not None


@dataclass(frozen=True, slots=True)
class ServiceAnswer:
    """A successful response with its whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Parse the body as JSON.

        Raise `IntegrityError` if the body is not JSON, or if it contains a text that is not valid Unicode.
        """
        try:
            return parse_json(self.body)
        except ValueError:
            raise IntegrityError("The response is not JSON: is this the URL of a protoslice service?") from None


class Connection:
    """An HTTP client of one service. Threads may share the connection."""

    def __init__(self, url: str, *, headers: Mapping[str, str] | None, timeout_seconds: float, retries: RetryPolicy):
        self.url = url.rstrip("/")
        self.retries = retries
        # Request the identity encoding: a compressed body does not allow ranges, and has different digests.
        given = {"accept-encoding": "identity", "user-agent": "protoslice", **(headers or {})}
        self._timeout = httpx.Timeout(timeout_seconds)
        self._slow = httpx.Timeout(timeout_seconds, read=max(timeout_seconds, SLOW_SECONDS))
        self._client = httpx.Client(headers=given, transport=ServiceTransport(_address(self.url)))
        self._own = _SECRET | {name.lower() for name in headers or ()}
        # fsspec never closes a file system, so the connections also close when this object is garbage-collected.
        self.close = weakref.finalize(self, self._client.close)
        """A function that closes the connections."""
        self._again = partial(Connection, url, headers=headers, timeout_seconds=timeout_seconds, retries=retries)

    def __reduce__(self) -> tuple[Callable[[], Connection], tuple[()]]:
        """Pickle the arguments, including the headers and the token. Unpickling creates a new connection."""
        return self._again, ()

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
        """Make a request and return the successful response with its body.

        Temporary errors cause a retry, unless `again` is False. With `slow`, wait up to 15 minutes for the next bytes
        of the response.
        """
        if json is not None:
            body, headers = dumps(json).encode(), {"content-type": "application/json", **(headers or {})}
        if isinstance(body, bytes):
            headers = {"content-digest": digest_of(body), **(headers or {})}

        def attempt() -> ServiceAnswer:
            content = body() if callable(body) else body
            with self.stream(method, path, params=params, content=content, headers=headers, slow=slow) as answer:
                return _whole(answer)

        return self.retries.run(attempt) if again else attempt()

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
        """Make a request, and yield the successful response before its body is read.

        A failure of the request, the response or the response's body raises an error of `protoslice.errors`. An
        exception in the iterator `content` is raised unchanged. The iterator is closed at the end of the request.
        """
        with request_body(content) as body:
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
                with closing(self._follow(request, again=again)) as answer:
                    if answer.status_code >= 400:
                        raise error_of_answer(answer.status_code, answer.headers, _read(answer, 1 << 20, cut=True))
                    yield answer
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._named_in(error_of_transport(error, self.url)) from error
            except ProtosliceError as error:  # an error of the response; errors of `content` are raised later
                self._named_in(error)
                raise

    def _follow(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Send the request, follow all redirects, and return the response before its body is read.

        Secret headers and the caller's headers are never sent to another origin. `again` is True if the body can be
        sent again. Otherwise, a redirect that repeats the body raises `StorageDenied`.
        """
        for _ in range(_MOST_REDIRECTS):
            answer = self._client.send(request, stream=True)
            following = answer.next_request
            if following is None:
                return answer
            answer.close()
            if not again and following.method == request.method:
                place = following.url.copy_with(userinfo=b"", query=None)
                raise StorageDenied(f"The service redirects uploads: use the URL {place}")
            for name in self._own & request.headers.keys():
                if _origin(following.url) != _origin(request.url):
                    following.headers.pop(name, None)
                else:
                    following.headers[name] = request.headers[name]  # httpx drops cookies from redirected requests
            request = following
        raise StorageError(f"The service redirects more than {_MOST_REDIRECTS} times")

    def _named_in(self, error: ProtosliceError) -> ProtosliceError:
        """Set the service's URL in `error`, and return `error`."""
        error.service = self.url
        return error


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise InvalidInput(f"Invalid service URL {url!r}: use http://… or https://…")
    return address


def given_params(**given: str | None) -> list[tuple[str, str]]:
    """Return query parameters as pairs, without the parameters whose value is None."""
    return [(name, value) for name, value in given.items() if value is not None]


def url_path(*segments: str) -> str:
    """Return a URL path that consists of `segments`, each percent-encoded."""
    return "".join("/" + quote(segment, safe="") for segment in segments)


def _whole(answer: httpx.Response) -> ServiceAnswer:
    body = _read(answer, LONGEST_ANSWER, cut=False)
    expected = digest_in(answer.headers.get("repr-digest"))
    if expected is not None and hashlib.sha256(body).digest() != expected:
        raise IntegrityError("The response does not match its checksum: try again")
    return ServiceAnswer(answer.status_code, answer.headers, body)


def _read(answer: httpx.Response, limit: int, *, cut: bool) -> bytes:
    body = bytearray()
    for piece in answer.iter_raw():
        body += piece
        if len(body) > limit:
            if cut:
                break
            raise LimitExceeded(f"The response is larger than {limit} bytes")
    return bytes(body[:limit])


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    """Return the origin of a URL as in RFC 6454: scheme, host and port. `http` and `https` are different origins."""
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)


@contextmanager
def request_body(content: bytes | Iterator[bytes] | None) -> Iterator[bytes | Iterator[bytes] | None]:
    """Yield `content` as the body of one request.

    At the end of the request, an iterator is closed, and an exception that it raised is raised again unchanged. If the
    iterator stayed open, the traceback of a failed request would keep its files and threads alive.
    """
    if content is None or isinstance(content, bytes):
        yield content
        return
    body = _Body(content)
    try:
        yield body
    except _Failed:
        pass
    else:
        return
    finally:
        if hasattr(content, "close"):
            content.close()
    raise body.taken()


class _Failed(Exception):
    """An exception that makes httpx end a request whose body comes from a failed iterator.

    An exception of the iterator itself could be an `OSError` or an httpx exception. Such an exception would be mistaken
    for a network failure.
    """


class _Body(Iterator[bytes]):
    def __init__(self, content: Iterator[bytes]) -> None:
        self._content = content
        self._failure: Exception | None = None

    def __next__(self) -> bytes:
        try:
            return next(self._content)
        except StopIteration:
            raise
        except Exception as error:
            self._failure = error
        raise _Failed  # outside the handler: a chained exception would keep the objects of its frames alive

    def taken(self) -> Exception:
        """Return the exception that the content raised, and remove it from this object."""
        failure, self._failure = self._failure, None
        assert failure is not None, "nothing else raises this"
        return failure
