"""Roots among files: the choice by a look at few of them is that by a look at all."""

from __future__ import annotations

import json
import random

import pytest

from protoslice.formats.roots import Candidate, rank, rank_lazily

NAMES = (
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "m.onnx",
    "m.cpb",
    "x.index",
    "named.mlmodel",
    "a",
    "b",
    "c",
    "m.safetensors",
    "m.fp16.safetensors",
    "m-00001-of-00002.safetensors",
)
KINDS = ("proto", "riegeli", "text", "json", "table", "paddle", "refused", "unknown", "tfrecord", "safetensors")
MANIFESTS = {
    "Manifest.json": json.dumps(
        {"rootModelIdentifier": "r", "itemInfoEntries": {"r": {"path": "named.mlmodel"}}}
    ).encode()
}


@pytest.mark.parametrize("seed", range(200))
def test_files_come_in_the_same_order(seed: int) -> None:
    chance = random.Random(seed)
    files = {
        path: Candidate(path, chance.choice(KINDS), chance.randrange(4))
        for path in {chance.choice(("", "d/", "e/")) + chance.choice(NAMES) for _ in range(chance.randrange(12))}
    }
    manifests = MANIFESTS if chance.random() < 0.3 else {}
    assert list(rank_lazily(files, files.__getitem__, manifests)) == rank(files.values(), manifests)


def test_no_file_is_looked_at_whose_name_is_less_likely() -> None:
    looked = []

    def look(path: str) -> Candidate:
        looked.append(path)
        return Candidate(path, "refused" if path == "__model__" else "proto", 1)

    paths = ["assets/vocabulary.txt", "m.onnx", "__model__", "weights.bin"]
    assert next(rank_lazily(paths, look, {})).path == "m.onnx"
    assert looked == ["__model__", "m.onnx"]
