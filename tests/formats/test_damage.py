"""Damaged models of every format are read or refused: by our errors, and never by others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Final

import pytest
from tests.support.golden import MODELS, folder

from protoslice import open_model
from protoslice.detection.magic import GGUF, SAFETENSORS
from protoslice.errors import OF_MODELS
from protoslice.library.documents import message_of
from protoslice.sources.files import BytesSource
from protoslice.tensors.reading import read

LEFT_OUT: Final = ("corrupt", "onnx_hostile", "tf_ckpt_many", "tf_sm_pbtxt")
"""Models that are damaged already, or take long: a text is parsed by another process."""
CASES: Final = [
    *(
        (path.parent.name, json.loads(path.read_text())["root"])
        for path in sorted(MODELS.glob("*/expected.json"))
        if not path.parent.name.startswith(LEFT_OUT)
    ),
    ("paddle_pir_json", "inference.pdiparams"),
]
ROUNDS: Final = {"paddle_pir_json": 1000, "safetensors_types": 1000, "gguf_types": 1000, "gguf_big_endian": 1000}
"""Formats that are parsed in Python are tried more often."""


def damaged(data: bytes, random: Random) -> bytes:
    """`data` with one to four changes near its beginning: flipped bits, numbers, bytes removed, repeated or added."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(max(1, min(len(changed), 6000)))
        flipped = bytes(each ^ 1 << random.randrange(8) for each in changed[at : at + 1])
        repeated = bytes(changed[max(0, at - 20) : at])
        new = (
            b"",
            b"\0",
            b"\xff" * 8,
            b"\x7f" * 8,
            random.randbytes(2),
            repeated,
            flipped,
            random.choice(b'{}[],:"09\\'),
        )
        chosen = random.choice(new)
        changed[at : at + random.choice((0, 1, 1, 4, 8, 40))] = bytes([chosen]) if isinstance(chosen, int) else chosen
    return bytes(changed)


def read_all(files: Mapping[str, bytes], root: str) -> bool:
    """Read the first 64 bytes of each tensor; True if none is refused."""
    fine = True
    try:
        with open_model({path: BytesSource(data) for path, data in files.items()}, root) as model:
            for tensor in islice(model.tensors, 200):
                try:
                    data = read(tensor, form="json" if tensor.size is None else "raw").bytes
                    assert tensor.size in (None, data.size)
                    data.read(0, min(data.size, 64))
                except OF_MODELS:
                    fine = False
    except OF_MODELS:
        fine = False
    return fine


@pytest.mark.parametrize(("case", "root"), CASES)
def test_damaged_models_are_read_or_refused(case: str, root: str) -> None:
    files = {
        path.relative_to(folder(case)).as_posix(): path.read_bytes()
        for path in folder(case).rglob("*")
        if path.is_file()
    }
    assert read_all(files, root)
    random, rounds = Random(case), ROUNDS.get(case, 100)
    fine = 0
    for _ in range(rounds):
        path = random.choice([root, root, *(path for path in files if files[path])])
        fine += read_all(files | {path: damaged(files[path], random)}, root)
    assert 0 < fine < rounds


@pytest.mark.parametrize(
    ("case", "root", "kind"),
    [
        ("safetensors_types", "a.safetensors", SAFETENSORS),
        ("gguf_types", "a.gguf", GGUF),
        ("gguf_big_endian", "a.gguf", GGUF),
    ],
)
def test_damaged_headers_are_shown_or_refused(case: str, root: str, kind: str) -> None:
    data, random = (folder(case) / root).read_bytes(), Random(case)
    for _ in range(1000):
        with suppress(*OF_MODELS):
            message_of(BytesSource(damaged(data, random)), "a", kind)
