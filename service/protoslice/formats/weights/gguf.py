"""Models in GGUF files: one, or several splits; blocks of quantized tensors are given as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protoslice.errors import OF_MODELS, CorruptModel, Unsupported
from protoslice.formats.model import Data, Encoding, Fault, Model, Stored, Tensor, Tensors
from protoslice.formats.tensors.dtypes import DTYPES, Dtype
from protoslice.formats.tensors.shapes import element_count, stored_size
from protoslice.formats.weights.files import KIND, address_of, check_apart, joined, shards_of
from protoslice.formats.weights.gguf_header import GgufHeader, Info, read_header
from protoslice.schema.detection.weights import GGUF
from protoslice.sources.ropes import Rope
from protoslice.sources.source import RangeSource

TYPES: Final[Mapping[int, Dtype]] = {
    number: DTYPES[name]
    for number, name in {
        0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K",
        12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
        20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
        29: "IQ1_M", 30: "BF16", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4", 41: "Q1_0",
    }.items()
}  # fmt: skip
"""Dtype by the number of the tensor type."""


class Gguf:
    """GGUF files, of llama.cpp and others."""

    name = "gguf"

    def wants(self, model: Model) -> bool:
        """True when the root is a GGUF file."""
        return model.proto is None and model.type == GGUF and model.root in model.files

    def tensors(self, model: Model) -> Tensors:
        """All tensors of the file, or of all splits if its name is that of one."""
        return joined({path: GgufFile(model.beside(path), path) for path in shards_of(model.root)})


class GgufFile:
    """The tensors of one GGUF file."""

    def __init__(self, source: RangeSource, path: str) -> None:
        """Reads and validates the header; `CorruptModel` if tensors overlap or have the same name."""
        self._source = source
        self._path = path
        self._header: GgufHeader = read_header(source, path)
        names = {info.name for info in self._header.tensors}
        if len(names) < len(self._header.tensors):
            raise CorruptModel("Two tensors of the file have the same name", path=path)
        sizes = ((info, _size(info)) for info in self._header.tensors)
        check_apart(((info.offset, info.offset + size, info.name) for info, size in sizes if size), path)

    def __len__(self) -> int:
        return len(self._header.tensors)

    def name(self, number: int) -> str:
        """Name of tensor `number`, in the order of the header."""
        return self._header.tensors[number].name

    def tensor(self, number: int) -> Tensor:
        """Tensor `number`; elements beyond the end of the file, or of an unknown type, are a Fault."""
        info = self._header.tensors[number]
        data: Data
        try:
            data = self._elements(info)
        except OF_MODELS as error:
            data = Fault(error)
        return Tensor(info.name, address_of(info.name), TYPES.get(info.type), info.shape, KIND, self._path, data)

    def _elements(self, info: Info) -> Stored:
        if info.type not in TYPES:
            raise Unsupported(f"The tensor {info.name[:200]!r} has the unknown type {info.type}", path=self._path)
        size = _size(info)
        assert size is not None, "only unknown types have no size"
        start = self._header.data + info.offset
        if info.offset % self._header.alignment:
            raise CorruptModel(
                f"The tensor {info.name[:200]!r} is not aligned to {self._header.alignment} bytes", start, self._path
            )
        if start + size > self._source.size:
            raise CorruptModel(
                f"The tensor {info.name[:200]!r} ends at byte {start + size}, but the file has only "
                f"{self._source.size} bytes",
                start,
                self._path,
            )
        encoding = Encoding.BIG_ENDIAN if self._header.big_endian else Encoding.PLAIN
        return Stored(Rope.of(self._source, start, start + size), encoding)


def _size(info: Info) -> int | None:
    """Bytes of a tensor; None for an unknown type. `CorruptModel` for an impossible shape."""
    dtype = TYPES.get(info.type)
    if dtype is None:
        return None
    count = element_count(info.shape if dtype.block is None else dtype.bytes_shape(info.shape))
    return stored_size(dtype, count, Encoding.PLAIN)
