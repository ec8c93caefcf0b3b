"""Tokens: secrets that secret scanners recognise, and the table of their hashes, names and grants."""

from __future__ import annotations

import hmac
import json
import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import choice
from typing import Final, NamedTuple
from zlib import crc32

from protoslice.catalog import audit
from protoslice.database.transactions import Database, Row, Transaction, Unaudited
from protoslice.errors import InvalidInput, NotFound, ProtosliceError
from protoslice.server.auth.permissions import EVERY_SPACE, Grant, Principal, Scope
from protoslice.server.auth.signatures import Signer, signer_key
from protoslice.stores import ResultPage

PREFIX: Final = "psl_"
_DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ID, _SECRET, _CHECK = 10, 32, 6
"""The lengths of the public id, of the secret (190 bits) and of the checksum, in characters."""
_LENGTH: Final = len(PREFIX) + _ID + _SECRET + _CHECK
_ADMIN: Final = "admin"
_MOST_TAGS: Final = 64
_COLUMNS: Final = "id, space, name, scopes, tags, hash, created, expires, used"
_USE: Final = timedelta(hours=1)
"""The minimum time between two updates of the time at which a token was last used."""
_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LONGEST: Final = 128
"""The length limit of a name and of a tag pattern, in characters."""


class Token(NamedTuple):
    """A token as its owner has it. The id names the record, and the secret proves the ownership."""

    id: str
    secret: str

    def __repr__(self) -> str:
        """Return only the id, because secrets must not be logged."""
        return f"Token({self.id!r})"

    @property
    def text(self) -> str:
        """The token as text. It is shown once, and clients send it with requests."""
        body = f"{PREFIX}{self.id}{self.secret}"
        return body + _checksum(body)

    @property
    def hash(self) -> str:
        """The hexadecimal SHA-256 for the record. A secret of 190 bits needs no slow hash."""
        return sha256(self.text.encode()).hexdigest()

    def proves(self, kept: str) -> bool:
        """Return True if `kept` is the hash of this token. The comparison takes equally long for all wrong hashes."""
        return hmac.compare_digest(self.hash.encode(), kept.encode())


def new_token() -> Token:
    """Return a new token from the system's randomness."""
    return Token(_random(_ID), _random(_SECRET))


def parse_token(text: str) -> Token | None:
    """Return the token in `text`. Return None if the form or the checksum is wrong, which saves a database query."""
    if len(text) != _LENGTH or not text.startswith(PREFIX) or not set(text[len(PREFIX) :]) <= set(_DIGITS):
        return None
    body, check = text[:-_CHECK], text[-_CHECK:]
    if _checksum(body) != check:
        return None
    at = len(PREFIX)
    return Token(body[at : at + _ID], body[at + _ID :])


def is_token_id(text: str) -> bool:
    """Return True if `text` may be the id of a token."""
    return len(text) == _ID and set(text) <= set(_DIGITS)


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """The record of a token. The record has only the token's hash."""

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
        """Return the token as a signer.

        A reader of the record cannot sign, because the service's key is also needed.
        """
        end = math.inf if self.expires is None else self.expires.timestamp()
        return Signer(self.id, signer_key(service_key, "token", f"{self.id} {self.hash}".encode()), end)

    @property
    def expired(self) -> bool:
        """True if the token has expired."""
        return self.expires is not None and self.expires.timestamp() <= time.time()


