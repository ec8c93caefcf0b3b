"""Calls of a caller of one space, played next to full and next to empty spaces, and the changes they made there."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from random import Random
from typing import Any, Final, NamedTuple

from tests.server.auth.closed import bearer, closed_service, token_for
from tests.support.calls import CALLS, READING, WRITING, Call
from tests.support.serve import Asked, ask
from tests.support.things import Filling, Things

from protoslice.database import snapshots
from protoslice.database.transactions import UNAUDITED, Transaction
from protoslice.server.app import Application
from protoslice.server.auth.permissions import EVERY_SPACE, Scope

OTHERS: Final = {"theirs": "other", "both": "other", "theirs too": "default"}
"""The spaces in which the caller has no scope, by the words for their content."""
UNRECORDED: Final = {
    # Objects of git, which are computed.
    "GET /api/{kind}/{name:repository}/tree/{revision}",
    "GET /{name:owned}/HEAD",
    "GET /{name:owned}/info/refs",
    "POST /api/{kind}/{name:repository}/paths-info/{revision}",
    # Received bytes, by their digest.
    "PUT /api/lfs-uploads/{kind}/{name:repository}/{upload}",
    "POST /api/lfs-parts/{kind}/{name:repository}/{oid}/{size}/{chunk}",
    "POST /api/xet/{kind}/{name:repository}/{session}/v1/shards",
    "POST /v2/{name:path}/blobs/uploads/",
    "PUT /v2/{name:path}/blobs/uploads/{upload}",
}
"""The routes that may change stored files without an entry in the audit."""
HOSTS: Final = ("localhost", "other.localhost", "127.0.0.1:80")


class Step(NamedTuple):
    """A call in a space, with the names of a word."""

    call: Call
    whose: str
    space: str
    host: str


@dataclass
class World:
    """The answers of a service, one for each step, and the names of other spaces' content in it."""

    answers: list[tuple[int, str]] = field(default_factory=list)
    others: dict[str, Things] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    """The keys of changed objects beyond the caller's space."""


def each_call(*routes: str) -> list[Step]:
    """Return calls of these routes with names of others' content, in the caller's space and in other spaces."""
    return [
        Step(call, whose, space, HOSTS[0])
        for call in CALLS
        if call.route in routes
        for whose in OTHERS
        for space in ("own", "other")
    ]


def history(seed: int, length: int) -> list[Step]:
    """Return random steps; most are in the caller's space, whose routes answer."""
    random = Random(seed)
    return [
        Step(
            random.choice(CALLS),
            random.choice(("mine", "both in own", *OTHERS)),
            random.choice(("own", "own", "own", "other", "default")),
            random.choice(HOSTS),
        )
        for _ in range(length)
    ]


@asynccontextmanager
async def two_spaces(hook: str, **more: Any) -> AsyncIterator[tuple[Application, dict[str, str]]]:
    """Open a service that sends events to the URL `hook`; yield it with the token of a caller of the space `own`."""
    allowed = (hook.removesuffix("hooks"),)
    async with closed_service(webhook_allow=allowed, webhook_networks=("127.0.0.0/8",), **more) as app:
        yield app, bearer(await token_for(app, *Scope))


async def play(steps: Sequence[Step], hook: str, others: Mapping[str, Things] | None = None) -> World:
    """Play steps in a service whose other spaces are full, or empty although the steps use the same names."""
    world = World()
    async with two_spaces(hook) as (app, caller):
        owner = bearer(await token_for(app, Scope.ADMIN, space=EVERY_SPACE))
        mine = Filling(app, "own", caller)
        things = {"mine": await mine.fill("mine", hook), "both in own": await mine.fill("both", hook)}
        for word, space in OTHERS.items():
            if others is None:
                world.others[word] = await Filling(app, space, owner).fill(word.partition(" ")[0], hook)
            else:
                world.others[word] = others[word]
        things |= world.others
        before, masked = await beyond(app), Masks([things["mine"]["token"], things["both in own"]["token"]])
        for step in steps:
            place = "" if step.space == "default" else f"/spaces/{step.space}"
            theirs = OTHERS.get(step.whose, "own")
            method, target, body, headers = step.call.filled(
                things[step.whose], "" if theirs == "default" else f"/spaces/{theirs}"
            )
            got = await ask(app, method, place + target, body, {**headers, **caller, "host": step.host})
            world.answers.append(masked.of(got, step.call))
        after = await beyond(app)
        world.changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return world


