"""Query parameters of views, as OpenAPI describes them; those that several views take."""

from __future__ import annotations

from typing import Any, Final

from protoslice.streams.framing import FRAMINGS


def query_parameter(name: str, description: str, schema: dict[str, Any], example: Any) -> dict[str, Any]:
    """A parameter of the query that may be left out."""
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": schema,
        "example": example,
    }


STRICT_HELP: Final = (
    "Respond with 422 and the names of the tensors that would be left out. By default `Protoslice-Omitted` names them."
)
STRICT: Final = query_parameter("strict", STRICT_HELP, {"type": "boolean", "default": False}, True)

PLAN_HELP: Final = (
    "`policy` splits a chunked file by the chunk sizes of the store; by default it keeps its own "
    "chunks. Other models are always split by these sizes."
)
PLAN: Final = (query_parameter("plan", PLAN_HELP, {"type": "string", "enum": ["policy"]}, "policy"),)

TAGS_HELP: Final = (
    "Only the meta graph of a SavedModel with exactly these tags; variables are part of every meta graph."
)
TAGS: Final = query_parameter("tags", TAGS_HELP, {"type": "string"}, "serve,gpu")

STREAM: Final = (
    query_parameter(
        "file",
        "Path of the stream, or the common name of its shards, such as `train@8`; needed if the store "
        "has several streams.",
        {"type": "string"},
        "train.tfrecord",
    ),
    query_parameter(
        "framing",
        "Framing of the stream, if it cannot be detected.",
        {"type": "string", "enum": list(FRAMINGS)},
        "delimited",
    ),
    query_parameter(
        "type",
        "Message type of the records, if it is not detected: a bundled type, or one of an uploaded schema.",
        {"type": "string"},
        "tensorflow.Example",
    ),
)

FILE_HELP: Final = "File to read instead of the root: a stream of records, or the index of a tensor bundle."
DOCUMENT: Final = (query_parameter("file", FILE_HELP, {"type": "string"}, "variables/variables.index"), *STREAM[1:])
"""Parameters of views that lead into any file with paths."""
