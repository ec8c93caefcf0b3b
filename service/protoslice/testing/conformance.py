"""The one conformance suite of storage backends."""

from __future__ import annotations

from protoslice.testing.abilities import AbilitiesConformance
from protoslice.testing.listing import ListingConformance
from protoslice.testing.reading import ReadingConformance
from protoslice.testing.writing import PuttingConformance, WriterConformance


class StorageConformance(
    ReadingConformance, ListingConformance, PuttingConformance, WriterConformance, AbilitiesConformance
):
    """Everything a backend promises. Subclass it, say how to `open` one, and pytest collects the rest."""
