"""Graphs of one model, as the core has found and linked their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

from google.protobuf.message import DecodeError

from protoslice import _core, schema
from protoslice.errors import InvalidInput, NotFound, Unsupported
from protoslice.facts import GraphEntry
from protoslice.formats.paddle import PROGRAM, is_json, json_as_proto
from protoslice.graphs.dialects import Dialect, dialects_of
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Model, RootProto

MAX_GRAPHS: Final = 200
"""Graphs that are listed."""
_LARGER: Final = 10
"""An inner graph with so many times the nodes of the outermost is shown first."""
_SMALL: Final = 4096
"""Bytes of the largest fields that are kept of a node: its attributes, and the list of its operands."""
_MAX_MAKERS: Final = 200_000
"""Nodes that are gone through for one that makes a value."""
_MAX_MADE: Final = 64
"""Values of such a node that are looked at."""
_LARGEST_NODE: Final = 1 << 20
"""Bytes of a node beyond which only its name is returned."""


class Graphs:
    """Nodes of all graphs of a model, by number."""

    def __init__(self, model: Model) -> None:
        """Finds and links the nodes of `model`, which reads all of it but its payloads. Blocks.

        `Unsupported` for a model without graphs.
        """
        proto, type_name, self._made = model.proto, model.type, 0
        if is_json(model):
            proto, type_name = json_as_proto(model.files[model.root]), PROGRAM
            self._made = proto.document.view()[2].size
        dialects = dialects_of(type_name) if proto is not None else ()
        if proto is None or not dialects:
            raise Unsupported(
                f"{model.type or 'such a file'} has no graph: supported are TensorFlow, ONNX, Paddle, XLA, Core ML and "
                "Caffe"
            )
        self._proto: RootProto = proto
        for self.dialect in dialects:
            self._found = self._proto.document.find([self.dialect.node], small=_SMALL)
            if len(self._found):
                break
        dialect: Dialect = self.dialect
        node = schema.bundled().message_class(dialect.node).DESCRIPTOR
        self.links: _core.Links = self._found.links(
            dialect.name,
            dialect.outputs,
            dialect.inputs,
            op=[node.fields_by_name[dialect.op].number] if dialect.op else [],
            kinds=dialect.kinds,
            qualified=dialect.tensorflow_inputs,
            ordered=dialect.values_are_reassigned,
            numbers=dialect.numbers,
        )
        self._message = schema.bundled().message_class(dialect.node)
        self.entries = tuple(self._entry(*graph) for graph in self.links.graphs(0, MAX_GRAPHS))
        """The first graphs."""

    @property
    def weight(self) -> int:
        """Bytes of memory of the nodes and of their links, and of a program made of JSON."""
        return self.links.held + self._made

    def number(self, path: str | None) -> int:
        """Number of the graph at `path`; without one, the outermost with the most nodes, or a far larger inner one.

        `NotFound` when there is none.
        """
        if path is not None:
            number = self.links.graph(path)
            if number is None:
                raise NotFound("No graph nodes directly below this path", path=path)
            return number
        if not self.entries:
            raise NotFound("The model has no graph nodes")
        outer = min(
            range(len(self.entries)),
            key=lambda number: (self.entries[number].path.count("."), -self.entries[number].nodes),
        )
        largest = max(range(len(self.entries)), key=lambda number: self.entries[number].nodes)
        # The main graph of a SavedModel may have just the calls of the functions that do the work.
        return largest if self.entries[largest].nodes > _LARGER * self.entries[outer].nodes else outer

    def holder(self, node: str) -> str | None:
        """Path of the graph of the node at the path `node`; None for a name."""
        path = node.rpartition(".")[0]
        return path if node.endswith("]") and self.links.graph(path) is not None else None

    def entry(self, graph: int) -> GraphEntry:
        """Path, name and size of a graph."""
        return self.entries[graph] if graph < MAX_GRAPHS else self._entry(*self.links.graphs(graph, 1)[0])

    def path(self, graph: int) -> str:
        """Path of a graph."""
        return self.links.graphs(graph, 1)[0][0]

    def node(self, graph: int, called: str) -> int:
        """Number of the node of a graph with this path or name, or one that takes or makes a value of this name.

        `NotFound` without such a node.
        """
        number = self.links.node(graph, called)
        if number is None:
            number = next(self._makers(graph, called.__eq__), None)
        if number is None:
            place = self.path(graph) or "the root"
            raise NotFound(
                f"No node {called[:200]!r} in the graph at {place}, and none with an input or output of this name"
            )
        return number

    def valued(self, graph: int, text: str, limit: int) -> list[int]:
        """Numbers of nodes, at most `limit`, that make a value with all words of `text` in its name, in any case.

        Without such nodes, one that takes the value `text`.
        """
        words = text.lower().split()
        if not words:
            return []
        found = list(islice(self._makers(graph, lambda name: all(word in name.lower() for word in words)), limit))
        if not found and (taker := self.links.node(graph, text.strip())) is not None:
            return [taker]
        return found

    def _makers(self, graph: int, fits: Callable[[str], bool]) -> Iterator[int]:
        """Nodes of a graph that make a value whose name fits."""
        if self.dialect.numbers or self.dialect.tensorflow_inputs:  # what they make goes by their own names
            return
        path, first, _ = self.links.graphs(graph, 1)[0]
        # Nodes of inner graphs stand between those of the graph.
        for node in range(first, min(len(self._found), first + _MAX_MAKERS)):
            if any(map(fits, self.made(node, _MAX_MADE))) and self.node_path(node).rpartition(".")[0] == path:
                yield node

    def node_path(self, node: int) -> str:
        """Path of a node."""
        return self._found[node].path

    def called(self, node: int) -> str:
        """Name of a node, however large it is; empty without one."""
        return schema.text_of(self.links.name(node))

    def operator(self, node: int, message: Any) -> str:
        """The operation of a node, whose message is `message`."""
        dialect, descriptor = self.dialect, message.DESCRIPTOR
        if dialect.kinds:
            numbers = [number for number, *_ in self._found[node].places if number >= dialect.kinds]
            return "".join(descriptor.fields_by_number[number].name for number in numbers[-1:])
        value, enum = getattr(message, dialect.op), descriptor.fields_by_name[dialect.op].enum_type
        return str(value) if enum is None else str(enum.values_by_number[value].name)

    def values(self, node: int, limit: int) -> list[str]:
        """Names of the values that a node takes by slot, at most `limit`."""
        return [schema.text_of(name) for name in self.links.values(node, limit)]

    def made(self, node: int, limit: int) -> list[str]:
        """Names of the values that a node makes, at most `limit`."""
        return [schema.text_of(name) for name in self.links.made(node, limit)]

    def declarations(self) -> _core.Findings | None:
        """Messages that declare the types of values; None where nodes do. Reads the model like the nodes. Blocks."""
        return self._proto.document.find([self.dialect.declares], small=_SMALL) if self.dialect.declares else None

    def empty(self) -> Any:
        """A node without anything."""
        return self._message()

    def message(self, node: int) -> tuple[Any, int]:
        """A node without its large fields, parsed, and its size; empty where it is too large or damaged."""
        skeleton = self._found[node].skeleton
        if len(skeleton) > _LARGEST_NODE:
            return self._message(), 0
        try:
            return schema.parsed(self._message, skeleton), len(skeleton)
        except DecodeError:
            return self._message(), len(skeleton)

    def _entry(self, path: str, first: int, count: int) -> GraphEntry:
        return GraphEntry(path, self._called(path) or path, count)

    def _called(self, path: str) -> str:
        if not self.dialect.called:
            return ""
        try:
            _, _, core = self._proto.document.view(f"{path}.{self.dialect.called}".removeprefix("."))
        except (NotFound, InvalidInput):
            return ""
        return schema.text_of(Rope(core, self._proto.sources).read(0, min(core.size, _SMALL)))
