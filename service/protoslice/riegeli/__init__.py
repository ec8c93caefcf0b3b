"""Riegeli/records files: reading and writing records, in the manner of Google's own binding."""

from protoslice.riegeli._metadata import RecordsMetadata
from protoslice.riegeli._positions import RecordPosition, SkippedRegion
from protoslice.riegeli._reader import RecordReader
from protoslice.riegeli._writer import RecordWriter

__all__ = ["RecordPosition", "RecordReader", "RecordWriter", "RecordsMetadata", "SkippedRegion"]
