"""Query parameters of views, as OpenAPI describes them; those that several views take."""

from __future__ import annotations

from typing import Any, Final

from protoslice.streams.framing import FRAMINGS

__all__ = ["PLAN", "PLAN_HELP", "STREAM", "query_parameter"]


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


PLAN_HELP: Final = (
    "`policy`: by the chunk sizes of the store. A chunked proto keeps the plan that it came with; others differ in "
    "nothing."
)
PLAN: Final = (query_parameter("plan", PLAN_HELP, {"type": "string", "enum": ["policy"]}, "policy"),)

STREAM: Final = (
    query_parameter(
        "file", "Path of the stream; needed where the store has several files.", {"type": "string"}, "train.tfrecord"
    ),
    query_parameter(
        "framing",
        "Framing of the stream, where its bytes do not tell it.",
        {"type": "string", "enum": list(FRAMINGS)},
        "delimited",
    ),
    query_parameter(
        "type",
        "Message type of the records, where it is not detected: a bundled one, or one of an uploaded schema.",
        {"type": "string"},
        "tensorflow.Example",
    ),
)
