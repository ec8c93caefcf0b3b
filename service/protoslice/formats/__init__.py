"""Model formats: classes that find a model's tensors and locate their bytes. Plug-ins import from this module."""

from protoslice.sources.ropes import Rope
from protoslice.tensors.dtypes import DTYPES, Dtype
from protoslice.tensors.layout import checked
from protoslice.tensors.listing import Tensors
from protoslice.tensors.model import (
    Data,
    Deferred,
    Encoding,
    Filled,
    Model,
    Stored,
    Strided,
    Strings,
    Tensor,
    Tiled,
    Unreadable,
)

__all__ = [
    "DTYPES",
    "Data",
    "Deferred",
    "Dtype",
    "Encoding",
    "Filled",
    "Model",
    "Rope",
    "Stored",
    "Strided",
    "Strings",
    "Tensor",
    "Tensors",
    "Tiled",
    "Unreadable",
    "checked",
]
