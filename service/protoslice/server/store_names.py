"""Names of stores in registries: `owner/name@revision` of a repository, `name:tag` of an OCI artifact."""

from __future__ import annotations

from protoslice.artifacts import ArtifactRepository, RepositoryName
from protoslice.errors import NotFound
from protoslice.repositories import Repositories
from protoslice.stores import Stores


async def store_of(stores: Stores, ref: str) -> str:
    """Id of the store that a reference with a slash names; `NotFound` when it names none."""
    name, _, revision = ref.partition("@")
    head, colon, tag = name.rpartition(":")
    if colon or revision.startswith(("sha256:", "sha512:")):
        repository = ArtifactRepository(stores, RepositoryName(head or name))
        found = (await repository.manifest(revision or tag)).store
    else:
        history = await Repositories(stores.storage, stores).get(name)
        found = (await history.commit(revision)).store
    if found is None:
        raise NotFound(f"{ref[:200]} has no files")
    return found
