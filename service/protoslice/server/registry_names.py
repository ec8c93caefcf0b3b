"""The names that stores have in registries. This module resolves names and lists them, in pages or by store.

A name is `owner/name@revision` of a repository, `name:tag` of an OCI artifact, or `mlflow-artifacts:/folder`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import ClassVar, Final, NamedTuple, Protocol

from protoslice.artifacts import ArtifactRepository, repository_names
from protoslice.artifacts.exports import ExportedRepository
from protoslice.artifacts.repository import ArtifactCommits
from protoslice.catalog.labels import FOLDERS, MLFLOW, shown_name
from protoslice.catalog.mlflow import ArtifactFolder
from protoslice.catalog.repositories import NamesOfStores
from protoslice.catalog.syntax import listed_name
from protoslice.concurrency.gather import map_concurrently
from protoslice.concurrency.results import SingleFlight
from protoslice.errors import IntegrityError, InvalidInput, NotFound, StillNamed
from protoslice.facts import RepositorySummary, RepositoryVersion, Store, StoreName
from protoslice.mlflow import MlflowArtifacts
from protoslice.repositories import MAIN, NoRepository, Ref, Repositories, Repository
from protoslice.stores import ResultPage, Stores

_LONGEST: Final = 200
"""The length limit of a prefix, in characters. No name begins with a longer prefix."""
_LONGEST_CURSOR: Final = 1024
MOST_NAMES: Final = 100
"""The limit on names that are shown with a store, or in the refusal to remove a store."""

_log = logging.getLogger(__name__)


class StoreNames:
    """The resolver of references that contain a slash.

    Concurrent callers for the same MLflow folder share the work of making its store.
    """

    def __init__(self) -> None:
        self._making: SingleFlight[tuple[Stores, str], str] = SingleFlight()

    async def __call__(self, stores: Stores, ref: str) -> str:
        """Return the id of the store that a reference names. Raise `NotFound` if the reference names no store."""
        if ref.startswith(FOLDERS):
            folder = _folder_of(ref)
            making = self._making.get(
                (stores, folder), lambda: MlflowArtifacts(stores).freeze(folder), cancellable=True
            )
            return await making
        name, _, revision = ref.partition("@")
        head, colon, tag = name.rpartition(":")
        if colon or revision.startswith(("sha256:", "sha512:")):
            repository = ExportedRepository(stores, ArtifactRepository(stores, listed_name(head or name)))
            found = (await repository.manifest(revision or tag)).store
        else:
            history = await repositories_of(stores).find(name, moved=True)
            found = (await history.commit(revision)).store
        if found is None:
            raise NotFound(f"{ref[:200]} has no files")
        return found


def repositories_of(stores: Stores) -> Repositories:
    """Return the repositories over `stores`, including tags that clients pushed as OCI artifacts."""
    return Repositories(stores, pushed=lambda name: ArtifactCommits(stores, name))


def _folder_of(uri: str) -> str:
    """Return the folder that an MLflow URI names. The host in `mlflow-artifacts://host/folder` is ignored.

    Raise `NotFound` for the root folder, which holds all artifacts.
    """
    path = uri.removeprefix(FOLDERS)
    folder = (path[1:].partition("/")[2] if path.startswith("/") else path).strip("/")
    if not folder:
        raise NotFound(f"{uri[:200]} does not name a folder of artifacts: use mlflow-artifacts:/FOLDER")
    return folder


class StoreReferences:
    """The names that refer to the stores of one space."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._named = NamesOfStores(stores.database, stores.space)
        self._mlflow = MlflowArtifacts(stores)

    async def named(self, stores: Sequence[Store]) -> list[Store]:
        """Return the stores with the names that refer to them, at most `MOST_NAMES` names per store."""
        if not stores:
            return []
        found = await self._names([store.id for store in stores])
        return [_with_names(store, found.get(store.id, ())) for store in stores]

    async def check(self, forced: Collection[str], store_id: str, tags: Collection[str]) -> None:
        """Raise `StillNamed` if names that are not in `forced` refer to a store.

        A name that is made after this check is not noticed. Such a name refers to a removed store, as if the name had
        been made after the removal.
        """
        try:
            await self._stores.manifests.get(store_id)
        except NotFound:
            return
        except IntegrityError:
            pass  # a damaged store has names too
        found = await self._names([store_id], most=MOST_NAMES + len(forced))
        names = [*(StoreName("tag", tag) for tag in sorted(tags)), *found.get(store_id, ())]
        left = [each for each in names if each.name not in forced]
        if left:
            raise _still_named(store_id, left)

    async def _names(self, ids: Sequence[str], *, most: int = MOST_NAMES) -> Mapping[str, list[StoreName]]:
        """Return the names of stores, keyed by store id. The query reads at most `most` + 1 names in repositories."""
        found: dict[str, set[StoreName]] = {}
        names = await self._named.naming(ids, most + 1)
        for each in names:
            if each.protocol != MLFLOW:
                name = StoreName(each.protocol, shown_name(each.protocol, each.repository, each.name))
                found.setdefault(each.store, set()).add(name)
        for store, folder in await self._mlflow.naming([each for each in names if each.protocol == MLFLOW]):
            found.setdefault(store, set()).add(StoreName(MLFLOW, shown_name(MLFLOW, "", folder)))
        return {store: sorted(names, key=_order) for store, names in found.items()}


