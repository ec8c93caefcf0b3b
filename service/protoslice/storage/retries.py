"""Budget of retries: a storage where much fails is tried again less."""

from __future__ import annotations

from typing import Final

TOKENS: Final = 10.0
PER_SUCCESS: Final = 0.1


class RetryBudget:
    """Tokens, of which a failed call takes one and a successful call gives a tenth back.

    Calls are retried while more than half of the tokens are left: some failures in a row, or one call of ten for long.
    """

    def __init__(self, tokens: float = TOKENS, per_success: float = PER_SUCCESS) -> None:
        self._most = self._tokens = tokens
        self._per_success = per_success
        self.withheld = 0
        """Calls so far that began without retries."""

    def allows(self) -> bool:
        """True when the call that begins may be retried; counts those that may not."""
        allowed = self._tokens > self._most / 2
        self.withheld += not allowed
        return allowed

    def succeeded(self) -> None:
        """Note a call that was answered."""
        self._tokens = min(self._most, self._tokens + self._per_success)

    def failed(self) -> None:
        """Note a call that failed with all of its retries."""
        self._tokens = max(0.0, self._tokens - 1)
