"""A measured service that requires tokens; each call that changes content has a space with content of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx
from tests.budgets.harness import Cost, Measured, Wire, measured_service
from tests.budgets.rows import request
from tests.support.calls import CALLS, WRITING, Call
from tests.support.receiver import running_receiver
from tests.support.serve import Asked
from tests.support.things import JSON, Filling, dumped

from protoslice.server.auth.permissions import Scope

_LONGEST: Final = 60_000


class _Space(Filling):
    """A space of a measured service, which its owner has filled."""

    def __init__(self, service: httpx.Client, name: str, admin: Mapping[str, str], hook: str) -> None:
        self.place = f"/spaces/{name}"
        service.put(f"/v1/spaces/{name}", headers=admin).raise_for_status()
        asked = dumped({"name": "owner", "scopes": [str(scope) for scope in Scope]})
        made = service.post(f"{self.place}/v1/tokens", content=asked, headers=JSON | dict(admin))
        made.raise_for_status()
        self._service, self._root, self._salt = service, self.place, ""
        self._caller = {"authorization": f"Bearer {made.json()['token']}"}
        self.things = asyncio.run(self.fill("mine", hook))

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Asked:
        """See `Filling.ask`."""
        given = {**(headers or {}), **self._caller}
        answer = self._service.request(method, self.place + path, content=body, headers=given)
        answer.raise_for_status()
        return Asked(answer.status_code, dict(answer.headers), answer.content)

    def requested(self, call: Call) -> bytes:
        """Return the request of a call, with the names of this space's content."""
        method, target, body, headers = call.filled(self.things, self.place)
        return request(method, self.place + target, body, **headers, **self._caller)


class Filled:
    """The costs of the calls in the table."""

    def __init__(self, service: Measured, admin: Mapping[str, str], hook: str) -> None:
        """Make every call once, so that no call's cost contains imports and first-time setup."""
        self._service, self._admin, self._hook, self._spaces = service, admin, hook, 0
        first, self._read = self._space(), self._space()
        for call in CALLS:
            Wire(service.server).exchange(first.requested(call))

    def _space(self) -> _Space:
        self._spaces += 1
        return _Space(self._service.http, f"s{self._spaces}", self._admin, self._hook)

    def cost(self, call: Call) -> tuple[int, Wire, Cost]:
        """Return the status of the answer to a call, the bytes on its connection, and its cost.

        A call that changes something gets a separate space.
        """
        asked = (self._space() if call in WRITING else self._read).requested(call)
        return self._service.cost(lambda wire: wire.exchange(asked)[0])

    def cost_of_long_names(self, call: Call) -> tuple[int, Wire, Cost]:
        """Return the same for a call that names nothing, with names as long as a request may have."""
        names = "a" * (_LONGEST // call.target.count("{"))
        asked = self._read.requested(replace(call, target=call.by_name(names)))
        return self._service.cost(lambda wire: wire.exchange(asked)[0])


@contextmanager
def filled_service(folder: Path) -> Iterator[Filled]:
    """Start a measured service for the calls of the table."""
    with running_receiver() as receiver:
        settings = {
            "PROTOSLICE_AUTH": "tokens",
            "PROTOSLICE_ADMIN_TOKEN_FILE": str(folder / "token"),
            "PROTOSLICE_WEBHOOK_ALLOW": receiver.url.removesuffix("hooks"),
            "PROTOSLICE_WEBHOOK_NETWORKS": "127.0.0.0/8",
            "PROTOSLICE_MAX_OPEN_UPLOADS": "10000",
            "PROTOSLICE_MAX_OPEN_UPLOADS_PER_CLIENT": "0",
        }
        with measured_service(folder / "storage", warm=False, settings=settings) as service:
            admin = {"authorization": f"Bearer {(folder / 'token').read_text().strip()}"}
            yield Filled(service, admin, receiver.url)