def _order(name: StoreName) -> tuple[str, str]:
    return name.protocol, name.name


def _with_names(store: Store, names: Collection[StoreName]) -> Store:
    tags = [StoreName("tag", tag) for tag in store.tags]
    return replace(store, names=(*tags, *names)[:MOST_NAMES])


def _still_named(store_id: str, left: Sequence[StoreName]) -> StillNamed:
    shown = ", ".join(f"{each.name} ({each.protocol})" for each in left[:10])
    others = f" and {len(left) - 10} more" if len(left) > 10 else ""
    error = StillNamed(
        f"Store {store_id[:12]} is referenced by {shown}{others}: remove these names first, or list them in `force`"
    )
    error.names = tuple((each.protocol, each.name) for each in left[:MOST_NAMES])
    error.more = len(left) > MOST_NAMES
    return error


class _Entry(NamedTuple):
    """A repository in a list: its name as shown, its place in a cursor, and a function that returns its summary."""

    name: str
    place: str
    summary: Callable[[], Awaitable[RepositorySummary | None]]


class _Registry(Protocol):
    """The repositories of one protocol."""

    protocol: ClassVar[str]

    async def entries(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[_Entry], bool]:
        """Return a page of repositories whose names may begin with `prefix`, and True if more pages follow."""

    async def refs(self, repository: Repository, *, limit: int, after: str | None) -> tuple[Sequence[Ref], str | None]:
        """Return a page of a repository's branches and tags, and the place at which the next page begins."""


class _Hub:
    protocol: ClassVar = "hub"

    def __init__(self, stores: Stores) -> None:
        self._stores, self._repositories = stores, repositories_of(stores)

    async def entries(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[_Entry], bool]:
        names, more = await self._repositories.names(prefix, limit=limit, after=after)
        return [_Entry(name, name, partial(self._summary, name)) for name in names], more

    async def refs(self, repository: Repository, *, limit: int, after: str | None) -> tuple[Sequence[Ref], str | None]:
        return await repository.log.page(limit, after)

    async def _summary(self, name: str) -> RepositorySummary:
        repository = await self._repositories.get(name)
        plain = RepositorySummary(name, "hub", None, None, None, None, None, repository.created)
        main = await repository.log.ref("heads", MAIN)
        if main.commit.store is not None:
            return await _sized(self._stores, plain, _version(name, "hub", main))
        pushed = await ArtifactCommits(self._stores, name).head()
        return plain if pushed is None else await _sized(self._stores, plain, _version(name, "oci", pushed))


class _Oci:
    protocol: ClassVar = "oci"

    def __init__(self, stores: Stores) -> None:
        self._stores, self._repositories = stores, repositories_of(stores)

    async def entries(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[_Entry], bool]:
        names, more = await repository_names(self._stores, limit=limit, after=after, prefix=prefix)
        return [_Entry(name, name, partial(self._summary, name)) for name in names], more

    async def refs(self, repository: Repository, *, limit: int, after: str | None) -> tuple[Sequence[Ref], str | None]:
        return await ArtifactCommits(self._stores, repository.name).page(limit=limit, after=after)

    async def _summary(self, name: str) -> RepositorySummary | None:
        with suppress(NoRepository, InvalidInput):  # OCI allows longer names than the hub
            if (await self._repositories.current(name)).name.lower() == name:
                return None  # the hub has this repository too, and its page listed it
        head = await ArtifactCommits(self._stores, name).head()
        if head is None:
            return None
        plain = RepositorySummary(name, "oci", None, None, None, None, None, head.commit.time)
        return await _sized(self._stores, plain, _version(name, "oci", head))


