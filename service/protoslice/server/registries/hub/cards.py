"""Metadata of model cards: the YAML between two lines of dashes at the beginning of README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

import yaml

from protoslice.concurrency.lru import LruCache
from protoslice.errors import NotFound, StorageError
from protoslice.facts import File
from protoslice.json_text import encode_json, parse_json
from protoslice.stores import Stores

Card = Mapping[str, Any]
"""Metadata by name, as JSON can hold them."""

_PATH: Final = "README.md"
_BYTES: Final = 64 << 10
_DEPTH: Final = 20
_EVENTS: Final = 20_000
_FRONT: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER: Final = re.compile(r"[-+]?\d{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,2})?")
# Events alone: the loader's own composer recurses in C, and a deep card would end the process.
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_cards: Final[LruCache[str, bytes]] = LruCache(most=10_000, room=16 << 20)
"""Metadata in JSON, which takes less memory, by the SHA-256 of their files."""


async def card_of(stores: Stores, store: str | None, files: Mapping[str, File]) -> Card:
    """Return the metadata of the card among the files of a commit; empty if there are none, or they are malformed."""
    file = files.get(_PATH)
    if file is None or store is None:
        return {}
    kept = _cards.get(file.sha256 or "")
    if kept is not None:
        return cast(Card, parse_json(kept))
    try:
        view = (await stores.view(store)).file(_PATH)
        beginning = b"".join([bytes(piece) async for piece in view.pieces(0, min(view.size, _BYTES))])
    except (NotFound, StorageError):  # other facts of the repository need no file
        return {}
    card = await stores.worker.sized(len(beginning), lambda: parse_card(beginning))
    if file.sha256 is not None:
        text = encode_json(card)
        _cards.put(file.sha256, text, 200 + len(text))
    return card


def tags_of(card: Card) -> list[str]:
    """Return the tags of a repository: those of its card, and some of its metadata."""
    listed = card.get("tags")
    tags = [card.get("library_name"), card.get("pipeline_tag"), *(listed if isinstance(listed, list) else [listed])]
    if isinstance(license := card.get("license"), str):
        tags.append(f"license:{license}")
    return list(dict.fromkeys(tag for tag in tags if isinstance(tag, str)))


def parse_card(beginning: bytes) -> Card:
    """Return the metadata at the beginning of a card; empty for YAML that is malformed, too deep or has aliases."""
    front = _FRONT.match(beginning)
    if front is None:
        return {}
    with suppress(yaml.YAMLError, ValueError, RecursionError, StopIteration):
        events = yaml.parse(front[1].decode(), Loader=_Loader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                made = _value(next(events), _counted(events), _DEPTH)
                return made if isinstance(made, dict) else {}
    return {}


def _counted(events: Iterator[Any]) -> Iterator[Any]:
    for _, event in zip(range(_EVENTS), events, strict=False):
        yield event


def _value(event: Any, events: Iterator[Any], depth: int) -> Any:
    if isinstance(event, yaml.ScalarEvent):
        return _scalar(event.value) if event.implicit[0] else event.value
    if not depth or not isinstance(event, yaml.CollectionStartEvent):
        raise ValueError("Unexpected event")
    items = list[Any]()
    while not isinstance(event := next(events), yaml.CollectionEndEvent):
        items.append(_value(event, events, depth - 1))
    if not isinstance(event, yaml.MappingEndEvent):
        return items
    return {_name(key): value for key, value in zip(items[::2], items[1::2], strict=True)}


def _scalar(text: str) -> Any:
    """Return the value of a plain scalar by YAML's core schema, which has no dates."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _name(key: Any) -> str:
    if isinstance(key, (dict, list)):
        raise ValueError("Invalid key")
    return "null" if key is None else str(key)
