"""Formats of models: which tensors a model has, and where their bytes are. Plug-ins import from here."""

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
