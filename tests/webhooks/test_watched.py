"""The storage that tells of its changes forwards every call."""

from __future__ import annotations

from protoslice.catalog.letters import Proof
from protoslice.storage import Storage
from protoslice.testing import assert_forwards
from protoslice.webhooks.changes import SpaceChange
from protoslice.webhooks.watched import Announcement, WatchedStorage


class Deaf:
    """An outbox of nobody."""

    def listens(self, space: str) -> bool:
        """See `Outbox.listens`."""
        return False

    async def announce(self, space: str, change: SpaceChange, proof: Proof) -> Announcement:
        """See `Outbox.announce`."""
        raise AssertionError("nobody listens")


def test_every_method_is_passed_on() -> None:
    def wrap(inner: Storage) -> Storage:
        return WatchedStorage(inner, Deaf())

    assert_forwards(wrap)
