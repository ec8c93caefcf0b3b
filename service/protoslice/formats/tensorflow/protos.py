"""TensorFlow's protos: all TensorProtos, in nodes, attributes, functions and signatures."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any, Final

from protoslice import _core
from protoslice.errors import OF_MODELS, CorruptModel
from protoslice.formats.model import Data, Fault, Model, ProtoFormat, RootProto, Tensor, Tensors, Use
from protoslice.formats.tensorflow.tensor_protos import TENSOR, TensorProtos
from protoslice.formats.tensorflow.types import known
from protoslice.formats.tensors.dtypes import Dtype
from protoslice.formats.tensors.shapes import element_count
from protoslice.formats.uses import Look, Operator, by_graph, kinds_in
from protoslice.schema import text_of
from protoslice.sources.ropes import Rope

_NODE: Final = "tensorflow.NodeDef"
_CONSTANT: Final = 'attr["value"].tensor'
_FUNCTION: Final = re.compile(r"((?:.*\.)?function\[\d+\]\.|)node_def\[\d+\]\.")
_KEY: Final = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)


class TensorFlow(ProtoFormat):
    """SavedModels, graphs, and other messages of TensorFlow."""

    name = "tensorflow"
    package = "tensorflow."

    def tensors_in(self, model: Model, proto: RootProto) -> Tensors:
        """All TensorProtos, at any depth."""
        return graph_tensors(model.root, proto)

    def uses(self, model: Model, found: Tensors) -> Look:
        """Say what constants are for by the nodes that take them; those of a model with variables are no weights."""

        def node(message: Any, path: str) -> Operator:
            graph = path.rpartition(".")[0]
            taken = (f"{graph} {name.partition(':')[0]}" for name in message.input if not name.startswith("^"))
            return Operator.of(message.name, message.op, taken, [f"{graph} {message.name}"])

        kinds = kinds_in(model.proto, _NODE, node)
        root = PurePosixPath(model.root)  # folders may not be listed: they can be remote, or vast
        index = {"saved_model.pb": "variables/variables.index", f"{root.stem}.meta": f"{root.stem}.index"}.get(
            root.name
        )
        has_variables = index is not None and str(root.parent / index) in model.files

        def use(tensor: Tensor) -> Use:
            constant, inside, _ = tensor.address.removeprefix("path:").rpartition(f".{_CONSTANT}")
            found = by_graph(kinds.at(constant) if inside else None, tensor, weight=False)
            return Use("constant", found.kind) if has_variables else found

        return use


def graph_tensors(root: str, proto: RootProto) -> Tensors:
    """Return the tensors of one proto."""
    made = _GraphTensors(root, proto)
    return Tensors(len(made.found), made.tensor, made.key)


class _GraphTensors:
    """Builds the tensors of one proto."""

    def __init__(self, root: str, proto: RootProto) -> None:
        self._root = root
        self._proto = proto
        self._protos = TensorProtos(proto)
        self.found = proto.document.find([TENSOR])
        self._functions: dict[str, str] = {}

    def tensor(self, number: int) -> Tensor:
        """Tensor `number`, in the order of the proto."""
        found = self.found[number]
        name, address, kind = self._name(found), f"path:{found.path}", self._kind(found)
        dtype: Dtype | None = None
        shape: tuple[int, ...] | None = None
        data: Data
        try:
            head = self._protos.head(found)
            dtype = known(head.dtype)
            dims = tuple(dim.size for dim in head.tensor_shape.dim)
            if head.tensor_shape.unknown_rank:
                raise CorruptModel("A tensor has an unknown number of dimensions")
            element_count(dims)
            shape = dims
            data = self._protos.data(found, head.dtype, dims)
        except OF_MODELS as error:
            error.path = error.path or found.path
            data = Fault(error)
        return Tensor(name, address, dtype, shape, kind, self._root, data)

    def key(self, number: int) -> tuple[str, str]:
        """Return name and address of tensor `number`."""
        found = self.found[number]
        return self._name(found), f"path:{found.path}"

    def _name(self, found: _core.Finding) -> str:
        """`NODE` or `FUNCTION/NODE` for the value of a node, else the path."""
        if not _is_constant(found):
            return found.path or "tensor"
        node = text_of(found.names[-2][1])
        function = _FUNCTION.match(found.path)
        return node if function is None else f"{self._function(function[1])}/{node}"

    def _function(self, path: str) -> str:
        """The name of the function at `path`; empty if it has none or it cannot be read."""
        name = self._functions.get(path)
        if name is None:
            try:
                _, _, rope = self._proto.document.view(f"{path}signature.name")
                name = text_of(Rope(rope, self._proto.sources).read())
            except OF_MODELS:
                name = ""
            self._functions[path] = name
        return name

    def _kind(self, found: _core.Finding) -> str:
        if _is_constant(found):
            return "const" if _FUNCTION.match(found.path) is None else "function_const"
        steps = _KEY.sub("", found.path).split(".")  # keys are arbitrary text, dots included
        if steps[-1].startswith("defaults["):
            return "signature_default"
        if any(step.startswith("attr[") for step in steps):
            return "attr"
        return "other" if found.path else "tensor"


def _is_constant(found: _core.Finding) -> bool:
    """True when `found` is the attribute `value` of a node, such as Const."""
    owner = found.names[-2:-1]
    return bool(owner) and owner[0][0] == _NODE and (f".{found.path}").endswith(f".{_CONSTANT}")
