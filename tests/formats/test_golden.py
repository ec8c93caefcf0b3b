"""Golden models: tensors and slices equal those that the format's own library lists.

Damaged models of every format are read, or refused by our errors, and never by other errors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any, Final

import pytest
from tests.support.golden import MODELS, folder

from protoslice import open_model
from protoslice.detection.magic import GGUF, SAFETENSORS
from protoslice.errors import OF_MODELS, CorruptModel, LimitExceeded, ProtosliceError
from protoslice.library.documents import message_of
from protoslice.library.models import LocalModel
from protoslice.sources.files import BytesSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import MissingFile, Tensor, Unreadable
from protoslice.tensors.reading import read

FOLDERS = sorted(path.parent.name for path in MODELS.glob("*/expected.json"))
OURS = {"F4_E2M1FN": "F4_E2M1"}
"""The names of dtypes for which the API has a shorter word."""

Json = dict[str, Any]


def _expected(case: str) -> Json:
    loaded: Json = json.loads((MODELS / case / "expected.json").read_text())
    return loaded


def _model(case: str, root: str | None = None) -> LocalModel:
    return open_model(folder(case), root or _expected(case)["root"])


def _named(found: Tensors, address: str) -> Tensor:
    (number,) = found.numbers(address.rpartition(" ")[2] if address.startswith("json:") else address)
    return found[number]


def _read(data: Rope) -> bytes:
    return data.read()


def _sha256(data: Rope) -> str:
    return hashlib.sha256(_read(data)).hexdigest()


def _errors() -> list[Any]:
    return [
        pytest.param(case, entry, id=f"{case}-{entry.get('where') or entry.get('tensor') or number}")
        for case in FOLDERS
        for number, entry in enumerate(_expected(case).get("errors", []))
    ]


@pytest.mark.parametrize("case", [case for case in FOLDERS if _expected(case).get("tensors")])
def test_what_is_listed(case: str) -> None:
    expected, found = _expected(case), _model(case).tensors
    assert len(found) >= len(expected["tensors"])
    for each in expected["tensors"]:
        tensor = _named(found, each["where"])
        assert tensor.dtype is not None
        facts = (tensor.name, tensor.dtype.name, list(tensor.shape or ()))
        assert facts == (each["name"], OURS.get(each["dtype"], each["dtype"]), each["shape"]), each["where"]
        assert tensor.size == each.get("nbytes")


@pytest.mark.parametrize("case", [case for case in FOLDERS if _expected(case).get("tensors")])
def test_what_is_read(case: str) -> None:
    found = _model(case).tensors
    for each in _expected(case)["tensors"]:
        tensor = _named(found, each["where"])
        if each["dtype"] == "STRING":
            shown = json.loads(_read(read(tensor, None, "json").bytes))
            shown.pop("stored", None)
            assert shown == {"dtype": "STRING", "shape": each["shape"], "values": each["values_b64"]}
            continue
        assert _sha256(read(tensor, None, "raw").bytes) == each["sha256"], each["where"]
        if "sha256_packed" in each:
            assert _sha256(read(tensor, None, "packed").bytes) == each["sha256_packed"], each["where"]
        for part in [*each.get("slices", []), *each.get("slices_ext", [])]:
            reading = read(tensor, part["slice"], "raw")
            assert (list(reading.shape), _sha256(reading.bytes)) == (part["shape"], part["sha256"]), (each, part)


@pytest.mark.parametrize("case", [case for case in FOLDERS if _expected(case).get("tensors")])
def test_what_lies_in_one_piece_is_not_computed(case: str) -> None:
    model = _model(case)
    found = model.tensors
    for each in _expected(case)["tensors"]:
        lies = each.get("file")
        if (
            lies is None
            or each["dtype"] == "STRING"
            or "nbytes_packed" in each
            or "sha256_stored" in each
            or lies.get("field", "").startswith("int")
        ):
            continue
        data = read(_named(found, each["where"]), None, "raw").bytes
        if not lies["length"]:
            assert data.size == 0
            continue
        (piece,) = data.core.pieces()
        assert not isinstance(piece, bytes)
        source, offset, length = piece
        assert data.sources[source] is model.model.files[lies["file"]], each["where"]
        assert (offset, length) == (lies["offset"], lies["length"]), each["where"]


FAULTS: dict[str, tuple[type[ProtosliceError], str]] = {
    "bad_magic": (CorruptModel, "is not that of a table"),
    "bad_shape": (CorruptModel, "dimension"),
    "bad_wire_type": (CorruptModel, "wire type 7"),
    "corrupt": (CorruptModel, "invalid length of 2147483647 bytes"),
    "crc": (CorruptModel, "checksum"),
    "field_number_zero": (CorruptModel, "invalid field number 0"),
    "invalid_external_data": (CorruptModel, "offset 'abc': it must be a number"),
    "length_past_end": (CorruptModel, "is cut off"),
    "length_past_parent": (CorruptModel, "its message ends after"),
    "no_data": (CorruptModel, "no values of its data type"),
    "not_a_file": (CorruptModel, "is not a file name"),
    "not_found": (MissingFile, "is not among|missing files"),
    "out_of_range": (CorruptModel, r"bytes at byte \d+|at byte \d+ of"),
    "path_absolute": (CorruptModel, "outside of the model"),
    "path_escapes": (CorruptModel, "outside of the model"),
    "shape_mismatch": (CorruptModel, "do not have the same parameters"),
    "shape_overflow": (CorruptModel, "too many elements to address"),
    "size_mismatch": (CorruptModel, r"but there are \d+|no values of its data type|bytes of data"),
    "too_deep": (LimitExceeded, "nested more than 100 levels deep"),
    "trailing_bytes": (CorruptModel, "follow the last tensor"),
    "truncated": (CorruptModel, "is cut off|bytes expected, but only|does not parse"),
    "unknown_dtype": (CorruptModel, "has no data type"),
    "unmatched_end_group": (CorruptModel, "an end tag of field 9"),
    "unsupported_version": (CorruptModel, "has version 1"),
    "varint_too_long": (CorruptModel, "longer than 64 bits"),
}
"""For each kind of fault that the corpus names, the error's class and words of its message."""


