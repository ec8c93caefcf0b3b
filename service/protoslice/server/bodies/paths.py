"""The paths that files of an upload go by."""

from __future__ import annotations

import re
from typing import Final

from protoslice.errors import InvalidInput
from protoslice.file_names import check_file_path

_HERE: Final = re.compile(r"(?:\./+)+")


def file_path(name: str, offset: int | None = None) -> str:
    """Plain path in `name`, which was found at `offset` of the body, without leading `./`; `InvalidInput`.

    The letters stay as they are: models refer to files beside them by the very bytes of their names, so
    Unicode is not normalized.
    """
    try:
        return check_file_path(_HERE.sub("", name, count=1) if name.startswith("./") else name)
    except InvalidInput as error:
        error.offset = offset
        raise


def path_text(raw: bytes, offset: int | None = None) -> str:
    """The characters of a path that came as bytes."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidInput(f"The name {raw[:100]!r} is not UTF-8", offset) from None


def last_segment(name: str) -> str:
    """Last segment of `name`, without folders."""
    # Content-Disposition names a file, not a place (RFC 6266, section 4.3).
    return re.split(r"[/\\]", name)[-1]
