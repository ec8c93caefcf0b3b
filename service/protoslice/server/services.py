"""The objects that handlers use: one `ServerState` per process and one `RequestServices` per request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.types import Scope

from protoslice.build import build
from protoslice.catalog.marker import open_catalogue
from protoslice.concurrency.chores import background
from protoslice.concurrency.results import Results, SingleFlight
from protoslice.concurrency.windows import Windows
from protoslice.database import Database
from protoslice.database.processes import settle_secrets
from protoslice.database.sqlite import SqliteDatabase
from protoslice.database.transactions import ACTOR, NOBODY, Actor
from protoslice.errors import DatabaseUnavailable, InvalidInput, NotFound, ProtosliceError, Unsupported
from protoslice.mlflow import AutoCommit, MlflowArtifacts
from protoslice.repositories import Repositories
from protoslice.server.auth.authenticator import AuthContext, Authenticator
from protoslice.server.auth.mode import log_access, settle_mode
from protoslice.server.auth.permissions import Rule
from protoslice.server.auth.permissions import Scope as AccessScope
from protoslice.server.auth.signatures import SigningKey, fingerprints
from protoslice.server.auth.spaces import space_of
from protoslice.server.auth.tokens import Token, Tokens
from protoslice.server.context import context_of
from protoslice.server.http.headers import HeaderMap
from protoslice.server.http.security import OriginPolicy
from protoslice.server.problems import DRAINING, HttpProblem
from protoslice.server.registry_names import StoreNames, repositories_of
from protoslice.server.rendering import Renderer
from protoslice.server.request.clients import Clients, pseudonym
from protoslice.server.settings import Settings, removed_settings
from protoslice.server.telemetry.logs import START
from protoslice.server.telemetry.metrics import Metrics, WorkerMetrics
from protoslice.serving import StoreOptions
from protoslice.serving.cache import CacheOptions
from protoslice.storage import MeteredStorage, Storage, open_storage
from protoslice.storage.sources import check_apart
from protoslice.storage.wrappers import LateCallLimit
from protoslice.stores import Stores
from protoslice.stores.backups import dump_daily
from protoslice.stores.collection import collect_for_ever
from protoslice.stores.service import Spaces
from protoslice.uploads import UploadOptions, Uploads

if TYPE_CHECKING:
    from protoslice.server.auth.oidc.issuers import Issuer
    from protoslice.server.auth.oidc.verification import Verifier
    from protoslice.webhooks import Webhooks

T = TypeVar("T")

SERVICES: Final = "protoslice.services"
"""The key in the scope for the services of a request."""

Loop: TypeAlias = Callable[[], Awaitable[None]]
_PING_SECONDS: Final = 2
_GZIPPED_ROOM: Final = 16 << 20


@dataclass(slots=True)
class ServerState:
    """The parts of one application. `stores` and `renderer` exist only between `open` and `close`."""

    settings: Settings
    metrics: Metrics = field(default_factory=Metrics)
    windows: Windows = field(default_factory=Windows)
    opened: Stores | None = None
    spaces: Spaces | None = None
    workers: WorkerMetrics | None = None
    """The metrics of all worker processes; None if only one process serves."""
    rendering: Renderer | None = None
    database: Database | None = None
    """The catalogue's database, which exists only between `open` and `close`."""
    hooks: Webhooks | None = None
    """The webhooks; None if the operator allows no URLs for them."""
    draining: bool = False
    initial_admin_token: Token | None = None
    """The new admin token of a storage that had none; None once it was shown."""
    authenticator: Authenticator = field(init=False)
    clients: Clients = field(init=False)
    policy: OriginPolicy = field(init=False)
    _at_end: AsyncExitStack = field(default_factory=AsyncExitStack)
    git_refs: SingleFlight[tuple[Stores, str], list[tuple[str, str]]] = field(default_factory=SingleFlight)
    """The running calls that list the refs of repositories.

    Later callers wait for the first caller, which computes the git ids of new commits.
    """
    gzipped: Results = field(default_factory=lambda: Results(_GZIPPED_ROOM))
    """Compressed answers by the digest of the uncompressed answer."""
    _pinging: SingleFlight[None, None] = field(default_factory=SingleFlight)

    def __post_init__(self) -> None:
        """Set up the counting of clients. All requests are refused until the mode of access is known."""
        self.authenticator = Authenticator(closed=True)
        self.authenticator.failed = lambda credential: self.metrics.failed_logins.labels(credential).inc()
        self.clients = Clients(self.settings)
        self.policy = OriginPolicy(self.settings)

    async def open(self) -> None:
        """Open storage, database, stores, access and background work, in this order, unless they are already open.

        Await this on the event loop that will serve. `close` closes the parts in reverse order.
        """
        if self.opened is not None:
            return
        settings = self.settings
        async with AsyncExitStack() as stack:
            storage = await stack.enter_async_context(open_storage(settings.storage, settings.plain_storage_options()))
            if settings.workers > 1 and not storage.abilities.shared:
                raise InvalidInput("This storage works with one process only: set PROTOSLICE_WORKERS=1")
            if not storage.abilities.open_file:
                storage = LateCallLimit(storage, settings.late_calls())
            catalogue = open_catalogue(
                storage,
                settings.storage,
                settings.database,
                create=True,
                audit_seconds=settings.audit_seconds,
                audit_entries=settings.audit_entries,
            )
            database = await stack.enter_async_context(catalogue)
            database.observer = self.metrics.record_transaction
            storage = MeteredStorage(storage, self.metrics.record_call)
            hooks = await _webhooks(database, settings, stack) if settings.webhook_allow else None
            opened = await Stores.open(storage, database, store_options(settings), names=StoreNames())
            await self._start_authenticator(database, stack)
            _log_start(database)
            await opened.quotas.refresh()
            spaces = Spaces(opened)
            stack.push_async_callback(spaces.close)
            rendering = Renderer(processes=settings.render_processes, max_bytes=settings.max_rendered_bytes)
            stack.push_async_callback(rendering.close)
            self.metrics.observe(opened, spaces, database)
            if self.workers is not None:
                await stack.enter_async_context(self.workers.publish(self.metrics.render))
            await stack.enter_async_context(background(self._loops(storage, database, spaces)))
            self.opened, self.spaces, self.rendering, self.hooks = opened, spaces, rendering, hooks
            self.database = database
            self._at_end = stack.pop_all()

    def _loops(self, storage: Storage, database: Database, spaces: Spaces) -> dict[str, Loop]:
        """Return the background loops, keyed by the names in their log lines."""
        settings = self.settings
        loops: dict[str, Loop] = {
            "garbage collection": partial(collect_for_ever, storage, database, settings.deletion_delay_seconds),
            "the monitor of the event loop": self.metrics.watch_loop,
            "the count of stores": partial(self.metrics.watch_totals, database),
        }
        if settings.dumps and isinstance(database, SqliteDatabase) and storage.abilities.shared:
            loops["the daily dump"] = partial(dump_daily, database, storage, keep=settings.dumps)
        if settings.draft_quiet_seconds:
            quiet = AutoCommit(database, spaces.get, settings.draft_quiet_seconds)
            loops["the search for MLflow folders"] = quiet.look_for_ever
        return loops

    async def _start_authenticator(self, database: Database, stack: AsyncExitStack) -> None:
        """Read the mode of access, and require credentials if the mode is `tokens`.

        Call this only after checking that the storage belongs to the database.
        """
        settings = self.settings
        trust = None if settings.issuers is None else await _trust(settings.issuers)
        mode = await settle_mode(database, settings)
        self.authenticator.closed = mode == "tokens"
        if self.authenticator.closed:
            check_apart(settings.storage, settings.register_allow)
            verifier = None if trust is None else await _verifier(trust, stack)
            secrets = settings.signing_secrets()
            await settle_secrets(database, fingerprints(secrets))
            key = SigningKey(database, secrets)
            self.initial_admin_token = await self.authenticator.start(Tokens(database), verifier, key)
        log_access(settings, mode)

    async def close(self) -> None:
        """Close everything. Afterwards the service serves nothing."""
        self.opened = self.spaces = self.rendering = self.hooks = self.database = None
        await self._at_end.aclose()

    async def ready(self) -> None:
        """Raise an error unless storage and database respond in time and enough space is free."""
        await self.stores.shared.ready()
        if self.database is not None:
            await self._pinging.get(None, partial(_ping, self.database))

    async def render_metrics(self) -> bytes:
        """Return the metrics of this process, or of all workers."""
        if self.spaces is not None:
            with suppress(ProtosliceError):  # on failure, the metrics show the last known usage
                await self.spaces.refresh()
        self.metrics.free_bytes = await self._free_bytes()
        # Rendering runs in a thread because each combination of route, method and status has thirty lines.
        own = await asyncio.to_thread(self.metrics.render)
        return own if self.workers is None else await self.workers.collect(own)

    async def _free_bytes(self) -> int | None:
        """Return the free bytes of the storage; None if unknown."""
        if self.opened is not None:
            with suppress(ProtosliceError, TimeoutError):
                async with asyncio.timeout(_PING_SECONDS):
                    return await self.opened.shared.free_bytes()
        return None

    @property
    def stores(self) -> Stores:
        """The stores of the service. Raise `HttpProblem` 503 while the service is starting or has ended."""
        return _running(self.opened)

    async def admit(
        self, scope: Scope, fields: HeaderMap, rule: Rule, parameters: Mapping[str, Any] | None = None
    ) -> RequestServices:
        """Check the permissions of a request, and return its services.

        `rule` is the rule of the request's route. Raise `HttpProblem` or `NotFound` if the request is refused, before
        anything is read.
        """
        space, context = space_of(scope), context_of(scope)
        context.space, context.changes = space, rule.changes(scope["method"])
        try:
            if not rule.is_plain_read:
                self.policy.check_origin(fields)
            auth = await self.authenticator.authenticate(scope, fields, space, rule, parameters or {})
        except (HttpProblem, NotFound):
            context.refused = True
            raise
        ACTOR.set(NOBODY)
        if auth.id is not None and auth.key is not None:
            context.key = auth.key
            ACTOR.set(Actor(auth.id, auth.name or auth.key, auth.may(AccessScope.READ)))
            context.hold(self.clients.principals.one(context.key))
        stores = self.opened
        if self.spaces is not None and (rule.scope is not None or not self.authenticator.closed):
            stores = await self.spaces.get(space)
        if rule.scope is not None and stores is not None:
            context.hold(stores.quotas.request())
        found = scope[SERVICES] = RequestServices(self, auth, stores)
        return found

    @property
    def webhooks(self) -> Webhooks:
        """The webhooks of all spaces. Raise `Unsupported` if the operator allows no URLs for them."""
        if self.hooks is None:
            raise Unsupported("Webhooks are disabled: the operator can allow URLs for them in PROTOSLICE_WEBHOOK_ALLOW")
        return self.hooks

    @property
    def renderer(self) -> Renderer:
        """The renderer of messages. Raise `HttpProblem` 503 while the service is starting or has ended."""
        return _running(self.rendering)


