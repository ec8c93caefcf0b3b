"""Pages of repositories and of their versions, at a cost that depends on the page alone.

Repositories of the hub come first, then those that OCI clients alone have filled, then folders of MLflow's artifacts;
each by name.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from typing import Final

from protoslice.artifacts import repository_names
from protoslice.artifacts.commits import ArtifactCommits
from protoslice.catalog.labels import FOLDERS
from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, InvalidInput, NotFound
from protoslice.facts import RepositorySummary, RepositoryVersion
from protoslice.mlflow import ArtifactFolder, MlflowArtifacts
from protoslice.repositories import MAIN, NoRepository, Ref
from protoslice.server.store_names import repositories_of
from protoslice.stores import ResultPage, Stores

_PROTOCOLS: Final = ("hub", "oci", "mlflow")
_LONGEST: Final = 200
"""Characters of a prefix: longer ones begin no name."""
_LONGEST_CURSOR: Final = 1024

_log = logging.getLogger(__name__)


class RepositoryPages:
    """Listings over the stores of one space."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._repositories = repositories_of(stores)
        self._mlflow = MlflowArtifacts(stores).table

    async def page(self, prefix: str, *, limit: int, cursor: str | None) -> ResultPage[RepositorySummary]:
        """A page of the repositories whose names begin with `prefix`.

        A page may be empty, and yet be followed by another. `InvalidInput` for a cursor of another call.
        """
        protocol, after = _place(cursor)
        if len(prefix) > _LONGEST:
            return ResultPage(())
        found = list[tuple[str, str | ArtifactFolder]]()
        next_cursor: str | None = None
        for each in _PROTOCOLS[_PROTOCOLS.index(protocol) :]:
            if len(found) == limit:
                next_cursor = f"{each} "
                break
            names, more = await self._names(each, prefix, limit - len(found), after)
            # The last folder of a prefix of MLflow may be spelled in part.
            found += [(each, name) for name in names if _shown(name).startswith(prefix)]
            after = None
            if more:
                next_cursor = f"{each} {_text(names[-1])}"
                break
        told = await map_concurrently(lambda one: self._told(*one), found)
        return ResultPage([one for one in told if one is not None], next_cursor)

    async def versions(self, name: str, *, limit: int, cursor: str | None) -> ResultPage[RepositoryVersion]:
        """A page of the branches and tags that have files: those of the hub, then those of OCI.

        The page may be empty, and yet be followed by another. `NoRepository` when there is none of that name.
        """
        repository = await self._repositories.find(name, moved=True)
        name = repository.name
        protocol, after = _place(cursor)
        next_cursor: str | None
        if protocol == "hub":
            refs, following = await repository.log.page(limit, after)
            next_cursor = "oci " if following is None else f"hub {following}"
        else:
            refs, following = await ArtifactCommits(self._stores, name).page(limit=limit, after=after)
            next_cursor = None if following is None else f"oci {following}"
        return ResultPage([_version(name, protocol, ref) for ref in refs if ref.commit.store is not None], next_cursor)

    async def _names(
        self, protocol: str, prefix: str, limit: int, after: str | None
    ) -> tuple[list[str] | list[ArtifactFolder], bool]:
        if protocol == "hub":
            return await self._repositories.names(prefix, limit=limit, after=after)
        if protocol == "oci":
            return await repository_names(self._stores, limit=limit, after=after, prefix=prefix)
        if not (prefix.startswith(FOLDERS) or FOLDERS.startswith(prefix)):
            return [], False
        below, _, _ = prefix.removeprefix(FOLDERS).rpartition("/") if prefix.startswith(FOLDERS) else ("", "", "")
        return await self._mlflow.folders(below, limit=limit, after=after)

    async def _told(self, protocol: str, named: str | ArtifactFolder) -> RepositorySummary | None:
        """Summary of a repository; None for one that is gone, damaged, or listed under another protocol."""
        try:
            if isinstance(named, ArtifactFolder):
                return await self._of_mlflow(named)
            return await (self._of_hub(named) if protocol == "hub" else self._of_oci(named))
        except NotFound:
            return None
        except IntegrityError:
            _log.exception("repository %r omitted from a list, its records are damaged", named)
            return None

    async def _of_hub(self, name: str) -> RepositorySummary:
        repository = await self._repositories.get(name)
        plain = RepositorySummary(name, "hub", None, None, None, None, None, repository.created)
        main = await repository.log.ref("heads", MAIN)
        if main.commit.store is not None:
            return await self._sized(plain, _version(name, "hub", main))
        pushed = await ArtifactCommits(self._stores, name).head()
        return plain if pushed is None else await self._sized(plain, _version(name, "oci", pushed))

    async def _of_oci(self, name: str) -> RepositorySummary | None:
        with suppress(NoRepository, InvalidInput):  # names of OCI may be longer than those of the hub
            if (await self._repositories.current(name)).name.lower() == name:
                return None  # one of the hub too, which has been listed
        head = await ArtifactCommits(self._stores, name).head()
        if head is None:
            return None
        plain = RepositorySummary(name, "oci", None, None, None, None, None, head.commit.time)
        return await self._sized(plain, _version(name, "oci", head))

    async def _of_mlflow(self, folder: ArtifactFolder) -> RepositorySummary:
        uri = FOLDERS + folder.path
        plain = RepositorySummary(uri, "mlflow", uri, None, None, None, None, folder.updated)
        frozen = await self._mlflow.last_frozen(folder.path)
        if frozen is None:
            return plain
        return await self._sized(plain, RepositoryVersion("", "", uri, frozen[0], folder.updated))

    async def _sized(self, plain: RepositorySummary, head: RepositoryVersion) -> RepositorySummary:
        """With its head and the facts of that store, unless it has been removed."""
        try:
            store = (await self._stores.manifests.get(head.store)).as_store()
        except NotFound:
            return plain
        return replace(
            plain,
            ref=head.ref,
            store=store.id,
            type=store.type,
            size=store.size,
            files=len(store.files),
            updated=head.updated,
        )


def _version(name: str, protocol: str, ref: Ref) -> RepositoryVersion:
    store = ref.commit.store
    assert store is not None, "versions have files"
    # A name without a slash is taken for a tag of a store.
    named = f"{name}{':' if protocol == 'oci' else '@'}{ref.name}" if "/" in name else store
    return RepositoryVersion(ref.name, "branch" if ref.kind == "heads" else "tag", named, store, ref.commit.time)


def _place(cursor: str | None) -> tuple[str, str | None]:
    """Protocol that a cursor names, and the last name of the page before, if there was one."""
    protocol, _, after = (cursor or "hub ").partition(" ")
    if protocol not in _PROTOCOLS or len(after) > _LONGEST_CURSOR:
        raise InvalidInput("this cursor was not given by this service")
    return protocol, after or None


def _shown(name: str | ArtifactFolder) -> str:
    return name if isinstance(name, str) else FOLDERS + name.path


def _text(name: str | ArtifactFolder) -> str:
    return name if isinstance(name, str) else name.path
