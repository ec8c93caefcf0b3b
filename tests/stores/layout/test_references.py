"""References tell by their keys which manifest made them, and which objects it names."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from protoslice.facts import File
from protoslice.storage import ObjectKey, ObjectStat
from protoslice.stores.layout import keys
from protoslice.stores.layout.indexes import place_in_time
from protoslice.stores.layout.references import Reference, names_digest, references_of
from protoslice.stores.manifest import Manifest, ObjectLocation

STORE = "a" * 64
MANIFEST = Manifest(
    id=STORE, type=None, root=None, chunks=0, min_chunk=1, max_chunk=2, created=datetime(2026, 1, 1, tzinfo=UTC),
    source="", attempt="0-a", files=(File("x", 6, "0" * 64),), indexed=False, why="it is none",
    objects=(ObjectLocation.joined([ObjectLocation(3, key=f"objects/{each}/part-1") for each in ("0-a", "0-b")]),),
)  # fmt: skip


def listed(attempt: str, *names: str) -> list[ObjectStat]:
    """Objects of an attempt."""
    return [ObjectStat(keys.object_key(attempt, name), 1, '"a"', datetime.now(UTC)) for name in names]


def test_each_attempt_has_a_reference_with_the_digest_of_its_names() -> None:
    one, two = references_of(MANIFEST)
    assert [key.segments[1] for key in (one, two)] == ["0-a", "0-b"]
    told = Reference.parse(one)
    assert (told.store, told.place, told.attempts) == (STORE, place_in_time(MANIFEST), 2)
    assert told.names == names_digest(
        [*listed("0-a", "part-1.sums", "part-1", "claim"), *listed("0-a", one.segments[2])]
    )
    assert told.names != names_digest(listed("0-a", "part-1"))
    assert told.names != names_digest(listed("0-a", "part-1", "part-1.sums", "part-2"))


def test_manifests_of_one_store_have_references_of_their_own() -> None:
    later = replace(MANIFEST, created=datetime(2026, 1, 2, tzinfo=UTC))
    assert {*references_of(MANIFEST)}.isdisjoint(references_of(later))


@pytest.mark.parametrize("name", [f"of-{STORE}", f"of-00-{STORE}-x-00", f"of-{STORE}-1"])
def test_references_of_older_versions_name_the_store_alone(name: str) -> None:
    assert Reference.parse(ObjectKey(f"objects/0-a/{name}")).place is None


def test_a_reference_of_an_older_version_names_its_store() -> None:
    assert Reference.parse(ObjectKey(f"objects/0-a/of-{STORE}")).store == STORE
