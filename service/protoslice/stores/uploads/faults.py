"""Errors specific to resumable uploads."""

from __future__ import annotations

from protoslice.errors import Conflict, InvalidInput, Unsupported


class WrongOffset(Conflict):
    """Request whose offset is not the upload's."""

    def __init__(self, expected: int, provided: int) -> None:
        super().__init__(f"The upload continues at byte {expected}, not {provided}")
        self.expected = expected
        self.provided = provided


class Superseded(Conflict):
    """Request ended because a newer one continues the same upload."""

    def __init__(self) -> None:
        super().__init__("Another request has taken over this upload")


class AlreadyComplete(InvalidInput):
    """Bytes sent to a complete upload."""

    def __init__(self) -> None:
        super().__init__("This upload is complete: it accepts no more bytes")


class JoinedUpload(Unsupported):
    """Bytes sent to an upload that was joined from others."""

    def __init__(self) -> None:
        super().__init__("This upload was concatenated from others: it accepts no bytes")


class InconsistentLength(InvalidInput):
    """Contradicting statements on the upload's total length."""
