"""Claims: small records by which writers and collectors agree which of an attempt's objects may go.

The claim of an attempt is durable before the first object of the attempt, is changed by compare-and-set, and has four
states: `alive`, a writer is at work, or a manifest names objects of the attempt; `condemned`, a collector has found
objects that no manifest names and is about to look once more; `narrowed`, all objects are being removed but those that
the claim lists; `doomed`, all objects are. Nothing comes back to a list. A missing claim was removed with its objects.

A writer publishes its manifest, then reads the claims of all attempts the manifest names (`hold`). A collector
condemns, then reads the manifests, then narrows the claim to what they name. Each side writes before it reads, so at
least one of them sees the other; and both leave `condemned` by compare-and-set over the same entity tag, so exactly one
of them succeeds. No clock is part of this: a replica may stand still for days between any two calls.

Stores share attempts. So the list may have a name that is no object's (`manifest.STORE`): the store that the attempt
was made for may be published, which decides about the entries of that store in the indexes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, Literal

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import Conflict, IntegrityError, NotFound, ProtosliceError, StorageUnavailable
from protoslice.storage import ObjectKey, Storage
from protoslice.stores.layout import keys
from protoslice.stores.layout.fresh import put_new

State = Literal["alive", "condemned", "narrowed", "doomed"]
NamesIn = Callable[[str], Collection[str]]
"""Names of the objects of an attempt that a manifest needs; see `Manifest.names_in`."""

RENEW_SECONDS: Final = 600.0
"""Seconds after which a busy writer renews its claim: far less than any sensible grace of a collector."""
_TRIES: Final = 8
_STATES: Final[tuple[State, ...]] = ("alive", "condemned", "narrowed", "doomed")
CLAIM_BYTES: Final = 26
"""Bytes of a claim without a list.

These are the state, padded to nine letters, a space, and sixteen random hex digits.
Some storages make entity tags from contents, so a claim that is alive again must not look like the one before. The
names of a list follow, a line feed before each.
"""


class Collected(Conflict):
    """Garbage collection removed objects of an upload before the upload was complete."""

    def __init__(self) -> None:
        super().__init__(
            "The objects of this upload were collected as garbage, because it paused longer than the "
            "collector's grace period: nothing was stored, send it again"
        )


@dataclass(frozen=True, slots=True)
class Claim:
    """State of an attempt's claim and the entity tag it was read with, for the next compare-and-set."""

    attempt: str
    state: State
    etag: str
    left: frozenset[str] | None = None
    """Names that manifests may need; None for all names."""

    def allows(self, names: Collection[str]) -> bool:
        """True when a manifest that needs these objects may rely on them."""
        return self.state != "doomed" and (self.left is None or self.left.issuperset(names))


