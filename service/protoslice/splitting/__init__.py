"""Splitters of messages in memory. Their interface follows the guide of TensorFlow's proto splitter."""

from protoslice.splitting.planner import Entry, Plan, Run, SplitPolicy
from protoslice.splitting.readable import tensorflow_readable
from protoslice.splitting.splitters import (
    AutoSplitter,
    ComposableSplitter,
    GraphDefSplitter,
    LargeMessageSplitter,
    OnnxSplitter,
    RepeatedMessageSplitter,
    SavedModelSplitter,
    SplitBasedOnSize,
    Splitter,
)

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
