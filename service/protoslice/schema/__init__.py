"""Message types: the bundled ones, those of descriptor sets, and which one a file is."""

from protoslice.schema.registry import MessageTypes, bundled, find

__all__ = ["MessageTypes", "bundled", "find"]
