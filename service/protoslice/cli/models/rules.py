"""Files of rules for splits: one rule a line, comments after `#`, blank lines."""

from __future__ import annotations

from typing import Final

from protoslice import _core
from protoslice.cli.models.files import errors_about
from protoslice.errors import CorruptModel, LimitExceeded

_MOST: Final = 64 << 10
"""Bytes of a file of rules, comments included."""


def rules_in(name: str | None) -> tuple[str, ...]:
    """The rules in the file `name`, in canonical form; none for None. Errors name the file and the rule."""
    if name is None:
        return ()
    with errors_about(name), open(name, "rb") as file:
        data = file.read(_MOST + 1)
        if len(data) > _MOST:
            raise LimitExceeded(f"The rules file is too large: at most {_MOST} bytes")
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError as error:
            raise CorruptModel("The rules file is not UTF-8", error.start) from error
        stripped = (line.strip() for line in lines)
        return tuple(_core.Plan.rules([line for line in stripped if line and not line.startswith("#")]))
