"""What proves that a part keeps its contract: for this project's tests and for the tests of those who extend it."""

from protoslice.testing.conformance import StorageConformance
from protoslice.testing.raw_files import RawFiles
from protoslice.testing.suite import Raw, RawThroughStorage

__all__ = ["Raw", "RawFiles", "RawThroughStorage", "StorageConformance"]
