"""The ingest of stores: from arriving bytes to a manifest."""

from protoslice.ingest.base import BaseStore, DedupingWriter, base_of
from protoslice.ingest.file_writer import FileWriter
from protoslice.ingest.ingest import Ingest
from protoslice.ingest.recipes import follow

__all__ = ["BaseStore", "DedupingWriter", "FileWriter", "Ingest", "base_of", "follow"]
