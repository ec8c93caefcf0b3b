"""Resolver of URIs: an object, or a folder of objects."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Final

from protoslice.errors import InvalidInput, NotFound
from protoslice.sources.remote.folder import ObjectFolder
from protoslice.sources.remote.reader import BlockingReader
from protoslice.sources.remote.source import ObjectSource
from protoslice.storage.keys import ObjectKey
from protoslice.storage.registry import open_storage
from protoslice.storage.sources import open_source
from protoslice.storage.wrappers.prefix import PrefixStorage
from protoslice.uris import parse_root

_ANYWHERE: Final = ("0.0.0.0/0", "::/0")
"""Networks that callers may visit who name the URI themselves: all."""
_WITHOUT_OPTIONS: Final = ("file", "memory", "http", "https")
_OPTIONS: Final = "PROTOSLICE_STORAGE_OPTIONS"


def open_object(uri: str, options: Mapping[str, str] | None = None) -> ObjectSource:
    """Open the object at `uri`; the source closes its storage.

    `NotFound` when there is none. `options` are the backend's; without them, those of PROTOSLICE_STORAGE_OPTIONS count.
    """
    parent, name = _split(uri)
    if name is None:
        raise InvalidInput(f"{uri} is a folder: pass the URI of an object")
    reader = _reader(parent, options)
    try:
        found = reader.find(ObjectKey(name))
        if found is None:
            raise NotFound(f"No object {uri}")
    except BaseException:
        reader.close()
        raise
    return ObjectSource(reader, found, uri, owner=True)


def open_folder(uri: str, options: Mapping[str, str] | None = None) -> tuple[ObjectFolder, str | None]:
    """The folder at `uri` and None, or the folder around the object there and the object's name.

    `NotFound` when there is neither. Options as in `open_object`.
    """
    parent, name = _split(uri)
    reader = _reader(parent, options)
    try:
        folder = ObjectFolder(reader, parent)
        if name is None or folder.find(name) is not None:
            return folder, name
        key = ObjectKey(name)
        if not reader.storage.abilities.listing or not reader.listed(key, 1):
            raise NotFound(f"No object {uri}")
        return ObjectFolder(BlockingReader(PrefixStorage(reader.storage, key)), uri), None
    except BaseException:
        reader.close()
        raise


def _split(uri: str) -> tuple[str, str | None]:
    """URI of the folder, and the name of the object in it; None when `uri` is that of a folder."""
    place = parse_root(uri)
    if not place.segments or uri.endswith("/"):
        return uri, None
    return uri.rpartition("/")[0], place.segments[-1]


def _reader(root: str, options: Mapping[str, str] | None) -> BlockingReader:
    place = parse_root(root)
    if options is None:
        options = {} if place.scheme in _WITHOUT_OPTIONS else _from_environment()
    if place.is_web and not options:
        return BlockingReader(open_source(root, networks=_ANYWHERE))
    return BlockingReader(open_storage(root, options))


def _from_environment() -> dict[str, str]:
    text = os.environ.get(_OPTIONS) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidInput(f'Invalid {_OPTIONS}: use a JSON object of strings, such as {{"region": "eu-west-1"}}')
    return found
