"""fsspec and zarr open the references."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fsspec
import ml_dtypes
import numpy as np
import zarr
from fsspec.implementations.reference import ReferenceFileSystem
from tests.support.tensors import content, stored, tensor

from protoslice.errors import NotFound
from protoslice.sources.files import FileSource
from protoslice.sources.ropes import Rope
from protoslice.tensors.model import Encoding, Stored, Strided, Strings, Tensor, Unreadable
from protoslice.tensors.reading import read
from protoslice.tensors.references import references

ZARR = (".zarray", ".zattrs", ".zgroup")


def opened(tensors: Iterable[Tensor], folder: Path, files: dict[str, FileSource] | None = None) -> Any:
    """The group that zarr makes of the references, where tensors are given out as files in `folder`."""
    tensors = list(tensors)
    given = {subject.address: folder / f"given-{number}" for number, subject in enumerate(tensors)}
    for subject in tensors:
        if not isinstance(subject.data, Strings | Unreadable):
            given[subject.address].write_bytes(content(read(subject).bytes))
    made = references(
        tensors, files or {}, file_url=lambda path: str(folder / path), tensor_url=lambda name: str(given[name])
    )
    system = ReferenceFileSystem(json.loads(json.dumps(made)), target_protocol="file", asynchronous=False)
    return zarr.open_group(fsspec.FSMap("", system), mode="r", zarr_format=2), made["refs"]


def test_zarr_reads_every_tensor(tmp_path: Path) -> None:
    array = np.arange(24, dtype="<f4").reshape(2, 3, 4)
    (tmp_path / "weights.bin").write_bytes(b"before" + array.tobytes())
    file = FileSource(tmp_path / "weights.bin")
    column = np.asfortranarray(array)
    group, refs = opened(
        [
            tensor(Stored(Rope.of(file, 6)), "F32", [2, 3, 4], name="dense/kernel", file="weights.bin"),
            tensor(Strided(stored(column.tobytes("F")), (1, 2, 6)), "F32", [2, 3, 4], name="turned"),
            tensor(np.array(5, "<i8").tobytes(), "I64", [], name="step"),
            tensor(b"", "F32", [0, 3], name="empty"),
            tensor(stored(b"\x78", Encoding.PACKED), "I4", [2], name="dense/narrow"),
            tensor(bytes(16), "C128", [1], name="c"),
            tensor(Strings(lambda: [b""]), "STRING", [1], name="words"),
            tensor(Unreadable(NotFound("gone")), "F32", [1], name="gone"),
        ],
        tmp_path,
        {"weights.bin": file},
    )
    assert refs["dense/kernel/0.0.0"] == [str(tmp_path / "weights.bin"), 6, 96]
    assert np.array_equal(group["dense/kernel"][:], array)
    assert np.array_equal(group["dense"]["kernel"][1, ::2], array[1, ::2])
    assert np.array_equal(group["turned"][:], array)
    assert group["step"][()] == 5
    assert group["empty"].shape == (0, 3)
    assert group["dense/narrow"][:].tolist() == [-8, 7]
    assert group["c"][:].tolist() == [0]
    assert sorted(group.keys()) == ["c", "dense", "empty", "step", "turned"]
    assert dict(group["dense/narrow"].attrs) == {
        "name": "dense/narrow", "address": "path:dense/narrow", "dtype": "I4", "_ARRAY_DIMENSIONS": ["dense/narrow[0]"],
    }  # fmt: skip
    metadata = json.loads(refs[".zmetadata"])["metadata"]
    assert metadata == {key: json.loads(refs[key]) for key in refs if key.rpartition("/")[2] in ZARR}
    assert sorted(group["dense"].array_keys()) == ["kernel", "narrow"], "zarr 3 lists groups by that metadata alone"
    for key in metadata:
        if key.endswith(".zattrs"):
            dimensions = metadata[key]["_ARRAY_DIMENSIONS"]
            assert len(dimensions) == len(metadata[key.replace(".zattrs", ".zarray")]["shape"])
            assert not any(f"{name}/.zarray" in refs for name in dimensions), "a dimension is no array"


def test_floats_that_zarr_lacks_are_shown_as_their_bits(tmp_path: Path) -> None:
    array = np.array([1.5, -2], ml_dtypes.bfloat16)
    group, _ = opened([tensor(array.tobytes(), "BF16", [2], name="x")], tmp_path)
    assert np.array_equal(group["x"][:].view(array.dtype), array)
    assert group["x"].attrs["dtype"] == "BF16"


def test_every_name_has_a_key_of_its_own(tmp_path: Path) -> None:
    names = [
        "a", "a/b", "a/b/c", "a/0", "", ".", "..", ".zarray", "x/.zgroup", "/root", "end/", "two//three", "100%", "%41",
        "A", "a b", "ü", "q?", "h#", "c/d", "c:d", "[0]", "*", "\n", "\\", "{}", "é/ß", "c",
    ]  # fmt: skip
    group, refs = opened([tensor(bytes([number]), "U8", [1], name=name) for number, name in enumerate(names)], tmp_path)
    arrays = [key.removesuffix("/.zarray") for key in refs if key.endswith("/.zarray")]
    assert len(set(arrays)) == len(names)
    for number, (name, key) in enumerate(zip(names, arrays, strict=True)):
        assert group[key][:].tolist() == [number]
        assert group[key].attrs["name"] == name


def test_names_that_repeat_become_addresses(tmp_path: Path) -> None:
    one = tensor(b"\x01", "U8", [1], name="w")
    two = Tensor("w", "path:graph.initializer[3]", one.dtype, one.shape, one.holder, None, stored(b"\x02"))
    group, _ = opened([one, two], tmp_path)
    assert {array.attrs["address"]: array[0] for _, array in group.arrays()} == {one.address: 1, two.address: 2}


def test_names_of_many_folders_are_no_folders(tmp_path: Path) -> None:
    """Else a name of so many letters would make as many entries, each as long as it is."""
    deep, deepest = "/".join("abcdefg" * 6), "a/" * 32 + "b"
    group, refs = opened([tensor(b"\1", "U8", [1], name=name) for name in (deep, deepest)], tmp_path)
    arrays = [key.removesuffix("/.zarray") for key in refs if key.endswith("/.zarray")]
    assert [group[key].attrs["name"] for key in arrays] == [deep, deepest]
    assert [key.count("/") for key in arrays] == [0, 32]
    assert sum(key.endswith(".zgroup") for key in refs) == 1 + 32
