"""Versions: results made from a model stay the same, byte for byte, while their maker's version does."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import pytest
from tests.support.golden import CHUNKED, folder

import protoslice
from protoslice import _core, open_model, pieces, versions
from protoslice.errors import ProtosliceError
from protoslice.facts import File
from protoslice.formats.onnx_external import in_one_file, with_external_data
from protoslice.formats.onnx_extraction import SubModel
from protoslice.formats.onnx_messages import OnnxProto
from protoslice.json_text import encode_json
from protoslice.schema import bundled
from protoslice.schema.rendering import render
from protoslice.sources.ropes import Rope
from protoslice.tensors.listing import Tensors, row
from protoslice.tensors.model import Tensor
from protoslice.tensors.reading import read
from protoslice.tensors.references import references
from protoslice.tensors.safetensors_file import safetensors
from protoslice.views.models import tar_of

KEPT: Final = Path(__file__).parent / "golden.json"

Makes = Iterator[tuple[str, bytes]]
PLANNED: Final = (
    "caffe_new/net.caffemodel",
    "coreml_nn_float32/model.mlmodel",
    "hlo_jax_constants/module.hlo.pb",
    "onnx_subgraphs/model.onnx",
    "paddle_dtypes_combined/model.pdmodel",
    "tf_graph_const/frozen.pb",
    "tf_sm_functions/saved_model.pb",
    "tf_sm_pbtxt/saved_model.pbtxt",
)


def model_file(name: str) -> Path:
    """Return the path of the root `name`, CASE/FILE, in the folder of its model."""
    case, _, file = name.partition("/")
    return folder(case) / file


def planned() -> Makes:
    """Yield the plans of protos and texts, with the bytes of every chunk."""
    return _by_sizes(model_file(name) for name in PLANNED)


def planned_merged() -> Makes:
    """Yield the plans by sizes of chunked protos, with the bytes of every chunk."""
    return _by_sizes(sorted(CHUNKED.rglob("*.cpb")))


def _by_sizes(paths: Iterable[Path]) -> Makes:
    for path in paths:
        with protoslice.open(path) as proto:
            for least in (16, 300):
                split = proto.split(min_chunk=least, max_chunk=4 * least)
                for chunk in split:
                    yield path.name, repr((least, chunk.kind, chunk.type, chunk.path)).encode() + chunk.rope.read()
                yield path.name, split.metadata


def came() -> Makes:
    """Yield the original plans of chunked files, with the facts of every chunk."""
    for path in sorted(CHUNKED.rglob("*.cpb")):
        with protoslice.open(path) as proto:
            for chunk in proto.chunks:
                yield path.name, repr((chunk.kind, chunk.type, chunk.path)).encode() + chunk.rope.read()
            yield path.name, proto.metadata + proto.rope.read()


def merged() -> Makes:
    """Yield merges at paths, under masks and without large fields, because URLs by id serve them forever."""
    asked: tuple[tuple[str, list[str] | None, int | None], ...] = (
        ("", None, None),
        ("", None, 100),
        ("graph", None, 40),
        ("graph", ["node[*].name", "initializer[*].dims"], None),
        ("graph.node[0]", None, None),
        ("meta_graphs[0]", ["graph_def.node[*].name", "meta_info_def"], 30),
        ("node[0].name", None, None),
    )
    for name in PLANNED:
        with protoslice.open(model_file(name)) as proto:
            for path, fields, least in asked:
                try:
                    yield name, proto.merge(path, fields=fields, omit_larger_than=least).read()
                except ProtosliceError as error:
                    yield name, type(error).__name__.encode()


def chunked() -> Makes:
    """Yield chunked files written from protos."""
    for name in PLANNED:
        with protoslice.open(model_file(name)) as proto:
            yield name, proto.split(min_chunk=100, max_chunk=400).cpb().read()


def archived() -> Makes:
    """Yield tar archives of files with plain names, long and other names, and of any size."""
    sizes = (0, 1, 512, 1 << 33, 1 << 60)
    files = [File(name * long, size, None) for name in ("a", "ä", "b ") for long in (1, 101) for size in sizes]
    rope = tar_of(files)
    yield "pieces", repr(rope.pieces()).encode()


def cut() -> Makes:
    """Yield cuts of files into pieces, with extents and without."""
    noise = Random(0).randbytes(3 * pieces.LONGEST + 5)
    for size in (0, 1, pieces.LONGEST, len(noise)):
        for extents in ((), ((100_000, 300_000),), ((0, 70_000), (80_000, 9 << 20), (10 << 20, 11 << 20))):
            found = pieces.cut(size, extents, lambda start, end: noise[start:end])
            yield str(size), repr([(offset, len(data)) for offset, data in found]).encode()


def rendered() -> Makes:
    """Yield messages in JSON and as text."""
    for name in PLANNED[:-1]:
        with protoslice.open(model_file(name)) as proto:
            if proto.type is None:
                continue
            data = proto.rope.read()
            for form in ("json", "text"):
                for schema in (b"", bundled().canonical(proto.type)):
                    yield f"{name} {form}", render(proto.type, form, schema, data)


def onnx_files() -> Makes:
    """Yield ONNX models with external data, in one file, and a part of one."""
    for case in ("onnx_external_many", "onnx_subgraphs", "onnx_types_raw"):
        with open_model(folder(case), "model.onnx") as model:
            proto = OnnxProto(model.model)
            made = with_external_data(proto)
            parts = {"model": made.model, "weights": made.weights, "single": in_one_file(proto)}
            if case == "onnx_subgraphs":
                parts["part"] = in_one_file(proto, SubModel())
            for name, data in parts.items():
                yield f"{case} {name}", data.read()


def shown(root: Path) -> Makes:
    """Yield a format's results for a model: list, every tensor in every form, and one file of all tensors."""
    with open_model(root.parent, root.name) as model:
        found = model.tensors
        for tensor in _first(found):
            yield tensor.address, encode_json(row(tensor))
            for part, form in ((None, "raw"), (None, "packed"), (None, "npy"), (None, "json"), ("[0:1]", "raw")):
                yield f"{tensor.address} {part} {form}", _given(partial(_bytes, tensor, part, form))
        yield "safetensors", _given(lambda: safetensors(_first(found)))
        refs = references(_first(found), model.model.files, file_url=lambda path: path, tensor_url=lambda name: name)
        yield "references", json.dumps(refs).encode()


