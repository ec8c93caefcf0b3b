"""Answer with a file of a store: the one way of all representations, with the headers of a protocol."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.server.access.places import url_of
from protoslice.server.http.answers.plan import Terms
from protoslice.server.http.answers.stream import send_representation
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.http.headers import Headers, read_fields, with_headers
from protoslice.server.middleware.context import context_of
from protoslice.server.services import SERVICES, Services

__all__ = ["FileAnswer"]


class FileAnswer(Response):
    """File of a store under a URL of another protocol; `lasting` when that URL never gives other bytes."""

    def __init__(self, store: str, path: str, told: Headers, *, lasting: bool = False) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._told = told
        self._lasting = lasting

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET or HEAD."""
        services: Services = scope[SERVICES]
        context = context_of(scope)
        context.store = self._store
        location = None if self._lasting else url_of(scope, f"/v1/stores/{self._store}/files/{quote(self._path)}")
        async with CancelOnDisconnect(receive) as disconnect:
            rope = (await services.stores.view(self._store)).file(self._path)
            await send_representation(
                # The framework takes HEAD for GET, and the answer is planned by what was asked.
                {**scope, "method": context.method or scope["method"]},
                with_headers(send, self._told),
                rope,
                fields=read_fields(scope),
                terms=Terms(location=location, private=services.gate.closed, max_ranges=services.settings.max_ranges),
                disconnect=disconnect,
                windows=services.windows,
                client=context.key,
            )
