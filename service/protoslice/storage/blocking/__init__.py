"""Storages for callers that block: objects as range sources, folders of objects, and both by URI."""

from protoslice.storage.blocking.folder import MOST_FILES, ObjectFolder
from protoslice.storage.blocking.source import ObjectSource
from protoslice.storage.blocking.uris import open_folder, open_object

__all__ = ["MOST_FILES", "ObjectFolder", "ObjectSource", "open_folder", "open_object"]
