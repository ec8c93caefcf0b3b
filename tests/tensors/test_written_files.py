"""Other libraries read the safetensors files and the zarr references that are made from tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import ml_dtypes
import numpy as np
import pytest
import zarr
from fsspec.implementations.reference import ReferenceFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import deserialize, safe_open
from safetensors.numpy import load
from tests.support.tensors import content, stored, tensor

from protoslice.errors import InvalidInput, LimitExceeded, NotFound, Unsupported
from protoslice.sources.files import BytesSource, FileSource
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource
from protoslice.tensors import safetensors_file as ours
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.model import Encoding, Filled, Stored, Strided, Strings, Tensor, Unreadable
from protoslice.tensors.omitted import Omitted, refuse
from protoslice.tensors.reading import read
from protoslice.tensors.references import references

NAMED = [dtype for dtype in DTYPES.values() if dtype.safetensors]


def parsed(data: bytes) -> dict[str, dict[str, Any]]:
    """Return the tensors that the safetensors library finds in a file."""
    return dict(deserialize(data))  # type: ignore[no-untyped-call]


def head(data: bytes) -> dict[str, Any]:
    """Return the head of a file."""
    found: dict[str, Any] = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return found


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(), max_size=6).filter(lambda name: name != "__metadata__"),
            st.sampled_from(NAMED),
            st.lists(st.integers(0, 4), max_size=3),
        ),
        max_size=8,
        unique_by=lambda entry: entry[0],
    )
)
def test_the_library_finds_every_tensor(entries: list[tuple[str, Any, list[int]]]) -> None:
    tensors, expected = [], {}
    for number, (name, dtype, shape) in enumerate(entries):
        count = int(np.prod(shape))
        data = bytes((number + place) % (1 << min(8, dtype.bits)) for place in range(count * dtype.width))
        tensors.append(tensor(data, dtype.name, shape, name=name))
        label = name.encode("utf-8", "backslashreplace").decode()
        expected["path:" + label if label != name else name] = (dtype, shape, data)
    file = ours.safetensors(tensors)
    whole = content(file)
    found = parsed(whole)
    assert found.keys() == expected.keys()
    for name, (dtype, shape, data) in expected.items():
        assert found[name]["shape"] == shape
        if not dtype.narrow:
            assert found[name]["dtype"] == dtype.safetensors
            assert bytes(found[name]["data"]) == data
    if entries:
        start = len(whole) // 3
        assert file.read(start) == whole[start:]


def test_everything_is_aligned() -> None:
    tensors = [tensor(bytes(dtype.width * 3), dtype.name, [3], name=dtype.name) for dtype in NAMED if not dtype.narrow]
    data = content(ours.safetensors(tensors))
    size = 8 + int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    found = head(data)
    assert found.pop("__metadata__") == {"format": "pt"}
    for name, entry in found.items():
        assert (size + entry["data_offsets"][0]) % DTYPES[name].width == 0


def test_neighbours_stay_neighbours() -> None:
    source = BytesSource(bytes(64))
    tensors = [
        tensor(Stored(Rope.of(source, at, at + 8)), "F32", [2], name=name)
        for at, name in [(0, "b"), (8, "a"), (16, "c")]
    ]
    file = ours.safetensors(tensors)
    assert file.core.pieces()[1:] == [(0, 0, 24)]


def test_numpy_loads_it() -> None:
    arrays = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.array(7, "<i8"), "c": np.zeros((0, 2), "?")}
    names = {"a": "F32", "b": "I64", "c": "BOOL"}
    file = content(
        ours.safetensors([tensor(array.tobytes(), names[n], array.shape, name=n) for n, array in arrays.items()])
    )
    loaded = load(file)
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert np.array_equal(loaded[name], array)


def test_types_that_the_format_lacks_are_shown_as_bytes_and_named() -> None:
    nibbles = np.array([-8, 7, -1], ml_dtypes.int4)
    floats = np.array([1.5, -2, 6], ml_dtypes.float4_e2m1fn)
    data = content(
        ours.safetensors(
            [
                tensor(stored(b"\x78\x0f", Encoding.PACKED), "I4", [3], name="i"),
                tensor(floats.tobytes(), "F4_E2M1", [3], name="odd"),
                tensor(bytes([3, 12]), "F4_E2M1", [2], name="even"),
                tensor(b"abc", "F8_E3M4", [3], name="f"),
            ]
        )
    )
    found = parsed(data)
    assert {name: entry["dtype"] for name, entry in found.items()} == {"i": "I8", "odd": "U8", "even": "F4", "f": "U8"}
    assert np.array_equal(np.frombuffer(found["i"]["data"], "i1"), nibbles.astype("i1"))
    assert bytes(found["odd"]["data"]) == floats.tobytes()
    assert bytes(found["even"]["data"]) == b"\xc3"
    said = json.loads(head(data)["__metadata__"]["protoslice.shown_as_bytes"])
    assert said == {"i": "I4", "odd": "F4_E2M1", "f": "F8_E3M4"}


def test_what_cannot_be_shown_is_left_out_and_named() -> None:
    tensors = [
        tensor(Strings(lambda: [b"a"]), "STRING", [1], name="s"),
        tensor(bytes(16), "C128", [1], name="c"),
        tensor(Unreadable(NotFound("No file")), "F32", [1], name="gone"),
        tensor(bytes(3), "F32", [1], name="short"),
        tensor(bytes(4), "F32", [1], name="good"),
    ]
    file = ours.Safetensors()
    for each in tensors:
        file.add(each)
    data = content(file.finish())
    assert file.omitted == Omitted(4, ("s", "c", "gone", "short"))
    assert parsed(data).keys() == {"good"}
    said = json.loads(head(data)["__metadata__"]["protoslice.left_out"])
    assert said.keys() == {"s", "c", "gone", "short"}
    assert said["gone"] == "No file"


def test_names_that_repeat_become_addresses() -> None:
    one, two = (tensor(bytes([number]), "U8", [1], name="w") for number in (1, 2))
    two = replace(two, address="path:other")
    odd = tensor(b"\x03", "U8", [1], name="path:other")
    reserved = tensor(b"\x04", "U8", [1], name="__metadata__")
    found = parsed(content(ours.safetensors([one, two, odd, reserved])))
    assert {name: bytes(entry["data"]) for name, entry in found.items()} == {
        "path:w": b"\x01",
        "path:other'": b"\x02",
        "path:other": b"\x03",
        "path:__metadata__": b"\x04",
    }


def test_a_head_without_bounds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "_LARGEST_HEAD", 1000)
    tensors = [tensor(b"", "U8", [0], name=f"x{number}") for number in range(100)]
    with pytest.raises(LimitExceeded, match="ask for fewer"):
        ours.safetensors(tensors)


def test_no_element_is_read_for_the_head() -> None:
    class Unread:
        """Bytes that must not be read."""

        size = 4 << 40

        def read(self, offset: int, length: int, /) -> bytes:
            """Fail the test: nothing may be read."""
            raise AssertionError

    file = ours.safetensors(
        [
            tensor(stored_in(Unread()), "F32", [1 << 40], name="a"),
            tensor(Filled(stored_in(Unread(), Encoding.VARINT)), "I64", [1 << 40], name="b"),
        ]
    )
    assert file.size == int.from_bytes(file.read(0, 8), "little") + 8 + (12 << 40)


def stored_in(source: RangeSource, encoding: Encoding = Encoding.PLAIN) -> Stored:
    """Return all of `source` as the elements of a tensor."""
    return Stored(Rope.of(source), encoding)


def test_an_empty_file() -> None:
    assert parsed(content(ours.safetensors([]))) == {}


@pytest.mark.parametrize("align", [1 << bits for bits in range(21)])
def test_tensors_are_aligned_and_the_format_s_own_library_reads_them(align: int, tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    types = ("<f4", "<f8", "<f2", "i1")
    arrays = {f"w{n}": random.standard_normal(n * 7 + 1).astype(types[n % 4]) for n in range(40)}
    arrays["protoslice.padding.1"] = np.arange(5, dtype="<i8")
    names = {"float32": "F32", "float64": "F64", "float16": "F16", "int8": "I8", "int64": "I64"}
    file = ours.Safetensors(layout=ours.FileLayout.of(align, None))
    for name, array in arrays.items():
        file.add(tensor(array.tobytes(), names[str(array.dtype)], array.shape, name=name))
    data = content(file.finish())
    start = 8 + int.from_bytes(data[:8], "little")
    assert all((start + head(data)[name]["data_offsets"][0]) % align == 0 for name in arrays)
    (tmp_path / "a.safetensors").write_bytes(data)
    with safe_open(tmp_path / "a.safetensors", "np") as found:
        assert set(found.keys()) >= arrays.keys()
        assert all(name.startswith("protoslice.padding.") for name in found.keys() - arrays.keys())
        for name, array in arrays.items():
            assert np.array_equal(found.get_tensor(name), array)


def test_floats_are_converted_and_others_stay() -> None:
    whole = np.array([1.5, -2.0078125, 3e38, 1e-3], "<f4")
    file = ours.Safetensors(layout=ours.FileLayout.of(None, "bf16"))
    file.add(tensor(whole.tobytes(), "F32", (4,), name="a"))
    file.add(tensor(np.arange(3, dtype="<i8").tobytes(), "I64", (3,), name="b"))
    found = parsed(content(file.finish()))
    assert {name: (each["dtype"], each["shape"]) for name, each in found.items()} == {
        "a": ("BF16", [4]),
        "b": ("I64", [3]),
    }
    assert bytes(found["a"]["data"]) == whole.astype(ml_dtypes.bfloat16).tobytes()


@pytest.mark.parametrize(("align", "dtype"), [(0, None), (3, None), (1 << 21, None), (None, "I8"), (None, "")])
def test_impossible_layouts_are_refused(align: int | None, dtype: str | None) -> None:
    with pytest.raises(InvalidInput):
        ours.FileLayout.of(align, dtype)


# fsspec and zarr open the references.

ZARR = (".zarray", ".zattrs", ".zgroup")


def opened(tensors: Iterable[Tensor], folder: Path, files: dict[str, FileSource] | None = None) -> Any:
    """Return the group that zarr makes of the references, where tensors are served as files in `folder`."""
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


def test_names_that_repeat_become_addresses_of_references(tmp_path: Path) -> None:
    one = tensor(b"\x01", "U8", [1], name="w")
    two = Tensor("w", "path:graph.initializer[3]", one.dtype, one.shape, one.holder, None, stored(b"\x02"))
    group, _ = opened([one, two], tmp_path)
    assert {array.attrs["address"]: array[0] for _, array in group.arrays()} == {one.address: 1, two.address: 2}


def test_names_of_many_folders_are_no_folders(tmp_path: Path) -> None:
    """Otherwise a name of many characters would make as many entries, each as long as the name."""
    deep, deepest = "/".join("abcdefg" * 6), "a/" * 32 + "b"
    group, refs = opened([tensor(b"\1", "U8", [1], name=name) for name in (deep, deepest)], tmp_path)
    arrays = [key.removesuffix("/.zarray") for key in refs if key.endswith("/.zarray")]
    assert [group[key].attrs["name"] for key in arrays] == [deep, deepest]
    assert [key.count("/") for key in arrays] == [0, 32]
    assert sum(key.endswith(".zgroup") for key in refs) == 1 + 32


# Omissions: they are bounded, and the same after they were sent in a header.


@pytest.mark.parametrize(
    "names",
    [
        ["w"],
        ['a"b', "a b", "a\\b", "a,b)", "%", "é\N{SNOWMAN}", "", "\n\r", "a/b:c"],
        [str(number) for number in range(1000)],
        ["\x00" * 5000],
    ],
)
def test_omitted_survives_its_header(names: list[str]) -> None:
    omitted = Omitted.of(len(names), names)
    assert omitted is not None
    header = omitted.header()
    assert header.isascii()
    assert header.isprintable()
    assert len(header) < 8000
    assert Omitted.parse(header) == omitted
    assert omitted.count == len(names)
    assert len(omitted.names) <= 10


def test_omitted_header_takes_names_that_are_no_utf8() -> None:
    omitted = Omitted(1, ("\udcff",))
    assert Omitted.parse(omitted.header()) == Omitted(1, ("\\udcff",))


@pytest.mark.parametrize(
    "header", [None, "", "count=x", "count=1", 'count=1, names=("a', "count=0, names=()", "\udcff"]
)
def test_omitted_of_a_foreign_header_is_none(header: str | None) -> None:
    assert Omitted.parse(header) is None


def test_refuse_names_what_is_left_out() -> None:
    refuse(None, strict=True)
    refuse(Omitted(2, ("a", "b")), strict=False)
    with pytest.raises(Unsupported, match="12 tensors left out: 'a', 'b' and 10 more"):
        refuse(Omitted(12, ("a", "b")), strict=True)
