"""Streams of protos, whose records are found by number, in every framing. See `docs/how-to/models/records.md`."""

from protoslice.streams.records import Records, open_records

__all__ = ["Records", "open_records"]
