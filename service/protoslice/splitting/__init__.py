"""Splitters of messages in memory, as in the guide of TensorFlow's proto splitter."""

from protoslice.splitting.auto import AutoSplitter, GraphDefSplitter, OnnxSplitter, SavedModelSplitter
from protoslice.splitting.blocks import LargeMessageSplitter, RepeatedMessageSplitter, SplitBasedOnSize
from protoslice.splitting.planner import Entry, Plan, Run, SplitPolicy
from protoslice.splitting.readable import tensorflow_readable
from protoslice.splitting.splitters import ComposableSplitter, Splitter

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
