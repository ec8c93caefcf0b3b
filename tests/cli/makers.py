"""Makers of the files that transcripts and tests of commands need; the bytes are the same in every run."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tests.graphs.models import graph_def
from tests.support.bundles import Variable, bundle, write_meta_graphs
from tests.support.catalogues import shared_catalogue
from tests.support.golden import CHUNKED
from tests.support.stores import onnx as small_onnx
from tests.support.stores import opened, upload
from tests.support.streams import FRAMED, example

from protoslice import schema
from protoslice.riegeli import RecordWriter
from protoslice.storage import FileStorage

Maker = Callable[[Path], None]
MAKERS: Final[dict[str, Maker]] = {}
"""The functions, by the names in the `# files:` comments of transcripts."""
TENSORS: Final = [bytes([number]) * 300_000 for number in range(1, 5)]


def maker(function: Maker) -> Maker:
    """Add a function to `MAKERS`."""
    MAKERS[function.__name__] = function
    return function


def graph_of(*tensors: bytes) -> bytes:
    """Return a GraphDef with a constant of floats for each of the tensors."""
    made: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number, content in enumerate(tensors):
        node = made.node.add(name=f"constant_{number}", op="Const")
        node.attr["dtype"].type = 1
        node.attr["value"].tensor.dtype = 1
        node.attr["value"].tensor.tensor_shape.dim.add(size=len(content) // 4)
        node.attr["value"].tensor.tensor_content = content
    return bytes(made.SerializeToString(deterministic=True))


@maker
def graph(folder: Path) -> None:
    """Write `graph.pb`, a graph of four constants, and `changed/graph.pb` with another third and an added fifth one."""
    (folder / "graph.pb").write_bytes(graph_of(*TENSORS))
    (folder / "changed").mkdir()
    changed = [*TENSORS[:2], b"\x09" * 300_000, TENSORS[3], b"\x07" * 400]
    (folder / "changed/graph.pb").write_bytes(graph_of(*changed))


@maker
def nodes(folder: Path) -> None:
    """Write `nodes.pb`, a graph of three constants and fifty small nodes."""
    made: Any = schema.bundled().message_class("tensorflow.GraphDef")()
    for number in range(3):
        node = made.node.add(name=f"weight_{number}", op="Const")
        node.attr["value"].tensor.tensor_content = bytes([number]) * 300_000
    for number in range(50):
        made.node.add(name=f"op_{number}", op="NoOp", input=["weight_0"])
    (folder / "nodes.pb").write_bytes(made.SerializeToString(deterministic=True))


@maker
def chain(folder: Path) -> None:
    """Write `chain.pb`, a graph of ten nodes in a row, and `cycle.pb`, in which two nodes read each other."""
    row = graph_def([([f"n{at}"], [f"n{at - 1}"] if at else []) for at in range(10)])
    (folder / "chain.pb").write_bytes(row.SerializeToString(deterministic=True))
    cycle = graph_def([(["a"], ["b"]), (["b"], ["a"])])
    (folder / "cycle.pb").write_bytes(cycle.SerializeToString(deterministic=True))


def _onnx(path: Path, tensors: Mapping[str, Any], **more: Any) -> None:
    made = [onnx.numpy_helper.from_array(array, name) for name, array in tensors.items()]
    _save(path, made, **more)


def _save(path: Path, tensors: list[onnx.TensorProto], inputs: Any = (), outputs: Any = ()) -> None:
    model = onnx.helper.make_model(
        onnx.helper.make_graph([], "main", list(inputs), list(outputs), tensors), ir_version=10,
        opset_imports=[onnx.helper.make_opsetid("", 21)],
    )  # fmt: skip
    path.write_bytes(model.SerializeToString(deterministic=True))


@maker
def layers(folder: Path) -> None:
    """Write `layers.onnx`, whose tensors have names and sizes for tests of sorting."""
    sizes = {"layer.10.w": 5, "layer.2.w": 9, "layer.2.b": 1, "head": 7}
    _onnx(folder / "layers.onnx", {name: np.zeros(size, "<f4") for name, size in sizes.items()})


@maker
def twins(folder: Path) -> None:
    """Write `twins.onnx`, two of whose tensors have one name."""
    weights = [onnx.numpy_helper.from_array(np.arange(count, dtype="f4"), "w") for count in (4, 3)]
    _save(folder / "twins.onnx", weights)


@maker
def inputs(folder: Path) -> None:
    """Write `inputs.onnx`, with twelve tensors, an input, an output, and an input that is a tensor too."""
    info = onnx.helper.make_tensor_value_info
    weights = [onnx.numpy_helper.from_array(np.zeros((3, n + 1), "<f4"), f"layer.{n}.w") for n in range(12)]
    taken = [info("x", 1, ["batch", 3]), info("layer.0.w", 1, [3, 1])]
    _save(folder / "inputs.onnx", weights, taken, [info("y", 7, None)])


@maker
def external(folder: Path) -> None:
    """Write `external/model.onnx`, whose two tensors are in `external/weights.bin`."""
    model: Any = schema.bundled().message_class("onnx.ModelProto")()
    model.graph.name, offset = "g", 0
    for number, size in enumerate((4000, 8000)):
        tensor = model.graph.initializer.add(name=f"w{number}", data_type=1, dims=[size // 4], data_location=1)
        for key, value in {"location": "weights.bin", "offset": offset, "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
        offset += size
    (folder / "external").mkdir()
    (folder / "external/model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    (folder / "external/weights.bin").write_bytes(np.arange(offset // 4, dtype="<f4").tobytes())


@maker
def raw(folder: Path) -> None:
    """Write `m $(touch PWNED).onnx`, whose tensors `w` and `v v` are in `w.bin`; a shell must not run its name."""
    tensors = [
        onnx.numpy_helper.from_array(np.arange(1000, dtype=np.float32) + shift, name)
        for shift, name in ((0, "w"), (1, "v v"))
    ]
    made = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], initializer=tensors), ir_version=10)
    path = folder / "m $(touch PWNED).onnx"
    onnx.save(made, path, save_as_external_data=True, location="w.bin", size_threshold=10)
    (folder / "expected.bin").write_bytes((np.arange(1000, dtype=np.float32) + 1).tobytes())


@maker
def constant(folder: Path) -> None:
    """Write `saved_model.pb`, a SavedModel with a constant of 300 000 bytes."""
    message: Any = schema.bundled().message_class("tensorflow.SavedModel")(saved_model_schema_version=1)
    node = message.meta_graphs.add().graph_def.node.add(name="c", op="Const")
    node.attr["value"].tensor.tensor_content = bytes(300_000)
    (folder / "saved_model.pb").write_bytes(message.SerializeToString(deterministic=True))


@maker
def rules(folder: Path) -> None:
    """Write `many.pb`, a graph of many nodes; its chunked file `many.cpb`; and the rules `rules.txt`."""
    shutil.copy(CHUNKED / "graph_many_nodes.pb", folder / "many.pb")
    shutil.copy(CHUNKED / "graph_many_nodes.max20000.cpb", folder / "many.cpb")
    lines = [
        "",
        "# nodes by the hundred",
        "node: every 100",
        "",
        '  node[3:5].attr["value"].tensor : 1KiB',
        "versions: never",
    ]
    (folder / "rules.txt").write_text("\n".join([*lines, ""]))


COMMIT: Final = r"""#!/bin/bash
set -e
send() { curl -sSf -o /dev/null -H "content-type: application/$1" --data-binary @- "$PROTOSLICE_URL/api/$2"; }
printf '{"organization": "%s", "name": "%s"}' "${1%/*}" "${1#*/}" | send json repos/create
if [ "$2" ]; then
    file='{"key": "file", "value": {"path": "%s", "encoding": "base64", "content": "%s"}}\n'
    head='{"key": "header", "value": {"summary": "a", "description": ""}}\n'
    printf "$head$file" "$2" "$(base64 -w0 "$2")" | send x-ndjson "models/$1/commit/main"
