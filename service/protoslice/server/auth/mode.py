"""The mode of access, `open` or `tokens`. The database keeps the mode, so that a service's processes share it."""

from __future__ import annotations

import logging
from typing import Final, Literal, TypeAlias, get_args

from protoslice.database.processes import refuse_running, running
from protoslice.database.transactions import Database, Row, Transaction
from protoslice.errors import InvalidInput, Unsupported
from protoslice.server.settings import Settings, environment_name, is_loopback
from protoslice.server.telemetry.logs import ACCESS

Mode: TypeAlias = Literal["open", "tokens"]

_FOR_OTHERS: Final = ("issuers", "trusted_proxies", "allowed_hosts", "public_url")
"""Settings that imply access from other machines. If one of them is set, the mode `open` is never inferred."""


async def settle_mode(database: Database, settings: Settings) -> Mode:
    """Return the mode of access for a service that starts. Save the mode if the database has none.

    Raise `InvalidInput` if the mode would have to be guessed, and `Unsupported` if the database has another mode.
    """
    kept, has_tokens = await database.read(_kept)
    wanted = settings.auth or ("tokens" if kept == "tokens" or not is_loopback(settings.host) else "open")
    if settings.auth is None and wanted == "open":
        _refuse_guess(settings, has_tokens)
    if kept is None:
        kept = await database.write(lambda tx: _keep(tx, wanted))
    if kept == wanted:
        return wanted
    said = f"PROTOSLICE_AUTH={settings.auth}" if settings.auth else f"A service on {settings.host} requires tokens"
    other = "requires tokens" if kept == "tokens" else "is open to everyone"
    leave = "correct or remove the setting" if settings.auth else "set PROTOSLICE_AUTH=open to keep it open"
    raise Unsupported(
        f"{said}, but the service of this database {other}: {leave}; to change it, stop all processes of the "
        f"service and run `protoslice database access {wanted}`"
    )


def _refuse_guess(settings: Settings, has_tokens: bool) -> None:
    reasons = [f"{environment_name(name)} is set" for name in _FOR_OTHERS if getattr(settings, name)]
    reasons += ["the database has tokens"] if has_tokens else []
    if reasons:
        raise InvalidInput(
            f"PROTOSLICE_AUTH is not set, but {' and '.join(reasons)}: set PROTOSLICE_AUTH=tokens to require tokens, "
            "or PROTOSLICE_AUTH=open to give everyone who reaches the service full access"
        )


async def change_mode(database: Database, mode: str) -> None:
    """Set the mode. Raise `InvalidInput` for an unknown mode, and `Conflict` while processes use the earlier mode."""
    if mode not in get_args(Mode):
        raise InvalidInput(f"Unknown mode of access {mode[:20]!r}: use {' or '.join(get_args(Mode))}")

    def work(tx: Transaction) -> None:
        if database.dialect == "postgresql":  # a process that starts waits for this lock, then reads the new mode
            tx.run("LOCK TABLE processes IN SHARE MODE")
        refuse_running(running(tx, database.process), "change the mode of access")
        tx.run("UPDATE meta SET access = :mode", mode=mode)

    await database.write(work)


async def kept_mode(database: Database) -> Mode | None:
    """Return the mode in a database. Return None before the first start of a service."""
    return (await database.read(_kept))[0]


def access_line(settings: Settings, mode: Mode) -> str:
    """Return the line about access that a service prints and logs when it starts."""
    proxies = " or one of its trusted proxies" if settings.trusted_proxies else ""
    return "access: tokens" if mode == "tokens" else f"access: open to everyone who reaches {settings.host}{proxies}"


def log_access(settings: Settings, mode: Mode) -> None:
    """Log the line about access. The line is a warning if other machines can reach an open service."""
    is_exposed = mode == "open" and not is_loopback(settings.host)
    logging.getLogger(ACCESS).log(logging.WARNING if is_exposed else logging.INFO, access_line(settings, mode))


def _kept(tx: Transaction) -> tuple[Mode | None, bool]:
    row: Row | None = tx.first(
        "SELECT access, CASE WHEN first_token IS NOT NULL OR EXISTS (SELECT 1 FROM tokens) THEN 1 ELSE 0 END FROM meta"
    )
    return (None, False) if row is None else (row[0], bool(row[1]))


def _keep(tx: Transaction, wanted: Mode) -> Mode:
    """Save a mode unless another process has saved one first. Return the saved mode."""
    tx.run("UPDATE meta SET access = :mode WHERE access IS NULL", mode=wanted)
    mode: Mode = tx.all("SELECT access FROM meta")[0][0]
    return mode
