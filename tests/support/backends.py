"""The storages that the HTTP contract is tested on, with their databases."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from urllib.parse import urlsplit

from protoslice.errors import InvalidInput
from protoslice.storage import MemoryStorage
from protoslice.storage.registry import Factory, register, unregister

VARIABLE: Final = "PROTOSLICE_TEST_BACKENDS"
"""The environment variable that names the storages to try, separated by commas."""
BACKENDS: Final = "directory,odd"
"""The storages that are tried when the variable is not set; they need no server."""
_ODD_SCHEME: Final = "odd"
_ODD: Final = ('"{}"', "%22{}%22", 'W/"{}"', '\\{}, \t"\u00e9\u2028\x01"', "{}")


@dataclass(frozen=True, slots=True)
class Backend:
    """A kind of storage, by URI and options. Services over it share nothing."""

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    new_catalogue: Callable[[], str] | None = None
    """Make a catalogue and return its URL; None where the storage has a default catalogue."""

    def settings(self) -> dict[str, Any]:
        """Return the settings that open a new storage of this kind."""
        shared = urlsplit(self.uri).path != ""
        uri = f"{self.uri}/{token_hex(8)}" if shared else self.uri
        database = None if self.new_catalogue is None else self.new_catalogue()
        options = dict(self.options)
        return {"storage": uri, "storage_options": options, "database": database, "space_watermark_bytes": 0}


@contextmanager
def backend(name: str, folder: Path) -> Iterator[Backend]:
    """Yield the storage called `name`: `memory`, `directory` (made below `folder`), `odd`, `s3` or `az`."""
    match name:
        case "memory":
            yield Backend("memory://")
        case "directory":
            yield Backend(folder.as_uri())
        case "odd":
            with _odd_scheme():
                yield Backend(f"{_ODD_SCHEME}://", new_catalogue=partial(_sqlite_in, folder))
        case "s3" | "az" if (named := bucket_folder(f"PROTOSLICE_TEST_{name.upper()}"))[0]:
            yield Backend(*named, partial(_sqlite_in, folder))
        case _:
            raise InvalidInput(
                f"tests have no storage {name!r}; `s3` needs PROTOSLICE_TEST_S3, `az` PROTOSLICE_TEST_AZ"
            )


def _sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder}/{token_hex(8)}.sqlite"


def bucket_folder(variable: str) -> tuple[str, Mapping[str, str]]:
    """Return the URI of a new folder in the environment's bucket, and the storage's options.

    The URI is empty if the environment names no bucket.
    """
    base = os.environ.get(variable, "").rstrip("/")
    options: Mapping[str, str] = json.loads(os.environ.get(f"{variable}_OPTIONS") or "{}")
    return f"{base}/protoslice-{token_hex(8)}" if base else "", options


def odd_etag(number: int) -> str:
    """Return a unique entity tag for `number`; tags are quoted or weak, or have spaces and control characters.

    Some tags differ by quotes alone: a service that escapes carelessly confuses them.
    """
    count, kind = divmod(number, len(_ODD))
    return _ODD[kind].format(count)


@contextmanager
def _odd_scheme() -> Iterator[None]:
    factory: Factory = lambda uri, options: MemoryStorage(odd_etag)  # noqa: E731
    register(_ODD_SCHEME, factory)
    try:
        yield
    finally:
        unregister(_ODD_SCHEME)
