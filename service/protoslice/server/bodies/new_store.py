"""The options of a new store, from members of a JSON body, query parameters, or keys of Upload-Metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from fastapi import Depends, Query
from pydantic import BaseModel, StrictInt

from protoslice.errors import InvalidInput
from protoslice.server.http.query import plain_size
from protoslice.stores import TAGS_AT_ONCE, IngestRequest

DEFAULT_MIN_CHUNK: Final = "1MiB"
DEFAULT_MAX_CHUNK: Final = "1GiB"

Type = Annotated[
    str | None,
    Query(description="Full message type of the root proto; default: detected.", examples=["onnx.ModelProto"]),
]
Root = Annotated[str | None, Query(description="Path of the root proto; default: detected.", examples=["model.onnx"])]
Tags = Annotated[
    list[str], Query(description="Tags to point at the store.", max_length=TAGS_AT_ONCE, examples=[["resnet50:3"]])
]
MinChunk = Annotated[str, Query(description="Fields of at least this size become chunks.", examples=["1MiB"])]
MaxChunk = Annotated[
    str, Query(description="Repeated fields are cut into chunks of at most this size.", examples=["1GiB"])
]
Plan = Annotated[
    str | None,
    Query(
        description="`policy` splits a chunked file by the chunk sizes. By default, the file keeps its own chunks.",
        examples=["policy"],
    ),
]
Rules = Annotated[
    list[str] | None,
    Query(
        description="Split rules, which take precedence over the sizes; default: the rules configured for the type. "
        "An empty list, or one empty rule in a query, disables these.",
        max_length=64,
        examples=[["node: every 1000"]],
    ),
]
Strict = Annotated[bool, Query(description="Reject a model with missing files or wrong checksums.")]
Report = Annotated[bool, Query(description="Include a report on the model in the response.")]


class NewStore(BaseModel):
    """Options of a new store."""

    type: Type = None
    root: Root = None
    tags: Tags = []
    min_chunk: StrictInt | MinChunk | None = None
    max_chunk: StrictInt | MaxChunk | None = None
    plan: Plan = None
    rules: Rules = None
    strict: Strict = False
    report: Report = False

    @classmethod
    async def from_query(
        cls,
        type: Type = None,
        root: Root = None,
        tag: Tags = [],  # noqa: B006
        min_chunk: MinChunk = DEFAULT_MIN_CHUNK,
        max_chunk: MaxChunk = DEFAULT_MAX_CHUNK,
        plan: Plan = None,
        rule: Rules = None,
        strict: Strict = False,
    ) -> Self:
        """Return the options in a query, where `tag` and `rule` are repeatable.

        Routes use this function as a dependency.
        """
        return cls.model_construct(
            type=type,
            root=root,
            tags=tag,
            min_chunk=min_chunk,
            max_chunk=max_chunk,
            plan=plan,
            rules=None if rule is None else [each for each in rule if each],
            strict=strict,
        )

    def with_words(self, words: Mapping[str, str]) -> Self:
        """Return these options, overridden by the values in Upload-Metadata.

        The value of `tag` may have several tags, separated by spaces. These tags are added to the tags in the options.
        The value of `rule` has one rule per line.
        """
        given: dict[str, Any] = {
            name: words.get(name) or getattr(self, name) or None for name in ("root", "min_chunk", "max_chunk", "plan")
        }
        given["tags"] = [*dict.fromkeys((*words.get("tag", "").split(), *self.tags))]
        type_name = words.get("type", "/")
        # Clients in browsers send the media type under the name `type`, so a value with a slash is ignored.
        given["type"] = (self.type if "/" in type_name else type_name) or None
        if "rule" in words:
            given["rules"] = [rule for rule in words["rule"].splitlines() if rule]
        if strict := words.get("strict"):
            if strict not in {"true", "false", "1", "0"}:
                raise InvalidInput("Invalid strict: use true or false")
            given["strict"] = strict in {"true", "1"}
        return self.model_copy(update=given)

    def request(self) -> IngestRequest:
        """Return the options in the form of `Stores`. Raise `InvalidInput` for an invalid size."""
        plain = IngestRequest()
        return IngestRequest(
            type=self.type,
            root=self.root,
            tags=tuple(self.tags),
            min_chunk=plain.min_chunk if self.min_chunk is None else plain_size(self.min_chunk),
            max_chunk=plain.max_chunk if self.max_chunk is None else plain_size(self.max_chunk),
            plan=self.plan,
            rules=None if self.rules is None else tuple(self.rules),
            strict=self.strict,
            report=self.report,
        )


StoreQuery = Annotated[NewStore, Depends(NewStore.from_query)]
"""The type of a route's parameter that receives the options of a new store from the query."""
