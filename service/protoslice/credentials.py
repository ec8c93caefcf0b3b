"""The saved tokens of services, by origin, in a file that only its owner can read."""

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
"""Maximum number of characters of a JWT that a service accepts, and of a refresh token."""
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class CredentialsWarning(UserWarning):
    """The warning about a saved token that could not be renewed."""


def is_plain(value: object, longest: int = LONGEST) -> TypeGuard[str]:
    """Return True if `value` is a text of 1 to `longest` printable ASCII characters.

    The tokens and codes of an issuer must have this form.
    """
    return isinstance(value, str) and 0 < len(value) <= longest and value.isascii() and value.isprintable()


@dataclass(frozen=True, slots=True)
class RefreshGrant:
    """The data with which a new id token can be requested: the issuer, the client id, and a refresh token."""

    issuer: str
    client_id: str
    token: str

    def __repr__(self) -> str:
        """Return a text with the issuer, but without the refresh token."""
        return f"RefreshGrant({self.issuer!r})"

    def with_token(self, token: object) -> RefreshGrant:
        """Return the grant with another refresh token. If `token` is not a valid token, return the same grant."""
        return replace(self, token=token) if is_plain(token) else self


@dataclass(frozen=True, slots=True)
class SavedToken:
    """A saved token of a service. A token that can be renewed has a `grant`."""

    token: str
    grant: RefreshGrant | None = None

    def __repr__(self) -> str:
        """Return a text with the grant, but without secrets."""
        return f"SavedToken({self.grant!r})"


def credentials_file() -> Path:
    """Return the path of the token file, which is below `$XDG_CONFIG_HOME`, or by default below `~/.config`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    return Path(home, "protoslice", "credentials.json")


def saved_token(origin: str) -> SavedToken | None:
    """Return the saved token of `origin`, or None if no token is saved.

    Raise `InvalidInput` if other users can read the token file, or if the file is invalid.
    """
    return _read(credentials_file()).get(origin)


def save_token(origin: str, saved: SavedToken) -> None:
    """Save a token for `origin`, and replace a token that was saved earlier."""
    with edit_tokens() as tokens:
        tokens[origin] = saved


def forget_token(origin: str) -> bool:
    """Delete the saved token of `origin`. Return False if no token was saved."""
    with edit_tokens() as saved:
        return saved.pop(origin, None) is not None


def end_of(token: str) -> datetime | None:
    """Return the time at which a JWT says that it expires; the signature is not verified.

    Return None for other tokens, because only the service knows when they expire.
    """
    try:
        return datetime.fromtimestamp(_claims(token)["exp"], UTC)
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None


def others_that_accept(issuer: str, client_id: str, origin: str) -> list[str]:
    """Return the other origins with a saved token of this issuer and client id.

    The services at `origin` and at these origins accept each other's tokens.
    """
    found = []
    for other, saved in _read(credentials_file()).items():
        claims = _claims(saved.token)
        audience = claims.get("aud")
        same = claims.get("iss") == issuer and client_id in (audience if isinstance(audience, list) else [audience])
        renewed = saved.grant is not None and (saved.grant.issuer, saved.grant.client_id) == (issuer, client_id)
        if other != origin and (same or renewed):
            found.append(other)
    return found


def _claims(token: str) -> Mapping[str, Any]:
    """Return the claims of a JWT without verifying its signature; return no claims for other tokens."""
    body = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _read(path: Path) -> dict[str, SavedToken]:
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise InvalidInput(
                    f"Other users can read the tokens in {path}: run chmod 600 on it and revoke the tokens"
                )
            saved = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"Cannot read the token file {path}: {error}") from error
    try:
        return {origin: _from_json(said) for origin, said in saved.items()}
    except (AttributeError, TypeError, KeyError):
        raise InvalidInput(f"{path} is not a token file: move it away and log in again") from None


def _from_json(said: Any) -> SavedToken:
    """Return a saved token from its JSON: an object for a token that can be renewed, or else a text."""
    if isinstance(said, str):
        return SavedToken(said)
    found = SavedToken(said["id_token"], RefreshGrant(said["issuer"], said["client_id"], said["refresh_token"]))
    if not all(isinstance(text, str) for text in said.values()):
        raise TypeError
    return found


def _as_json(saved: SavedToken) -> object:
    if saved.grant is None:
        return saved.token
    found = asdict(saved.grant)
    return {"id_token": saved.token, "refresh_token": found.pop("token"), **found}


@contextmanager
def edit_tokens() -> Iterator[dict[str, SavedToken]]:
    """Yield the saved tokens, and write them to the file at the end. A lock admits one process at a time."""
    path = credentials_file()
    private_folder(path.parent)
    held = os.open(path.with_suffix(".lock"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, _MODE)
    with os.fdopen(held, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        saved = _read(path)
        before = dict(saved)
        yield saved
        if saved != before:
            _write(path, saved)


def _write(path: Path, saved: Mapping[str, SavedToken]) -> None:
    """Replace the file in one step, so that after a crash, a reader finds either the old or the new file."""
    staged = path.with_suffix(".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE), "w", encoding="utf-8") as file:
        json.dump({origin: _as_json(each) for origin, each in saved.items()}, file, indent=2, sort_keys=True)
    replace_durably(staged, path)
