"""The use cases of the service, without HTTP: taking stores in, finding them, and giving their views."""

from protoslice.stores.catalogue import StoreOptions, Stores
from protoslice.stores.garbage import GarbageReport
from protoslice.stores.ingest import Ingest, Sink
from protoslice.stores.model import (
    TAGS_AT_ONCE,
    Created,
    FileInfo,
    IngestRequest,
    Page,
    Removed,
    Restored,
    SchemaInfo,
    StoreInfo,
    Tag,
)
from protoslice.stores.opened import ChunkInfo, OpenStore
from protoslice.stores.pieces import PieceInfo, Place
from protoslice.stores.recipes import follow
from protoslice.stores.serving import Representation

__all__ = [
    "TAGS_AT_ONCE",
    "ChunkInfo",
    "Created",
    "FileInfo",
    "GarbageReport",
    "Ingest",
    "IngestRequest",
    "OpenStore",
    "Page",
    "PieceInfo",
    "Place",
    "Removed",
    "Representation",
    "Restored",
    "SchemaInfo",
    "Sink",
    "StoreInfo",
    "StoreOptions",
    "Stores",
    "Tag",
    "follow",
]
