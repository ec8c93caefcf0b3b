"""Graphs of models: nodes, the values between them, and what lies around one of them."""

from protoslice.graphs.graphs import Graphs
from protoslice.graphs.neighbourhood import Question, neighbourhood

__all__ = ["Graphs", "Question", "neighbourhood"]
