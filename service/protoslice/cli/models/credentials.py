"""Tokens of services, kept by origin in a file that its owner alone may read."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from protoslice.errors import InvalidInput

_MODE: Final = 0o600
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def credentials_file() -> Path:
    """Place of the file: below XDG_CONFIG_HOME, or below `~/.config`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home, "protoslice", "credentials.json")


def kept_token(origin: str) -> str | None:
    """The token that is kept for `origin`; None without one.

    `InvalidInput` for a file that others may read, or that holds something else.
    """
    return _read(credentials_file()).get(origin)


def keep_token(origin: str, token: str) -> None:
    """Keep `token` for `origin`, in place of the one before."""
    with _changing() as kept:
        kept[origin] = token


def forget_token(origin: str) -> bool:
    """Forget the token for `origin`; False when there was none."""
    with _changing() as kept:
        return kept.pop(origin, None) is not None


def end_of(token: str) -> datetime | None:
    """End of a JWT, read unproven for the eye alone; None for other tokens, whose end the service knows."""
    body = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        return datetime.fromtimestamp(claims["exp"], UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None


def _read(path: Path) -> dict[str, str]:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidInput(f"others may read the tokens in {path}: run chmod 600 on it, and have them revoked")
            kept = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} cannot be read as a file of tokens: {error}") from error
    if not isinstance(kept, dict) or not all(isinstance(token, str) for token in kept.values()):
        raise InvalidInput(f"{path} is no file of tokens; move it away, and log in again")
    return kept


@contextmanager
def _changing() -> Iterator[dict[str, str]]:
    """The kept tokens, written back at the end; one process changes them at a time."""
    path = credentials_file()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with path.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = _read(path)
        before = dict(kept)
        yield kept
        if kept != before:
            _write(path, kept)


def _write(path: Path, kept: Mapping[str, str]) -> None:
    """Put a whole file in the place of the one before: a reader, or a crash, meets either."""
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="utf-8") as file:
        json.dump(kept, file, indent=2, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
