"""The verb `graph`: the nodes around a node of a model's graph."""

from __future__ import annotations

from dataclasses import asdict
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Final

import typer

from protoslice.cli.models.opening import opened_subject
from protoslice.cli.models.schema_files import root_type
from protoslice.cli.options import FileName, Json, TypeName
from protoslice.cli.tables import print_json, print_table, say
from protoslice.facts import GraphNode, Neighbourhood
from protoslice.graphs import MAX_HOPS, MAX_NODES, GraphQuery
from protoslice.tensors.listing import natural

_MOST_OTHERS: Final = 10
"""Graphs that are named beside the one shown."""


def graph(
    file: FileName,
    around: Annotated[
        str | None,
        typer.Argument(
            metavar="NODE",
            help="Node to show, by name or path, with the nodes around it; default: the graph's first nodes.",
        ),
    ] = None,
    hops: Annotated[
        int,
        typer.Option(metavar="N", help="Show nodes at most this many links away from NODE.", min=0, max=MAX_HOPS),
    ] = 2,
    of: Annotated[
        str | None, typer.Option("--graph", metavar="PATH", help="Graph to show, if not the main one.")
    ] = None,
    search: Annotated[str | None, typer.Option(metavar="WORDS", help="Words to search for in node names.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="Maximum number of nodes.", min=1, max=MAX_NODES)] = 30,
    type_name: TypeName = None,
    as_json: Json = False,
) -> None:
    """Show the nodes around a node of a graph, and their links.

    Example: protoslice graph model.onnx conv1 --hops 1
    """
    if around is None and search is None:
        search = ""  # which any node has: the first ones
    query = GraphQuery(graph=of, around=around, hops=hops, search=search, limit=limit)
    with opened_subject(file, root_type(type_name, None)) as subject:
        found = subject.graph(query)
    if as_json:
        print_json(asdict(found))
    else:
        _show(found)


def _show(found: Neighbourhood) -> None:
    rows = [_row(found, node) for node in _in_order(found)]
    titles = ["hops", "node", "op", "inputs", "weights", "not shown", "path"]
    # Columns that say nothing are left out: hops without a node in the middle, links when all are shown.
    kept = [at for at, title in enumerate(titles) if at or found.around]
    kept = [at for at in kept if titles[at] != "not shown" or any(row[at] for row in rows)]
    print_table(
        [titles[at] for at in kept], [[row[at] for at in kept] for row in rows], right=(0,) if found.around else ()
    )
    others = [entry for entry in found.graphs if entry.path != found.graph]
    if found.more:
        say()
        say(f"… more than these {len(found.nodes)} nodes (see --limit)")
    if others and found.around is None:
        say()
        rows = [[str(each.nodes), each.name, each.path] for each in others[:_MOST_OTHERS]]
        print_table(["nodes", "other graphs", "--graph"], rows, right=(0,))


def _in_order(found: Neighbourhood) -> list[GraphNode]:
    """Return the nodes from inputs to outputs; in a graph with cycles, in the order of their paths."""
    nodes = {node.path: node for node in sorted(found.nodes, key=lambda node: natural(node.path))}
    order = TopologicalSorter[str]({path: () for path in nodes})
    for edge in found.edges:
        order.add(edge.target, edge.source)
    try:
        return [nodes[path] for path in order.static_order()]
    except CycleError:
        return list(nodes.values())


def _row(found: Neighbourhood, node: GraphNode) -> list[str]:
    names = {each.path: each.name or each.path.rpartition(".")[2] for each in found.nodes}
    sources = ", ".join(dict.fromkeys(names[edge.source] for edge in found.edges if edge.target == node.path))
    more = f"{node.more} link{'' if node.more == 1 else 's'}" if node.more else ""
    return [str(node.hops), names[node.path], node.op, sources, ", ".join(node.weights), more, node.path]