def refusals_of_own(hook: str) -> list[str]:
    """Return the calls on the caller's things in its space whose answers are wrong.

    Also return the calls that changed content without an entry in the audit.
    """
    silent = list[str]()
    return [
        f"{call.method} {call.target}: {got.status} {got.text[:200]}"
        for call, got in answers_of_own(hook, silent=silent)
        if (got.status if got.status >= 400 else None) != call.refused
    ] + silent


def answers_of_own(
    hook: str, *, writing: Sequence[Call] = tuple(WRITING), silent: list[str] | None = None, **more: Any
) -> list[tuple[Call, Asked]]:
    """Return each call that reads, and the calls in `writing`, on the caller's own things, with its answer.

    `silent` receives the calls that changed content without an entry in the audit.
    """

    async def played(*calls: Call) -> list[tuple[Call, Asked]]:
        async with two_spaces(hook, **more) as (app, caller):
            things = await Filling(app, "own", caller).fill("mine", hook)
            answers = []
            for call in calls:
                method, target, body, headers = call.filled(things, "/spaces/own")
                before, entries = await _content(app)
                answers.append((call, await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})))
                after, now = await _content(app)
                changed = {table for table in before if before[table] != after[table]}
                if (
                    silent is not None
                    and changed
                    and now == entries
                    and (changed != {"kept_files"} or call.route not in UNRECORDED)
                ):
                    silent.append(f"{call.method} {call.target}: changed {sorted(changed)} without an entry")
            return answers

    answers = asyncio.run(played(*READING))
    for call in writing:  # each call removes or changes a thing that the next one names
        answers += asyncio.run(played(call))
    return answers


async def _content(app: Application) -> tuple[dict[str, str], int]:
    """Return the digests of all tables with content, and the number of entries in the audit."""
    assert app.services.opened is not None
    tables = [table for table, _ in snapshots.tables() if table not in UNAUDITED]

    def work(tx: Transaction) -> tuple[dict[str, str], int]:
        rows = {table: sorted(map(repr, tx.all(f"SELECT * FROM {table}"))) for table in tables}
        found = {table: sha256(repr(there).encode()).hexdigest() for table, there in rows.items()}
        return found, int(tx.all("SELECT count(*) FROM audit")[0][0])

    return await app.services.opened.database.read(work)


@dataclass(frozen=True)
class Content:
    """The content of a space that only callers who may read the space may know."""

    salt: str = ""
    """A part of all content, but not of names."""
    name: str = "secret-one"
    """Another name of the content."""


async def _heard(
    calls: Sequence[Call], scopes: Sequence[Scope], content: Content, hook: str, named: Things | None = None
) -> tuple[list[tuple[int, str]], Things]:
    """Return the answers to a caller with these scopes in a filled space, and the names of the content there.

    Calls name the content of this service, or with `named` the content of another one. Uploads are the caller's.
    """
    async with two_spaces(hook) as (app, owner):
        filling = Filling(app, "own", owner, content.salt)
        found = await filling.fill("mine", hook)
        await filling.add_names("mine", content.name)
        caller = bearer(await token_for(app, *scopes))
        things = dict(named or found)
        if Scope.WRITE in scopes:
            await Filling(app, "own", caller).begin(things)
        masks, answers = Masks([things["token"]]), []
        for call in calls:
            method, target, body, headers = call.filled(things, "/spaces/own")
            got = await ask(app, method, f"/spaces/own{target}", body, {**headers, **caller})
            answers.append(masks.of(got, call))
    return answers, found


def shown(call: Call, scopes: Sequence[Scope], hook: str, contents: Sequence[Content]) -> list[str]:
    """Return the calls whose answers differ between the first content and another one."""

    async def played() -> list[str]:
        (one,), named = await _heard([call], scopes, contents[0], hook)
        found = []
        for other in contents[1:]:
            (two,), _ = await _heard([call], scopes, other, hook, named)
            if one != two:
                found.append(f"{call.method} {call.target} shows {other}:\n  {one}\n  {two}")
        return found

    return asyncio.run(played())


def allowed(calls: Sequence[Call], scopes: Sequence[Scope], hook: str) -> list[Call]:
    """Return the calls that are not refused with status 403 to a caller with these scopes."""
    answers, _ = asyncio.run(_heard(calls, scopes, Content(), hook))
    return [call for call, (status, _) in zip(calls, answers, strict=True) if status != 403]


