"""The fixtures of the tests about access."""

from collections.abc import AsyncIterator

import pytest
from tests.server.auth.closed import closed_service

from protoslice.server.app import Application


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    """Open a service that requires tokens, and has the spaces `own` and `other`."""
    async with closed_service() as app:
        yield app
