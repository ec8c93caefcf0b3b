"""Formats of models, built in or plug-ins of the group `protoslice.formats`: which one reads a model, and how."""

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
    """A family of models, such as ONNX, and the extraction of its tensors."""

    @property
    def name(self) -> str:
        """Name of the format for users."""

    def matches(self, model: Model) -> bool:
        """Return True when the format applies to `model`."""

    def tensors(self, model: Model) -> Tensors:
        """Return all tensors of `model`. Blocks; reads metadata, but no elements.

        A format may also have a method `uses(model, found)`, which returns a function from one of these tensors to its
        `Use`, or None if its tensors have a `look`. For other formats, names decide.
        """


INTERFACE: Final = (1, 0)
"""Version of `Format`; see `plugins.Version`."""

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
    """Return the tensors of `model`, from all formats that apply; raise `Unsupported` if none does."""
    formats = formats_of(model)
    if not formats:
        known = ", ".join(each.name for each in _all())
        raise Unsupported(f"Tensors of {model.type or 'such a file'} are not supported; supported formats: {known}")
    found = [_used(each, model) for each in formats]
    return found[0] if len(found) == 1 else Tensors.joined(found)


def _used(format: Format, model: Model) -> Tensors:
    """Return the tensors of `model` in one format, with their roles."""
    found: Any = format.tensors(model)
    if not isinstance(found, TensorList):  # of a format of another package
        found = Tensors(len(found), found.__getitem__, getattr(found, "called", None), found.numbers)
    uses: Callable[[Model, Tensors], Look] | None = getattr(format, "uses", lambda model, found: NamedUses(found))
    return found if uses is None else with_uses(found, lambda: uses(model, found))


def formats_of(model: Model) -> Sequence[Format]:
    """Return the formats that apply to `model`, else the fallback for known message types; may be empty."""
    found = [each for each in _all() if _matches(each, model)]
    return found or [each for each in (_OTHERWISE,) if _matches(each, model)]


def _matches(format: Format, model: Model) -> bool:
    # Formats of other packages may call it `wants` until 0.3.
    matches: Callable[[Model], bool] = getattr(format, "wants", None) or format.matches
    return matches(model)


def register(name: str, factory: Callable[[], Format]) -> None:
    """Register the format that `factory` returns, for this process.

    Raise `InvalidInput` for a name that is taken, `Unsupported` when the format lacks something.
    """
    FORMATS.register(name, factory)
    _others.cache_clear()


def unregister(name: str) -> None:
    """Revert `register`; ignore an unknown name."""
    FORMATS.unregister(name)
    _others.cache_clear()


def _all() -> tuple[Format, ...]:
    return (*_BUILT_IN, *_others(tuple(FORMATS.names())))


@cache
def _others(names: tuple[str, ...]) -> tuple[Format, ...]:
    """Return the formats of other packages; skip formats that cannot be used, with a warning."""
    found = []
    for name in names:
        try:
            found += [] if FORMATS.is_ours(name) else [FORMATS.get(name)()]
        except ProtosliceError as error:
            warn(f"{error.message}; models are read without it")
    return tuple(found)


def _lacks(factory: Callable[[], Format]) -> str | None:
    """Return what is wrong with a factory of formats, or with the format that it returns; None if nothing is."""
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
"""Factories of formats by name."""


_OF_ONE: Final[Mapping[str, Callable[[RootProto], tuple[Sequence[Signature], int]]]] = {
    onnx.MODEL: onnx.signature,
    coreml.MODEL: coreml.signature,
    paddle.PROGRAM: paddle.signature,
}
"""Formats whose models have one signature."""
TYPES = (SAVED_MODEL, META_GRAPH, *_OF_ONE)
"""Types of roots that have signatures."""


def signatures_in(model: Model, tags: Sequence[str] | None) -> tuple[int, ReadSignatures]:
    """Return the number of graphs that have signatures, and a reader of one of them; see `tensorflow.signatures`."""
    read, proto = _OF_ONE.get(model.type or "") if tags is None else None, model.proto
    if proto is None and tags is None and paddle.is_json(model):
        read, proto = paddle.signature, paddle.json_as_proto(model.files[model.root])
    if read is None or proto is None:
        return signatures(model, tags)
    one = partial(read, proto)
    return 1, lambda _: one()


def signatures_of(model: Model, tags: Sequence[str] | None = None) -> Iterator[Signature]:
    """Return all signatures of `model`, or those of its first meta graph with exactly `tags`.

    Raise `Unsupported` for a format without signatures, `NotFound` if no meta graph has these tags.
    """
    count, read = signatures_in(model, tags)
    return (signature for number in range(count) for signature in read(number)[0])
