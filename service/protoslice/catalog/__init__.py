"""The catalogue: all but bytes, with a module for each kind of thing: dataclasses, SQL, errors."""

from protoslice.catalog.upkeep import open_database

__all__ = ["open_database"]
