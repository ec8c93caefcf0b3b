"""Detection of the message type of one record of a stream."""

from __future__ import annotations

from typing import Final

from protoslice.schema.detection.detect import BY_NAME, detect_message
from protoslice.schema.detection.probe import TypeLookup, probe
from protoslice.schema.registry import bundled

EXAMPLE: Final = "tensorflow.Example"
_WEIGHT: Final = 3
"""Evidence for a record of one small feature."""
_FEATURE: Final = (1, 1)


def detect_record(record: bytes) -> str | None:
    """Full name of the type of a whole `record`; None for a record that fits none or several.

    Unlike a file, a record is tried as `tensorflow.Example` too: its fields are few, so that all of them must fit.
    """
    found = detect_message(record)
    if found.type_name is not None and found.confidence > BY_NAME:
        return found.type_name
    evidence = probe(record, TypeLookup.of(bundled().flat(EXAMPLE)))
    fits = evidence.weight >= _WEIGHT and evidence.doubt == 0 and _FEATURE in evidence.seen
    return EXAMPLE if fits else None