def _bytes(tensor: Tensor, part: str | None, form: str) -> Rope:
    return read(tensor, part, form).bytes


def _first(found: Tensors) -> Iterator[Tensor]:
    return (found[number] for number in range(min(len(found), 40)))


def _given(make: Callable[[], Rope]) -> bytes:
    """Return the bytes, or the kind of error in place of them."""
    try:
        made = make()
        return made.read()
    except ProtosliceError as error:
        return type(error).__name__.encode()


SHOWN: Final = {
    "Caffe": ("caffe_new/net.caffemodel", "caffe_v1_layers/old.caffemodel"),
    "Core ML": (
        "coreml_nn_float32/model.mlmodel",
        "coreml_nn_quant/quant.mlmodel",
        "coreml_mlprogram/model.mlpackage/Data/com.apple.CoreML/model.mlmodel",
    ),
    "HLO": ("hlo_jax_constants/module.hlo.pb",),
    "ONNX": ("onnx_types_raw/model.onnx", "onnx_types_typed/model.onnx", "onnx_external_many/model.onnx"),
    "Paddle": ("paddle_dtypes_combined/model.pdmodel", "paddle_separate/__model__"),
    "TensorFlow": ("tf_graph_const/frozen.pb", "tf_sm_functions/saved_model.pb", "tf_sm_pbtxt/saved_model.pbtxt"),
    "tensor bundles": ("tf_ckpt_many/many.index", "tf_ckpt_v1_partitioned/model.ckpt-17.index"),
}


def _of(names: tuple[str, ...]) -> Callable[[], Makes]:
    return lambda: (made for name in names for made in shown(model_file(name)))


_VERSIONS: Final = "service/protoslice/versions.py"
MAKERS: Final[dict[str, tuple[int, Callable[[], Makes], str]]] = {
    "plans": (_core.Plan.VERSION, planned, "raise VERSION in core/wire/src/plan.rs"),
    "plans that came": (_core.Plan.KEPT_VERSION, came, "raise KEPT_VERSION in core/wire/src/plan.rs"),
    "plans of merged files": (
        _core.Plan.MERGED_VERSION,
        planned_merged,
        "raise MERGED_VERSION in core/wire/src/plan.rs",
    ),
    "merged messages": (1, merged, "mend them: their URLs by id are given for ever"),
    "chunked files": (versions.CPB, chunked, f"raise CPB in {_VERSIONS}"),
    "archives": (versions.ARCHIVES, archived, f"raise ARCHIVES in {_VERSIONS}"),
    "ONNX files": (versions.ONNX_FILES, onnx_files, f"raise ONNX_FILES in {_VERSIONS}"),
    "pieces": (versions.PIECES, cut, f"raise PIECES in {_VERSIONS}"),
    "rendered messages": (versions.RENDERING, rendered, f"raise RENDERING in {_VERSIONS}"),
    **{
        f"tensors of {name}": (versions.READERS, _of(names), f"raise READERS in {_VERSIONS}")
        for name, names in SHOWN.items()
    },
}


def digest(makes: Makes) -> str:
    """Return one digest of all results."""
    sha = hashlib.sha256()
    for name, data in makes:
        sha.update(f"{name} {len(data)}\n".encode())
        sha.update(data)
    return sha.hexdigest()


@pytest.mark.parametrize("what", MAKERS)
def test_what_is_made_changes_with_its_version_alone(what: str) -> None:
    version, make, remedy = MAKERS[what]
    kept = json.loads(KEPT.read_text()).get(what, {})
    made = {"version": version, "sha256": digest(make())}
    if made == kept:
        return
    assert version != kept.get("version"), (
        f"the {what} are others than version {version} makes: ids, entity tags and kept facts name them "
        f"by that version. If that is meant, {remedy}"
    )
    pytest.fail(f"version {version} of the {what} is new: run `python -m tests.versions.test_versions write`")


if __name__ == "__main__" and sys.argv[1:] == ["write"]:
    found = {what: {"version": version, "sha256": digest(make())} for what, (version, make, _) in MAKERS.items()}
    KEPT.write_text(json.dumps(found, indent=1) + "\n")
