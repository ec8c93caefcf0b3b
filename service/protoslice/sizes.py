"""Functions for sizes in readable form, such as `65536`, `64KiB`, `1MiB` or `2GB`."""

from __future__ import annotations

import re

from protoslice.errors import InvalidInput

_UNITS: dict[str, int] = {"": 1, "b": 1} | {
    prefix + suffix: base**power
    for power, prefix in enumerate("kmgtpe", 1)
    for suffix, base in (("b", 1000), ("ib", 1024))
}
_FORM = re.compile(r"(\d{1,19})(?:\.(\d{1,6}))?\s?([a-z]{0,3})", re.ASCII)
_SIZES_END = 1 << 63


def parse_size(text: str) -> int:
    """Return the number of bytes for a text such as `64KiB`.

    Raise `InvalidInput` for other text, and for sizes of 2^63 or more.
    """
    match = _FORM.fullmatch(text.strip().lower())
    if match is None or match[3] not in _UNITS:
        raise InvalidInput(f"Invalid size {text!r}: use bytes, or a number with a unit such as 64KiB, 1MiB or 2GB")
    unit = _UNITS[match[3]]
    fraction = match[2] or ""
    size = int(match[1]) * unit + int(fraction or 0) * unit // 10 ** len(fraction)
    if size >= _SIZES_END:
        raise InvalidInput(f"{text!r} is larger than 2^63 bytes")
    return int(size)


def format_size(size: int) -> str:
    """Return the readable form of `size`, such as `1.25 MiB`. From 1 KiB on, the number has at least three digits."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    units = iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = next(units)
    value /= 1024
    while value >= 1023.95:
        unit = next(units)
        value /= 1024
    return f"{value:.2f} {unit}" if value < 9.995 else f"{value:.1f} {unit}"
