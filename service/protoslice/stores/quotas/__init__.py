"""Quotas of spaces: limits, and what is left of them."""

from protoslice.stores.quotas.model import NO_QUOTA, Quota
from protoslice.stores.quotas.room import SpaceRoom

__all__ = ["NO_QUOTA", "Quota", "SpaceRoom"]
