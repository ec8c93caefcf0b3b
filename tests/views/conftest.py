"""The fixtures of the tests of views."""

from tests.support.stores import storage, stores

__all__ = ["storage", "stores"]
