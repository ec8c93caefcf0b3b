"""Parameters of routes: the repository that a path names, and the same with the commits that it shows."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from protoslice.artifacts import ArtifactRepository, RepositoryName
from protoslice.artifacts.exports import ExportedRepository
from protoslice.server.services import Given


async def _repository(name: str, services: Given) -> ArtifactRepository:
    return ArtifactRepository(services.stores, RepositoryName(name), services.uploads)


Repository = Annotated[ArtifactRepository, Depends(_repository)]


async def _exported(repository: Repository, services: Given) -> ExportedRepository:
    return ExportedRepository(services.stores, repository)


Exported = Annotated[ExportedRepository, Depends(_exported)]
