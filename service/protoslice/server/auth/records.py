"""Tokens in the catalogue: hashes, names and grants."""

from __future__ import annotations

import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from protoslice.catalog import audit
from protoslice.database.transactions import Database, Row, Transaction, Unaudited
from protoslice.errors import InvalidInput, NotFound, ProtosliceError
from protoslice.server.auth.decision import EVERY_SPACE, Grant, Principal, Scope
from protoslice.server.auth.signatures import Signer, signing_key
from protoslice.server.auth.tokens import Token, is_token_id, new_token
from protoslice.stores import ResultPage

_ADMIN: Final = "admin"
_MOST_TAGS: Final = 64
_COLUMNS: Final = "id, space, name, scopes, tags, hash, created, expires, used"
_USE: Final = timedelta(hours=1)
"""Time for which a use of a token is not noted again."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LONGEST: Final = 128
"""Characters of a name, and of a pattern of tags."""


@dataclass(frozen=True, slots=True)
class NewToken:
    """Terms of a token that is to be made; `expires` is in seconds since the epoch."""

    name: str
    grant: Grant
    expires: float | None = None

    def check(self) -> None:
        """Raise `InvalidInput` for a name, scopes or patterns that no token may have."""
        if not self.name or len(self.name) > _LONGEST or not self.name.isprintable():
            raise InvalidInput(f"Invalid token name: use at most {_LONGEST} printable characters")
        if not self.grant.scopes:
            raise InvalidInput(f"A token needs at least one scope: {', '.join(Scope)}")
        if len(self.grant.tags) > _MOST_TAGS or any(not 0 < len(tag) <= _LONGEST for tag in self.grant.tags):
            raise InvalidInput(
                f"Invalid tag patterns: at most {_MOST_TAGS} patterns, each of at most {_LONGEST} characters"
            )


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is kept: its secret is known by the hash alone."""

    id: str
    name: str
    grant: Grant
    created: datetime
    expires: datetime | None
    hash: str
    used: datetime | None = None

    @property
    def principal(self) -> Principal:
        """The caller that the token names."""
        return Principal(self.id, self.name, (self.grant,))

    def signer(self, service_key: bytes) -> Signer:
        """Return the token as a signer; a reader of the record lacks the key of the service."""
        end = math.inf if self.expires is None else self.expires.timestamp()
        return Signer(self.id, signing_key(service_key, "token", f"{self.id} {self.hash}".encode()), end)

    @property
    def expired(self) -> bool:
        """True when its time is over."""
        return self.expires is not None and self.expires.timestamp() <= time.time()


class Tokens:
    """Tokens in the catalogue. A revoked one is gone from it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, wanted: NewToken) -> tuple[Token, TokenRecord]:
        """Return a new token, which is shown only once, and its record."""
        token, record = _made(wanted)
        await self._database.write(lambda tx: _insert(tx, record))
        return token, record

    async def find(self, token: Token) -> TokenRecord | None:
        """Return the record of a token that is valid now; None for every other."""
        record = await self.get(token.id)
        return record if record is not None and token.proves(record.hash) else None

    async def get(self, id: str) -> TokenRecord | None:
        """Return the record of the token of an id, None unless it is valid now; the id alone proves nothing."""
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE id = :id"
        row = await self._database.read(lambda tx: tx.first(sql, id=id))
        record = None if row is None else _record(row)
        return None if record is None or record.expired else record

    async def note_use(self, record: TokenRecord) -> None:
        """Note that a token was used, once an hour. Errors of the database are ignored."""
        now = datetime.now(UTC)
        if record.used is not None and now - record.used < _USE:
            return
        sql = "UPDATE tokens SET used = :now WHERE id = :id AND (used IS NULL OR used < :before)"
        values = {"id": record.id, "now": _microseconds(now), "before": _microseconds(now - _USE)}
        with suppress(ProtosliceError):
            await self._database.write(lambda tx: tx.run(sql, **values), unaudited=Unaudited.USE)

    async def page(self, space: str, limit: int, cursor: str | None) -> ResultPage[TokenRecord]:
        """Return a page of the tokens of one space by id, and the cursor of the next one."""
        if cursor is not None and not is_token_id(cursor):
            raise InvalidInput("Invalid cursor")
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE space = :space AND id > :after ORDER BY id LIMIT :limit"
        rows = await self._database.read(lambda tx: tx.all(sql, space=space, after=cursor or "", limit=limit + 1))
        records = [_record(row) for row in rows[:limit]]
        return ResultPage(records, records[-1].id if len(rows) > limit else None)

    async def revoke(self, id: str, space: str) -> None:
        """Remove a token of `space`; `NotFound` if it has none of that id."""
        sql = "DELETE FROM tokens WHERE id = :id AND space = :space"

        def work(tx: Transaction) -> bool:
            if not tx.run(sql, id=id, space=space):
                return False
            audit.record(tx, space, "token.revoked", id, {})
            return True

        if not await self._database.write(work):
            raise NotFound(f"No token {id[:40]!r} in this space")

    async def first(self) -> Token | None:
        """Return an admin token if the catalogue never had one, to one replica alone; else None."""
        token, record = _made(NewToken(_ADMIN, Grant(EVERY_SPACE, frozenset({Scope.ADMIN}))))
        unmade = "SELECT 1 FROM meta WHERE first_token IS NULL"

        def work(tx: Transaction) -> Token | None:
            if not tx.run("UPDATE meta SET first_token = :id WHERE first_token IS NULL", id=record.id):
                return None
            _insert(tx, record)
            return token

        return await self._database.write(work) if await self._database.read(lambda tx: tx.first(unmade)) else None


def _made(wanted: NewToken) -> tuple[Token, TokenRecord]:
    wanted.check()
    token, now = new_token(), datetime.now(UTC)
    expires = None if wanted.expires is None else datetime.fromtimestamp(wanted.expires, UTC)
    return token, TokenRecord(token.id, wanted.name, wanted.grant, now, expires, token.hash)


def _insert(tx: Transaction, record: TokenRecord) -> None:
    tx.run(
        f"""
        INSERT INTO tokens ({_COLUMNS})
        VALUES (:id, :space, :name, :scopes, :tags, :hash, :created, :expires, NULL)""",
        id=record.id,
        space=record.grant.space,
        name=record.name,
        scopes=json.dumps(sorted(record.grant.scopes)),
        tags=json.dumps(record.grant.tags),
        hash=bytes.fromhex(record.hash),
        created=_microseconds(record.created),
        expires=None if record.expires is None else _microseconds(record.expires),
    )
    detail = {"name": record.name, "scopes": sorted(record.grant.scopes), "tags": list(record.grant.tags)}
    audit.record(tx, record.grant.space, "token.created", record.id, detail)


def _record(row: Row) -> TokenRecord:
    id, space, name, scopes, tags, hash, created, expires, used = row
    grant = Grant(space, frozenset(map(Scope, json.loads(scopes))), tuple(json.loads(tags)))
    ends = None if expires is None else _time(expires)
    return TokenRecord(id, name, grant, _time(created), ends, bytes(hash).hex(), None if used is None else _time(used))


def _microseconds(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def _time(microseconds: int) -> datetime:
    return _EPOCH + microseconds * _MICROSECOND
