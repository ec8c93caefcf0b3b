"""A service that accepts stores in every way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.server.bodies.ways import Site


@pytest.fixture(scope="module")
def site(serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Return a service that registers files of a folder."""
    folder = tmp_path_factory.mktemp("registered")
    allowed = (folder.as_uri(),)
    with serving(register_allow=allowed) as live, httpx.Client(base_url=live.url, timeout=30) as client:
        yield Site(client, folder)