def _running(part: T | None) -> T:
    if part is None:
        raise HttpProblem(DRAINING, "the service is starting or has ended", headers={"retry-after": "1"})
    return part


@dataclass(frozen=True, slots=True)
class RequestServices:
    """The objects that a request's handler uses: the stores of its space and the permissions of its caller."""

    state: ServerState
    auth: AuthContext
    """The permissions of the request."""
    opened: Stores | None

    @property
    def stores(self) -> Stores:
        """The stores of the space. Raise `HttpProblem` 503 while the service is starting or has ended."""
        return _running(self.opened)

    @property
    def uploads(self) -> Uploads:
        """The resumable uploads of the caller; all uploads if authentication is off."""
        return self.stores.uploads.begun_by(None if self.auth.key is None else pseudonym(self.auth.key))

    @property
    def mlflow(self) -> MlflowArtifacts:
        """The MLflow artifacts over the stores."""
        return MlflowArtifacts(self.stores, self.uploads)

    @property
    def repositories(self) -> Repositories:
        """The repositories over the stores."""
        return repositories_of(self.stores)

    async def signing(self) -> Callable[[str, str], str]:
        """Return a function that takes a method and a URL, and returns the signed URL for a client's next requests.

        A signed URL is valid for as long as an upload lasts, but no longer than the caller's token or JWT. URLs remain
        unsigned if the service requires no tokens.
        """
        if self.auth.principal is None:
            return lambda method, url: url
        signer, end = await self.auth.signer(), time.time() + self.state.settings.upload_lifetime_seconds
        prefix = self.state.settings.public_path  # not signed, because a proxy removes it

        def signed(method: str, url: str) -> str:
            parts = urlsplit(url)
            path = parts.path.removeprefix(prefix) + (f"?{parts.query}" if parts.query else "")
            target, _ = signer.sign(method, path, end)
            return f"{parts.scheme}://{parts.netloc}{prefix}{target}"

        return signed


