"""The bodies of JSON requests, as pydantic models."""

from __future__ import annotations

from typing import Annotated, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    StrictInt,
    ValidationError,
    model_validator,
)

from protoslice.defaults import MAX_FILES
from protoslice.errors import LimitExceeded
from protoslice.server.auth.permissions import Scope
from protoslice.server.bodies.new_store import NewStore
from protoslice.server.http.query import plain_size

T = TypeVar("T")
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
MOST_MISTAKES: Final = 20
_EXAMPLE_ID: Final = "9f0c" * 16


class RequestBody(BaseModel):
    """A request body. It refuses unknown members and lists at most `MOST_MISTAKES` mistakes."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _with_few_mistakes(cls, data: object, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(data)
        except ValidationError as error:
            if error.error_count() <= MOST_MISTAKES:
                raise
            raise ValueError(f"The request has {error.error_count()} errors, which are too many to list") from None


class CreateToken(RequestBody):
    """The properties of a new token."""

    name: str = Field(description="Name of the token, shown in lists and logs.", examples=["ci"])
    scopes: list[Scope] = Field(max_length=16, description="Scopes of the token.", examples=[["read", "write"]])
    tags: list[str] = Field(
        default=[],
        max_length=64,
        description="Patterns of tags that the token may set and remove.",
        examples=[["ci-*"]],
    )
    expires_seconds: Annotated[StrictInt, Field(gt=0, le=315_360_000)] | None = Field(
        default=None, description="Lifetime in seconds."
    )
    every_space: bool = Field(default=False, description="True for a token that is valid in all spaces.")


Limit = Annotated[StrictInt, Field(ge=0, lt=1 << 63)]


class PutSpace(RequestBody):
    """The quota of a space. A limit of 0 means no limit. A missing member sets the service's default."""

    quota_bytes: Limit | None = Field(
        default=None, description="Stored bytes; removed stores count until `gc` deletes their objects."
    )
    quota_stores: Limit | None = Field(default=None, description="Number of stores.")
    quota_open_uploads: Limit | None = Field(default=None, description="Unfinished resumable uploads.")
    quota_requests: Limit | None = Field(default=None, description="Concurrent requests per replica.")


class ChangeSpace(PutSpace):
    """Changes of a quota. A limit of 0 means no limit, and null sets the default. Missing members are unchanged."""


class PutWebhook(RequestBody):
    """The properties of a webhook."""

    url: str = Field(
        max_length=2048, description="URL that receives events by POST.", examples=["https://ci.example/hooks/models"]
    )
    events: list[str] = Field(
        default=[],
        max_length=16,
        description="Event types to deliver; default: all.",
        examples=[["store.created", "tag.set"]],
    )


class SignUrl(RequestBody):
    """The path to share with a signed URL, and the URL's lifetime."""

    path: str = Field(
        pattern=r"^/[!$-~]*$",
        max_length=8000,
        description="Path and query of the URL, percent-encoded. The path begins with `/v1/stores/`, or is "
        "one that the service returned.",
        examples=["/v1/stores/model/files/weights.safetensors"],
    )
    expires_seconds: Annotated[StrictInt, Field(gt=0, le=604_800)] = Field(
        default=3600, description="Lifetime of the URL in seconds."
    )


class AskedPiece(BaseModel):
    """A piece of the client. The client need not send it if the service has it too."""

    model_config = ConfigDict(extra="forbid")

    sha256: Sha256
    size: StrictInt = Field(ge=1, lt=1 << 63)


class AskMissing(RequestBody):
    """Pieces to look for, and the stores to search."""

    stores: list[str] | None = Field(
        default=None,
        max_length=16,
        description="Stores to search; default: those that contain the most pieces.",
    )
    tags: list[str] = Field(
        default=[],
        max_length=16,
        description="Tags of the new store. Their stores, or else the last versions of the same names, are searched "
        "first.",
        examples=[["resnet50:4"]],
    )
    chunks: list[AskedPiece] = Field(max_length=10_000)


