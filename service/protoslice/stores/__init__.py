"""The use cases of the service, without HTTP: taking stores in, finding them, and giving their views."""

from protoslice.stores.catalog.garbage import GarbageReport
from protoslice.stores.domain import (
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
from protoslice.stores.ingest.ingest import Ingest, Sink
from protoslice.stores.ingest.recipes import follow
from protoslice.stores.reading.opened import ChunkInfo, OpenStore
from protoslice.stores.reading.pieces import PieceInfo, Place
from protoslice.stores.reading.serving import Representation
from protoslice.stores.service import StoreOptions, Stores

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
