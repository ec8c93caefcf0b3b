"""The fixtures of the tests of resumable uploads."""

from tests.support.stores import storage, stores

__all__ = ["storage", "stores"]
