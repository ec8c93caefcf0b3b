"""The use cases of the service, independent of HTTP: spaces and their stores, garbage collection, and backups."""

from protoslice.catalog.paging import ResultPage
from protoslice.catalog.requests import TAGS_AT_ONCE, Created, IngestRequest
from protoslice.catalog.tags import StoredTag
from protoslice.serving.schemas import StoredSchema
from protoslice.stores.collection import GarbageReport
from protoslice.stores.service import Stores

__all__ = [
    "TAGS_AT_ONCE",
    "Created",
    "GarbageReport",
    "IngestRequest",
    "ResultPage",
    "StoredSchema",
    "StoredTag",
    "Stores",
]
