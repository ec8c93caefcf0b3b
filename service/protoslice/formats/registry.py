"""The registry of model formats: built-in formats and plug-ins of the entry-point group `protoslice.formats`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final, Protocol

from protoslice.errors import ProtosliceError, Unsupported
from protoslice.facts import Signature
from protoslice.formats import coreml, onnx, paddle
from protoslice.formats.bundle import Bundle
from protoslice.formats.caffe import Caffe
from protoslice.formats.cntk import Cntk
from protoslice.formats.coreml import CoreMl
from protoslice.formats.generic import GenericMessages
from protoslice.formats.gguf import Gguf
from protoslice.formats.hlo import Hlo
from protoslice.formats.onnx import Onnx
from protoslice.formats.paddle import Paddle
from protoslice.formats.paddle_files import PaddleParameters
from protoslice.formats.safetensors import SafetensorsFormat
from protoslice.formats.tensorflow import META_GRAPH, SAVED_MODEL, ReadSignatures, TensorFlow, signatures
from protoslice.formats.uses import Look, NamedUses, with_uses
from protoslice.formats.warmup import Warmup
from protoslice.plugins import PluginGroup, brief, check_version, warn
from protoslice.tensors.listing import TensorList, Tensors
from protoslice.tensors.model import Model, RootProto


class Format(Protocol):
    """A model format, such as ONNX, which finds the tensors of a model."""

    @property
    def name(self) -> str:
        """The name of the format as users see it."""

    def matches(self, model: Model) -> bool:
        """Return True when the format applies to `model`."""

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of `model`. This call blocks and reads metadata, but no elements.

        A format may also have a method `uses(model, found)`, where `found` are these tensors. It returns a function
        that takes one of these tensors and returns its `Use`. If all tensors have a `look`, `uses` is None instead of
        a method. For a format without `uses`, the use of a tensor follows from the tensor's name.
        """


INTERFACE: Final = (1, 0)
"""The version of the `Format` interface; see `plugins.Version`."""

_BUILT_IN: Final[tuple[Format, ...]] = (
    Bundle(),
    TensorFlow(),
    Warmup(),
    Onnx(),
    CoreMl(),
    Caffe(),
    Cntk(),
    Hlo(),
    Paddle(),
    PaddleParameters(),
    SafetensorsFormat(),
    Gguf(),
)

_OTHERWISE: Final[Format] = GenericMessages()


def tensors_of(model: Model) -> Tensors:
    """Return the tensors that all matching formats find in `model`; raise `Unsupported` if no format matches."""
    formats = formats_of(model)
    if not formats:
        known = ", ".join(each.name for each in _all())
        raise Unsupported(f"Tensors of {model.type or 'such a file'} are not supported; supported formats: {known}")
    found = [_used(each, model) for each in formats]
    return found[0] if len(found) == 1 else Tensors.joined(found)


def _used(format: Format, model: Model) -> Tensors:
    """Return the tensors that one format finds in `model`, with their roles."""
    found: Any = format.tensors(model)
    if not isinstance(found, TensorList):  # a plug-in may return another type
        found = Tensors(len(found), found.__getitem__, getattr(found, "called", None), found.numbers)
    uses: Callable[[Model, Tensors], Look] | None = getattr(format, "uses", lambda model, found: NamedUses(found))
    return found if uses is None else with_uses(found, lambda: uses(model, found))


def formats_of(model: Model) -> Sequence[Format]:
    """Return the formats that match `model`.

    If no format matches, return the fallback format for known message types, or nothing for other files.
    """
    found = [each for each in _all() if _matches(each, model)]
    return found or [each for each in (_OTHERWISE,) if _matches(each, model)]


def _matches(format: Format, model: Model) -> bool:
    # Until 0.3, formats of other packages may name this method `wants`.
    matches: Callable[[Model], bool] = getattr(format, "wants", None) or format.matches
    return matches(model)


def register(name: str, factory: Callable[[], Format]) -> None:
    """Register the format that `factory` returns for this process.

    Raise `InvalidInput` for a name that is taken, and `Unsupported` for a format that lacks a required attribute.
    """
    FORMATS.register(name, factory)
    _others.cache_clear()


def unregister(name: str) -> None:
    """Remove a format that `register` added. Unknown names are ignored."""
    FORMATS.unregister(name)
    _others.cache_clear()


def _all() -> tuple[Format, ...]:
    return (*_BUILT_IN, *_others(tuple(FORMATS.names())))


@cache
def _others(names: tuple[str, ...]) -> tuple[Format, ...]:
    """Return the formats of other packages. Formats that cannot be used are skipped with a warning."""
    found = []
    for name in names:
        try:
            found += [] if FORMATS.is_ours(name) else [FORMATS.get(name)()]
        except ProtosliceError as error:
            warn(f"{error.message}; models are read without it")
    return tuple(found)


def _lacks(factory: Callable[[], Format]) -> str | None:
    """Return the problem of a format factory, or of the format that it returns; None if there is no problem."""
    try:
        made = factory()
    except Exception as error:
        return f"does not load: {brief(error)}"
    missing = [name for name in ("name", "tensors") if not hasattr(made, name)]
    missing += [] if hasattr(made, "matches") or hasattr(made, "wants") else ["matches"]
    if missing:
        return f"lacks {', '.join(missing)}"
    check_version(f"the format {made.name!r}", getattr(made, "interface", INTERFACE), INTERFACE)
    return None


FORMATS: Final[PluginGroup[Callable[[], Format]]] = PluginGroup(
    "protoslice.formats", "format", {each.name: type(each) for each in _BUILT_IN}, _lacks
)
"""The factories of all formats by name."""


_OF_ONE: Final[Mapping[str, Callable[[RootProto], tuple[Sequence[Signature], int]]]] = {
    onnx.MODEL: onnx.signature,
    coreml.MODEL: coreml.signature,
    paddle.PROGRAM: paddle.signature,
}
"""The readers of root types whose models have exactly one signature."""
TYPES = (SAVED_MODEL, META_GRAPH, *_OF_ONE)
"""The root types that have signatures."""


def signatures_in(model: Model, tags: Sequence[str] | None) -> tuple[int, ReadSignatures]:
    """Return the number of graphs with signatures, and a function that reads the signatures of one graph.

    `tensorflow.signatures` describes this function and the errors.
    """
    read, proto = _OF_ONE.get(model.type or "") if tags is None else None, model.proto
    if proto is None and tags is None and paddle.is_json(model):
        read, proto = paddle.signature, paddle.json_as_proto(model.files[model.root])
    if read is None or proto is None:
        return signatures(model, tags)
    one = partial(read, proto)
    return 1, lambda _: one()


def signatures_of(model: Model, tags: Sequence[str] | None = None) -> Iterator[Signature]:
    """Return all signatures of `model`, or only the signatures of its first meta graph with exactly `tags`.

    Raise `Unsupported` for a format without signatures, and `NotFound` if no meta graph has these tags.
    """
    count, read = signatures_in(model, tags)
    return (signature for number in range(count) for signature in read(number)[0])
