"""Random cuts of published ONNX models, and random safetensors and GGUF files, against their libraries."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import gguf
import numpy as np
import onnx
import onnxruntime as runtime
from onnx.backend.test.case.node import collect_testcases
from safetensors.numpy import load, save
from tests.clients.calls.published import CUT

from protoslice.client import Client
from protoslice.errors import ProtosliceError, Unsupported
from protoslice.tensors.safetensors_file import PADDING

SEED: Final = 38
CUTS: Final = 5
"""The number of cuts of each model."""
TRIES: Final = 400
NEAR: Final = 12
"""The number of values before a cut's outputs, from which the cut's inputs are taken."""
FILES: Final = 25
FREE: Final = {0: 1}
"""The length of an axis that a model leaves open, by axis number; all other axes have `OPEN`."""
OPEN: Final = 64
_RANDOM: Final = frozenset({"Bernoulli", "Dropout", "RandomNormal", "RandomUniformLike"})
"""The operators whose values differ from run to run."""
_NAMES: Final = ("w", "a.b.weight", "ü", "x/y z", "layer.0.\u4e2d", "q" * 200)
runtime.set_default_logger_severity(4)


def submodels(client: Client, folder: Path) -> Iterator[tuple[str, int, float]]:
    """Compare cuts with those of `onnx.utils.extract_model` and with the whole model: their values and sizes."""
    for name, wheel, place in CUT:
        path = folder / f"{name}.onnx"
        with zipfile.ZipFile(next(Path(os.environ["PUBLISHED"]).glob(f"{wheel}-*.whl"))) as opened:
            path.write_bytes(opened.read(place))
        client.push(path, tags=[name])
        random, values, began = np.random.default_rng(SEED), _values(path), time.perf_counter()
        names, checked = list(values), 0
        for _ in range(TRIES):
            if checked < CUTS:
                last = int(random.integers(1, len(names)))
                some = names[max(0, last - NEAR) : last]
                inputs = [str(each) for each in random.choice(some, min(len(some), int(random.integers(1, 4))), False)]
                checked += _compared(client, path, values, inputs, names[last : last + int(random.integers(1, 3))])
        assert checked == CUTS, f"{name}: only {checked} cuts can be made"
        yield f"{name} ({len(names)} values)", checked, time.perf_counter() - began


def operators(client: Client, folder: Path) -> Iterator[tuple[str, int, float]]:
    """Cut out the outputs of each case of ONNX's tests, without declarations; compare with the whole case."""
    equal, refused, began = 0, 0, time.perf_counter()
    whole, stripped, ours = (folder / name for name in ("whole.onnx", "stripped.onnx", "ours.onnx"))
    with warnings.catch_warnings(action="ignore"):
        cases = collect_testcases(None)
    for case in cases:
        model: Any = case.model
        onnx.save(model, whole)
        names = [each.name for each in model.graph.output]
        sets: Any = case.data_sets
        try:
            given = {each.name: value for each, value in zip(model.graph.input, sets[0][0], strict=False)}
            expected = _session(whole).run(names, given)
        except Exception:  # an operator that the runtime lacks, or an input that is no array
            continue
        del model.graph.output[:], model.graph.value_info[:]
        onnx.save(model, stripped)
        client.push(stripped, tags=["case"])
        ours.unlink(missing_ok=True)
        try:
            client.download("case", ours, view="onnx/single.onnx", params=[("outputs", name) for name in names])
        except Unsupported:
            refused += 1
            continue
        session = _session(ours)
        found = session.run(names, {each.name: given[each.name] for each in session.get_inputs()})
        for one, other in zip(found, expected, strict=True):
            assert np.asarray(one).dtype == np.asarray(other).dtype, case.name
            if not _RANDOM & {node.op_type for node in model.graph.node}:
                assert np.array_equal(one, other, equal_nan=np.asarray(other).dtype.kind == "f"), case.name
        equal += 1
    assert equal > 1000 > 10 * refused, (equal, refused)
    yield f"{len(cases)} cases, {refused} refused", equal, time.perf_counter() - began


def _session(path: Path) -> Any:
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return runtime.InferenceSession(path, options)


