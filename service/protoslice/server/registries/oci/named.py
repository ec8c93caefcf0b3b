"""Parameters of routes: the repository that a path names, and the same with the commits that it shows."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from protoslice.artifacts import ArtifactRepository, RepositoryName
from protoslice.artifacts.exports import ExportedRepository
from protoslice.catalog.syntax import listed_name
from protoslice.server.http.headers import read_fields
from protoslice.server.services import Given


def is_ollama(request: Request) -> bool:
    """True for a request of Ollama, which reads other manifests and names than clients of OCI."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("ollama/")


def is_llama(request: Request) -> bool:
    """Return True for a request of llama.cpp, which asks for names of files where others ask for manifests."""
    return read_fields(request.scope).get(b"user-agent", "").startswith("llama-cpp")


async def _repository(request: Request, name: str, services: Given) -> ArtifactRepository:
    return ArtifactRepository(services.stores, _name(request, name), services.uploads)


def _name(request: Request, name: str) -> RepositoryName:
    """The name; with capitals, Ollama and llama.cpp get manifests, and every program gets blobs."""
    reads = request.method == "GET" and ("digest" in request.path_params or is_ollama(request) or is_llama(request))
    return listed_name(name) if reads else RepositoryName(name)


Repository = Annotated[ArtifactRepository, Depends(_repository)]


async def _exported(repository: Repository, services: Given) -> ExportedRepository:
    return ExportedRepository(services.stores, repository)


Exported = Annotated[ExportedRepository, Depends(_exported)]
