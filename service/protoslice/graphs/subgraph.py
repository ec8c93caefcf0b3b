"""The part of a graph around a node, or the nodes with which exploring a graph begins."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from protoslice.errors import InvalidInput
from protoslice.facts import GraphEdge, GraphNode, Neighbourhood
from protoslice.graphs.graphs import Graphs

MAX_NODES: Final = 500
MAX_HOPS: Final = 8
_MAX_LINKS: Final = 1000
"""Largest number of links of one node that are followed in each direction."""
# Uploaded nodes may have any number of attributes, and each node may take the values of all others.
_ROOM: Final = 4 << 20
"""The bytes of nodes that are parsed for one response. The same limit applies to the edges of the response."""
_MAX_MADE: Final = 64
"""Largest number of outputs of a node that are returned."""
_EDGE: Final = 64
"""The approximate size of an edge in bytes, without its texts."""

IsTensor = Callable[[str], bool]
"""A function that returns True for the name of a tensor."""


@dataclass(frozen=True, slots=True)
class GraphQuery:
    """A request for a part of a model's graphs."""

    graph: str | None = None
    """The path of the graph; None for the graph of `around`, or for the main graph."""
    around: str | None = None
    """The path or name of the node in the middle, or the name of a value that this node takes or makes.

    If it is None, there is no node in the middle.
    """
    hops: int = 2
    """Largest number of links between the node in the middle and another returned node."""
    search: str | None = None
    """Words to search in the names of nodes, and in the names of values if no node matches.

    If it is None, the first and last nodes of the graph are returned.
    """
    limit: int = 100
    """Largest number of nodes to return."""

    def check(self) -> None:
        """Raise `InvalidInput` if `hops` or `limit` is out of bounds."""
        if not 0 <= self.hops <= MAX_HOPS:
            raise InvalidInput(f"Invalid hops: use 0 to {MAX_HOPS}")
        if not 1 <= self.limit <= MAX_NODES:
            raise InvalidInput(f"Invalid limit: use 1 to {MAX_NODES}")


@dataclass(frozen=True, slots=True)
class _Named:
    """A look-up of tensors by the names that one graph uses."""

    graph: str
    is_tensor: IsTensor

    def tensor(self, name: str) -> str | None:
        """Return the tensor name for `name`: `name` itself, or `GRAPH/name`; None if there is no such tensor."""
        called = (name, f"{self.graph}/{name}") if name else ()
        return next((each for each in called if self.is_tensor(each)), None)


def subgraph(graphs: Graphs, query: GraphQuery, is_tensor: IsTensor) -> Neighbourhood:
    """Return the nodes that `query` selects, and the values that they exchange. This call blocks."""
    query.check()
    graph, middle = _middle(graphs, query)
    if middle is None:
        found, more = _beginning(graphs, graph, query)
        shown = dict.fromkeys(found, 0)
    else:
        shown, more = _around(graphs, middle, query)
    messages = _messages(graphs, shown)
    edges, are_all = _edges(graphs, messages)
    named = _Named(graphs.entry(graph).name, is_tensor)
    nodes = [_node(graphs, node, shown[node], messages, named) for node in messages]
    return Neighbourhood(
        graphs=graphs.entries,
        graph_count=graphs.links.graph_count,
        graph=graphs.path(graph),
        around=None if middle is None else graphs.node_path(middle),
        nodes=tuple(nodes),
        edges=edges,
        more=more or not are_all or len(messages) < len(shown),
    )


def _middle(graphs: Graphs, query: GraphQuery) -> tuple[int, int | None]:
    """Return the number of the graph, and the number of the node in the middle or None.

    If the query names no graph, the graph follows from the node's path, or from a graph name before the node's name.
    Otherwise the node is searched in the main graph.
    """
    around = query.around
    if around is None or query.graph is not None:
        graph = graphs.number(query.graph)
        return graph, None if around is None else graphs.node(graph, around)
    inner = graphs.links.graph(around.rpartition(".")[0]) if around.endswith("]") else None
    if inner is not None:
        return inner, graphs.node(inner, around)
    for graph, entry in enumerate(graphs.entries):
        if entry.name and around.startswith(f"{entry.name}/"):
            node = graphs.links.node(graph, around.removeprefix(f"{entry.name}/"))
            if node is not None:
                return graph, node
    graph = graphs.number(None)
    return graph, graphs.node(graph, around)


