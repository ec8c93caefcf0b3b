"""What is recorded of an upload. The record is all there is to know: whatever it does not name does not count."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any, Literal, Self

from protoslice import errors
from protoslice.defaults import (
    MAX_OPEN_UPLOADS,
    MAX_UPLOAD_BYTES,
    UPLOAD_BEGIN_SECONDS,
    UPLOAD_LIFETIME_SECONDS,
    UPLOAD_PART_BYTES,
)
from protoslice.errors import IntegrityError, LimitExceeded, ProtosliceError
from protoslice.stores.clock import now
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.manifest import ObjectLocation, stored_as_dict, stored_from_dict
from protoslice.stores.requests import IngestRequest

__all__ = ["Failure", "NewUpload", "Saved", "State", "Upload", "UploadOptions"]

_VERSION = 1
NAMELESS = "model.pb"

State = Literal["open", "complete", "stored", "failed", "gone"]
"""`complete` is a part that others are joined with; `gone` has been removed, or has expired."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOptions:
    """Bounds on uploads that are kept until they are whole."""

    max_bytes: int = MAX_UPLOAD_BYTES
    max_open: int = MAX_OPEN_UPLOADS
    max_open_per_client: int = 0
    """Of these, how many one client may have; 0 is no limit."""
    begin_seconds: float = UPLOAD_BEGIN_SECONDS
    """How long an upload is kept of which no byte has come."""
    lifetime_seconds: float = UPLOAD_LIFETIME_SECONDS
    """How long an upload that does not get on, and the answer of one that has ended, are kept."""
    part_bytes: int = UPLOAD_PART_BYTES
    """A process that is killed loses no more than this of what it has not acknowledged."""

    @property
    def unbegun_seconds(self) -> float:
        """How long an upload is kept of which no byte has come, which is no longer than any other is."""
        return min(self.begin_seconds, self.lifetime_seconds)

    def kept_seconds(self, upload: Upload) -> float:
        """How long an upload is kept after a change of it."""
        begun = upload.offset > 0 or upload.state != "open"
        return self.lifetime_seconds if begun else self.unbegun_seconds

    def check_size(self, size: int) -> None:
        """Raise when an upload may not be so large."""
        if size > self.max_bytes:
            raise LimitExceeded(f"the upload is larger than {self.max_bytes} bytes, the most that is taken")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """What a client says when it begins."""

    length: int | None = None
    path: str | None = None
    """The file's name; none when it is not known yet."""
    request: IngestRequest = field(default_factory=IngestRequest)
    partial: bool = False
    """To be joined with others later, and no store by itself."""
    sha256: bytes | None = None
    """What the whole is to have."""
    told: str = ""
    """The client's own words about it, to be given back."""
    client: str = ""
    """Whose it is, where uploads are counted for each client. Told to nobody."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A state of the examination: where it lies, after how many bytes it was taken, and how long it is."""

    key: str
    after: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why no store came of an upload."""

    kind: str
    message: str
    offset: int | None = None
    path: str | None = None

    @classmethod
    def of(cls, error: ProtosliceError) -> Self:
        """What `error` says."""
        return cls(type(error).__name__, error.message, error.offset, error.path)

    def error(self) -> ProtosliceError:
        """The error again."""
        kind: type[ProtosliceError] = getattr(errors, self.kind, errors.InvalidInput)
        return kind(self.message, self.offset, self.path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """An upload: its bytes are those of its parts, which never change."""

    id: str
    path: str | None
    request: IngestRequest
    created: datetime
    expires: datetime
    length: int | None = None
    partial: bool = False
    joined: tuple[str, ...] = ()
    """The uploads it was joined from."""
    sha256: str | None = None
    told: str = ""
    client: str = ""
    parts: tuple[ObjectLocation, ...] = ()
    saved: Saved | None = None
    state: State = "open"
    store: str | None = None
    failure: Failure | None = None

    @property
    def offset(self) -> int:
        """How many bytes are durable."""
        return sum(part.size for part in self.parts) if not self.joined else self.length or 0

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are there."""
        return self.offset == self.length

    @property
    def filename(self) -> str:
        """What the file is called in the store."""
        return self.path or NAMELESS

    @property
    def wanted_type(self) -> str | None:
        """The type that the file is to be read as."""
        return self.request.type if self.request.root in {None, self.filename} else None

    def kept(self, seconds: float) -> Upload:
        """The same, to be kept for that long from now on."""
        return replace(self, expires=now() + timedelta(seconds=seconds))

    def encode(self) -> bytes:
        """Its JSON form, which `decode` reads."""
        data: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        data["request"] = asdict(self.request)
        data["parts"] = [stored_as_dict(part) for part in self.parts]
        for name in ("saved", "failure"):
            data[name] = data[name] and asdict(data[name])
        for name in ("created", "expires"):
            data[name] = data[name].isoformat()
        return seal(json.dumps({"version": _VERSION} | data, separators=(",", ":")).encode())

    @classmethod
    def decode(cls, sealed: bytes) -> Upload:
        """What `encode` gave; an `IntegrityError` for anything else."""
        try:
            raw = json.loads(unseal(sealed, "the record of an upload"))
            if raw.pop("version") != _VERSION:
                raise IntegrityError("the record of an upload has a version this program does not read")
            raw["request"] = IngestRequest(**(raw["request"] | {"tags": tuple(raw["request"]["tags"])}))
            raw["parts"] = tuple(stored_from_dict(part) for part in raw["parts"])
            raw["joined"] = tuple(raw["joined"])
            raw["saved"] = raw["saved"] and Saved(**raw["saved"])
            raw["failure"] = raw["failure"] and Failure(**raw["failure"])
            for name in ("created", "expires"):
                raw[name] = datetime.fromisoformat(raw[name])
            return cls(**raw)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise IntegrityError("the record of an upload does not parse") from error
