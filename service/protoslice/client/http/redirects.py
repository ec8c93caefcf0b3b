"""Redirects: credentials for one origin are never sent to another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import httpx

from protoslice.errors import StorageDenied, StorageError

_MOST_REDIRECTS: Final = 20
_ALWAYS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


class RedirectingSender:
    """Sends requests of `client` and follows redirects, without the headers named `own` to other origins.

    An origin is scheme, host and port, as in RFC 6454: a redirect from `http` to `https` leads to another origin.
    """

    def __init__(self, client: httpx.Client, own: Iterable[str]) -> None:
        self._client = client
        self._own = _ALWAYS | {name.lower() for name in own}

    def send(self, request: httpx.Request, *, again: bool) -> httpx.Response:
        """Response at the end of all redirects, with its body still to be read.

        `again` says that the body can be sent again; `StorageDenied` for a redirect that needs a body without that.
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
                    following.headers[name] = request.headers[name]  # httpx forgets cookies
            request = following
        raise StorageError(f"The service redirects more than {_MOST_REDIRECTS} times")


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}.get(url.scheme)
