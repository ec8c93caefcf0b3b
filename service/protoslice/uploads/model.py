"""Model of uploads and their records; parts that the record does not name do not count."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from typing import Any, Literal, Self, cast

from protoslice import errors
from protoslice.catalog.clock import microseconds
from protoslice.catalog.manifest import ObjectLocation, stored_from_dict
from protoslice.catalog.objects import object_id
from protoslice.catalog.requests import IngestRequest
from protoslice.catalog.uploads import UploadRow
from protoslice.database.transactions import time_of
from protoslice.errors import IntegrityError, ProtosliceError

_COLUMNS = ("id", "client", "state", "used", "expires", "parts")
NAMELESS = "model.pb"

State = Literal["open", "complete", "stored", "failed", "gone"]
"""`complete` is a partial upload, ready to be joined; `gone` has been removed or has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """Request to begin an upload."""

    length: int | None = None
    path: str | None = None
    """Name of the file; None when not known yet."""
    request: IngestRequest = field(default_factory=IngestRequest)
    partial: bool = False
    """True for an upload to be joined with others, which makes no store by itself."""
    sha256: bytes | None = None
    """Expected SHA-256 of the whole upload."""
    client_metadata: str = ""
    """Raw `Upload-Metadata`, returned as it was sent."""
    client: str = ""
    """Client that the upload counts for, if clients are limited; never shown."""
    composed: bool = False
    """True where its bytes will be extents of objects, which the space has counted: no room is asked for."""


@dataclass(frozen=True, slots=True)
class SavedInspection:
    """Location of a saved inspection state, the bytes inspected, and the state's size."""

    key: str
    after: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Reason why no store was made of an upload."""

    kind: str
    message: str
    offset: int | None = None
    path: str | None = None

    @classmethod
    def of(cls, error: ProtosliceError) -> Self:
        """Convert an error to a storable failure."""
        return cls(type(error).__name__, error.message, error.offset, error.path)

    def error(self) -> ProtosliceError:
        """Rebuild the error; `InvalidInput` for an unknown kind."""
        kind: type[ProtosliceError] = getattr(errors, self.kind, errors.InvalidInput)
        return kind(self.message, self.offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Upload, whose bytes are those of its immutable parts."""

    id: str
    path: str | None
    request: IngestRequest
    created: datetime
    expires: datetime
    length: int | None = None
    partial: bool = False
    joined: tuple[str, ...] = ()
    """Ids of the uploads joined into this one."""
    sha256: str | None = None
    client_metadata: str = ""
    client: str = ""
    parts: tuple[ObjectLocation, ...] = ()
    saved: SavedInspection | None = None
    state: State = "open"
    store: str | None = None
    failure: Failure | None = None
    used: bool = False
    """True once a store was made with its bytes: a `complete` upload counts as open no longer."""

    @property
    def offset(self) -> int:
        """Number of durable bytes."""
        return sum(part.size for part in self.parts) if not self.joined else self.length or 0

    @property
    def object_ids(self) -> set[int]:
        """Ids of the objects that the upload needs."""
        saved = set() if self.saved is None else {object_id(self.saved.key)}
        return saved.union(*(part.object_ids for part in self.parts))

    @property
    def is_whole(self) -> bool:
        """True when all bytes are durable."""
        return self.offset == self.length

    @property
    def is_begun(self) -> bool:
        """True when it has bytes, or is open no longer."""
        return self.offset > 0 or self.state != "open"

    @property
    def filename(self) -> str:
        """Path of the file in the store."""
        return self.path or NAMELESS

    @property
    def wanted_type(self) -> str | None:
        """Type requested for the file; None when none was requested or the file cannot be the root."""
        return self.request.type if self.request.root in {None, self.filename} else None

    @property
    def expires_microseconds(self) -> int:
        """Time at which the upload expires, in microseconds since the epoch."""
        return microseconds(self.expires)

    def encode(self) -> str:
        """Serialize the members without a column to JSON."""
        data: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in _COLUMNS:
            del data[name]
        data["request"] = {name: value for name, value in asdict(self.request).items() if value is not None}
        for name in ("saved", "failure"):
            data[name] = data[name] and asdict(data[name])
        data["created"] = self.created.isoformat()
        return json.dumps(data, separators=(",", ":"))

    @classmethod
    def decode(cls, row: UploadRow) -> Upload:
        """Build an upload from its row; raise `IntegrityError` for a record that does not parse."""
        try:
            raw = json.loads(row.record)
            raw["request"] = IngestRequest(**_tuples(raw["request"]))
            raw["joined"] = tuple(raw["joined"])
            raw["saved"] = raw["saved"] and SavedInspection(**raw["saved"])
            raw["failure"] = raw["failure"] and Failure(**raw["failure"])
            raw["created"] = datetime.fromisoformat(raw["created"])
            return cls(
                **raw,
                id=row.id,
                client=row.client,
                state=cast(State, row.state),
                used=row.used,
                expires=time_of(row.expires),
                parts=tuple(stored_from_dict(json.loads(part)) for part in row.parts),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("the record of an upload does not parse") from error


def _tuples(request: dict[str, Any]) -> dict[str, Any]:
    """Options of a request with tuples in place of JSON's lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in request.items()}
