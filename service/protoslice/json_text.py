"""JSON at the boundaries: strict reading of foreign bytes, and writing that accepts every text.

Python reads `"\\ud800"` as a string with a lone surrogate, which is no Unicode text: it can be neither encoded, nor
printed, nor stored as a name. Such strings are refused where they arrive.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of one half of a surrogate pair; whether the other half follows is looked at only then."""


def parse_json(data: bytes | str) -> Any:
    """Parse JSON in UTF-8; raise `ValueError` for anything else.

    Nesting that is too deep and lone surrogates are refused too.
    """
    text = data if isinstance(data, str) else data.decode("utf-8")
    try:
        found = json.loads(text, parse_constant=_refuse)
        if "\\u" in text and _SURROGATE.search(text):
            json.dumps(found, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("a string is not valid Unicode: it has half of a surrogate pair") from None
    except RecursionError:
        raise ValueError("the JSON is nested too deeply") from None
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def encode_json(data: object) -> bytes:
    """Encode `data` as compact JSON in UTF-8; lone surrogates of old records and file names are escaped."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
