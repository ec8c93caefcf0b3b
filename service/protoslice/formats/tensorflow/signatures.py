"""Signatures of SavedModels: the calls that each meta graph offers, with their inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from protoslice.errors import NotFound, Unsupported
from protoslice.facts import Signature, SignatureTensor
from protoslice.formats.model import Model, RootProto
from protoslice.formats.tensorflow.types import known
from protoslice.formats.tensors.drafts import parsed_ends

SAVED_MODEL: Final = "tensorflow.SavedModel"
META_GRAPH: Final = "tensorflow.MetaGraphDef"

_INITIAL: Final = "__saved_model_init_op"
"""Signature that a loader calls; callers have no use for it."""
_FIELDS: Final = [
    "meta_info_def.tags", "signature_def[*].method_name", "signature_def[*].inputs", "signature_def[*].outputs",
]  # fmt: skip


class MetaGraphs:
    """The meta graphs of a model, read one by one."""

    def __init__(self, model: Model, tags: Sequence[str] | None = None) -> None:
        """Meta graphs of `model`, or the first with exactly `tags`; `Unsupported` for another root."""
        if model.proto is None or model.type not in {SAVED_MODEL, META_GRAPH}:
            raise Unsupported(f"Signatures of {model.type or 'such a file'} are not supported")
        self._proto: RootProto = model.proto
        self._tags = tags
        self._is_saved = model.type == SAVED_MODEL
        self._count = 1
        if self._is_saved and tags is None:
            _, self._count = self._proto.document.children("meta_graphs", 0, 0)

    def __len__(self) -> int:
        return self._count

    def signatures(self, number: int) -> tuple[Sequence[Signature], int]:
        """The signatures of meta graph `number` by name, and the bytes read for them.

        `NotFound` if it has other tags than those asked for, `LimitExceeded` beyond 4 MiB.
        """
        path = self._path(number)
        graph, size = parsed_ends(self._proto, META_GRAPH, path, _FIELDS, path)
        tags = tuple(graph.meta_info_def.tags)
        if self._tags is not None and set(tags) != set(self._tags):
            raise NotFound(f"The meta graph has the tags {list(tags)}, not {list(self._tags)}")
        found = graph.signature_def
        return [_signature(name, found[name], tags) for name in sorted(found) if name != _INITIAL], size

    def _path(self, number: int) -> str:
        if not self._is_saved:
            return ""
        if self._tags is None:
            return f"meta_graphs[{number}]"
        return f"meta_graphs[meta_info_def.tags={{{','.join(map(_quoted, self._tags))}}}]"


def _signature(name: str, found: Any, tags: tuple[str, ...]) -> Signature:
    return Signature(name, found.method_name, tags, _tensors(found.inputs), _tensors(found.outputs))


def _tensors(found: Any) -> tuple[SignatureTensor, ...]:
    return tuple(_tensor(name, found[name]) for name in sorted(found))


def _tensor(name: str, info: Any) -> SignatureTensor:
    dtype, dims = known(info.dtype), info.tensor_shape
    shape = None if dims.unknown_rank else tuple(dim.size if dim.size >= 0 else None for dim in dims.dim)
    return SignatureTensor(name, info.name or None, dtype.name if dtype is not None else None, shape)


def _quoted(tag: str) -> str:
    return '"' + tag.replace("\\", "\\\\").replace('"', '\\"') + '"'
