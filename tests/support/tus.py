"""A client of resumable uploads that sends exactly what a test passes, and corrects nothing."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

BODY = "application/offset+octet-stream"


def base64(data: bytes) -> str:
    """Return `data` in base64."""
    return b64encode(data).decode()


def metadata(**words: str) -> str:
    """Return an Upload-Metadata header with these words."""
    return ",".join(f"{key} {base64(value.encode())}" for key, value in words.items())


class TusClient:
    """A client whose header arguments are named with underscores; None leaves a header out."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http

    def send(self, method: str, url: str, body: Any = None, /, **headers: str | int | None) -> httpx.Response:
        """Send a request."""
        given = {"tus_resumable": "1.0.0"} | {name.lower(): value for name, value in headers.items()}
        fields = {name.replace("_", "-"): str(value) for name, value in given.items() if value is not None}
        return self.http.request(method, url, content=body, headers=fields)

    def begin(self, length: int | None, body: Any = None, /, **more: str | int | None) -> httpx.Response:
        """Begin an upload of `length` bytes; the body may have its first bytes."""
        headers: dict[str, str | int | None] = (
            {"upload_defer_length": 1} if length is None else {"upload_length": length}
        )
        if body is not None:
            headers["content_type"] = BODY
        return self.send("POST", "/v1/uploads", body, **(headers | more))

    def url(self, length: int | None, /, **more: str | int | None) -> str:
        """Begin an upload, and return its URL."""
        answer = self.begin(length, **more)
        assert answer.status_code == 201, answer.text
        url: str = answer.headers["location"]
        return url

    def patch(self, url: str, offset: int | str | None, body: Any = b"", /, **more: str | int | None) -> httpx.Response:
        """Append a body to an upload."""
        headers: dict[str, str | int | None] = {"content_type": BODY, "upload_offset": offset}
        return self.send("PATCH", url, body, **(headers | more))

    def head(self, url: str, /, **more: str | int | None) -> httpx.Response:
        """Return the answer to a HEAD request for an upload."""
        return self.send("HEAD", url, **more)

    def offset(self, url: str) -> int:
        """Return the number of durable bytes of an upload."""
        answer = self.head(url)
        assert answer.status_code == 200, answer.status_code
        return int(answer.headers["upload-offset"])

    def whole(self, data: bytes, /, **more: str | int | None) -> str:
        """Upload all of `data`, and return the upload's URL."""
        url = self.url(len(data), **more)
        answer = self.patch(url, 0, data)
        assert answer.status_code == 204, answer.text
        return url

    def file(self, store: str, path: str) -> bytes:
        """Return a file of a store."""
        answer = self.http.get(f"/v1/stores/{store}/files/{path}")
        assert answer.status_code == 200, answer.text
        return answer.content


@contextmanager
def tus_client(url: str) -> Iterator[TusClient]:
    """Return a client of the service at `url`."""
    with httpx.Client(base_url=url, timeout=30) as http:
        yield TusClient(http)
