"""Conformance tests of contracts, for this project's parts and for extensions by others."""

from protoslice.testing.check import Outcome, Report, check
from protoslice.testing.conformance import StorageConformance
from protoslice.testing.faults import FaultyStorage, InjectedFault
from protoslice.testing.forwarding import assert_forwards
from protoslice.testing.raw_files import RawFiles
from protoslice.testing.reading import ReadingConformance
from protoslice.testing.recording import RecordingStorage
from protoslice.testing.suite import Raw, RawThroughStorage

__all__ = [
    "FaultyStorage",
    "InjectedFault",
    "Outcome",
    "Raw",
    "RawFiles",
    "RawThroughStorage",
    "ReadingConformance",
    "RecordingStorage",
    "Report",
    "StorageConformance",
    "assert_forwards",
    "check",
]
