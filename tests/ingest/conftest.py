"""The fixtures of the tests of ingests."""

from tests.support.stores import storage, stores

__all__ = ["storage", "stores"]