async def beyond(app: Application) -> dict[str, str]:
    """Return the digests of all objects and rows that do not belong to the caller's space."""
    assert app.services.opened is not None
    storage, database = app.services.opened.storage, app.services.opened.database
    own = {key for (key,) in await database.read(lambda tx: tx.all("SELECT key FROM objects WHERE space = 'own'"))}
    found = dict[str, str]()
    async for stat in storage.iterate(None):
        if stat.key.text.removesuffix(".sums") not in own:
            found[stat.key.text] = sha256((await storage.get(stat.key)).data).hexdigest()
    rows = await database.read(
        lambda tx: {
            table: tx.all(f"SELECT * FROM {table} WHERE space <> 'own' ORDER BY 1, 2, 3") for table in _OF_SPACES
        }
    )
    return found | {table: sha256(repr(there).encode()).hexdigest() for table, there in rows.items()}


_OF_SPACES: Final = (
    "tokens", "webhooks", "schemas", "derived", "uploads", "upload_parts", "upload_objects", "repositories", "commits",
    "names", "kept_files", "manifests", "stores", "store_objects", "usage", "objects", "former_names",
)  # fmt: skip
_RANDOM: Final = re.compile(
    r"(?P<upload>\b[0-9a-f]{10}-[0-9a-f]{20}\b)|(?P<session>(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f]))"
    r'|(?P<token>(?:(?<="id":")|(?<="subject":")|(?<="uploader_id":")|(?<="who_id":"))\w{10}(?=")'
    r"|(?<=psl-token=)\w{10}|(?<=token )\'\w{10}\')"
)
MOMENTS: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+-]+Z?|(?<![0-9a-f])[0-9a-f]{24}(?![0-9a-f])|\b[0-9a-f]{13}-[0-9a-f]{16}\b|psl-signature=[0-9a-f]{64}"
    r"|psl_\w{48}|psl-expires=[0-9]+|whsec_[A-Za-z0-9+/=]+|\w{3}, [0-9]{2} \w{3} [0-9]{4} [0-9:]{8} GMT"
    r"|\bxet [0-9]+|(?:(?<=\"exp\":)|(?<=\"exp\": )|(?<=\"x-xet-token-expiration\": \"))[0-9]+"
    r"|(?:(?<=cursor=)|(?<=\"next\":\"))(?:[0-9a-f]{13,}(?=-)|Wy[\w-]{16,})"
)
_UNSAID: Final = {"date", "x-request-id", "content-length"}
_OF_JSON: Final = {"etag", "repr-digest", "content-digest"}


class Masks:
    """A filter that removes times from answers, and numbers random names in the order of their appearance."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._names = {token: f"<own token {number}>" for number, token in enumerate(tokens)}

    def of(self, got: Asked, call: Call) -> tuple[int, str]:
        """Return the status, the headers and the body."""
        if call.timed:
            return got.status, ""
        if call.unordered and got.status == 200:
            said = json.loads(got.body)
            items = [MOMENTS.sub("", json.dumps(each | {"id": ""})) for each in said["items"]]
            return got.status, f"{len(items)} {sorted(items) if said.get('next') is None else 'and more'}"
        # For JSON, the body is compared without times, which also affect tags and digests.
        unsaid = _UNSAID | (_OF_JSON if "json" in got.headers.get("content-type", "") else set())
        headers = {name: value for name, value in got.headers.items() if name not in unsaid}
        text = MOMENTS.sub("", f"{json.dumps(headers, sort_keys=True)}\n{got.text}")
        for token in self._tokens:
            text = text.replace(token, self._names[token])
        return got.status, _RANDOM.sub(self._numbered, text)

    def _numbered(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[0], f"<{found.lastgroup} {len(self._names)}>")


def leaks(steps: Sequence[Step], hook: str) -> list[str]:
    """Return the steps whose answers differ between full and empty spaces, and all changes there."""
    full = asyncio.run(play(steps, hook))  # a separate loop for each service, which planted leaks need
    empty = asyncio.run(play(steps, hook, full.others))
    answered = sum(status < 400 for status, _ in full.answers)
    told = [
        f"{step.call.method} {step.call.target} of {step.whose!r} in {step.space}:\n  {one}\n  {other}"
        for step, one, other in zip(steps, full.answers, empty.answers, strict=True)
        if one != other
    ]
    few = [] if answered > len(steps) // 5 else [f"{answered} of {len(steps)} steps were answered"]
    return told + [f"changed: {key}" for key in full.changed + empty.changed] + few
