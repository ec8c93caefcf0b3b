"""Storages for callers that block: objects as range sources, folders of objects, and both by URI."""

from protoslice.sources.remote.folder import MOST_FILES, ObjectFolder
from protoslice.sources.remote.source import ObjectSource
from protoslice.sources.remote.uris import open_folder, open_object

__all__ = ["MOST_FILES", "ObjectFolder", "ObjectSource", "open_folder", "open_object"]
