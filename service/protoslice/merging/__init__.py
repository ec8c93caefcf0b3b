"""Merging chunks into messages, as TensorFlow's Merger does, with an error where that one stops the process."""

from protoslice.merging.merger import Merger

__all__ = ["Merger"]
