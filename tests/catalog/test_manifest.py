"""Manifests: what is kept of a store, and how it is read again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from protoslice.catalog.manifest import Manifest, ObjectLocation, checked, with_digest
from protoslice.errors import IntegrityError
from protoslice.facts import File

FIRST, SECOND = "objects/aa/69-aa00", "objects/bb/6a-bb00"
MANIFEST = Manifest(
    id="",
    type="onnx.ModelProto",
    root="m.onnx",
    chunks=2,
    min_chunk=1,
    max_chunk=2,
    created=datetime(2026, 11, 22, tzinfo=UTC),
    source="upload",
    files=(File("m.onnx", 7, "a" * 64),),
    objects=(ObjectLocation(7, key=FIRST, etag="e"),),
    schema="5" * 64,
    planner=1,
).named()


def test_what_is_encoded_is_decoded() -> None:
    assert Manifest.decode(MANIFEST.encode()) == MANIFEST


def test_records_are_kept_byte_for_byte() -> None:
    records = {"index": bytes(range(256)), "plan": b""}
    manifest = replace(MANIFEST, inline=records, beside={"schema": SECOND})
    found = Manifest.decode(manifest.encode())
    assert (found.inline, found.beside) == (records, {"schema": SECOND})
    assert (MANIFEST.object_ids, manifest.object_ids) == ({0x69}, {0x69, 0x6A})
    assert manifest.named().id == MANIFEST.id, "where the records lie is no part of a store's identity"


def test_sums_are_kept_once_for_each_object() -> None:
    pack = ObjectLocation(9, key=FIRST, etag="e", sums=b"1234")
    apart = ObjectLocation(1 << 30, key=SECOND, etag="f")
    packed = tuple(ObjectLocation(3, parts=(pack,), at=at) for at in (0, 3, 6))
    files = tuple(File(path, 3, "a" * 64) for path in "abc")
    manifest = replace(MANIFEST, files=(*files, File("m.onnx", 1 << 30, "b" * 64)), objects=(*packed, apart))
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.encode().count(b"MTIzNA==") == 1
    assert manifest.object_ids == {0x69, 0x6A}


def test_bytes_of_files_are_kept_in_their_locations() -> None:
    held = ObjectLocation(3, held=b"abc")
    manifest = replace(MANIFEST, files=(File("m.onnx", 3, "a" * 64),), objects=(held,), inline={"index": b"i"})
    assert Manifest.decode(manifest.encode()) == manifest
    assert manifest.object_ids == set()
    assert held.is_held
    assert ObjectLocation.joined([held, held]).is_held
    assert not MANIFEST.objects[0].is_held


@pytest.mark.parametrize("held", ["?", "YWI="])
def test_bytes_of_a_file_that_are_none_or_too_few_are_damage(held: str) -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"objects": [{"size": 3, "held": held}]}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))


def test_a_manifest_without_records_of_its_own_is_read() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it"))
    del raw["inline"]
    assert Manifest.decode(with_digest(json.dumps(raw).encode())) == MANIFEST


def test_records_that_are_no_bytes_are_damage() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"inline": {"index": "?"}}
    with pytest.raises(IntegrityError, match="parse"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))


def test_another_version_is_refused() -> None:
    raw = json.loads(checked(MANIFEST.encode(), "it")) | {"version": 1}
    with pytest.raises(IntegrityError, match="version"):
        Manifest.decode(with_digest(json.dumps(raw).encode()))
