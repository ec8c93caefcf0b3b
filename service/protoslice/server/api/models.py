"""Classes of JSON answers that the library does not define: pages, and the library's results with further members."""

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
    """The cursor of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class TensorPage:
    """A page of the tensors of a store."""

    items: Sequence[TensorEntry]
    next: str | None
    """The cursor of the next page; None on the last page."""
    total: Count
    """The total number of tensors in the store."""


@dataclass(frozen=True, slots=True)
class RestoredStore(Store):
    """A restored store."""

    tags_taken: tuple[str, ...] = ()
    """Tags that were not restored, because they now point at another store."""


@dataclass(frozen=True, slots=True)
class CreatedStore(Store):
    """The store that an upload made: a new store, or an existing store that is identical."""

    report: Annotated[ModelReport | None, OMITTED] = None
    """Report on the uploaded model; only if the request has `report=true`."""


@dataclass(frozen=True, slots=True)
class DifferenceCount:
    """The number of differences of one kind."""

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
    """The number of differences of each kind, including differences that are not listed."""
    read: Count
    """The number of bytes of both stores that were read, because no digests could be compared."""
    assumed: Count
    """The number of bytes that were not read because their blocks have equal checksums; 0 without `checksums`."""
    items: Sequence[Difference]
    next: str | None
    """The `cursor` of the next page; None on the last page."""


@dataclass(frozen=True, slots=True)
class Comparing:
    """The progress of a running comparison."""

    read: Count
    """The number of bytes of both stores that were read so far."""
    size: Count
    """The total size of both stores in bytes, which is the upper bound of `read`."""


@dataclass(frozen=True, slots=True)
class UploadState:
    """A resumable upload."""

    id: str
    state: Annotated[str, Keywords(enum=["open", "complete", "stored"])]
    """The state of the upload.

    An `open` upload accepts bytes. A `complete` upload has all its bytes, and waits to be joined with other uploads. A
    `stored` upload became a store.
    """
    offset: Count
    """The number of bytes that have arrived and are stored durably."""
    length: Count | None
    """The total number of bytes; None if unknown."""
    filename: str | None
    expires: datetime
    store: Id | None
    """The id of the store that was created from the upload; None before the store exists."""


class Mistake(BaseModel):
    """An error in one parameter of a request."""

    model_config = ConfigDict(populate_by_name=True)

    where: str = Field(alias="in")
    name: str
    detail: str


class ProblemModel(BaseModel):
    """Problem details (RFC 9457).

    The type of the problem decides which optional members are present.
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
