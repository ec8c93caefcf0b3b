"""Merging chunks into messages, as TensorFlow's Merger does, with errors in place of its aborts."""

from protoslice.merging.merger import Merger

__all__ = ["Merger"]
