"""Bodies of JSON requests, as pydantic models."""

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
from protoslice.server.access.decision import Scope
from protoslice.server.api.models import EXAMPLE_ID, Sha256
from protoslice.stores import TAGS_AT_ONCE

T = TypeVar("T")
MOST_MISTAKES: Final = 20


class RequestBody(BaseModel):
    """Body of a request: unknown members are refused, and at most `MOST_MISTAKES` mistakes are listed."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _with_few_mistakes(cls, data: object, read: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            return read(data)
        except ValidationError as error:
            if error.error_count() <= MOST_MISTAKES:
                raise
            raise ValueError(f"{error.error_count()} errors are too many to list") from None


class CreateToken(RequestBody):
    """Terms of a token."""

    name: str = Field(description="For people, and for the log.", examples=["ci"])
    scopes: list[Scope] = Field(max_length=16, description="What it may do.", examples=[["read", "write"]])
    tags: list[str] = Field(
        default=[], max_length=64, description="Patterns of the tags that it may set and remove.", examples=[["ci-*"]]
    )
    expires_seconds: Annotated[StrictInt, Field(gt=0, le=315_360_000)] | None = Field(
        default=None, description="Time until it ends by itself."
    )
    every_space: bool = Field(default=False, description="True for a token that holds in all spaces.")


Limit = Annotated[StrictInt, Field(ge=0, lt=1 << 63)]


class PutSpace(RequestBody):
    """Quota of a space; 0 is no limit, and what is left out is as the service has it."""

    quota_bytes: Limit | None = Field(
        default=None, description="Stored bytes, those of removed stores too, until they are collected."
    )
    quota_stores: Limit | None = Field(default=None, description="Stores.")
    quota_open_uploads: Limit | None = Field(default=None, description="Resumable uploads that are not whole.")
    quota_requests: Limit | None = Field(default=None, description="Requests under way, at each replica.")


class PutWebhook(RequestBody):
    """Terms of a webhook."""

    url: str = Field(
        max_length=2048, description="Where events are POSTed.", examples=["https://ci.example/hooks/models"]
    )
    events: list[str] = Field(
        default=[],
        max_length=16,
        description="Events that it gets; none: all.",
        examples=[["store.created", "tag.set"]],
    )


class SignUrl(RequestBody):
    """Something to read, and the time for which its URL shall be permission enough."""

    path: str = Field(
        pattern=r"^/v1/stores/[!$-~]*$",
        max_length=8000,
        description="Path and query behind the space, percent-encoded as it will be asked for.",
        examples=["/v1/stores/model/files/weights.safetensors"],
    )
    expires_seconds: Annotated[StrictInt, Field(gt=0, le=604_800)] = Field(
        default=3600, description="Time until the URL ends."
    )


class AskedPiece(BaseModel):
    """A piece that somebody has and may not need to send."""

    model_config = ConfigDict(extra="forbid")

    sha256: Sha256
    size: StrictInt = Field(ge=1, lt=1 << 63)


class AskMissing(RequestBody):
    """Pieces to look for, and the stores to look in."""

    stores: list[str] | None = Field(
        default=None, max_length=16, description="The stores to look in; those with most in common when absent."
    )
    chunks: list[AskedPiece] = Field(max_length=10_000)


def _few(files: dict[str, T]) -> dict[str, T]:
    """The `files`; `LimitExceeded` for too many, as on every other way in."""
    if len(files) > MAX_FILES:
        raise LimitExceeded(f"Too many files: a store holds at most {MAX_FILES}")
    return files


OfFiles = Annotated[dict[str, T], AfterValidator(_few), Field(json_schema_extra={"maxProperties": MAX_FILES})]


class NewStore(RequestBody):
    """Terms of a store to be made."""

    type: str | None = None
    root: str | None = None
    tags: list[str] = Field(default=[], max_length=TAGS_AT_ONCE)
    min_chunk: StrictInt | str | None = Field(default=None, examples=["1MiB"])
    max_chunk: StrictInt | str | None = Field(default=None, examples=["1GiB"])
    plan: str | None = Field(
        default=None,
        description="`policy` plans a chunked proto by the chunk sizes; it keeps its own plan otherwise.",
        examples=["policy"],
    )
    rules: list[str] | None = Field(
        default=None,
        max_length=64,
        description="Rules that decide which parts become chunks, before the sizes; those kept for the type when "
        "absent, and none when empty.",
        examples=[["node: every 1000"]],
    )
    report: bool = Field(default=False, description="Whether the answer is to tell what the model is and lacks.")
    strict: bool = Field(
        default=False, description="Refuse a model that lacks files it refers to, or fails checksums of its own."
    )


class Register(NewStore):
    """Objects that already lie in allowed storage, to be indexed in place."""

    files: OfFiles[str] = Field(min_length=1, examples=[{"model.onnx": "s3://bucket/key"}])


class Assemble(NewStore):
    """Finished uploads to make a store of: `uploads`, a `recipe` or an `archive`, one of them."""

    uploads: OfFiles[str | list[str]] = Field(
        default={},
        description="By the path of the file: an upload's id or URL, or several that follow each other.",
        examples=[{"saved_model.pb": "0069204b3a-9f0c9f0c9f0c9f0c9f0c"}],
    )
    recipe: str | None = Field(
        default=None,
        description="An upload, by its id or URL, whose content is a recipe: the store is what that says.",
    )
    archive: str | None = Field(
        default=None,
        description="An upload, by its id or URL, whose content is a tar archive: the store is of its files.",
    )
    sha256: dict[str, Sha256] = Field(
        default={}, description="By path, what a file of `uploads` is to have: compared before the store can be seen."
    )

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        given = [bool(self.uploads), self.recipe is not None, self.archive is not None]
        if given.count(True) != 1 or (self.sha256 and not self.uploads):
            raise ValueError("Give exactly one of `uploads` (with optional digests), `recipe` and `archive`")
        return self


class PutTag(RequestBody):
    """Target of a tag."""

    store: str = Field(description="An id, the beginning of one, or another tag.", examples=[EXAMPLE_ID])