class Claims:
    """Claims of all attempts in one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def stake(self, attempt: str) -> None:
        """Create the claim of a new attempt; durable on return."""
        await put_new(self._storage, keys.claim(attempt), _encode("alive", None))

    async def drop(self, attempt: str) -> None:
        """Remove the claim of an attempt that has no objects and never will; storage errors are ignored."""
        with suppress(ProtosliceError):
            await self._storage.delete(keys.claim(attempt))

    async def renew(self, attempt: str, names: Collection[str] = ()) -> None:
        """Spare a claim under a new entity tag; `Collected` when no manifest may need `names` any more."""
        for _ in range(_TRIES):
            found = await self._read(attempt)
            if found is None or not found.allows(names):
                raise Collected
            if await self._write(found, _spared(found), found.left) is not None:
                return
        raise StorageUnavailable(f"the record of upload {attempt} is being changed by other requests: try again")

    async def hold(self, attempts: Iterable[str], names_in: NamesIn) -> None:
        """Protect the objects `names_in` each of `attempts` once a manifest that names them is published.

        `Collected` if too late.
        """
        await map_concurrently(lambda attempt: self._hold(attempt, names_in), sorted(attempts))

    async def condemn(self, attempt: str) -> Claim | None:
        """Condemn an attempt and return its claim; None when a writer changed the claim at the same time."""
        found = await self._read(attempt)
        if found is None or found.state == "doomed":
            return found or Claim(attempt, "doomed", "")
        return await self._write(found, "condemned", found.left)

    async def is_over(self, attempt: str, names: Collection[str]) -> bool:
        """True when a claim is gone or does not allow `names`: no manifest that needs them can last."""
        found = await self._read(attempt)
        return found is None or not found.allows(names)

    async def narrow(self, claim: Claim, names: Set[str]) -> Set[str] | None:
        """Doom all objects of a condemned attempt but `names`, and return the names left.

        None when a writer revived the claim.
        """
        if claim.state == "doomed":
            return frozenset()
        left = frozenset(names) if claim.left is None else claim.left & names
        written = await self._write(claim, "narrowed" if left else "doomed", left)
        return None if written is None else left

    async def doom(self, claim: Claim) -> bool:
        """Doom a condemned attempt, so that its objects may be deleted; False when a writer revived the claim."""
        return await self.narrow(claim, frozenset()) is not None

    async def revive(self, claim: Claim) -> None:
        """Spare a condemned claim, since a manifest names objects of the attempt."""
        if claim.state == "condemned":
            await self._write(claim, _spared(claim), claim.left)

    async def _hold(self, attempt: str, names_in: NamesIn) -> None:
        with suppress(NotFound, IntegrityError):
            if _state(await self._storage.get_range(keys.claim(attempt), 0, CLAIM_BYTES)) == "alive":
                return  # one request for the common case
        await self.renew(attempt, names_in(attempt))

    async def _read(self, attempt: str) -> Claim | None:
        """The claim of an attempt; None when it does not exist."""
        try:
            found = await self._storage.get(keys.claim(attempt))
        except NotFound:
            return None
        return Claim(attempt, _state(found.data), found.stat.etag, _left(found.data))

    async def _write(self, claim: Claim, state: State, left: frozenset[str] | None) -> Claim | None:
        """Write a state and a list by compare-and-set; returns the new claim, None when it has changed."""
        data = _encode(state, left)
        key = keys.claim(claim.attempt)
        try:
            return replace(claim, state=state, left=left, etag=await self._storage.put(key, data, if_etag=claim.etag))
        except Conflict:
            etag = await self._written(key, data)
            return None if etag is None else replace(claim, state=state, left=left, etag=etag)

    async def _written(self, key: ObjectKey, data: bytes) -> str | None:
        """Entity tag of a claim that holds exactly `data`; else None."""
        # The random digits are ours: this process wrote it and lost the answer.
        with suppress(NotFound, Conflict):
            found = await self._storage.get(key)
            if found.data == data:
                return found.stat.etag
        return None


def _state(data: bytes) -> State:
    """State encoded in a claim; a damaged claim counts as `alive`, so that damage never deletes an object."""
    word = data.partition(b" ")[0].decode("ascii", "replace")
    return next((state for state in _STATES if state == word), "alive")


def _left(data: bytes) -> frozenset[str] | None:
    """Names listed in a claim; None for a claim without a list."""
    names = data[CLAIM_BYTES:].decode("ascii", "replace").split("\n")[1:]
    return frozenset(names) if names else None


def _spared(claim: Claim) -> State:
    """State of a claim that is condemned no more."""
    return "alive" if claim.left is None else "narrowed"


def _encode(state: State, left: Iterable[str] | None) -> bytes:
    return "\n".join([f"{state:<9} {secrets.token_hex(8)}", *sorted(left or ())]).encode()


class Lease:
    """Keeps the claim of a writer at work: stakes it in `begin` and renews it periodically until `end`."""

    def __init__(self, claims: Claims, attempt: str, *, every: float = RENEW_SECONDS) -> None:
        self._claims = claims
        self._attempt = attempt
        self._every = every
        self._needed = False
        self._staking: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_begun(self) -> bool:
        """True when a claim may be there, and objects behind it."""
        return self._staking is not None

    def begin(self) -> None:
        """Start staking the claim in the background; repeated calls have no effect."""
        if self._staking is None:
            self._staking = asyncio.create_task(self._claims.stake(self._attempt))
            self._renewing = asyncio.create_task(self._renew())

    async def staked(self) -> None:
        """Wait until the claim is durable; objects of the attempt may be published only after that."""
        self.begin()
        self._needed = True
        assert self._staking is not None
        await asyncio.shield(self._staking)

    async def end(self) -> None:
        """Stop renewing the claim, and remove the claim if `staked` was never called."""
        if self._renewing is None or self._staking is None:
            return
        self._renewing.cancel()
        await asyncio.gather(self._renewing, self._staking, return_exceptions=True)
        # A claim that was waited for stays: a manifest may rely on it.
        if not self._needed:
            await self._claims.drop(self._attempt)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            # A failed renewal is made up for by the next; `hold` decides whether the claim lasted.
            with suppress(ProtosliceError):
                await self._claims.renew(self._attempt)
