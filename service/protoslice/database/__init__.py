"""SQL databases: transactions on SQLite and PostgreSQL, migrations, snapshots."""

from protoslice.database.opening import connect, file_of, shown_url, upgrade
from protoslice.database.transactions import Database, Transaction

__all__ = ["Database", "Transaction", "connect", "file_of", "shown_url", "upgrade"]
