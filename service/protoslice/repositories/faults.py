"""Errors specific to repositories."""

from __future__ import annotations

from protoslice.errors import Conflict, NotFound


class NoRepository(NotFound):
    """Name of no repository."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No repository {name!r}")


class RepositoryMoved(NoRepository):
    """Former name of a repository, or its name in another case."""

    def __init__(self, name: str, current: str) -> None:
        super().__init__(name)
        self.name = name
        self.current = current


class NoCommit(NotFound):
    """Name of no branch, tag or commit of a repository."""

    def __init__(self, revision: str) -> None:
        super().__init__(f"The repository has no branch, tag or commit {revision!r}")


class NoFile(NotFound):
    """Path of no file or folder of a commit."""

    def __init__(self, path: str) -> None:
        super().__init__(f"The commit has no file or folder {path!r}")


class RepositoryExists(Conflict):
    """Name of a new repository that another one has, perhaps in another case: it is called `current`."""

    def __init__(self, name: str, current: str) -> None:
        super().__init__(f"The repository {name!r} already exists")
        self.current = current


class RefExists(Conflict):
    """Name of a new branch or tag that another one has."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The repository already has a branch or tag {name!r}")


class Outrun(Conflict):
    """Change of a branch that another change has moved on."""

    def __init__(self, branch: str) -> None:
        super().__init__(f"The branch {branch!r} has changed meanwhile: read it again")
