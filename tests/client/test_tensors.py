"""Tensors as numpy arrays, whole and in slices, of every type that numpy or ml_dtypes has."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any
from urllib.parse import quote

import ml_dtypes
import numpy as np
import onnx
import pytest
from numpy.testing import assert_array_equal
from tests.support.serve import LiveServer

from protoslice.client import Client
from protoslice.client.filesystem import StoreFileSystem
from protoslice.errors import Conflict, IntegrityError, InvalidInput, NotFound, Unsupported
from protoslice.tensors.arrays import _ML_DTYPES, _NUMPY, as_array, as_strings, shape_of, slice_text
from protoslice.tensors.dtypes import DTYPES

KINDS: dict[str, Any] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64,
    "I8": np.int8, "U16": np.uint16, "BOOL": np.bool_, "C64": np.complex64, "F8_E5M2": ml_dtypes.float8_e5m2,
}  # fmt: skip


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    """An array of each kind, and a large one."""
    made = {name: np.arange(24).reshape(2, 3, 4).astype(kind) for name, kind in KINDS.items()}
    return made | {
        "large": np.random.default_rng(1).random((700, 800), np.float32),
        "scalar": np.float32(7).reshape(()),
    }


@pytest.fixture(scope="module")
def ref(client: Client, arrays: dict[str, Any]) -> str:
    """Return a store of an ONNX model that holds the arrays, and strings."""
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    words = np.array([[b"a", b""], [b"\x00\xff", b"four"]], object)
    strings = onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [2, 2], list(words.reshape(-1)))
    nibbles = onnx.helper.make_tensor("nibbles", onnx.TensorProto.INT4, [5], [-8, -1, 0, 3, 7])
    twice = [onnx.numpy_helper.from_array(np.zeros(1, np.float32), "twice")] * 2
    graph = onnx.helper.make_graph([], "g", [], [], initializer=[*tensors, strings, nibbles, *twice])
    model = onnx.helper.make_model(graph)
    return client.push(model, filename="t.onnx", type="onnx.ModelProto", tags=["tensors:1"]).store.id


def test_they_are_listed(client: Client, ref: str, arrays: dict[str, Any]) -> None:
    listed = {each.name: each for each in client.tensors(ref)}
    assert listed.keys() == arrays.keys() | {"words", "nibbles", "twice"}
    for name, kind in KINDS.items():
        assert (listed[name].dtype, listed[name].shape) == (name, (2, 3, 4))
        assert listed[name].size == 24 * np.dtype(kind).itemsize
    assert (listed["words"].dtype, listed["words"].size) == ("STRING", None)
    assert [each.name for each in client.tensors(ref, dtype="BF16")] == ["BF16"]
    assert [each.name for each in client.tensors(ref, name="large")] == ["large"]


def test_whole_and_in_slices(client: Client, ref: str, arrays: dict[str, Any]) -> None:
    for name, array in arrays.items():
        found = client.tensor(ref, name)
        assert (found.dtype, found.shape) == (array.dtype, array.shape), name
        assert_array_equal(found, array)
    found = client.tensor(ref, "large", "3:600:7,::3")
    assert_array_equal(found, arrays["large"][3:600:7, ::3])
    found[0, 0] = 1  # arrays are writable
    for index in ((slice(1, None), -1), (0, slice(None), slice(None, None, 2)), 1, slice(1, 2)):
        assert_array_equal(client.tensor(ref, "F32", index), arrays["F32"][index])
    (large,) = client.tensors(ref, name="large")
    assert_array_equal(client.tensor(ref, large.address), arrays["large"])


def test_strings_and_narrow_types(client: Client, ref: str) -> None:
    words = client.tensor(ref, "words")
    assert words.tolist() == [[b"a", b""], [b"\x00\xff", b"four"]]
    assert client.tensor(ref, "nibbles").tolist() == [-8, -1, 0, 3, 7]


def test_what_there_is_not(client: Client, ref: str) -> None:
    with pytest.raises(NotFound):
        client.tensor(ref, "none")
    with pytest.raises(Conflict, match="twice"):
        client.tensor(ref, "twice")
    with pytest.raises(InvalidInput):
        client.tensor(ref, "F32", "0:1:0")


def test_as_files(client: Client, service: LiveServer, ref: str, arrays: dict[str, Any]) -> None:
    fs = StoreFileSystem(skip_instance_cache=True)
    root = f"protoslice://{service.host}:{service.port}/{ref}/tensors"
    listed = [name.rpartition("/")[2] for name in fs.ls(root, detail=False)]
    twice = [quote(each.address, safe="") for each in client.tensors(ref, name="twice")]
    assert sorted(listed) == sorted([*arrays, "words", "nibbles", *twice])
    assert fs.info(f"{root}/large")["size"] == arrays["large"].nbytes
    assert fs.cat_file(f"{root}/large", start=4000, end=8000) == arrays["large"].tobytes()[4000:8000]
    assert fs.cat_file(f"{root}/{twice[1]}") == bytes(4)


def test_every_type_of_the_service_is_known_or_named() -> None:
    quantized = {name for name, dtype in DTYPES.items() if dtype.block is not None}
    assert DTYPES.keys() - _NUMPY.keys() - _ML_DTYPES.keys() - quantized == {"STRING"}
    assert as_array(bytes(36), "Q4_0", (2, 32)).shape == (2, 18)
    for name in _NUMPY.keys() | _ML_DTYPES.keys():
        assert as_array(b"", name, (0,)).shape == (0,), name
    with pytest.raises(Unsupported):
        as_array(b"", "STRING", (0,))


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ("1:2,:", "1:2,:"),
        (3, "3"),
        (-1, "-1"),
        (slice(None), ":"),
        ((slice(1, 2), slice(None, None, 3), ...), "1:2,::3,..."),
    ],
)
def test_slices_are_written_as_the_service_reads_them(wanted: Any, text: str) -> None:
    assert slice_text(wanted) == text


def test_what_does_not_fit_is_refused() -> None:
    assert [shape_of(text) for text in ("", "3", "3,4", "[3, 4]", "(3,)")] == [(), (3,), (3, 4), (3, 4), (3,)]
    with pytest.raises(IntegrityError):
        shape_of("3,x")
    with pytest.raises(IntegrityError):
        as_array(bytes(15), "F32", (4,))
    for said in ({}, {"values": [1], "shape": [1]}, {"values": ["YQ=="], "shape": [2]}, {"values": 3, "shape": []}):
        with pytest.raises(IntegrityError):
            as_strings(said)
    assert math.prod(as_strings({"values": [], "shape": [0, 3]}).shape) == 0


def test_statistics_come_without_the_elements(client: Client, ref: str, arrays: dict[str, Any]) -> None:
    for name in ("F32", "BF16", "I64", "BOOL", "scalar"):
        array = np.asarray(arrays[name]).astype("f8")
        found = client.stats(ref, name)
        assert (found.min, found.max, found.mean) == (array.min(), array.max(), array.mean())
        assert found.deviation == pytest.approx(array.std())
        assert found.histogram is not None
        assert sum(found.histogram.counts) == array.size
    part = client.stats(ref, "large", np.s_[3:9, :5], sample=6)
    assert (part.shape, part.elements, part.looked_at) == ((6, 5), 30, 6)
    with pytest.raises(Unsupported):
        client.stats(ref, "words")


def _without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.parametrize("wanted", [None, "0:1"])
def test_tensor_without_numpy_says_so(
    client: Client, ref: str, monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    _without(monkeypatch, "numpy")
    with pytest.raises(Unsupported, match="pip install numpy"):
        client.tensor(ref, "F32", wanted)


@pytest.mark.parametrize("wanted", [None, "0:1"])
def test_tensor_without_ml_dtypes_says_so(
    client: Client, ref: str, monkeypatch: pytest.MonkeyPatch, wanted: str | None
) -> None:
    _without(monkeypatch, "ml_dtypes")
    with pytest.raises(Unsupported, match="pip install ml_dtypes"):
        client.tensor(ref, "BF16", wanted)


def test_tensor_of_strings_takes_a_slice(client: Client, ref: str) -> None:
    assert client.tensor(ref, "words", "1:").tolist() == [[b"\x00\xff", b"four"]]


def test_memory_for_a_tensor_is_allocated_once(client: Client, service: LiveServer) -> None:
    """The same holds for a chunk, whose bytes are returned unchanged."""
    size = 48 << 20
    data = np.random.default_rng(2).integers(0, 256, size, np.uint8)
    model = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(data, "w")]))
    ref = client.push(model, filename="large.onnx", type="onnx.ModelProto").store.id
    number = max(client.chunks(ref), key=lambda chunk: chunk.size).index
    measured = subprocess.run(
        [sys.executable, "-c", _PEAKS, service.url, ref, str(number)], capture_output=True, text=True, check=True
    )
    tensor, chunk, total = map(int, measured.stdout.split())
    assert total == data.sum(dtype=np.int64)
    assert size < tensor < 1.2 * size  # and a few pieces in flight
    assert size < chunk < 1.2 * size


_PEAKS = """
import sys, tracemalloc
import numpy as np
from protoslice.client import Client
from protoslice.client.download import remote
remote.PART = 1 << 18
url, ref, number = sys.argv[1:]
with Client(url, parallel=1) as client:
    client.tensor(ref, "w", "0:1")  # imports
    tracemalloc.start()
    array = client.tensor(ref, "w")
    print(tracemalloc.get_traced_memory()[1])
    total = array.sum(dtype=np.int64)
    del array
    tracemalloc.reset_peak()
    chunk = client.chunk(ref, int(number))
    print(tracemalloc.get_traced_memory()[1])
    print(total)
"""
"""A program that prints the peak of allocated bytes for a tensor and for a chunk, with few concurrent requests."""
