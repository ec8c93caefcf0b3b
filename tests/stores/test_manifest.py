"""Manifests: what is kept of a store, and how it is read again."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from protoslice.errors import IntegrityError
from protoslice.facts import File
from protoslice.stores.envelope import seal, unseal
from protoslice.stores.manifest import Manifest, ObjectLocation, upgraded

MANIFEST = Manifest(
    id="",
    type="onnx.ModelProto",
    root="m.onnx",
    chunks=2,
    min_chunk=1,
    max_chunk=2,
    created=datetime(2026, 11, 22, tzinfo=UTC),
    source="upload",
    attempt="0069000000-aa",
    files=(File("m.onnx", 7, "a" * 64),),
    objects=(ObjectLocation(7, key="objects/0069000000-aa/file-0", etag="e"),),
    schema="5" * 64,
    planner=1,
).named()


def test_what_is_encoded_is_decoded() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


def test_another_version_is_refused() -> None:
    raw = json.loads(unseal(MANIFEST.encode(), "it")) | {"version": 1}
    with pytest.raises(IntegrityError, match="version"):
        Manifest.decode(seal(json.dumps(raw).encode()))


@pytest.mark.parametrize(("indexed", "schema", "planner"), [(True, "6" * 64, 1), (False, None, None)])
def test_a_manifest_of_version_1_is_upgraded(indexed: bool, schema: str | None, planner: int | None) -> None:
    raw = json.loads(unseal(MANIFEST.encode(), "it"))
    del raw["schema"], raw["planner"]
    raw |= {"version": 1, "id": "f" * 64, "indexed": indexed}
    found = upgraded(raw, "6" * 64)
    assert (found.id, found.schema, found.planner) == ("f" * 64, schema, planner), "an id that was given out stays"
    assert (found.files, found.objects, found.created) == (MANIFEST.files, MANIFEST.objects, MANIFEST.created)
    assert Manifest.decode(found.encode()) == found