@pytest.mark.parametrize(("case", "error"), _errors())
def test_what_must_go_wrong(case: str, error: Json) -> None:
    if error["kind"].startswith("too_large"):
        reading = read(_faulty(_model(case).tensors, error), None, "raw").bytes
        assert reading.size == 4 << 40
        assert len(reading.read(reading.size - 1000, 1000)) == 1000
        return
    kind, words = FAULTS[error["kind"].split(" ")[0]]
    with pytest.raises(kind, match=words) as caught:
        _provoke(_model(case, error.get("root")), error)
    assert type(caught.value) is kind
    if kind is CorruptModel:
        assert (caught.value.offset, caught.value.path) != (None, None)


def _provoke(model: LocalModel, error: Json) -> None:
    """Do what must fail by the corpus: list the tensors, or read one of them in its form."""
    if "tensor" not in error:
        len(model.tensors)
        return
    tensor = _faulty(model.tensors, error)
    form = "json" if tensor.dtype is not None and tensor.dtype.name == "STRING" else "raw"
    _read(read(tensor, None, form).bytes)


def _faulty(found: Tensors, error: Json) -> Tensor:
    (number,) = found.numbers(error.get("where") or error["tensor"])
    return found[number]


@pytest.mark.parametrize("case", [case for case in FOLDERS if case.startswith("onnx_hostile")])
def test_nothing_outside_of_the_model_is_read(case: str) -> None:
    found = _model(case).tensors
    evil = _named(found, _expected(case)["errors"][0]["where"])
    assert isinstance(evil.data, Unreadable)


def test_no_case_is_left_out() -> None:
    assert len(FOLDERS) == len([path for path in MODELS.iterdir() if path.is_dir()]) == 67


LEFT_OUT: Final = ("corrupt", "onnx_hostile", "tf_ckpt_many", "tf_sm_pbtxt")
"""The models that are damaged already, or take long because another process parses a text."""
CASES: Final = [
    *(
        (path.parent.name, json.loads(path.read_text())["root"])
        for path in sorted(MODELS.glob("*/expected.json"))
        if not path.parent.name.startswith(LEFT_OUT)
    ),
    ("paddle_pir_json", "inference.pdiparams"),
]
ROUNDS: Final = {"paddle_pir_json": 1000, "safetensors_types": 1000, "gguf_types": 1000, "gguf_big_endian": 1000}
"""The formats that are parsed in Python; they are tried more often."""


def damaged(data: bytes, random: Random) -> bytes:
    """Return `data` with one to four changes near its beginning: flipped bits, or removed, repeated or new bytes."""
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
    """Read the first 64 bytes of each tensor; return True if none is refused."""
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
