"""Quotas of spaces: limits, the ledger that replicas share, and a storage that counts what is written."""

from protoslice.stores.quotas.counted import CountedStorage
from protoslice.stores.quotas.ledger import Ledgers, SpaceLedger
from protoslice.stores.quotas.model import NO_QUOTA, Quota
from protoslice.stores.quotas.room import SHARED_SECONDS, SpaceRoom

__all__ = ["NO_QUOTA", "SHARED_SECONDS", "CountedStorage", "Ledgers", "Quota", "SpaceLedger", "SpaceRoom"]
