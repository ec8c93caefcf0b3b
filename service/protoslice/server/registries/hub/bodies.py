"""Bodies of the hub's requests that are JSON."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field

from protoslice.defaults import MAX_FILES
from protoslice.errors import Unsupported
from protoslice.repositories import MAIN

_MOST_FILES: Final = 1000
_MOST_OBJECTS: Final = 256
"""Objects of a batch: each begins an upload."""
UPLOAD: Final = "upload"
"""Operation of a batch whose files the client sends."""
DOWNLOAD: Final = "download"
"""Operation of a batch whose files the client wants."""
MOST_PARTS: Final = 400
"""Parts of a file: each is an upload."""
_ELSEWHERE: Final = "its operator can require tokens, and limit them to a separate space"
_Text = Annotated[str, Field(max_length=1000)]


class VisibilityBody(BaseModel):
    """Who may read a repository."""

    private: bool | None = None
    visibility: _Text | None = None
    gated: bool | _Text | None = None
    resourceGroupId: _Text | None = None  # noqa: N815 - the protocol's name

    def check(self, *, closed: bool) -> None:
        """Raise `Unsupported` for what repositories cannot be; those of a `closed` service are private."""
        if self.gated or self.resourceGroupId or self.visibility not in {None, "public", "private"}:
            raise Unsupported(f"Repositories cannot be gated, protected or in resource groups: {_ELSEWHERE}")
        if (self.private or self.visibility == "private") and not closed:
            raise Unsupported(f"Repositories cannot be private on a service that is open to everyone: {_ELSEWHERE}")


class RepositoryBody(VisibilityBody):
    """Name of a repository."""

    name: _Text
    organization: _Text | None = None
    type: _Text | None = None


class BranchBody(BaseModel):
    """Beginning of a new branch."""

    startingPoint: _Text | None = None  # noqa: N815 - the protocol's name


class TagBody(BaseModel):
    """New tag."""

    tag: _Text
    message: str | None = None


class SquashBody(BaseModel):
    """Message of a commit that replaces a history."""

    message: str | None = None


class MoveBody(VisibilityBody):
    """Old and new name of a repository."""

    fromRepo: _Text  # noqa: N815 - the protocol's name
    toRepo: _Text  # noqa: N815 - the protocol's name
    type: _Text | None = None


class PreuploadFile(BaseModel):
    """File that a client is about to send."""

    path: str
    size: Annotated[int, Field(ge=0)] = 0


class PreuploadBody(BaseModel):
    """Files that a client is about to send."""

    files: Annotated[list[PreuploadFile], Field(max_length=_MOST_FILES)]


class PathsBody(BaseModel):
    """Paths of files and folders that a client asks about."""

    paths: Annotated[list[str], Field(max_length=MAX_FILES)] | str
    expand: bool = False


class LfsRef(BaseModel):
    """Revision that files of git-lfs are for."""

    name: _Text = MAIN


class LfsObject(BaseModel):
    """File of git-lfs; an empty one comes within its commit."""

    oid: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    size: Annotated[int, Field(ge=1, lt=1 << 63)]


class LfsPart(BaseModel):
    """Part of a file that was sent, and the entity tag of its answer."""

    partNumber: Annotated[int, Field(ge=1, le=MOST_PARTS)]  # noqa: N815 - the protocol's name
    etag: _Text


class LfsParts(BaseModel):
    """All parts of a file, in any order."""

    parts: Annotated[list[LfsPart], Field(max_length=MOST_PARTS)]


class BatchBody(BaseModel):
    """Files of git-lfs that a client sends or wants."""

    operation: _Text
    transfers: Annotated[list[_Text], Field(max_length=20)] = []
    ref: LfsRef | None = None
    objects: Annotated[list[LfsObject], Field(max_length=_MOST_OBJECTS)]
