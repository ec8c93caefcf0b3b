"""Streams of protos: records by number, in every framing. See `docs/records.md`."""

from protoslice.streams.opening import open_records
from protoslice.streams.records import Records

__all__ = ["Records", "open_records"]
