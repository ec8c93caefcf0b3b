"""Faults in the isolation of spaces that tests plant: each could be the result of a careless change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

import pytest

from protoslice.catalog.artifacts import ArtifactTable
from protoslice.catalog.kept_files import RepositoryFile
from protoslice.catalog.mlflow import MlflowTable
from protoslice.catalog.spaces import DEFAULT_SPACE, Usage
from protoslice.catalog.syntax import Digest
from protoslice.catalog.uploads import UploadTable
from protoslice.catalog.webhooks import WebhookTable
from protoslice.errors import NotFound
from protoslice.repositories.repository import StagedFiles
from protoslice.server.app import create_app
from protoslice.server.auth import tokens
from protoslice.server.auth.permissions import EVERY_SPACE, Decision, Rule, Scope
from protoslice.server.routing import routes_of
from protoslice.server.settings import Settings
from protoslice.serving.opened import OpenStores
from protoslice.stores import ResultPage

Planting = Callable[[pytest.MonkeyPatch], None]


class Leak(NamedTuple):
    """A fault, and the routes that show it."""

    plant: Planting
    routes: tuple[str, ...]


_known: Final = WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, Any]]()


def _of_this_world() -> dict[object, Any]:
    """Return the memory of one service; each service of the test has a separate event loop."""
    return _known.setdefault(asyncio.get_running_loop(), {})


def _remember(kind: type, method: str, key: Callable[..., object]) -> Planting:
    """Cache a method's results by a key without the space."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        plain = getattr(kind, method)

        async def remembering(self: object, *given: Any) -> object:
            known = _of_this_world()
            with suppress(NotFound):
                known[key(*given)] = await plain(self, *given)
            return known[key(*given)] if key(*given) in known else await plain(self, *given)

        patch.setattr(kind, method, remembering)

    return plant


def _staged_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Let files that were sent to one repository count as sent to any."""
    keep = StagedFiles.keep

    async def keeping(self: StagedFiles, upload: Any) -> None:
        _of_this_world()[upload.sha256] = upload
        await keep(self, upload)

    async def finding(self: StagedFiles, digest: str) -> Any:
        return _of_this_world().get(digest)

    patch.setattr(StagedFiles, "keep", keeping)
    patch.setattr(StagedFiles, "find", finding)


def _blobs_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Find blobs of one repository from any other."""
    change, find = ArtifactTable.change_blob, ArtifactTable.blob

    async def changing(self: ArtifactTable, digest: Digest, blob: RepositoryFile, seen: RepositoryFile | None) -> None:
        _of_this_world()[digest] = blob
        await change(self, digest, blob, seen)

    async def finding(self: ArtifactTable, digest: Digest) -> RepositoryFile:
        with suppress(NotFound):
            return await find(self, digest)
        return _of_this_world()[digest] if digest in _of_this_world() else await find(self, digest)

    patch.setattr(ArtifactTable, "change_blob", changing)
    patch.setattr(ArtifactTable, "blob", finding)


def _artifacts_of_all(patch: pytest.MonkeyPatch) -> None:
    """List MLflow's files from the default space for a request in any space."""
    plain = MlflowTable.entries

    def entries(self: MlflowTable, folder: str) -> Any:
        return plain(MlflowTable(self._database, Usage(DEFAULT_SPACE)), folder)

    patch.setattr(MlflowTable, "entries", entries)


def _opened_by_id(patch: pytest.MonkeyPatch) -> None:
    """Find an opened store by its id alone."""
    plain = OpenStores.get_fresh

    def found(self: OpenStores, space: str, store_id: str) -> Any:
        rows = [row for (_, id), row in self._rows.items() if id == store_id]
        return next(filter(None, (self._results.find((row, "store")) for row in rows)), plain(self, space, store_id))

    patch.setattr(OpenStores, "get_fresh", found)


def _any_grant(patch: pytest.MonkeyPatch) -> None:
    """Let a grant hold in every space."""

    def decide(principal: Any, space: str, scope: Scope, tags: Any = ()) -> Decision:
        return Decision.ALLOWED

    for module in ("authenticator", "permissions"):
        patch.setattr(f"protoslice.server.auth.{module}.decide", decide)


def _tokens_of_all(patch: pytest.MonkeyPatch) -> None:
    """Let a page of tokens end at a token of another space."""

    async def page(self: tokens.Tokens, space: str, limit: int, cursor: str | None) -> Any:
        sql = f"SELECT {tokens._COLUMNS} FROM tokens WHERE id > :after ORDER BY id LIMIT 100"
        rows = await self._database.read(lambda tx: tx.all(sql, after=cursor or ""))
        listed = [tokens._record(row) for row in rows]
        own = [each for each in listed if each.grant.space == space]
        others = [each.id for each in listed if each.grant.space not in (space, EVERY_SPACE)]
        return ResultPage(own[:limit], others[0] if others else None)

    patch.setattr(tokens.Tokens, "page", page)


def _hooks_of_all(patch: pytest.MonkeyPatch) -> None:
    """List the webhooks of all spaces."""

    async def of(self: WebhookTable, space: str) -> list[Any]:
        return await self.all()

    patch.setattr(WebhookTable, "of", of)


def _readers(row: str) -> Planting:
    """Let a reader of one space use a route that shows all spaces."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        routes = dict(routes_of(create_app(Settings(storage="memory://")).router.routes))  # of all applications
        patch.setattr(routes[row], "rule", Rule(Scope.READ))

    return plant


LEAKS: Final = {
    "a file sent to another repository": Leak(
        _staged_anywhere, ("POST /{name:repository_of_kind}.git/info/lfs/objects/batch",)
    ),
    "blobs by digest alone": Leak(_blobs_anywhere, ("GET /v2/{name:path}/blobs/{digest}",)),
    "uploads by id alone": Leak(_remember(UploadTable, "_read", lambda upload: upload), ("GET /v1/uploads/{upload}",)),
    "sessions of Xet by id alone": Leak(
        _remember(UploadTable, "read", lambda upload: upload),
        ("GET /v2/{name:path}/blobs/uploads/{upload}", "GET /v1/uploads/{upload}"),
    ),
    "artifacts of MLflow in one place": Leak(
        _artifacts_of_all,
        ("GET /api/2.0/mlflow-artifacts/artifacts", "PUT /api/2.0/mlflow-artifacts/artifacts/{name:path}"),
    ),
    "opened stores by id alone": Leak(_opened_by_id, ("GET /v1/stores/{ref}/summary", "GET /v1/stores/{ref}/tree")),
    "a grant for every space": Leak(_any_grant, ("GET /v1/stores", "GET /v1/tags/{tag}")),
    "pages of the tokens of all": Leak(_tokens_of_all, ("GET /v1/tokens",)),
    "webhooks of all": Leak(_hooks_of_all, ("GET /v1/webhooks",)),
    "metrics for all": Leak(_readers("GET /metrics"), ("GET /metrics",)),
    "spaces for all": Leak(_readers("GET /v1/spaces"), ("GET /v1/spaces",)),
}
