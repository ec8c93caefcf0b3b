"""Index, split, merge and serve protobufs of any size, part by part."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from protoslice.client import AsyncClient, Client
    from protoslice.errors import ProtosliceError
    from protoslice.facts import Node
    from protoslice.formats.tensors.arrays import LazyArray
    from protoslice.library.models import LocalModel
    from protoslice.library.opening import open_proto as open
    from protoslice.library.proto import Chunk, Large, Proto, Split, View
    from protoslice.models import RemoteModel, open_model
    from protoslice.sources.ropes import Rope
    from protoslice.streams import Records
    from protoslice.streams import open_records as records

    __version__: str

__all__ = [
    "AsyncClient",
    "Chunk",
    "Client",
    "Large",
    "LazyArray",
    "LocalModel",
    "Node",
    "Proto",
    "ProtosliceError",
    "Records",
    "RemoteModel",
    "Rope",
    "Split",
    "View",
    "__version__",
    "open",
    "open_model",
    "records",
]

_HOMES = {
    "AsyncClient": "client",
    "Chunk": "library.proto",
    "Client": "client",
    "Large": "library.proto",
    "LazyArray": "formats.tensors.arrays",
    "LocalModel": "library.models",
    "Node": "library.proto",
    "Proto": "library.proto",
    "ProtosliceError": "errors",
    "Records": "streams",
    "RemoteModel": "models",
    "Rope": "sources.ropes",
    "Split": "library.proto",
    "View": "library.proto",
    "open_model": "models",
}
"""The module that each public name comes from; `_RENAMED` has those that go by another name there."""

_RENAMED = {"open": ("library.opening", "open_proto"), "records": ("streams", "open_records")}


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of the package, when it is first asked for (PEP 562)."""
    found: Any
    if name in _RENAMED or name in _HOMES:
        home, known_as = _RENAMED.get(name) or (_HOMES[name], name)
        found = getattr(_imported(home), known_as)
    elif name == "__version__":
        from protoslice.build import build

        found = build()
    elif name.startswith("__"):
        raise AttributeError(f"module 'protoslice' has no attribute {name!r}")
    else:
        found = _module(name)
    globals()[name] = found
    return found


def _imported(home: str) -> Any:
    """A module of the package; `ImportError` naming the extra if the client's dependencies are missing."""
    try:
        return import_module(f"protoslice.{home}")
    except ModuleNotFoundError as error:
        if home != "client":
            raise
        from protoslice.errors import missing_extra

        message = f"{missing_extra('To use a service', 'client')} ({error.name} is missing)"
        raise ImportError(message, name=error.name) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _module(name: str) -> Any:
    try:
        return import_module(f"protoslice.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"protoslice.{name}":
            raise
        raise AttributeError(f"module 'protoslice' has no attribute {name!r}") from None
