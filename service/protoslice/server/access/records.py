"""Records of tokens: hashes, names and grants, in a folder of the storage that no space reaches."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.server.access.decision import EVERY_SPACE, Grant, Principal, Scope
from protoslice.server.access.signatures import Signer, signing_key
from protoslice.server.access.tokens import Token, is_token_id, new_token
from protoslice.storage import ObjectKey, Storage, quote
from protoslice.stores import ResultPage
from protoslice.stores.catalog.named_records import NamedRecords
from protoslice.stores.layout import keys

_ADMIN: Final = "admin"
_MOST_TAGS: Final = 64
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
    """The tokens of a storage. A revoked one is gone from it."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._records = NamedRecords(storage, keys.TOKENS, "token")

    async def create(self, wanted: NewToken) -> tuple[Token, TokenRecord]:
        """A new token, which is told this once, and its record."""
        wanted.check()
        token = new_token()
        now = datetime.now(UTC)
        expires = None if wanted.expires is None else datetime.fromtimestamp(wanted.expires, UTC)
        record = TokenRecord(token.id, wanted.name, wanted.grant, now, expires, token.hash)
        await self._enter(record)  # first, so that no token is valid that no list shows
        await self._records.create(keys.TOKENS / token.id, _encoded(record))
        return token, record

    async def find(self, token: Token) -> TokenRecord | None:
        """The record of a token that is valid now; None for every other."""
        record = await self.get(token.id)
        return record if record is not None and token.proves(record.hash) else None

    async def get(self, id: str) -> TokenRecord | None:
        """The record of the token of an id, None unless it is valid now; the id alone proves nothing."""
        record = await self._record(id)
        return None if record is None or record.expired else record

    async def page(self, space: str, limit: int, cursor: str | None) -> ResultPage[TokenRecord]:
        """A page of the tokens of one space by id, and the cursor of the next one."""
        if cursor is not None and not is_token_id(cursor):
            raise InvalidInput("Invalid cursor")
        # By a list of the space alone: pages of all tokens would tell of those of other spaces.
        folder = keys.TOKENS_OF / quote(space)
        page = await self._storage.list(folder, after=None if cursor is None else folder / cursor, limit=limit)
        found = await map_concurrently(lambda stat: self._record(keys.name_of(stat.key)), page.items)
        records = [record for record in found if record is not None and record.grant.space == space]
        return ResultPage(records, None if page.after is None else keys.name_of(page.after))

    async def enter_all(self) -> None:
        """Enter tokens that are in no list, as those of earlier versions, into the lists of their spaces."""
        entered = {keys.name_of(stat.key) async for stat in self._storage.iterate(keys.TOKENS_OF)}
        async for stat in self._storage.iterate(keys.TOKENS):
            id = keys.name_of(stat.key)
            record = None if id in entered else await self._record(id)
            if record is not None:
                await self._enter(record)

    async def revoke(self, id: str, space: str) -> None:
        """Remove a token of `space`; `NotFound` when it has none of that id."""
        missing = NotFound(f"No token {id[:40]!r} in this space")
        if not is_token_id(id):
            raise missing
        key = keys.TOKENS / id
        try:
            data, stat = await self._records.read(key)
        except NotFound:
            raise missing from None
        if _decoded(data).grant.space != space:
            raise missing
        await self._records.remove(key, stat.etag)
        with suppress(NotFound):
            await self._storage.delete(_entry(id, space))

    async def _record(self, id: str) -> TokenRecord | None:
        """The record of a token, also of one that has ended; None when there is none."""
        with suppress(NotFound):
            return _decoded((await self._records.read(keys.TOKENS / id))[0])
        return None

    async def _enter(self, record: TokenRecord) -> None:
        with suppress(Conflict):
            await self._storage.put_if_absent(_entry(record.id, record.grant.space), b"")

    async def first(self) -> Token | None:
        """An admin token for a storage that never had one, made by one replica alone; else None."""
        with suppress(NotFound):
            await self._storage.stat(keys.ADMIN)
            return None
        token, record = await self.create(NewToken(_ADMIN, Grant(EVERY_SPACE, frozenset({Scope.ADMIN}))))
        # The record first: a replica that dies between the two leaves a token that nobody holds.
        try:
            await self._storage.put_if_absent(keys.ADMIN, token.id.encode())
        except Conflict:
            stat = await self._storage.stat(keys.ADMIN)
            if await self._storage.get_range(keys.ADMIN, 0, stat.size) != token.id.encode():
                await self.revoke(record.id, EVERY_SPACE)
                return None
        return token


def _entry(id: str, space: str) -> ObjectKey:
    return keys.TOKENS_OF / quote(space) / id


def _encoded(record: TokenRecord) -> bytes:
    grant = {"space": record.grant.space, "scopes": sorted(record.grant.scopes), "tags": record.grant.tags}
    times = {
        "created": record.created.timestamp(),
        "expires": None if record.expires is None else record.expires.timestamp(),
    }
    return json.dumps({"id": record.id, "name": record.name, "grant": grant, "hash": record.hash} | times).encode()


def _decoded(data: bytes) -> TokenRecord:
    said: dict[str, Any] = json.loads(data)
    grant = said["grant"]
    scopes: Sequence[str] = grant["scopes"]
    return TokenRecord(
        said["id"],
        said["name"],
        Grant(grant["space"], frozenset(map(Scope, scopes)), tuple(grant["tags"])),
        datetime.fromtimestamp(said["created"], UTC),
        None if said["expires"] is None else datetime.fromtimestamp(said["expires"], UTC),
        said["hash"],
    )
