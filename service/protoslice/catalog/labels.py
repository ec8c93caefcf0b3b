"""Names as users see them, and the search for parts of them."""

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
"""Protocols of repositories; `REMOVED` have no name any more, and their rows are being deleted."""
FOLDERS: Final = "mlflow-artifacts:/"
"""Scheme of names of folders of MLflow's artifacts."""
FILES: Final = "~"
"""Beginning of labels of files, behind all names, which begin with letters and digits."""
_LONGEST: Final = 1500
"""Bytes of a label of files: PostgreSQL's index takes no entry above 2700."""
_TRIGRAM: Final = 3
_SPECIAL: Final = {"sqlite": re.compile(r"[*?[]"), "postgresql": re.compile(r"[\\%_]")}
_ESCAPED: Final = {"sqlite": r"[\g<0>]", "postgresql": r"\\\g<0>"}


def shown_name(protocol: str, repository: str, name: str) -> str:
    """Return a name as users see it: `m:1`, `ann/m@main`, `ann/m:1` or `mlflow-artifacts:/folder`."""
    if protocol == STORES:
        return name
    if protocol == MLFLOW:
        return FOLDERS + name
    return f"{repository}{'@' if protocol == HUB or ':' in name else ':'}{name}"


def label(space: str, protocol: str, repository: str, name: str) -> str:
    """Return the text by which a name is searched and sorted; it differs between spaces."""
    return f"{space}\n{shown_name(protocol, repository, name).casefold()}"


def files_label(space: str, paths: Iterable[str]) -> str:
    """Return the text by which a store is found by its files; if there are many, by the first files."""
    text = "\n".join((FILES, *paths)).casefold().encode()[:_LONGEST].decode(errors="ignore")
    return f"{space}\n{text}"


@dataclass(frozen=True, slots=True)
class LabelSearch:
    """A search for a part of a name, or of the path of a file.

    A term of three or more characters is found anywhere in a name, by an index of trigrams. A shorter term, or a term
    without three ordinary characters in a row, is found only at the beginning.
    """

    dialect: str
    values: Mapping[str, str]
    by_trigrams: bool

    @classmethod
    def of(cls, dialect: str, space: str, term: str) -> LabelSearch:
        """Return the search for a term in the names of a space."""
        if "\0" in term:  # SQLite would search for what is in front of it
            raise InvalidInput(UNSTORABLE)
        folded, special = term.casefold(), _SPECIAL[dialect]
        if max(map(len, special.split(folded))) < _TRIGRAM:
            first = f"{space}\n{folded}"
            return cls(dialect, {"label": first, "label_end": first + LAST}, by_trigrams=False)
        anything = "*" if dialect == "sqlite" else "%"
        text = special.sub(_ESCAPED[dialect], folded)
        return cls(dialect, {"pattern": f"{space}\n{anything}{text}{anything}"}, by_trigrams=True)

    def condition(self, alias: str) -> str:
        """Return the condition on a row of `names`."""
        if not self.by_trigrams:
            return f"{alias}.label >= :label AND {alias}.label < :label_end"
        return f"{alias}.label {'GLOB' if self.dialect == 'sqlite' else 'LIKE'} :pattern"

    def rows(self, alias: str) -> str:
        """Return the rows of `names` that match and have a store: a source and its conditions."""
        has_store = f"{alias}.store IS NOT NULL"
        if self.by_trigrams and self.dialect == "sqlite":
            joined = f"name_trigrams t JOIN names {alias} ON {alias}.number = t.rowid"
            return f"{joined} WHERE {self.condition('t')} AND {has_store}"
        return f"names {alias} WHERE {self.condition(alias)} AND {has_store}"

    @property
    def repositories(self) -> str:
        """The statement for the ids of repositories whose names match, for a search by trigrams."""
        if self.dialect == "sqlite":
            return "SELECT t.rowid FROM repository_trigrams t WHERE t.label GLOB :pattern"
        label = "(r.space || chr(10) || lower(r.name))"
        return f"SELECT r.id FROM repositories r WHERE {label} LIKE :pattern AND r.protocol IN ('{HUB}', '{OCI}')"
