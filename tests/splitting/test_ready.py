"""The splitters that need no subclass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from protoslice import schema
from protoslice.errors import Conflict, InvalidInput, LimitExceeded, NotFound, StorageError
from protoslice.merging import Merger, open_chunks
from protoslice.splitting import (
    AutoSplitter,
    ComposableSplitter,
    GraphDefSplitter,
    OnnxSplitter,
    SavedModelSplitter,
    SplitPolicy,
    tensorflow_readable,
)
from protoslice.splitting.fields import descriptor_of
from protoslice.splitting.paths import path_of, show

F = descriptor_pb2.FieldDescriptorProto


def new(name: str) -> Any:
    return schema.bundled().message_class(name)()


def nodes(parent: Any, sizes: list[int]) -> None:
    """Return nodes of exactly these sizes, which have only a name."""
    for size in sizes:
        parent.add(name="x" * (size - 2))


def check(splitter: ComposableSplitter) -> tuple[list[Any], Any]:
    """Return the chunks and their metadata; assert that they merge to the message, which has not changed."""
    before = splitter.source.SerializeToString(deterministic=True)
    chunks, chunked = splitter.split()
    merged = type(splitter.source)()
    Merger.merge(chunks, chunked, merged)
    assert merged.SerializeToString(deterministic=True) == before
    assert splitter.source.SerializeToString(deterministic=True) == before
    assert tensorflow_readable(chunked, descriptor_of(merged)) == []
    return chunks, chunked


def test_lots_of_nodes_are_cut_into_runs() -> None:
    graph = new("tensorflow.GraphDef")
    nodes(graph.node, [95] * 15)
    chunks, chunked = check(GraphDefSplitter(graph, policy=SplitPolicy.greedy(500)))
    assert [len(chunk.node) for chunk in chunks] == [5, 5, 5]
    assert [list(field.field_tag) for field in chunked.chunked_fields] == [[], []]


def test_large_nodes_become_chunks_and_leave_empty_ones() -> None:
    graph = new("tensorflow.GraphDef")
    nodes(graph.node, [50, 95, 95, 95, 50, 95])
    chunks, chunked = check(GraphDefSplitter(graph, policy=SplitPolicy.greedy(200)))
    assert chunks[1:] == [graph.node[i] for i in (1, 2, 3, 5)]
    assert [node.ByteSize() for node in chunks[0].node] == [50, 0, 0, 0, 50, 0]
    assert [[tag.index for tag in field.field_tag][1] for field in chunked.chunked_fields] == [1, 2, 3, 5]


def test_large_constants_become_bytes() -> None:
    graph = new("tensorflow.GraphDef")
    for size in (50, 50, 1000, 50, 1000):
        graph.node.add(op="Const").attr["value"].tensor.tensor_content = b"c" * size
    chunks, chunked = check(GraphDefSplitter(graph, policy=SplitPolicy.greedy(500)))
    assert chunks[1:] == [b"c" * 1000] * 2
    place: list[str | int] = ["node", 4, "attr", "value", "tensor", "tensor_content"]
    assert show(path_of(graph.DESCRIPTOR, place)) == 'node[4].attr["value"].tensor.tensor_content'
    tags = chunked.chunked_fields[1].field_tag
    assert [tag.WhichOneof("kind") for tag in tags] == ["field", "index", "field", "map_key", "field", "field"]


def test_functions_and_nodes() -> None:
    graph = new("tensorflow.GraphDef")
    nodes(graph.node, [50] * 6)
    for sizes in ([50, 50, 50], [50], [50], [50]):
        nodes(graph.library.function.add().node_def, sizes)
    chunks, _ = check(GraphDefSplitter(graph, policy=SplitPolicy.greedy(200)))
    assert sorted(chunk.DESCRIPTOR.name for chunk in chunks) == [
        "FunctionDef", "FunctionDefLibrary", "GraphDef", "GraphDef",
    ]  # fmt: skip
    assert [len(chunk.node) for chunk in chunks if chunk.DESCRIPTOR.name == "GraphDef"] == [3, 3]


def test_every_meta_graph_is_split() -> None:
    model = new("tensorflow.SavedModel")
    for _ in range(3):
        graph = model.meta_graphs.add()
        graph.graph_def.node.add(op="Const").attr["value"].tensor.tensor_content = b"c" * 5000
        graph.signature_def["s"].defaults["d"].tensor_content = b"d" * 5000
    chunks, _ = check(SavedModelSplitter(model, policy=SplitPolicy.greedy(6000)))
    assert sorted(chunks[1:]) == [b"c" * 5000] * 3 + [b"d" * 5000] * 3


def test_onnx_models_of_the_onnx_package_are_split() -> None:
    raw = b"w" * 4000
    weight = onnx.TensorProto(name="w", data_type=2, dims=[4000], raw_data=raw)
    constant = onnx.NodeProto(op_type="Constant", attribute=[onnx.AttributeProto(name="value", t=weight)])
    inner = onnx.GraphProto(name="body", node=[constant], initializer=[weight])
    branch = onnx.NodeProto(op_type="If", attribute=[onnx.AttributeProto(name="then_branch", g=inner)])
    floats = onnx.TensorProto(name="f", data_type=1, dims=[1500], float_data=range(1500))
    graph = onnx.GraphProto(name="g", node=[constant, branch], initializer=[weight, floats])
    graph.node.extend(onnx.NodeProto(op_type="Relu", name=f"relu {i}") for i in range(300))
    model = onnx.ModelProto(ir_version=10, graph=graph, functions=[onnx.FunctionProto(name="f", node=[constant])])
    chunks, _ = check(OnnxSplitter(model, policy=SplitPolicy.greedy(5000)))
    assert chunks.count(raw) == 5
    assert all(len(chunk) <= 5000 if isinstance(chunk, bytes) else chunk.ByteSize() <= 5000 for chunk in chunks)


def test_what_fits_into_one_chunk_is_left_whole_and_written_as_pb(tmp_path: Path) -> None:
    graph, merged = new("tensorflow.GraphDef"), new("tensorflow.GraphDef")
    nodes(graph.node, [300, 300])
    splitter = GraphDefSplitter(graph, policy=SplitPolicy.greedy(700))
    assert splitter.split()[0] == [graph]
    assert splitter.write(tmp_path / "g") == str(tmp_path / "g.pb")
    assert (tmp_path / "g.pb").read_bytes() == graph.SerializeToString(deterministic=True)
    Merger.read(tmp_path / "g", merged)
    assert merged == graph
    assert AutoSplitter(graph, policy=SplitPolicy(10, 700)).write(tmp_path / "g") == str(tmp_path / "g.cpb")
    with pytest.raises(Conflict, match="would be read instead of"):
        splitter.write(tmp_path / "g")


def test_splitters_work_together() -> None:
    class Model(ComposableSplitter):
        def build_chunks(self) -> None:
            model: Any = self.source
            for i, each in enumerate(model.meta_graphs):
                place = ["meta_graphs", i, "graph_def"]
                GraphDefSplitter(each.graph_def, parent_splitter=self, fields_in_parent=place).build_chunks()

    model = new("tensorflow.SavedModel")
    for _ in range(2):
        nodes(model.meta_graphs.add().graph_def.node, [95] * 15)
    chunks, chunked = check(Model(model, policy=SplitPolicy.greedy(500)))
    assert len(chunks) == 5
    assert [len(field.field_tag) for field in chunked.chunked_fields] == [3] * 4


def test_types_are_checked() -> None:
    with pytest.raises(InvalidInput, match="GraphDefSplitter splits GraphDef, not SavedModel"):
        GraphDefSplitter(new("tensorflow.SavedModel"))


def test_nothing_may_remain_without_an_initial_chunk() -> None:
    graph = new("tensorflow.GraphDef")
    nodes(graph.node, [300])
    policy = SplitPolicy(10, 700)
    with pytest.raises(InvalidInput, match="use proto_as_initial_chunk=True"):
        AutoSplitter(graph, policy=policy, proto_as_initial_chunk=False).split()
    versions = new("tensorflow.GraphDef")
    versions.versions.bad_consumers.extend(range(30))
    chunks, chunked = check(AutoSplitter(versions, policy=policy, proto_as_initial_chunk=False))
    assert not chunked.HasField("chunk_index")
    assert chunks == [versions.versions]


def _proto2() -> Any:
    """Return a message with required fields and extensions, which have no place in metadata."""
    file = descriptor_pb2.FileDescriptorProto(name="two.proto", package="two", syntax="proto2")
    message = file.message_type.add(name="M")
    message.extension_range.add(start=100, end=200)
    message.field.add(name="must", number=1, label=F.LABEL_REQUIRED, type=F.TYPE_BYTES)
    message.field.add(name="more", number=2, label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".two.M")
    message.field.add(name="one", number=3, label=F.LABEL_OPTIONAL, type=F.TYPE_MESSAGE, type_name=".two.M")
    file.extension.add(
        name="ext", number=100, extendee=".two.M", label=F.LABEL_REPEATED, type=F.TYPE_MESSAGE, type_name=".two.M"
    )
    file.extension.add(name="tag", number=101, extendee=".two.M", label=F.LABEL_OPTIONAL, type=F.TYPE_STRING)
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("two.M"))
    inner = kind(must=b"i" * 100)
    whole: Any = kind(must=b"m" * 100, more=[inner, inner], one=inner)
    whole.Extensions[pool.FindExtensionByName("two.ext")].add(must=b"e" * 100)
    whole.Extensions[pool.FindExtensionByName("two.tag")] = "t" * 100
    whole.MergeFromString(b"\xa2\x01\x03???")
    return whole


def test_required_fields_and_extensions_stay_where_they_are() -> None:
    chunks, chunked = check(AutoSplitter(_proto2(), policy=SplitPolicy(50, 150)))
    assert all(chunk.IsInitialized() for chunk in chunks)
    assert [
        show(path_of(chunks[0].DESCRIPTOR, [tag.field for tag in field.field_tag])) for field in chunked.chunked_fields
    ] == ["one"]


def test_files_are_read_in_part(tmp_path: Path) -> None:
    graph, merged = new("tensorflow.GraphDef"), new("tensorflow.GraphDef")
    nodes(graph.node, [95] * 4)
    with open_chunks(AutoSplitter(graph, policy=SplitPolicy(50, 500)).write(tmp_path / "g")) as (_, metadata):
        del metadata.message.chunked_fields[1:3]
    Merger.read_partial(tmp_path / "g", metadata, merged)
    assert [node.ByteSize() for node in merged.node] == [0, 0, 0, 95] or [node.ByteSize() for node in merged.node] == [
        95,
        0,
        0,
        95,
    ]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    graph = new("tensorflow.GraphDef")
    with pytest.raises(NotFound):
        Merger.read(tmp_path / "none", graph)
    with pytest.raises(NotFound):
        Merger.read_partial(tmp_path / "none", None, graph)
    nodes(graph.node, [95] * 4)
    with pytest.raises(StorageError):
        AutoSplitter(graph, policy=SplitPolicy(50, 500)).write(tmp_path / "no" / "folder")


@pytest.mark.parametrize("sizes", [(0, 5), (6, 5), (1, 1 << 31)])
def test_policies_are_checked(sizes: tuple[int, int]) -> None:
    with pytest.raises(InvalidInput, match="Invalid chunk sizes"):
        SplitPolicy(*sizes)


def test_depth_is_limited() -> None:
    deep = new("onnx.GraphProto")
    inner = deep
    for _ in range(30):
        inner = inner.node.add().attribute.add().g
    inner.name = "in the depth"
    with pytest.raises(LimitExceeded, match="larger depth"):
        AutoSplitter(deep, policy=SplitPolicy(1, 100, depth=20)).split()
    check(AutoSplitter(deep, policy=SplitPolicy(1, 100, depth=100)))
