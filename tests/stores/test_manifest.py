"""Manifests: what is kept of a store, and how it is read again."""

from __future__ import annotations

import json
from dataclasses import replace
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


def test_records_are_kept_byte_for_byte() -> None:
    records = {"index": bytes(range(256)), "plan": b""}
    manifest = replace(MANIFEST, inline=records)
    assert Manifest.decode(manifest.encode()).inline == records
    assert manifest.beside == ("schema",)
    assert manifest.keys == MANIFEST.keys - {f"objects/{MANIFEST.attempt}/{name}" for name in records}
    assert manifest.named().id == MANIFEST.id, "where the records lie is no part of a store's identity"


def test_sums_are_kept_once_for_each_object() -> None:
    pack = ObjectLocation(9, key="objects/0069000000-aa/file-0", etag="e", sums=b"1234")
    apart = ObjectLocation(1 << 30, key="objects/0069000000-aa/file-2", etag="f")
    packed = tuple(ObjectLocation(3, parts=(pack,), at=at) for at in (0, 3, 6))
    files = tuple(File(path, 3, "a" * 64) for path in "abc")
    manifest = replace(MANIFEST, files=(*files, File("m.onnx", 1 << 30, "b" * 64)), objects=(*packed, apart))
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.encode().count(b"MTIzNA==") == 1
    assert {key for key in manifest.keys if "file-" in key} == {pack.key, apart.key, f"{apart.key}.sums"}
    assert pack.names == {"0069000000-aa": {"file-0"}}, "no sums are beside it"


def test_bytes_of_files_are_kept_in_their_locations() -> None:
    held = ObjectLocation(3, held=b"abc")
    manifest = replace(MANIFEST, files=(File("m.onnx", 3, "a" * 64),), objects=(held,), inline={"index": b"i"})
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.attempts == {MANIFEST.attempt}
    assert not any("file" in key for key in manifest.keys)
    assert held.is_held
    assert ObjectLocation.joined([held, held]).is_held
    assert not MANIFEST.objects[0].is_held


@pytest.mark.parametrize("held", ["?", "YWI="])
def test_bytes_of_a_file_that_are_none_or_too_few_are_damage(held: str) -> None:
    raw = json.loads(unseal(MANIFEST.encode(), "it")) | {"objects": [{"size": 3, "held": held}]}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(seal(json.dumps(raw).encode()))


def test_a_manifest_without_records_of_its_own_is_read() -> None:
    raw = json.loads(unseal(MANIFEST.encode(), "it"))
    del raw["inline"]
    assert Manifest.decode(seal(json.dumps(raw).encode())) == MANIFEST


def test_records_that_are_no_bytes_are_damage() -> None:
    raw = json.loads(unseal(MANIFEST.encode(), "it")) | {"inline": {"index": "?"}}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(seal(json.dumps(raw).encode()))


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
