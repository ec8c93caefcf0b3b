"""Repositories: named histories of stores, in which branches and tags point at commits."""

from protoslice.repositories.catalog import Repositories
from protoslice.repositories.change import Change
from protoslice.repositories.faults import (
    NoCommit,
    NoFile,
    NoRepository,
    Outrun,
    RefExists,
    RepositoryExists,
    RepositoryMoved,
)
from protoslice.repositories.finding import KnownFiles
from protoslice.repositories.model import MAIN, Author, Commit, Ref
from protoslice.repositories.names import VIEWS
from protoslice.repositories.repository import Repository
from protoslice.repositories.sessions import StagedXorb, XorbSession
from protoslice.repositories.views import ComputedFile, ShownCommit

__all__ = [
    "MAIN",
    "VIEWS",
    "Author",
    "Change",
    "Commit",
    "ComputedFile",
    "KnownFiles",
    "NoCommit",
    "NoFile",
    "NoRepository",
    "Outrun",
    "Ref",
    "RefExists",
    "Repositories",
    "Repository",
    "RepositoryExists",
    "RepositoryMoved",
    "ShownCommit",
    "StagedXorb",
    "XorbSession",
]
