"""Secrets in files, as Docker and Kubernetes mount them."""

from __future__ import annotations

from pathlib import Path

from protoslice.errors import InvalidInput


def secret_in(file: Path, place: str) -> str:
    """The secret that a file holds; `InvalidInput` begins with `told`, and has nothing of the content."""
    try:
        # Editors and `echo` put a line end behind it, which is no part of any secret.
        text = file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise InvalidInput(f"{place}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{place} is not UTF-8 text") from None
    if not text.strip():
        raise InvalidInput(f"{place} is empty")
    return text
