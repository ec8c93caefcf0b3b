"""Models of each dialect, made of nodes that are defined by the values they make and take."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from protoslice import open_model, schema
from protoslice.graphs import Graphs

Nodes = list[tuple[list[str], list[str]]]


def _new(name: str) -> Any:
    return schema.bundled().message_class(name)()


def graph_def(nodes: Nodes) -> Any:
    """Return a TensorFlow graph whose nodes have the names of their values."""
    graph = _new("tensorflow.GraphDef")
    for (name,), takes in nodes:
        graph.node.add(name=name, op="Op", input=takes)
    return graph


def onnx_model(nodes: Nodes) -> Any:
    """Return an ONNX model whose nodes have no names."""
    model = _new("onnx.ModelProto")
    model.graph.name = "outer"
    for makes, takes in nodes:
        model.graph.node.add(op_type="Op", output=makes, input=takes)
    return model


def program(nodes: Nodes) -> Any:
    """Return a Paddle program."""
    model = _new("paddle.framework.proto.ProgramDesc")
    block = model.blocks.add(idx=0, parent_idx=-1)
    for makes, takes in nodes:
        op = block.ops.add(type="op")
        op.outputs.add(parameter="Out", arguments=makes)
        for at, value in enumerate(takes):
            op.inputs.add(parameter=f"X{at}", arguments=[value])
    return model


def module(nodes: Nodes) -> Any:
    """Return an XLA module, in which values are numbers beyond 32 bits."""
    model = _new("xla.HloModuleProto")
    computation = model.computations.add(name="main")
    numbers = {value: (number << 33) + 7 for number, (makes, _) in enumerate(nodes) for value in makes}
    for makes, takes in nodes:
        ids = [numbers.get(value, 5) for value in takes]
        half = len(ids) // 2
        computation.instructions.add(
            name=f"%{makes[0]}",
            opcode="op",
            id=numbers[makes[0]],
            operand_ids=ids[:half],
            control_predecessor_ids=ids[half:],
        )
    return model


def network(nodes: Nodes) -> Any:
    """Return a Core ML neural network."""
    model = _new("CoreML.Specification.Model")
    for makes, takes in nodes:
        model.neuralNetwork.layers.add(name=makes[0], input=takes, output=makes).softmax.SetInParent()
    return model


def prototxt(nodes: Nodes) -> Any:
    """Return a Caffe network."""
    model = _new("caffe.NetParameter")
    for makes, takes in nodes:
        model.layer.add(name=makes[0], type="Op", bottom=takes, top=makes)
    return model


def graphs_of(message: Any) -> Graphs:
    """Return the graphs of a message that is read from a file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "model.pb")
        file.write_bytes(message.SerializeToString())
        with open_model(file, type=message.DESCRIPTOR.full_name) as model:
            return Graphs(model.model)
