"""What can be wrong with a request for an upload, apart from what can be wrong with any."""

from __future__ import annotations

from protoslice.errors import Conflict, InvalidInput, Unsupported

__all__ = ["AlreadyComplete", "InconsistentLength", "JoinedUpload", "Superseded", "WrongOffset"]


class WrongOffset(Conflict):
    """The upload goes on from another offset."""

    def __init__(self, expected: int, provided: int) -> None:
        super().__init__(f"the upload goes on from byte {expected}, not {provided}")
        self.expected = expected
        self.provided = provided


class Superseded(Conflict):
    """Another request for the same upload has come, so that this one ends."""

    def __init__(self) -> None:
        super().__init__("another request goes on with this upload")


class AlreadyComplete(InvalidInput):
    """The upload takes no more bytes."""

    def __init__(self) -> None:
        super().__init__("this upload is complete: it takes no more bytes")


class JoinedUpload(Unsupported):
    """The upload was joined from others, and takes no bytes by itself."""

    def __init__(self) -> None:
        super().__init__("this upload was joined from others: it takes no bytes")


class InconsistentLength(InvalidInput):
    """What is said of the length of the whole does not fit together."""
