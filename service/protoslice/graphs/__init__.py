"""The graphs of models: nodes, the values that nodes exchange, blocks of nodes, and the surroundings of a node."""

from protoslice.graphs.graphs import Graphs
from protoslice.graphs.outline import Ends, GraphOutline, Weight
from protoslice.graphs.subgraph import MAX_HOPS, MAX_NODES, GraphQuery, subgraph

__all__ = ["MAX_HOPS", "MAX_NODES", "Ends", "GraphOutline", "GraphQuery", "Graphs", "Weight", "subgraph"]
