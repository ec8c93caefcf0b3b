"""The conformance tests for storage backends."""

from protoslice.testing.check import Outcome, Report, StorageConformance, check
from protoslice.testing.reading import ReadingConformance
from protoslice.testing.suite import Raw, RawFiles, RawThroughStorage

__all__ = [
    "Outcome",
    "Raw",
    "RawFiles",
    "RawThroughStorage",
    "ReadingConformance",
    "Report",
    "StorageConformance",
    "check",
]