fi
"""


@maker
def hub(folder: Path) -> None:
    """Write the script `commit ORGANIZATION/NAME [FILE]`, which makes a hub repository with a file."""
    (folder / "commit").write_text(COMMIT)
    (folder / "commit").chmod(0o755)


@maker
def omitted(folder: Path) -> None:
    """Write `omitted.onnx`, with a valid tensor, a tensor of strings, and a tensor whose file is missing."""
    good = onnx.numpy_helper.from_array(np.arange(4, dtype=np.float32), "good")
    words = onnx.helper.make_tensor("words", onnx.TensorProto.STRING, [1], [b"x"])  # type: ignore[list-item]  # strings are bytes
    gone = onnx.TensorProto(name="gone", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    gone.external_data.add(key="location", value="missing.bin")
    _save(folder / "omitted.onnx", [good, words, gone])


@maker
def variables(folder: Path) -> None:
    """Write `variables`, a folder with the bundle `variables.index` of the variables `one` and `two`."""
    made = [Variable(name, 1, (100,), bytes(range(200)) * 2) for name in ("one", "two")]
    (folder / "variables").mkdir()
    for name, data in bundle("variables", made).items():
        (folder / "variables" / name).write_bytes(data)


@maker
def saved_model(folder: Path) -> None:
    """Write `saved`, a SavedModel with two variables."""
    write_saved_model(folder / "saved")


def write_saved_model(folder: Path) -> None:
    """Write a SavedModel with two variables into a new folder."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    model.saved_model_schema_version = 1
    model.meta_graphs.add().meta_info_def.tags.append("serve")
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(model.SerializeToString(deterministic=True))
    variables(folder)


