"""The SQL catalogue: everything mutable or searchable, in SQLite or PostgreSQL."""

from protoslice.catalog.database import Database, Transaction
from protoslice.catalog.opening import connect, file_of, open_database, shown_url, upgrade

__all__ = ["Database", "Transaction", "connect", "file_of", "open_database", "shown_url", "upgrade"]