def _values(path: Path) -> dict[str, Any]:
    """Return all values of a run on random inputs that the runtime returns."""
    model, random = onnx.load(path), np.random.default_rng(SEED)
    weights = {each.name for each in model.graph.initializer}
    given = {
        each.name: _random(each.type.tensor_type, random) for each in model.graph.input if each.name not in weights
    }
    known = {each.name for each in model.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    whole = path.with_suffix(".all")
    onnx.save(model, whole)
    session = _session(whole)
    named = [each.name for each in session.get_outputs()]
    found = dict(zip(named, session.run(named, given), strict=True))
    ordered = given | {name: found[name] for name in names if name in found}
    return {name: value for name, value in ordered.items() if isinstance(value, np.ndarray) and value.size}


def _random(kind: Any, random: Any) -> Any:
    dims = [each.dim_value if each.dim_value > 0 else FREE.get(axis, OPEN) for axis, each in enumerate(kind.shape.dim)]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.kind == "f":
        return random.standard_normal(dims).astype(dtype)
    return np.asarray(random.integers(1, 8, dims) if dims else 16_000, dtype)


def _compared(client: Client, path: Path, values: Mapping[str, Any], inputs: list[str], outputs: list[str]) -> bool:
    """Return True if a cut can be made and computes the same, and False if neither side makes it."""
    theirs, ours = path.with_suffix(".theirs"), path.with_suffix(".ours")
    ours.unlink(missing_ok=True)
    try:
        with warnings.catch_warnings(action="ignore"):
            onnx.utils.extract_model(path, theirs, inputs, outputs, check_model=False)
        expected = _run(theirs, values, outputs)
    except Exception:  # the library words an error of a cut in its own way
        return False
    query = [("inputs", each) for each in inputs] + [("outputs", each) for each in outputs]
    try:
        client.download(path.stem, ours, view="onnx/single.onnx", params=query)
    except ProtosliceError as error:
        raise AssertionError(f"{path.stem}: {inputs} to {outputs} is refused: {error}") from error
    for name, one, other in zip(outputs, _run(ours, values, outputs), expected, strict=True):
        assert one.dtype == other.dtype, (inputs, name)
        assert np.array_equal(one, other, equal_nan=one.dtype.kind == "f"), (inputs, name)
    mine, others = (onnx.load(each).graph for each in (ours, theirs))
    assert [each.output for each in mine.node] == [each.output for each in others.node], (inputs, outputs)
    return True


def _run(path: Path, values: Mapping[str, Any], outputs: list[str]) -> list[Any]:
    session = _session(path)
    found: list[Any] = session.run(outputs, {each.name: values[each.name] for each in session.get_inputs()})
    return found


def safetensors_files(client: Client, folder: Path) -> Iterator[tuple[str, int, float]]:
    """Push random files; compare tensors by name, and the files that the service makes of them."""
    random, began, count = np.random.default_rng(SEED), time.perf_counter(), 0
    for number in range(FILES):
        kinds = random.choice(["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "u8", "?"], len(_NAMES))
        tensors = {
            f"{name}{number}": random.integers(0, 2, random.integers(0, 5, random.integers(0, 4))).astype(kind)
            for name, kind in zip(_NAMES, kinds, strict=True)
        }
        path = folder / f"{number}.safetensors"
        path.write_bytes(save(tensors, {"format": "np", "ü": "x" * int(random.integers(0, 99))}))
        client.push(path, tags=[f"st-{number}"])
        target = folder / "made"
        client.download(
            f"st-{number}", target, view="safetensors", params=[("align", str(1 << random.integers(0, 13)))]
        )
        made = {name: value for name, value in load(target.read_bytes()).items() if not name.startswith(PADDING)}
        assert made.keys() == tensors.keys(), (made.keys(), tensors.keys())
        for name, value in tensors.items():
            for found in (made[name], client.tensor(f"st-{number}", name)):
                assert (found.dtype, found.shape, found.tobytes()) == (value.dtype, value.shape, value.tobytes()), name
            count += 1
    yield f"{FILES} files", count, time.perf_counter() - began


def gguf_files(client: Client, folder: Path) -> Iterator[tuple[str, int, float]]:
    """Push random files; compare blocks and floats with those of the reader."""
    kinds = gguf.GGMLQuantizationType
    some = [kinds.Q4_0, kinds.Q4_1, kinds.Q5_0, kinds.Q5_1, kinds.Q8_0, kinds.F16, kinds.F32, kinds.BF16]
    random, began, count = np.random.default_rng(SEED), time.perf_counter(), 0
    for number in range(FILES):
        path = folder / f"{number}.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(1 << int(random.integers(3, 9)))
        writer.add_array("words", ["ü" * int(random.integers(0, 9)) for _ in range(int(random.integers(1, 50)))])
        for name in _NAMES[: int(random.integers(1, len(_NAMES)))]:
            kind = some[int(random.integers(len(some)))]
            data = random.standard_normal((*random.integers(1, 4, random.integers(0, 3)), 256)).astype("<f4")
            if name.isascii() and len(name) < 64:
                writer.add_tensor(f"{name}.{kind.name}", gguf.quants.quantize(data, kind), raw_dtype=kind)
        for step in ("write_header_to_file", "write_kv_data_to_file", "write_tensors_to_file", "close"):
            getattr(writer, step)()
        client.push(path, tags=[f"gguf-{number}"])
        for tensor in gguf.GGUFReader(path).tensors:
            floats = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            assert np.array_equal(client.tensor(f"gguf-{number}", tensor.name, dequantize=True), floats), tensor.name
            if tensor.tensor_type != kinds.BF16:  # NumPy has no such type
                assert np.array_equal(client.tensor(f"gguf-{number}", tensor.name), tensor.data), tensor.name
            count += 1
    yield f"{FILES} files", count, time.perf_counter() - began


CHECKS: Final[Mapping[str, Callable[[Client, Path], Iterator[tuple[str, int, float]]]]] = {
    "cuts of ONNX": submodels,
    "operators": operators,
    "safetensors": safetensors_files,
    "GGUF": gguf_files,
}


def main() -> None:
    """Run the checks, and print a table of them."""
    packages = ("onnx", "onnxruntime", "safetensors", "gguf", "numpy")
    print(", ".join(f"{each} {version(each)}" for each in packages) + f"; seed {SEED}")
    with Client(os.environ["SERVICE"]) as client:
        for what, check in CHECKS.items():
            with tempfile.TemporaryDirectory() as folder:
                for of, count, seconds in check(client, Path(folder)):
                    print(f"{what:13} {of:32} {count:4} equal {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