@maker
def meta_graphs(folder: Path) -> None:
    """Write `meta`, a SavedModel with three meta graphs."""
    (folder / "meta").mkdir()
    write_meta_graphs(folder / "meta")


@maker
def signature(folder: Path) -> None:
    """Write `signature/saved_model.pb`, a SavedModel with a signature."""
    model: Any = schema.bundled().message_class("tensorflow.SavedModel")()
    meta_graph = model.meta_graphs.add()
    meta_graph.meta_info_def.tags.append("serve")
    called = meta_graph.signature_def["serving_default"]
    called.method_name = "tensorflow/serving/predict"
    called.inputs["x"].dtype, called.outputs["y"].dtype = 1, 9
    called.inputs["x"].tensor_shape.dim.add(size=-1)
    called.outputs["y"].tensor_shape.unknown_rank = True
    (folder / "signature").mkdir()
    (folder / "signature/saved_model.pb").write_bytes(model.SerializeToString(deterministic=True))


@maker
def stream(folder: Path) -> None:
    """Write thirty examples as `train.tfrecord`, as `train.delimited` and in `shards`; and some other records."""
    examples = [example(number) for number in range(30)]
    (folder / "7.pb").write_bytes(examples[7])
    (folder / "29.pb").write_bytes(examples[29])
    (folder / "5-9.tfrecord").write_bytes(FRAMED["tfrecord"](examples[5:9]))
    (folder / "5-25.tfrecord").write_bytes(FRAMED["tfrecord"](examples[5:25]))
    (folder / "21-4.tfrecord").write_bytes(FRAMED["tfrecord"]([examples[21], examples[4]]))
    (folder / "shards").mkdir()
    for shard in range(3):
        part = FRAMED["tfrecord"](examples[shard * 10 : shard * 10 + 10])
        (folder / f"shards/train-{shard:05}-of-00003").write_bytes(part)
    (folder / "train.delimited").write_bytes(FRAMED["delimited"](examples))
    (folder / "train.tfrecord").write_bytes(FRAMED["tfrecord"](examples))


@maker
def plain_records(folder: Path) -> None:
    """Write `plain.riegeli`, a file of 5000 empty records."""
    with RecordWriter(str(folder / "plain.riegeli")) as writer:
        for _ in range(5000):
            writer.write_record(b"")


THING: Final = b"\x0a\x05hello\x12\x02\x08\x2a\x1a\x03abc"
"""The message with title: "hello", parts { weight: 42 } and content: "abc"."""


@maker
def storage(folder: Path) -> None:
    """Write `storage`, a directory with one store and one removed store."""

    async def fill() -> None:
        root = folder / "storage"
        async with (
            FileStorage(str(root)) as files,
            shared_catalogue(root / "catalog.sqlite") as database,
            opened(files, database=database) as stores,
        ):
            await upload(stores, small_onnx(90_000))
            await stores.delete((await upload(stores, small_onnx(70_000, seed=1))).store.id)

    (folder / "storage").mkdir()
    asyncio.run(fill())


@maker
def thing(folder: Path) -> None:
    """Write `thing.pb`, a message of the type in `thing.proto` and `thing.binpb`; `other.pb`; the stream `things`."""
    header = 'syntax = "proto3";\npackage me;\n'
    message = "message Thing { string title = 1; repeated Part parts = 2; bytes content = 3; }\n"
    (folder / "thing.proto").write_text(f'{header}import "part.proto";\n{message}')
    (folder / "part.proto").write_text(f"{header}message Part {{ int64 weight = 1; }}\n")
    (folder / "thing.pb").write_bytes(THING)
    (folder / "other.pb").write_bytes(THING.replace(b"hello", b"HELLO"))
    (folder / "things").write_bytes(FRAMED["delimited"]([THING, THING[:7]]))
    types = FileDescriptorSet()
    file = types.file.add(name="thing.proto", package="me", syntax="proto3")
    whole, part = file.message_type.add(name="Thing"), file.message_type.add(name="Part")
    whole.field.add(name="title", number=1, type=9, label=1)
    whole.field.add(name="parts", number=2, type=11, type_name=".me.Part", label=3)
    whole.field.add(name="content", number=3, type=12, label=1)
    part.field.add(name="weight", number=1, type=3, label=1)
    (folder / "thing.binpb").write_bytes(types.SerializeToString(deterministic=True))
