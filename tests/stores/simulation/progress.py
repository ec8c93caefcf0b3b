"""One resumable upload as its client knows it, held against what the service says of it."""

from __future__ import annotations

from tests.stores.simulation.clients import Client
from tests.stores.simulation.ledger import Entry, Violation

from protoslice.stores.uploads import Upload


class Sending:
    """One upload as its client knows it."""

    def __init__(self, client: Client, upload: Upload, data: bytes, entry: Entry | None, began: float) -> None:
        self.id = upload.id
        self.data = data
        self.entry = entry
        """Entry of the store to be made; None for an upload that is joined with others."""
        self.offset = 0
        """Acknowledged bytes."""
        self.sent = 0
        """Bytes that may have arrived."""
        self.done = False
        self.ended = False
        self.left = False
        """True if the client has given up the upload."""
        self.moved = began
        """When it was last known to have got on."""
        self._client = client

    def take(self, upload: Upload) -> None:
        """Hold what is told of the upload against what was told before."""
        self.at(upload.offset)
        if upload.state == "failed" and not self._client.ledger.damaged:
            raise Violation("sound bytes make a store", f"{upload.failure}")
        if upload.state == "stored" and self.entry is not None:
            if upload.store != self.entry.store:
                raise Violation("a store is what was sent", f"the upload became {upload.store}")
            if not self.entry.sure:
                self._client.ledger.end(self.entry, sure=True)
        self.done = upload.state in {"stored", "complete"}

    def at(self, offset: int) -> None:
        """The upload goes on from there."""
        if not self.offset <= offset <= self.sent:
            raise Violation(
                "an upload never goes back", f"it is at {offset} with {self.offset} acknowledged and {self.sent} sent"
            )
        self.offset = offset
