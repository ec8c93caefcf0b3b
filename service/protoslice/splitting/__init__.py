"""Splitters of messages in memory, as in the guide of TensorFlow's proto splitter."""

from protoslice.splitting.base import ComposableSplitter, Splitter
from protoslice.splitting.composed import LargeMessageSplitter, RepeatedMessageSplitter, SplitBasedOnSize
from protoslice.splitting.planning.plan import Entry, Plan, Run
from protoslice.splitting.policy import SplitPolicy
from protoslice.splitting.readable import tensorflow_readable
from protoslice.splitting.ready import AutoSplitter, GraphDefSplitter, OnnxSplitter, SavedModelSplitter

__all__ = [
    "AutoSplitter",
    "ComposableSplitter",
    "Entry",
    "GraphDefSplitter",
    "LargeMessageSplitter",
    "OnnxSplitter",
    "Plan",
    "RepeatedMessageSplitter",
    "Run",
    "SavedModelSplitter",
    "SplitBasedOnSize",
    "SplitPolicy",
    "Splitter",
    "tensorflow_readable",
]
