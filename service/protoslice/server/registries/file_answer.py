"""Answer with a file of a store: the one way of all representations, with the headers of a protocol."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from protoslice.server.context import context_of
from protoslice.server.http.answers.plan import Terms
from protoslice.server.http.answers.stream import send_representation
from protoslice.server.http.headers import Headers, read_fields, with_headers
from protoslice.server.services import SERVICES, Services
from protoslice.serving import Representation


class FileAnswer(Response):
    """File of a store under a URL of another protocol.

    `location` is the URL that never gives other bytes; None when that was asked for.
    """

    def __init__(self, rope: Representation, told: Headers, *, location: str | None) -> None:
        super().__init__()
        self._rope = rope
        self._told = told
        self._location = location

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET or HEAD."""
        services: Services = scope[SERVICES]
        context = context_of(scope)
        await send_representation(
            # The framework takes HEAD for GET, and the answer is planned by what was asked.
            {**scope, "method": context.method or scope["method"]},
            with_headers(send, self._told),
            self._rope,
            fields=read_fields(scope),
            terms=Terms(
                location=self._location, private=services.authenticator.closed, max_ranges=services.settings.max_ranges
            ),
            disconnect=context.disconnect,
            window=lambda length: services.windows.open(length, context.key),
        )