def _beginning(graphs: Graphs, graph: int, query: GraphQuery) -> tuple[Sequence[int], bool]:
    """Return the nodes that match the query's search, and True if there are more.

    Without a search, return last and first nodes of the graph, about as many of each. If the graph consists of cycles,
    it has no such nodes, and all its nodes are returned in order.
    """
    links, limit = graphs.links, query.limit
    if query.search is not None:
        found = links.search(graph, query.search.split(), limit + 1) or graphs.valued(graph, query.search, limit + 1)
    else:
        last = links.ends(graph, True, (limit + 1) // 2 + 1)
        first = links.ends(graph, False, limit + 1)
        found = list(dict.fromkeys([*last, *first])) or links.search(graph, [], limit + 1)
    return found[:limit], len(found) > limit


def _around(graphs: Graphs, middle: int, query: GraphQuery) -> tuple[dict[int, int], bool]:
    """Return a map from nodes around `middle` to their hops, the nearest first, and True if nodes were left out."""
    shown, waiting, more = {middle: 0}, deque([middle]), False
    while waiting:
        node = waiting.popleft()
        if shown[node] == query.hops:
            continue
        for other in _neighbours(graphs, node):
            if other in shown:
                continue
            if len(shown) == query.limit:
                more = True
                break
            shown[other] = shown[node] + 1
            waiting.append(other)
    return shown, more


def _neighbours(graphs: Graphs, node: int) -> Sequence[int]:
    makers, _ = graphs.links.makers(node, _MAX_LINKS)
    takers, _ = graphs.links.takers(node, _MAX_LINKS)
    return list(dict.fromkeys([*(maker for maker in makers if maker is not None), *(taker for taker, _ in takers)]))


def _messages(graphs: Graphs, shown: Iterable[int]) -> dict[int, Any]:
    """Parse the first nodes of `shown`, as many as fit into the limit, but at least one."""
    messages, room = dict[int, Any](), _ROOM
    for node in shown:
        message, size = graphs.message(node)
        room -= size
        if room < 0 and messages:
            break
        messages[node] = message
    return messages


def _edges(graphs: Graphs, messages: dict[int, Any]) -> tuple[tuple[GraphEdge, ...], bool]:
    """Return the values between the nodes, as many as fit into the limit, and True if no value is missing."""
    edges, room = list[GraphEdge](), _ROOM
    for edge in (edge for node in messages for edge in _inputs(graphs, node, messages)):
        room -= _EDGE + len(edge.source) + len(edge.target) + len(edge.value)
        if room < 0:
            return tuple(edges), False
        edges.append(edge)
    return tuple(edges), True


def _inputs(graphs: Graphs, node: int, messages: dict[int, Any]) -> Iterator[GraphEdge]:
    """Yield the inputs of `node` that come from nodes in `messages`."""
    makers, _ = graphs.links.makers(node, _MAX_LINKS)
    values = graphs.values(node, _MAX_LINKS)
    target = graphs.node_path(node)
    for slot, maker in enumerate(makers):
        if maker is not None and maker in messages:
            value = values[slot] if slot < len(values) else ""
            yield GraphEdge(graphs.node_path(maker), target, value, slot)


def _node(graphs: Graphs, node: int, hops: int, messages: dict[int, Any], named: _Named) -> GraphNode:
    message, dialect = messages[node], graphs.dialect
    makers, inputs = graphs.links.makers(node, _MAX_LINKS)
    takers, outputs = graphs.links.takers(node, _MAX_LINKS)
    values = graphs.values(node, _MAX_LINKS)
    outside = [value for value, maker in zip(values, makers, strict=False) if maker is None]
    hidden = sum(maker is not None and maker not in messages for maker in makers)
    hidden += sum(taker not in messages for taker, _ in takers)
    names = dict.fromkeys([*dialect.own_weights(message), *outside])
    return GraphNode(
        name=graphs.called(node),
        op=graphs.operator(node, message),
        path=graphs.node_path(node),
        hops=hops,
        attributes=dialect.attributes(message),
        weights=tuple(tensor for name in names if (tensor := named.tensor(name)) is not None),
        more=hidden + max(0, inputs - _MAX_LINKS) + max(0, outputs - _MAX_LINKS),
        outputs=_made(graphs, node, message),
    )


def _made(graphs: Graphs, node: int, message: Any) -> tuple[str, ...]:
    """Return the names of a node's outputs, or no names for a node that is too large to parse."""
    if graphs.dialect.numbers:
        return (graphs.called(node),)
    return tuple(name for name in graphs.made(node, _MAX_MADE) if name) if message.ListFields() else ()
