"""Tokens of services, kept by origin in a file that its owner alone may read."""

from __future__ import annotations

import fcntl
import json
import os
import stat
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeGuard

from protoslice.errors import InvalidInput
from protoslice.local_files import private_folder, replace_durably

_MODE: Final = 0o600
LONGEST: Final = 16 << 10
"""Characters of a JWT, as the service takes it, and of a refresh token."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class CredentialsWarning(UserWarning):
    """A kept token that could not be renewed."""


def is_plain(value: object, longest: int = LONGEST) -> TypeGuard[str]:
    """True for printable ASCII of at most `longest` characters, as tokens and codes of an issuer are."""
    return isinstance(value, str) and 0 < len(value) <= longest and value.isascii() and value.isprintable()


@dataclass(frozen=True, slots=True)
class Renewal:
    """Way to another id token: the issuer, its client, and a refresh token."""

    issuer: str
    client_id: str
    token: str

    def __repr__(self) -> str:
        """The issuer alone, as secrets do not belong in logs."""
        return f"Renewal({self.issuer!r})"

    def followed_by(self, token: object) -> Renewal:
        """The next way, by the refresh token that came in place of this one; this one for anything else."""
        return replace(self, token=token) if is_plain(token) else self


@dataclass(frozen=True, slots=True)
class Kept:
    """A token of a service; with a `renewal` where an issuer gave it."""

    token: str
    renewal: Renewal | None = None

    def __repr__(self) -> str:
        """No secret."""
        return f"Kept({self.renewal!r})"


def credentials_file() -> Path:
    """Place of the file: below XDG_CONFIG_HOME, or below `~/.config`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home, "protoslice", "credentials.json")


def kept_for(origin: str) -> Kept | None:
    """The token that is kept for `origin`; None without one.

    `InvalidInput` for a file that others may read, or that holds something else.
    """
    return _read(credentials_file()).get(origin)


def keep(origin: str, kept: Kept) -> None:
    """Keep a token for `origin`, in place of the one before."""
    with changing() as all_kept:
        all_kept[origin] = kept


def forget_token(origin: str) -> bool:
    """Forget the token for `origin`; False when there was none."""
    with changing() as kept:
        return kept.pop(origin, None) is not None


def end_of(token: str) -> datetime | None:
    """Return the end of a JWT, unverified; None for other tokens, whose end the service knows."""
    try:
        return datetime.fromtimestamp(_claims(token)["exp"], UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def others_that_accept(issuer: str, client_id: str, origin: str) -> list[str]:
    """Return the other origins for which a token of this issuer and client is kept: they accept each other's tokens."""
    found = []
    for other, kept in _read(credentials_file()).items():
        claims = _claims(kept.token)
        audience = claims.get("aud")
        same = claims.get("iss") == issuer and client_id in (audience if isinstance(audience, list) else [audience])
        renewed = kept.renewal is not None and (kept.renewal.issuer, kept.renewal.client_id) == (issuer, client_id)
        if other != origin and (same or renewed):
            found.append(other)
    return found


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT, unverified; none for other tokens."""
    body = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _read(path: Path) -> dict[str, Kept]:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidInput(
                    f"Other users can read the tokens in {path}: run chmod 600 on it and revoke the tokens"
                )
            kept = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"Cannot read the token file {path}: {error}") from error
    try:
        return {origin: _kept(said) for origin, said in kept.items()}
    except (AttributeError, TypeError, KeyError):
        raise InvalidInput(f"{path} is not a token file: move it away and log in again") from None


def _kept(said: Any) -> Kept:
    """A token as the file has it: a text, or an object where it can be renewed."""
    if isinstance(said, str):
        return Kept(said)
    found = Kept(said["id_token"], Renewal(said["issuer"], said["client_id"], said["refresh_token"]))
    if not all(isinstance(text, str) for text in said.values()):
        raise TypeError
    return found


def _told(kept: Kept) -> object:
    if kept.renewal is None:
        return kept.token
    told = asdict(kept.renewal)
    return {"id_token": kept.token, "refresh_token": told.pop("token"), **told}


@contextmanager
def changing() -> Iterator[dict[str, Kept]]:
    """The kept tokens, written back at the end; one process changes them at a time."""
    path = credentials_file()
    private_folder(path.parent)
    held = os.open(path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE)
    with os.fdopen(held, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = _read(path)
        before = dict(kept)
        yield kept
        if kept != before:
            _write(path, kept)


def _write(path: Path, kept: Mapping[str, Kept]) -> None:
    """Put a whole file in the place of the one before: a reader, or a crash, meets either."""
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="utf-8") as file:
        json.dump({origin: _told(each) for origin, each in kept.items()}, file, indent=2, sort_keys=True)
    replace_durably(staged, path)