def _log_start(database: Database) -> None:
    log = logging.getLogger(START)
    log.info("protoslice %s, database schema %d", build(), database.schema)
    if removed := removed_settings():
        log.warning("%s: no longer used, and an error from version 0.3 on: remove it", ", ".join(removed))


def store_options(settings: Settings) -> StoreOptions:
    """Return the options for the stores of a service."""
    return StoreOptions(
        max_upload_bytes=settings.max_upload_bytes,
        verify_reads=settings.verify_reads,
        threads=settings.worker_threads,
        open_stores=settings.open_stores,
        open_stores_bytes=settings.open_stores_bytes,
        register_prefixes=settings.register_allow,
        register_networks=settings.register_networks,
        late_calls=settings.late_calls(),
        register_options={settings.storage.partition(":")[0].lower(): settings.plain_storage_options()},
        rules=settings.split_rules,
        space_watermark_bytes=settings.space_watermark_bytes,
        quota=settings.space_quota(),
        entries=settings.space_quota_entries,
        trust_seconds=settings.trust_seconds,
        cache=CacheOptions(
            directory=settings.cache_directory,
            bytes=settings.cache_bytes,
            memory_bytes=settings.cache_memory_bytes,
        ),
        uploads=UploadOptions(
            max_bytes=settings.max_upload_bytes,
            max_open=settings.max_open_uploads,
            max_open_per_client=settings.max_open_uploads_per_client,
            begin_seconds=settings.upload_begin_seconds,
            lifetime_seconds=settings.upload_lifetime_seconds,
            part_bytes=settings.upload_checkpoint_bytes,
        ),
    )


