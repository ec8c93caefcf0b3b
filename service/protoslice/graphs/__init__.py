"""Graphs of models: nodes, the values between them, blocks of them, and what lies around one of them."""

from protoslice.graphs.graphs import Graphs
from protoslice.graphs.neighbourhood import Question, neighbourhood
from protoslice.graphs.strip import Ends, Strip, Weight

__all__ = ["Ends", "Graphs", "Question", "Strip", "Weight", "neighbourhood"]
