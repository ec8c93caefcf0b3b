"""Opened stores: verified reads of their bytes, caches, and look-ups of refs, manifests and schemas."""

from protoslice.serving.finding import FileRef, StoredPath
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.store_options import StoreOptions

__all__ = ["FileRef", "OpenStore", "Representation", "StoreOptions", "StoredPath"]
