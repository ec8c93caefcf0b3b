"""Mutants are run by hand: here each is only found where its list says."""

from __future__ import annotations

from tests.catalog import mutants as of_catalog
from tests.catalog.store_mutants import STORE_MUTANTS
from tests.server.access import mutants as of_access


def test_each_mutant_has_its_place() -> None:
    places = [(of_access.ROOT / of_access.ACCESS / each.module, each.old) for each in of_access.MUTANTS]
    places += [
        (of_catalog.ROOT / of_catalog.SOURCES / each.module, each.old) for each in (*of_catalog.MUTANTS, *STORE_MUTANTS)
    ]
    assert [(path.name, old) for path, old in places if old not in path.read_text()] == []
