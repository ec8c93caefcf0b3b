"""Use cases of the service, without HTTP: ingesting stores, finding them, and serving their views."""

from protoslice.catalog.tags import StoredTag
from protoslice.stores.collection import GarbageReport
from protoslice.stores.finding import FileRef, StoredPath
from protoslice.stores.ingest.base import BaseStore, DedupingWriter, base_of
from protoslice.stores.ingest.file_writer import FileWriter
from protoslice.stores.ingest.ingest import Ingest
from protoslice.stores.ingest.recipes import follow
from protoslice.stores.objects.representation import Representation
from protoslice.stores.options import StoreOptions
from protoslice.stores.paging import ResultPage
from protoslice.stores.reading.opened import OpenStore
from protoslice.stores.reading.records import RecordsRequest
from protoslice.stores.reading.texts import TextView
from protoslice.stores.requests import TAGS_AT_ONCE, Created, IngestRequest
from protoslice.stores.schemas import StoredSchema
from protoslice.stores.service import Stores

__all__ = [
    "TAGS_AT_ONCE",
    "BaseStore",
    "Created",
    "DedupingWriter",
    "FileRef",
    "FileWriter",
    "GarbageReport",
    "Ingest",
    "IngestRequest",
    "OpenStore",
    "RecordsRequest",
    "Representation",
    "ResultPage",
    "StoreOptions",
    "StoredPath",
    "StoredSchema",
    "StoredTag",
    "Stores",
    "TextView",
    "base_of",
    "follow",
]