class _Mlflow:
    protocol: ClassVar = "mlflow"

    def __init__(self, stores: Stores) -> None:
        self._stores, self._table = stores, MlflowArtifacts(stores).table

    async def entries(self, prefix: str, *, limit: int, after: str | None) -> tuple[list[_Entry], bool]:
        if not (prefix.startswith(FOLDERS) or FOLDERS.startswith(prefix)):
            return [], False
        below, _, _ = prefix.removeprefix(FOLDERS).rpartition("/") if prefix.startswith(FOLDERS) else ("", "", "")
        found, more = await self._table.folders(below, limit=limit, after=after)
        return [_Entry(FOLDERS + each.path, each.path, partial(self._summary, each)) for each in found], more

    async def refs(self, repository: Repository, *, limit: int, after: str | None) -> tuple[Sequence[Ref], str | None]:
        return [], None

    async def _summary(self, folder: ArtifactFolder) -> RepositorySummary:
        uri = FOLDERS + folder.path
        plain = RepositorySummary(uri, "mlflow", uri, None, None, None, None, folder.updated)
        frozen = await self._table.last_frozen(folder.path)
        if frozen is None:
            return plain
        return await _sized(self._stores, plain, RepositoryVersion("", "", uri, frozen[0], folder.updated))


class RepositoryPages:
    """The lists of one space's repositories and of their versions, in pages.

    The cost of a page depends only on its own length. Repositories of the hub come first. Repositories that only OCI
    clients see follow, then folders of MLflow artifacts. Each of these three groups is sorted by name. Another page may
    follow even an empty page.
    """

    def __init__(self, stores: Stores) -> None:
        self._repositories = repositories_of(stores)
        self._registries: Sequence[_Registry] = _Hub(stores), _Oci(stores), _Mlflow(stores)

    async def page(self, prefix: str, *, limit: int, cursor: str | None) -> ResultPage[RepositorySummary]:
        """Return a page of the repositories whose names begin with `prefix`.

        Raise `InvalidInput` if the cursor comes from another call.
        """
        registries, after = self._place(cursor)
        if len(prefix) > _LONGEST:
            return ResultPage(())
        found, next_cursor = list[_Entry](), None
        for each in registries:
            if len(found) == limit:
                next_cursor = f"{each.protocol} "
                break
            entries, more = await each.entries(prefix, limit=limit - len(found), after=after)
            # MLflow lists whole folders, so the prefix may end within the name of the last folder.
            found += [entry for entry in entries if entry.name.startswith(prefix)]
            after = None
            if more:
                next_cursor = f"{each.protocol} {entries[-1].place}"
                break
        summaries = await map_concurrently(_summary, found)
        return ResultPage([each for each in summaries if each is not None], next_cursor)

    async def versions(self, name: str, *, limit: int, cursor: str | None) -> ResultPage[RepositoryVersion]:
        """Return a page of the branches and tags that have files. Branches and tags of the hub come before tags of OCI.

        Raise `NoRepository` if no repository has that name.
        """
        repository = await self._repositories.find(name, moved=True)
        (registry, *others), after = self._place(cursor)
        refs, following = await registry.refs(repository, limit=limit, after=after)
        next_cursor = None if following is None else f"{registry.protocol} {following}"
        if following is None and registry.protocol == _Hub.protocol:
            next_cursor = f"{others[0].protocol} "
        versions = [_version(repository.name, registry.protocol, ref) for ref in refs if ref.commit.store is not None]
        return ResultPage(versions, next_cursor)

    def _place(self, cursor: str | None) -> tuple[Sequence[_Registry], str | None]:
        """Return the registries, starting at the cursor's registry, and the last name of the previous page."""
        protocol, _, after = (cursor or "hub ").partition(" ")
        for number, each in enumerate(self._registries):
            if each.protocol == protocol and len(after) <= _LONGEST_CURSOR:
                return self._registries[number:], after or None
        raise InvalidInput("the cursor is not one that this service returned")


async def _summary(entry: _Entry) -> RepositorySummary | None:
    """Return the summary of a repository; None if the repository is gone, damaged, or listed under another protocol."""
    try:
        return await entry.summary()
    except NotFound:
        return None
    except IntegrityError:
        _log.exception("left repository %r out of a list, because its records are damaged", entry.name)
        return None


async def _sized(stores: Stores, plain: RepositorySummary, head: RepositoryVersion) -> RepositorySummary:
    """Return a summary with the current version and the facts of that version's store.

    If this store was removed, return `plain`.
    """
    try:
        store = (await stores.manifests.get(head.store)).as_store()
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
    # A reference without a slash would be read as a store's tag, so the store's id replaces it.
    named = f"{name}{':' if protocol == 'oci' else '@'}{ref.name}" if "/" in name else store
    return RepositoryVersion(ref.name, "branch" if ref.kind == "heads" else "tag", named, store, ref.commit.time)