async def _webhooks(database: Database, settings: Settings, stack: AsyncExitStack) -> Webhooks:
    """Return the webhooks, which deliver events until `stack` ends."""
    from protoslice.webhooks import Webhooks

    hooks = await Webhooks.open(database, settings.webhook_allow, settings.webhook_networks)
    stack.push_async_callback(hooks.close)
    return hooks


async def _trust(file: Path) -> tuple[Issuer, ...]:
    """Return the issuers that a file lists.

    A service that requires no tokens reads the file too. Mistakes are then found before the mode of access changes.
    """
    from protoslice.server.auth.oidc.issuers import read_issuers

    return await asyncio.to_thread(read_issuers, file)


async def _verifier(trust: tuple[Issuer, ...], stack: AsyncExitStack) -> Verifier:
    """Return a verifier for JWTs of these issuers. Until `stack` ends, the verifier fetches the issuers' keys."""
    from protoslice.server.auth.oidc.verification import Verifier

    verifier = Verifier(trust)
    stack.push_async_callback(verifier.close)
    await verifier.start()
    return verifier


async def _ping(database: Database) -> None:
    try:
        async with asyncio.timeout(_PING_SECONDS):
            await database.ping()
    except TimeoutError:
        raise DatabaseUnavailable(f"The database gave no answer within {_PING_SECONDS} seconds") from None


async def services_of(request: Request) -> RequestServices:
    """Return the services of a request. The route has already checked the request's permissions."""
    # This is a coroutine because the framework runs plain functions in threads. The sleep lets other requests run, so
    # that no request takes a whole turn of the event loop.
    await asyncio.sleep(0)
    services: RequestServices = request.scope[SERVICES]
    return services


Services = Annotated[RequestServices, Depends(services_of)]
"""The type of a handler's parameter that receives the services of the request."""
