"""A strict JSON parser for bytes from outside, and a JSON encoder that accepts every string.

Python parses `"\\ud800"` as a string with a lone surrogate, which is not valid Unicode text. Such a string can neither
be encoded nor printed nor stored as a name. Therefore, the parser refuses it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of one half of a surrogate pair. Only a text with such an escape has to be checked for lone surrogates."""


def parse_json(data: bytes | str) -> Any:
    """Parse JSON in UTF-8; raise `ValueError` for any other input.

    JSON that is nested too deeply, or that contains a lone surrogate, also raises `ValueError`.
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
    """Encode `data` as compact JSON in UTF-8. Lone surrogates, which old rows and file names may have, are escaped."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")
