"""The names that users see, and the search for parts of these names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from protoslice.database.transactions import LAST, UNSTORABLE
from protoslice.errors import InvalidInput

STORES: Final = "stores"
HUB: Final = "hub"
OCI: Final = "oci"
MLFLOW: Final = "mlflow"
REMOVED: Final = "removed"
"""Protocol of a removed repository, which no longer has a name, and whose rows are being deleted."""
FOLDERS: Final = "mlflow-artifacts:/"
"""Prefix of the names of MLflow's artifact folders."""
FILES: Final = "~"
"""First character of labels that consist of file paths; it sorts after the first characters of all names."""
_LONGEST: Final = 1500
"""Largest number of bytes in a label of file paths; PostgreSQL's index refuses entries above 2700 bytes."""
_TRIGRAM: Final = 3
_SPECIAL: Final = {"sqlite": re.compile(r"[*?[]"), "postgresql": re.compile(r"[\\%_]")}
_ESCAPED: Final = {"sqlite": r"[\g<0>]", "postgresql": r"\\\g<0>"}


def shown_name(protocol: str, repository: str, name: str) -> str:
    """Return a name as users see it, such as `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`."""
    if protocol == STORES:
        return name
    if protocol == MLFLOW:
        return FOLDERS + name
    return f"{repository}{'@' if protocol == HUB or ':' in name else ':'}{name}"


def label(space: str, protocol: str, repository: str, name: str) -> str:
    """Return the label by which a name is searched and sorted; the label begins with the space's name."""
    return f"{space}\n{shown_name(protocol, repository, name).casefold()}"


def files_label(space: str, paths: Iterable[str]) -> str:
    """Return the label by which a store is found by its files; long lists of paths are cut off."""
    text = "\n".join((FILES, *paths)).casefold().encode()[:_LONGEST].decode(errors="ignore")
    return f"{space}\n{text}"


@dataclass(frozen=True, slots=True)
class LabelSearch:
    """A search for a part of a name or of a file's path.

    An index of trigrams finds a term anywhere in a name. For this, the term needs three ordinary characters in a row.
    Other terms are found only at the beginning of a name.
    """

    dialect: str
    values: Mapping[str, str]
    by_trigrams: bool

    @classmethod
    def of(cls, dialect: str, space: str, term: str) -> LabelSearch:
        """Return the search for a term in the names of one space."""
        if "\0" in term:  # SQLite would ignore the term from this character on
            raise InvalidInput(UNSTORABLE)
        folded, special = term.casefold(), _SPECIAL[dialect]
        if max(map(len, special.split(folded))) < _TRIGRAM:
            first = f"{space}\n{folded}"
            return cls(dialect, {"label": first, "label_end": first + LAST}, by_trigrams=False)
        anything = "*" if dialect == "sqlite" else "%"
        text = special.sub(_ESCAPED[dialect], folded)
        return cls(dialect, {"pattern": f"{space}\n{anything}{text}{anything}"}, by_trigrams=True)

    def condition(self, alias: str) -> str:
        """Return the SQL condition that selects the matching rows of `names`, which the statement calls `alias`."""
        if not self.by_trigrams:
            return f"{alias}.label >= :label AND {alias}.label < :label_end"
        return f"{alias}.label {'GLOB' if self.dialect == 'sqlite' else 'LIKE'} :pattern"

    def rows(self, alias: str) -> str:
        """Return the SQL after FROM that selects the rows of `names` that match the search and have a store."""
        has_store = f"{alias}.store IS NOT NULL"
        if self.by_trigrams and self.dialect == "sqlite":
            joined = f"name_trigrams t JOIN names {alias} ON {alias}.number = t.rowid"
            return f"{joined} WHERE {self.condition('t')} AND {has_store}"
        return f"names {alias} WHERE {self.condition(alias)} AND {has_store}"

    @property
    def repositories(self) -> str:
        """SQL statement for the ids of repositories whose names match; only for a search by trigrams."""
        if self.dialect == "sqlite":
            return "SELECT t.rowid FROM repository_trigrams t WHERE t.label GLOB :pattern"
        label = "(r.space || chr(10) || lower(r.name))"
        return f"SELECT r.id FROM repositories r WHERE {label} LIKE :pattern AND r.protocol IN ('{HUB}', '{OCI}')"