class AskMerge(RequestBody):
    """A part of a message in any of the store's files."""

    path: str = Field(default="", max_length=8192, description="Field path; default: the root.", examples=["graph"])
    fields: list[Annotated[str, Field(min_length=1, max_length=8192)]] = Field(
        default=[],
        max_length=100_000,
        description="Keep only these paths below `path`; `[*]` and `[2:10]` select elements.",
        examples=[["node[*].name", "initializer[0]"]],
    )
    omit_larger_than: StrictInt | str | None = Field(
        default=None, description="Leave out fields larger than this.", examples=["64KiB"]
    )
    omit: list[Annotated[str, Field(min_length=1, max_length=8192)]] = Field(
        default=[],
        max_length=100_000,
        description="Leave out these paths below `path`.",
        examples=[["initializer[*].raw_data"]],
    )
    file: str | None = Field(default=None, description="File to read instead of the root.")
    framing: str | None = Field(default=None, description="Framing of a stream, if it cannot be detected.")
    type: str | None = Field(default=None, description="Message type of the records of a stream.")

    @property
    def largest(self) -> int | None:
        """The limit of `omit_larger_than` in bytes."""
        return None if self.omit_larger_than is None else plain_size(self.omit_larger_than)


class AskedPart(BaseModel):
    """A view of the store, or a byte range of such a view."""

    model_config = ConfigDict(extra="forbid")

    view: str = Field(
        pattern=r"^[!$-~]+$",
        max_length=65_536,
        description="Path and query of a view below the store, percent-encoded.",
        examples=["chunks/3", "tensors/head.weight?slice=0:4", "merge?path=graph.node[3]", "files/config.json"],
    )
    range: str | None = Field(
        default=None, max_length=100, description="One byte range of the view; default: all.", examples=["bytes=0-1023"]
    )


class AskParts(RequestBody):
    """Parts to return, in this order."""

    parts: list[AskedPart] = Field(min_length=1, max_length=1000)


def _few(files: dict[str, T]) -> dict[str, T]:
    """Return `files` unchanged. Raise `LimitExceeded` for too many files, as other kinds of uploads do."""
    if len(files) > MAX_FILES:
        raise LimitExceeded(f"Too many files: a store holds at most {MAX_FILES}")
    return files


OfFiles = Annotated[dict[str, T], AfterValidator(_few), Field(json_schema_extra={"maxProperties": MAX_FILES})]


class Register(RequestBody, NewStore):
    """Objects in an allowed storage that the service indexes in place."""

    files: OfFiles[str] = Field(min_length=1, examples=[{"model.onnx": "s3://bucket/key"}])


class Assemble(RequestBody, NewStore):
    """Finished uploads that make up a new store: exactly one of `uploads`, `recipe` and `archive`."""

    uploads: OfFiles[str | list[str]] = Field(
        default={},
        description="Uploads by file path: the id or URL of an upload, or a list of them, whose bytes are joined in "
        "this order.",
        examples=[{"saved_model.pb": "0069204b3a-9f0c9f0c9f0c9f0c9f0c"}],
    )
    recipe: str | None = Field(
        default=None,
        description="Id or URL of an upload whose content is a recipe: new bytes, and references to bytes that the "
        "service has.",
    )
    archive: str | None = Field(
        default=None,
        description="Id or URL of an upload whose content is a tar archive with the store's files.",
    )
    sha256: dict[str, Sha256] = Field(
        default={}, description="Expected digests by path in `uploads`, compared before the store becomes visible."
    )

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        given = [bool(self.uploads), self.recipe is not None, self.archive is not None]
        if given.count(True) != 1 or (self.sha256 and not self.uploads):
            raise ValueError("Give exactly one of `uploads` (with optional digests), `recipe` and `archive`")
        return self


class DescribeStore(RequestBody):
    """The description of a store."""

    description: str = Field(
        max_length=2000,
        pattern=r"^[^\u0000]*$",
        description="A sentence or two; empty to remove it.",
        examples=["Fine-tuned on the May data."],
    )


class PutTag(RequestBody):
    """The target of a tag."""

    store: str = Field(description="Id, beginning of an id, or another tag.", examples=[_EXAMPLE_ID])
