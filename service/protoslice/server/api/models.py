"""JSON responses of the API that are no facts of the library: pages, and facts with further members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from protoslice.facts import (
    OMITTED,
    Change,
    Compared,
    Count,
    Difference,
    Id,
    Keywords,
    ModelReport,
    Positive,
    Store,
    StoreName,
    TensorEntry,
)
from protoslice.server.auth.permissions import Scope

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    next: str | None
    """Cursor of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class TensorPage:
    """A page of the tensors of a store."""

    items: Sequence[TensorEntry]
    next: str | None
    """Cursor of the next page; None on the last page."""
    total: Count
    """Total number of tensors in the store."""


@dataclass(frozen=True, slots=True)
class RestoredStore(Store):
    """A restored store."""

    tags_taken: tuple[str, ...] = ()
    """Tags that were not restored, because they point at another store now."""


@dataclass(frozen=True, slots=True)
class CreatedStore(Store):
    """The store made from an upload: a new one, or an existing one that is identical."""

    report: Annotated[ModelReport | None, OMITTED] = None
    """Report on the uploaded model; only if the request has `report=true`."""


@dataclass(frozen=True, slots=True)
class DifferenceCount:
    """The differences of one kind."""

    what: Annotated[str, Keywords(enum=get_args(Compared))]
    change: Annotated[str, Keywords(enum=get_args(Change))]
    count: Positive


@dataclass(frozen=True, slots=True)
class Diff:
    """A page of the differences of two stores."""

    before: Id
    after: Id
    equal: bool
    counts: Sequence[DifferenceCount]
    """Total number of differences, including those not listed."""
    read: Count
    """Bytes of both stores that were read, because no digests could be compared."""
    assumed: Count
    """Bytes that were not read because the checksums of their blocks are equal; 0 without `checksums`."""
    items: Sequence[Difference]
    next: str | None
    """`cursor` of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """A running comparison."""

    read: Count
    """Bytes of both stores that were read so far."""
    size: Count
    """Size of both stores in bytes, the upper bound of `read`."""


@dataclass(frozen=True, slots=True)
class UploadState:
    """A resumable upload."""

    id: str
    state: Annotated[str, Keywords(enum=["open", "complete", "stored"])]
    """`open`: accepts bytes; `complete`: has all bytes, to be joined with other uploads; `stored`: became a store."""
    offset: Count
    """Number of durable bytes."""
    length: Count | None
    """Total number of bytes, if known."""
    filename: str | None
    expires: datetime
    store: Id | None
    """The store created from the upload."""


class Mistake(BaseModel):
    """An error in one parameter of a request."""

    model_config = ConfigDict(populate_by_name=True)

    where: str = Field(alias="in")
    name: str
    detail: str


class ProblemModel(BaseModel):
    """Problem details (RFC 9457).

    Which of the optional members are present depends on the type.
    """

    model_config = ConfigDict(extra="allow", populate_by_name=True)

    type: str = Field(examples=["/problems/not-found"])
    title: str
    status: int
    detail: str
    instance: str | None = None
    request_id: str
    path: str | None = Field(default=None, description="Field path of the error.")
    offset: int | None = Field(default=None, description="Byte offset of the error.")
    object: str | None = Field(default=None, description="Damaged object of the storage.")
    limit: int | None = Field(default=None, description="The limit that the request exceeds.")
    offers: list[str] | None = Field(default=None, description="Available media types.")
    errors: list[Mistake] | None = Field(default=None, description="Each invalid parameter.")
    etag: str | None = Field(default=None, description="Current entity tag, without quotes.")
    store: str | None = Field(default=None, description="Store that the tag points at now.")
    scope: Scope | None = Field(default=None, description="Scope that the token lacks.")
    names: list[StoreName] | None = Field(default=None, description="Names that refer to the store.")
    more: bool | None = Field(default=None, description="True if `names` lists only some.")
    expected_offset: int | None = Field(default=None, alias="expected-offset", description="Offset to continue from.")
    provided_offset: int | None = Field(default=None, alias="provided-offset", description="Offset in the request.")
