"""The package protoslice, which indexes, splits, merges and serves protobuf files of any size."""

from importlib import import_module
from typing import Any

_HOMES = {
    "AsyncClient": "client",
    "Chunk": "library.proto",
    "Client": "client",
    "Large": "library.proto",
    "LazyArray": "tensors.arrays",
    "LocalModel": "library.models",
    "Node": "facts",
    "Proto": "library.proto",
    "ProtosliceError": "errors",
    "Records": "streams",
    "RemoteModel": "models",
    "Rope": "sources.ropes",
    "Split": "library.proto",
    "View": "library.proto",
    "open": "library.opening:open_proto",
    "open_model": "models",
    "records": "streams:open_records",
}
"""The module of each public name. If the name in that module differs, it follows after a colon.

Type checkers read `__init__.pyi` instead.
"""

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a public name, or a module of the package, on its first use (PEP 562)."""
    found: Any
    if name in _HOMES:
        home, _, known_as = _HOMES[name].partition(":")
        found = getattr(_imported(home), known_as or name)
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
    """Import a module of the package.

    If packages that the client needs are missing, raise an `ImportError` that names the extra to install.
    """
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
