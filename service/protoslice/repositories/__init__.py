"""Repositories: named histories of stores, in which branches and tags point at commits."""

from protoslice.catalog.histories import MAIN, Author, BranchMoved, Commit, NoCommit, NoRepository, Ref, RefExists
from protoslice.catalog.repositories import RepositoryExists, RepositoryMoved
from protoslice.catalog.syntax import VIEWS
from protoslice.repositories.change import Change, KnownFiles, NoFile
from protoslice.repositories.repository import PushedTags, Repositories, Repository
from protoslice.repositories.safetensors_revision import ComputedFile, ShownCommit
from protoslice.repositories.xet_sessions import StagedXorb, XorbSession

__all__ = [
    "MAIN",
    "VIEWS",
    "Author",
    "BranchMoved",
    "Change",
    "Commit",
    "ComputedFile",
    "KnownFiles",
    "NoCommit",
    "NoFile",
    "NoRepository",
    "PushedTags",
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
