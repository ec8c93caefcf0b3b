"""Conformance suite of storage backends."""

from __future__ import annotations

from protoslice.testing.abilities import AbilitiesConformance
from protoslice.testing.listing import ListingConformance
from protoslice.testing.putting import PuttingConformance
from protoslice.testing.reading import ReadingConformance
from protoslice.testing.writers import WriterConformance


class StorageConformance(
    ReadingConformance, ListingConformance, PuttingConformance, WriterConformance, AbilitiesConformance
):
    """All promises of a backend. Subclass with an `open` method, and pytest collects the tests."""