class Tokens:
    """The tokens in the catalogue. A revoked token is deleted."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        name: str,
        space: str | None,
        scopes: Iterable[str],
        *,
        tags: Sequence[str] = (),
        expires: float | None = None,
    ) -> tuple[Token, TokenRecord]:
        """Create a token, and return it with its record. The token itself is not stored.

        The token is for one space, or for every space if `space` is None. `tags` are patterns. `expires` is in seconds
        since the epoch. Raise `InvalidInput` for an invalid name, scope or pattern.
        """
        grant = Grant(EVERY_SPACE if space is None else space, _scopes(scopes), tuple(tags))
        token, record = _new_record(name, grant, expires)
        await self._database.write(lambda tx: _insert(tx, record))
        return token, record

    async def find(self, token: Token) -> TokenRecord | None:
        """Return the record of a token that is valid now. Return None for every other token."""
        record = await self.get(token.id)
        return record if record is not None and token.proves(record.hash) else None

    async def get(self, id: str) -> TokenRecord | None:
        """Return the record of the token with an id. Return None unless the token is valid now.

        The id alone does not prove that a caller owns the token.
        """
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE id = :id"
        row = await self._database.read(lambda tx: tx.first(sql, id=id))
        record = None if row is None else _record(row)
        return None if record is None or record.expired else record

    async def note_use(self, record: TokenRecord) -> None:
        """Record that a token was used, at most once an hour. Database errors are ignored."""
        now = datetime.now(UTC)
        if record.used is not None and now - record.used < _USE:
            return
        sql = "UPDATE tokens SET used = :now WHERE id = :id AND (used IS NULL OR used < :before)"
        values = {"id": record.id, "now": _microseconds(now), "before": _microseconds(now - _USE)}
        with suppress(ProtosliceError):
            await self._database.write(lambda tx: tx.run(sql, **values), unaudited=Unaudited.USE)

    async def page(self, space: str, limit: int, cursor: str | None) -> ResultPage[TokenRecord]:
        """Return a page of the tokens of one space, sorted by id, and the cursor of the next page."""
        if cursor is not None and not is_token_id(cursor):
            raise InvalidInput("the cursor is not one that this service returned")
        sql = f"SELECT {_COLUMNS} FROM tokens WHERE space = :space AND id > :after ORDER BY id LIMIT :limit"
        rows = await self._database.read(lambda tx: tx.all(sql, space=space, after=cursor or "", limit=limit + 1))
        records = [_record(row) for row in rows[:limit]]
        return ResultPage(records, records[-1].id if len(rows) > limit else None)

    async def revoke(self, id: str, space: str) -> None:
        """Remove a token of `space`. Raise `NotFound` if the space has no token with that id."""
        sql = "DELETE FROM tokens WHERE id = :id AND space = :space"

        def work(tx: Transaction) -> bool:
            if not tx.run(sql, id=id, space=space):
                return False
            audit.record(tx, space, "token.revoked", id, {})
            return True

        if not await self._database.write(work):
            raise NotFound(f"No token {id[:40]!r} in this space")

    async def create_initial_admin(self) -> Token | None:
        """Create and return an admin token if the catalogue never had one. Otherwise return None.

        If several replicas start at the same time, only one of them gets the token.
        """
        token, record = _new_record(_ADMIN, Grant(EVERY_SPACE, frozenset({Scope.ADMIN})), None)
        unmade = "SELECT 1 FROM meta WHERE first_token IS NULL"

        def work(tx: Transaction) -> Token | None:
            if not tx.run("UPDATE meta SET first_token = :id WHERE first_token IS NULL", id=record.id):
                return None
            _insert(tx, record)
            return token

        return await self._database.write(work) if await self._database.read(lambda tx: tx.first(unmade)) else None


def _scopes(names: Iterable[str]) -> frozenset[Scope]:
    known, wanted = {str(each) for each in Scope}, set(map(str, names))
    if unknown := sorted(wanted - known):
        raise InvalidInput(f"Unknown scope {', '.join(unknown)}: use {', '.join(Scope)}")
    if not wanted:
        raise InvalidInput(f"A token needs at least one scope: {', '.join(Scope)}")
    return frozenset(map(Scope, wanted))


def _new_record(name: str, grant: Grant, expires: float | None) -> tuple[Token, TokenRecord]:
    if not name or len(name) > _LONGEST or not name.isprintable():
        raise InvalidInput(f"Invalid token name: use at most {_LONGEST} printable characters")
    if len(grant.tags) > _MOST_TAGS or any(not 0 < len(tag) <= _LONGEST for tag in grant.tags):
        raise InvalidInput(
            f"Invalid tag patterns: at most {_MOST_TAGS} patterns, each of at most {_LONGEST} characters"
        )
    token, ends = new_token(), None if expires is None else datetime.fromtimestamp(expires, UTC)
    return token, TokenRecord(token.id, name, grant, datetime.now(UTC), ends, token.hash)


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


def _random(count: int) -> str:
    return "".join(choice(_DIGITS) for _ in range(count))


def _checksum(body: str) -> str:
    number, digits = crc32(body.encode()), ""
    for _ in range(_CHECK):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
