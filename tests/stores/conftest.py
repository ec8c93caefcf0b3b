"""The fixtures of the tests of the stores."""

from tests.support.stores import storage, stores

__all__ = ["storage", "stores"]
