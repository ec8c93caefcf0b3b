"""A repository of the hub, made over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import httpx
import pytest
from tests.support.hub import commit

Made = Callable[..., str]

_numbers = count()


@pytest.fixture
def made(client: httpx.Client) -> Made:
    """Return a function that makes a repository of files, of a kind, and returns its name."""

    def make(files: dict[str, bytes] | None = None, kind: str = "model") -> str:
        name = f"m{next(_numbers)}"
        body: dict[str, Any] = {"organization": "Ann", "name": name, "type": kind}
        assert client.post("/api/repos/create", json=body).status_code == 200
        if files:
            assert commit(client, f"{kind}s/Ann/{name}", files).status_code == 200
        return f"Ann/{name}"

    return make
