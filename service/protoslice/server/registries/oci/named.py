"""Parameters of routes: the repository that a path names, and the same with the commits that it shows."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import Depends, Request

from protoslice.artifacts import ArtifactRepository, NameInvalid, RepositoryName
from protoslice.artifacts.exports import ExportedRepository
from protoslice.artifacts.names import HubName
from protoslice.errors import InvalidInput
from protoslice.server.http.headers import read_fields
from protoslice.server.services import Given


def is_ollama(request: Request) -> bool:
    """True for a request of Ollama, which reads other manifests and names than clients of OCI."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("ollama/")


async def _repository(request: Request, name: str, services: Given) -> ArtifactRepository:
    return ArtifactRepository(services.stores, _name(request, name), services.uploads)


def _name(request: Request, name: str) -> RepositoryName:
    """The name; of a repository with capitals, Ollama gets manifests, and blobs under the name of no program."""
    reads = request.method == "GET" and ("digest" in request.path_params or is_ollama(request))
    return listed_name(name) if reads else RepositoryName(name)


def listed_name(name: str) -> RepositoryName:
    """The name of a repository, which may have capitals; `NameInvalid` for other texts."""
    try:
        return RepositoryName(name)
    except NameInvalid:
        with suppress(InvalidInput):
            return HubName(name)
        raise


Repository = Annotated[ArtifactRepository, Depends(_repository)]


async def _exported(repository: Repository, services: Given) -> ExportedRepository:
    return ExportedRepository(services.stores, repository)


Exported = Annotated[ExportedRepository, Depends(_exported)]
