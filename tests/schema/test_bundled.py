"""The bundled types, and the public names of protoslice.schema."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor

import protoslice.schema
from protoslice import detection
from protoslice.errors import Unsupported
from protoslice.schema import bundled, find

ROOT = Path(__file__).parents[2]
Row = tuple[object, ...]


def test_the_descriptor_set_is_what_protoc_makes_of_protos(tmp_path: Path) -> None:
    files = sorted(path.relative_to(ROOT / "protos").as_posix() for path in (ROOT / "protos").rglob("*.proto"))
    made = tmp_path / "types.binpb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={ROOT / 'protos'}", "--include_imports"]
    subprocess.run([*command, f"--descriptor_set_out={made}", *files], check=True)
    packaged = resources.files("protoslice.schema").joinpath("bundled", "types.binpb").read_bytes()
    assert made.read_bytes() == packaged, "run `make protos`"


@pytest.mark.parametrize(
    "root",
    [
        "CNTK.proto.Dictionary",
        "CoreML.Specification.Model",
        "caffe.NetParameter",
        "google.protobuf.FileDescriptorSet",
        "onnx.ModelProto",
        "paddle.framework.proto.ProgramDesc",
        "riegeli.RecordsMetadata",
        "tensorflow.BundleEntryProto",
        "tensorflow.SavedModel",
        "tensorflow.TrackableObjectGraph",
        "tensorflow.proto_splitter.ChunkMetadata",
        "tensorflow.serving.PredictionLog",
        "xla.ExecutableAndOptionsProto",
        "xla.HloSnapshot",
        "xla.SplitProtoManifest",
        "xla.gpu.GpuExecutableProto",
    ],
)
def test_every_root_has_a_descriptor_a_class_and_a_table(root: str) -> None:
    types = bundled()
    assert types.descriptor(root).full_name == root
    assert types.message_class(root)().DESCRIPTOR is types.descriptor(root)
    assert types.flat(root).messages[0][0] == root
    assert types.flat(root) is types.flat(root)


def test_onnx_declares_the_same() -> None:
    onnx = importlib.import_module("onnx.onnx_ml_pb2").DESCRIPTOR
    compared = 0
    for theirs in _all(onnx.message_types_by_name.values()):
        assert _rows(theirs) == _rows(bundled().descriptor(theirs.full_name)), theirs.full_name
        compared += len(theirs.fields)
    assert compared > 120


TENSORFLOW_FILES = [
    "tensorflow.core.protobuf.saved_model_pb2",
    "tensorflow.core.protobuf.tensor_bundle_pb2",
    "tensorflow.core.protobuf.trackable_object_graph_pb2",
    "tensorflow_serving.apis.inference_pb2",
    "tensorflow_serving.apis.predict_pb2",
]
# Our declarations of these have no fields.
CLOSED = {"tensorflow.RunOptions", "tensorflow.RunMetadata"}


def test_tensorflow_declares_the_same() -> None:
    compared = 0
    for theirs in _all(_tensorflow_roots()):
        if theirs.full_name not in bundled() or theirs.full_name in CLOSED:
            continue
        ours = {row[0]: row for row in _rows(bundled().descriptor(theirs.full_name))}
        for row in _rows(theirs):
            assert ours.get(row[0]) == row, theirs.full_name
            compared += 1
    assert compared > 300


def _tensorflow_roots() -> Iterator[Descriptor]:
    """Return the types of the installed tensorflow-protobuf, in a separate pool."""
    pool = descriptor_pool.DescriptorPool()
    pending = [importlib.import_module(name).DESCRIPTOR for name in TENSORFLOW_FILES]
    added: set[str] = set()

    def add(file: object) -> None:
        if file.name not in added:  # type: ignore[attr-defined]
            added.add(file.name)  # type: ignore[attr-defined]
            for each in file.dependencies:  # type: ignore[attr-defined]
                add(each)
            pool.AddSerializedFile(file.serialized_pb)  # type: ignore[attr-defined]

    for file in pending:
        add(file)
    for name in sorted(added):
        yield from pool.FindFileByName(name).message_types_by_name.values()


def _all(roots: Iterator[Descriptor]) -> Iterator[Descriptor]:
    for root in roots:
        if not root.GetOptions().map_entry:
            yield root
            yield from _all(iter(root.nested_types))


def _rows(descriptor: Descriptor) -> list[Row]:
    return sorted((_row(each) for each in descriptor.fields), key=lambda row: str(row[0]).zfill(10))


def _row(each: FieldDescriptor) -> Row:
    target = each.message_type or each.enum_type
    # Compare by the first member: TensorFlow renamed some oneofs and added members to others.
    oneof = min(member.number for member in each.containing_oneof.fields) if each.containing_oneof else None
    kind = (each.type, each.is_repeated, each.is_required, each.has_presence, each.is_packed, oneof)
    return (each.number, each.name, target.full_name if target else None, *kind)


def test_other_peoples_classes_of_the_same_name_are_untouched() -> None:
    """A process that has also loaded the real onnx and tensorflow sees no clash, in either order."""
    code = (
        "import protoslice.schema as s; ours = s.bundled().message_class('onnx.ModelProto');"
        "import onnx, tensorflow.core.protobuf.saved_model_pb2 as t;"
        "assert ours is not onnx.ModelProto; assert ours.DESCRIPTOR.file.pool is not t.DESCRIPTOR.pool;"
        "assert ours.FromString(onnx.ModelProto(ir_version=9).SerializeToString()).ir_version == 9;"
        "s.bundled().message_class('tensorflow.SavedModel')(); t.SavedModel(); print('fine')"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_nothing_is_loaded_by_importing() -> None:
    code = "import protoslice.schema.types as r; print(r.bundled.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_classes_are_those_of_our_own_pool() -> None:
    descriptor = bundled().descriptor("tensorflow.GraphDef")
    assert descriptor.file.pool is not descriptor_pool.Default()
    assert message_factory.GetMessageClass(descriptor) is bundled().message_class("tensorflow.GraphDef")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ModelProto", "did you mean onnx.ModelProto?"),
        ("tensorflow.SaveModel", "tensorflow.SavedModel"),
        ("qqqqqq", "pass a descriptor set"),
        ("x" * 10_000, "…"),
        ("", "pass a descriptor set"),
    ],
)
def test_an_unknown_type_is_unsupported_and_says_what_is_near(name: str, hint: str) -> None:
    assert name not in bundled()
    with pytest.raises(Unsupported) as caught:
        find(name)
    assert hint in str(caught.value)
    assert len(str(caught.value)) < 400


def test_map_entries_are_no_types_of_their_own() -> None:
    names = bundled().names()
    assert names == sorted(names)
    assert len(names) == len(bundled())
    assert "tensorflow.NodeDef.AttrEntry" not in names
    assert "tensorflow.AttrValue.ListValue" in names


# The public names of protoslice.schema, and their modules.

PACKAGE = Path(protoslice.schema.__path__[0])


def test_all_is_exactly_what_is_public() -> None:
    imported = set()
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("protoslice"):
            imported |= {alias.name for alias in node.names}
    assert set(protoslice.schema.__all__) == imported
    assert sorted(protoslice.schema.__all__, key=str) == protoslice.schema.__all__
    assert all(getattr(protoslice.schema, name).__doc__ for name in protoslice.schema.__all__)


def test_names_of_detection_are_found_at_their_former_path() -> None:
    for name in ("Detection", "candidates", "detect", "detect_message"):
        assert getattr(protoslice.schema, name) is getattr(detection, name)
    with pytest.raises(AttributeError, match="has no attribute 'look_at'"):
        protoslice.schema.look_at  # noqa: B018


def test_schema_knows_only_errors_the_core_and_itself() -> None:
    for file in PACKAGE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("protoslice"):
                below = {"protoslice._core", "protoslice.errors", "protoslice.varints"}
                assert node.module in below or "protoslice.schema" in str(node.module)


def test_the_page_names_types_that_exist() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/message-types.md").read_text()
    table = page[page.index("| format") : page.index("The files in `protos/`")]
    named = set(re.findall(r"`((?:\w+\.)+[A-Z]\w+)`", table))
    assert len(named) > 15
    assert named <= set(protoslice.schema.bundled().names())
    for file in re.findall(r"`(\w+/\w+\.proto)`", table):
        assert (Path(__file__).parents[2] / "protos" / file).is_file(), file
