"""Model of quotas: limits on what a space holds and on what is under way in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from protoslice.errors import InvalidInput

_MOST: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of a space; 0 means unlimited, None the limit of the service."""

    stored_bytes: int | None = None
    """Bytes of the objects of uploads, each once: those of removed stores too, until they are collected."""
    stores: int | None = None
    open_uploads: int | None = None
    """Resumable uploads that are kept until they are whole."""
    requests: int | None = None
    """Requests under way, at each replica."""

    @property
    def limits(self) -> tuple[int | None, int | None, int | None, int | None]:
        """The limits in the order of the columns of the catalogue."""
        return self.stored_bytes, self.stores, self.open_uploads, self.requests

    def check(self) -> None:
        """Raise `InvalidInput` for a limit below 0 or of more than 63 bits."""
        for name, value in asdict(self).items():
            if value is not None and (type(value) is not int or not 0 <= value <= _MOST):
                raise InvalidInput(f"Invalid quota {name}: use a number from 0 (no limit) to {_MOST}")

    def over(self, defaults: Quota) -> Quota:
        """Limits of this quota, and those of `defaults` where it has none."""
        return Quota(
            stored_bytes=defaults.stored_bytes if self.stored_bytes is None else self.stored_bytes,
            stores=defaults.stores if self.stores is None else self.stores,
            open_uploads=defaults.open_uploads if self.open_uploads is None else self.open_uploads,
            requests=defaults.requests if self.requests is None else self.requests,
        )

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> Quota:
        """The quota of a record; members that this version does not know are passed over.

        `InvalidInput` for a limit that is none.
        """
        quota = cls(**{each.name: said.get(each.name) for each in fields(cls)})
        quota.check()
        return quota


NO_QUOTA: Final = Quota(stored_bytes=0, stores=0, open_uploads=0, requests=0)
"""Quota without a limit."""
