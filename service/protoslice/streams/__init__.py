"""Streams of protos in every framing. Their records are found by number. See `docs/how-to/models/records.md`."""

from protoslice.streams.records import Records, open_records

__all__ = ["Records", "open_records"]
