"""`rm` removes exactly the named stores and tags; `restore` takes the removal of a store back."""

from __future__ import annotations

import asyncio
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from protoslice.client import AsyncClient, Client
from protoslice.errors import Conflict, NotFound, StillNamed

PROGRAM = [sys.executable, "-m", "protoslice.cli"]
GRAPH = "tensorflow.GraphDef"
Push = Callable[..., str]


@pytest.fixture
def push(service: str) -> Push:
    """Create a separate store with these tags; return its id."""

    def push(*tags: str) -> str:
        with Client(service) as client:
            node = b"\x0a\x22\x0a\x20" + os.urandom(16).hex().encode()
            return client.push(node, type=GRAPH, tags=tags).store.id

    return push


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_terminal_is_asked(service: str, push: Push, answer: str) -> None:
    store = push("asked:1", "asked:2")
    near, far = pty.openpty()
    environment = os.environ | {"PROTOSLICE_URL": service}
    with subprocess.Popen(
        [*PROGRAM, "rm", store], stdin=far, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        os.close(far)
        os.write(near, f"{answer}\n".encode())
        _, said = running.communicate(timeout=120)
    with suppress(OSError):
        os.close(near)
    assert running.returncode == 0
    assert "asked:1, asked:2: remove it with its tags? [y/N]" in said
    with Client(service) as client:
        assert (store in {each.id for each in client.stores()}) == (answer != "y")
        if answer != "y":
            assert "nothing was removed" in said
            client.remove(store, force=["asked:1", "asked:2"])


def test_the_clients_do_the_same(service: str, push: Push) -> None:
    async def both() -> None:
        async with AsyncClient(service) as client:
            with pytest.raises(Conflict, match="is a name of a store"):
                await client.remove("both:1")
            with pytest.raises(StillNamed, match="both:1"):
                await client.remove(store[:16])
            removed = await client.remove(store[:16], force=["both:1"])
            assert (removed.id, removed.tags) == (store, ("both:1",))
            restored = await client.restore(store[:12])
            assert (restored.store.id, restored.store.tags, restored.tags_taken) == (store, ("both:1",), ())
            assert (await client.restore(store)).store == restored.store
            with pytest.raises(NotFound):
                await client.restore("0" * 64)

    store = push("both:1")
    asyncio.run(both())


def test_restore_of_an_ambiguous_id_asks_for_more(call: Any, storage: Path) -> None:
    with closing(sqlite3.connect(storage / "catalog.sqlite", timeout=60)) as catalogue, catalogue:
        catalogue.executemany(
            "INSERT INTO stores (space, id, digest, size, held, created, weight, manifest, deleted)"
            " VALUES ('default', ?, ?, 0, 0, 0, 0, x'', 1)",
            [(number, "a" * 40 + f"{number}" + "0" * 23) for number in range(2)],
        )
    assert "give more digits" in call("restore", "a" * 12, code=2).stderr
