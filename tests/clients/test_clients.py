"""The names of clients and their calls, which are imported when they run."""

from __future__ import annotations

from tests.clients.__main__ import CLIENTS
from tests.clients.running import HERE


def test_every_client_has_its_call() -> None:
    for name, client in CLIENTS.items():
        assert f"\ndef {client.function}(" in (HERE / f"{client.module}.py").read_text(), name
