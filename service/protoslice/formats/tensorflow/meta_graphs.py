"""Tensors of one meta graph of a SavedModel, chosen by its tags."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import schema
from protoslice.errors import CorruptModel, LimitExceeded, NotFound, Unsupported
from protoslice.formats.model import Model, RootProto, Tensors
from protoslice.formats.tensorflow.signatures import META_GRAPH, SAVED_MODEL
from protoslice.sources.ropes import Rope

_MOST_BYTES: Final = 4 << 20
"""Bytes of the tags of all meta graphs."""
_ALL: Final = "path:meta_graphs["


def tensors_with_tags(model: Model, found: Tensors, tags: Sequence[str]) -> Tensors:
    """The tensors of the meta graph with exactly `tags`, and those of none, such as variables. Blocks.

    `found` are those of all meta graphs. `Unsupported` for a root without meta graphs, `NotFound` if none has these
    tags.
    """
    if model.proto is None or model.type not in {SAVED_MODEL, META_GRAPH}:
        raise Unsupported(f"Only a {SAVED_MODEL} or a {META_GRAPH} has tags, not {model.type or 'such a file'}")
    if model.type == META_GRAPH:
        _number([_parsed(model.proto, META_GRAPH, "meta_info_def.tags")], tags)
        return found
    graphs = _parsed(model.proto, SAVED_MODEL, "meta_graphs[*].meta_info_def.tags").meta_graphs
    place = f"{_ALL}{_number(graphs, tags)}]"
    addresses = ((number, found.key(number)[1]) for number in range(len(found)))
    numbers = array("q", (n for n, each in addresses if each.startswith(place) or not each.startswith(_ALL)))
    places = {number: place for place, number in enumerate(numbers)}
    return Tensors(
        len(numbers),
        lambda place: found[numbers[place]],
        lambda place: found.key(numbers[place]),
        lambda name: [places[number] for number in found.numbers(name) if number in places],
    )


def _parsed(proto: RootProto, type_name: str, field: str) -> Any:
    """The root as a message, with this `field` alone."""
    _, _, core = proto.document.view("", [field])
    if core.size > _MOST_BYTES:
        raise LimitExceeded(f"The tags have {core.size} bytes, but at most {_MOST_BYTES} are read")
    try:
        parsed: Any = schema.parsed(schema.bundled().message_class(type_name), Rope(core, proto.sources).read())
    except DecodeError as error:
        raise CorruptModel(f"The tags of the meta graphs do not parse: {error}") from error
    return parsed


def _number(graphs: Sequence[Any], tags: Sequence[str]) -> int:
    """The number of the first meta graph with exactly `tags`."""
    for number, graph in enumerate(graphs):
        if set(graph.meta_info_def.tags) == set(tags):
            return number
    there = ", ".join((",".join(graph.meta_info_def.tags) or "(none)")[:100] for graph in graphs[:8])
    raise NotFound(f"No meta graph has exactly the tags {','.join(tags)[:100] or '(none)'}; available: {there}")
