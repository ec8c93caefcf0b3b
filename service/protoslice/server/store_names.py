"""Names of stores in registries.

`owner/name@revision` of a repository, `name:tag` of an OCI artifact, `mlflow-artifacts:/folder` of MLflow's artifacts.
"""

from __future__ import annotations

from protoslice.artifacts import ArtifactRepository
from protoslice.artifacts.commits import ArtifactCommits
from protoslice.artifacts.exports import ExportedRepository
from protoslice.catalog.labels import FOLDERS
from protoslice.catalog.syntax import listed_name
from protoslice.concurrency.singleflight import SingleFlight
from protoslice.errors import NotFound
from protoslice.mlflow import MlflowArtifacts
from protoslice.repositories import Repositories
from protoslice.stores import Stores


class StoreNames:
    """Resolver of references with a slash.

    Concurrent callers for a folder of MLflow's share the making of its store.
    """

    def __init__(self) -> None:
        self._making: SingleFlight[tuple[Stores, str], str] = SingleFlight()

    async def __call__(self, stores: Stores, ref: str) -> str:
        """Id of the store that a reference names; `NotFound` when it names none."""
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
    """Repositories over stores, with the tags that were pushed to them as OCI artifacts."""
    return Repositories(stores, pushed=lambda name: ArtifactCommits(stores, name))


def _folder_of(uri: str) -> str:
    """Folder that a URI of MLflow names; the host of `mlflow-artifacts://host/folder` is this one.

    `NotFound` for all artifacts at once.
    """
    path = uri.removeprefix(FOLDERS)
    folder = (path[1:].partition("/")[2] if path.startswith("/") else path).strip("/")
    if not folder:
        raise NotFound(f"{uri[:200]} does not name a folder of artifacts: use mlflow-artifacts:/FOLDER")
    return folder
