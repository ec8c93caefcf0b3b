"""A live service over memory, and clients that speak tus or the draft by hand."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import httpx
import pytest

from protoslice.server.app import create_app
from protoslice.server.settings import Settings
from protoslice.server.uvicorn_config import uvicorn_config
from protoslice.testing.live import LiveServer, live_server

Serving = Callable[..., AbstractContextManager[LiveServer]]
BODY = "application/offset+octet-stream"


@contextmanager
def _serving(**given: Any) -> Iterator[LiveServer]:
    settings = Settings(**{"storage": "memory://", **given})
    with live_server(uvicorn_config(create_app(settings), settings)) as live:
        yield live


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Starts a service with other settings."""
    return _serving


@pytest.fixture(scope="module")
def service() -> Iterator[LiveServer]:
    """A service."""
    with _serving(max_upload_bytes=64 << 20) as live:
        yield live


class Tus:
    """A client that sends what it is told and repairs nothing."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def send(self, method: str, url: str, body: bytes | None = None, /, **headers: str | int) -> httpx.Response:
        given = {"Tus-Resumable": "1.0.0"} | {
            name.replace("_", "-"): str(value) for name, value in headers.items() if value != ""
        }
        if headers.get("Tus_Resumable") == "":
            del given["Tus-Resumable"]
        return self.http.request(method, url, content=body, headers=given)

    def begin(self, length: int | None, body: bytes | None = None, /, **more: str | int) -> httpx.Response:
        headers: dict[str, str | int] = {"Upload_Defer_Length": 1} if length is None else {"Upload_Length": length}
        if body is not None:
            headers["Content_Type"] = BODY
        return self.send("POST", "/v1/uploads", body, **headers, **more)

    def url(self, length: int | None, /, **more: str | int) -> str:
        answer = self.begin(length, **more)
        assert answer.status_code == 201, answer.text
        return answer.headers["location"]

    def patch(self, url: str, offset: int | str, body: bytes = b"", /, **more: str | int) -> httpx.Response:
        headers = {"Content_Type": BODY, "Upload_Offset": offset} | more
        return self.send("PATCH", url, body, **headers)

    def head(self, url: str, /, **more: str | int) -> httpx.Response:
        return self.send("HEAD", url, **more)

    def whole(self, data: bytes, /, **more: str | int) -> str:
        """The URL of an upload of all of `data`."""
        url = self.url(len(data), **more)
        assert self.patch(url, 0, data).status_code == 204
        return url


@pytest.fixture
def tus(service: LiveServer) -> Iterator[Tus]:
    """A client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as http:
        yield Tus(http)


@pytest.fixture(scope="session")
def connect() -> Callable[[LiveServer], AbstractContextManager[Tus]]:
    """A client of another service."""

    @contextmanager
    def connected(live: LiveServer) -> Iterator[Tus]:
        with httpx.Client(base_url=live.url, timeout=30) as http:
            yield Tus(http)

    return connected


def metadata(**words: str) -> str:
    """Upload-Metadata with these words."""
    return ",".join(f"{key} {b64encode(value.encode()).decode()}" for key, value in words.items())


@pytest.fixture(scope="session")
def words() -> Callable[..., str]:
    """Makes Upload-Metadata."""
    return metadata
