"""Answer with a file of a commit: the one way of all representations, with the hub's headers."""

from __future__ import annotations

from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from protoslice.facts import File
from protoslice.server.access.places import url_of
from protoslice.server.http.answers.plan import Terms
from protoslice.server.http.answers.stream import send_representation
from protoslice.server.http.disconnect import CancelOnDisconnect
from protoslice.server.http.headers import read_fields
from protoslice.server.middleware.context import context_of
from protoslice.server.services import SERVICES, Services

__all__ = ["FileAnswer"]


class FileAnswer(Response):
    """File of a store, asked for by a revision."""

    def __init__(self, store: str, file: File, commit: str) -> None:
        super().__init__()
        self._store = store
        self._file = file
        self._commit = commit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a GET or HEAD."""
        services: Services = scope[SERVICES]
        context = context_of(scope)
        context.store = self._store
        lasting = url_of(scope, f"/v1/stores/{self._store}/files/{quote(self._file.path)}")
        async with CancelOnDisconnect(receive) as disconnect:
            rope = (await services.stores.view(self._store)).file(self._file.path)
            await send_representation(
                # The framework takes HEAD for GET, and the answer is planned by what was asked.
                {**scope, "method": context.method or scope["method"]},
                self._telling(send),
                rope,
                fields=read_fields(scope),
                terms=Terms(location=lasting, max_ranges=services.settings.max_ranges),
                disconnect=disconnect,
                windows=services.windows,
                client=context.key,
            )

    def _telling(self, send: Send) -> Send:
        """`send`, with the headers by which clients know commit, digest and size."""
        told = [(b"x-repo-commit", self._commit.encode()), (b"x-linked-size", b"%d" % self._file.size)]
        if self._file.sha256 is not None:
            told.append((b"x-linked-etag", b'"%b"' % self._file.sha256.encode()))

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *told]
            await send(message)

        return tell
