"""Metadata of model cards: the YAML between two lines of dashes at the beginning of README.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import yaml

from protoslice.concurrency.gather import map_concurrently
from protoslice.errors import IntegrityError, NotFound
from protoslice.json_text import encode_json, parse_json
from protoslice.stores import Stores

Card = dict[str, Any]
"""The metadata by name. All values can be written as JSON."""
CARD: Final = "README.md"
"""The path of a model card in its repository."""
CARD_BYTES: Final = 64 << 10
"""The maximum number of bytes that are read from a card."""
_DEPTH: Final = 20
_EVENTS: Final = 20_000
_FRONT: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_WORDS: Final = {"": None, "~": None, "null": None, "true": True, "false": False}
_INTEGER: Final = re.compile(r"[-+]?\d{1,18}")
_FLOAT: Final = re.compile(r"[-+]?(\d{1,40}(\.\d{0,40})?|\.\d{1,40})([eE][-+]?\d{1,2})?")
# Only YAML events are used. The loader's composer recurses in C, so that a deeply nested card would end the process.
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FACT: Final = "card-1"
"""The name under which a card's metadata is saved among the derived facts of a store."""
_PREFIXED: Final = {"license": "license:", "datasets": "dataset:", "base_model": "base_model:"}
_OF_DATASETS: Final = (
    "annotations_creators", "language_creators", "language", "license", "multilinguality", "size_categories",
    "source_datasets", "task_categories", "task_ids",
)  # fmt: skip


async def cards_of(stores: Stores, ids: Iterable[str]) -> tuple[dict[str, Card], int]:
    """Return the card metadata of stores, and the number of bytes that were read.

    A store without a card has empty metadata.

    A card is read only once, because its metadata is saved. Stores that are gone or damaged are left out.
    """
    wanted = list(dict.fromkeys(ids))
    texts = await stores.derived.load_each(_FACT, wanted)
    new = [store for store in wanted if store not in texts]
    read = {
        store: text
        for store, text in zip(new, await map_concurrently(partial(_read, stores), new), strict=True)
        if text is not None
    }
    await stores.derived.save_each(_FACT, read)
    texts |= read
    size = sum(map(len, texts.values()))
    cards = await stores.worker.run_if_large(size, lambda: {store: parse_json(text) for store, text in texts.items()})
    return cast(dict[str, Card], cards), size + len(new) * CARD_BYTES


async def _read(stores: Stores, store: str) -> bytes | None:
    """Return a store's card metadata as JSON. Return None if the store is gone or damaged."""
    try:
        if CARD not in await stores.files(store):
            return b"{}"
        view = (await stores.view(store)).file(CARD)
        beginning = b"".join([bytes(piece) async for piece in view.pieces(0, min(view.size, CARD_BYTES))])
    except (NotFound, IntegrityError):
        return None
    return await stores.worker.run_if_large(len(beginning), lambda: encode_json(parse_card(beginning)))


def known_of(card: Card, *, dataset: bool) -> dict[str, Any]:
    """Return the card's facts that descriptions of a repository show: tags, and the library and task if present."""
    known = {each: card[each] for each in ("library_name", "pipeline_tag") if isinstance(card.get(each), str)}
    tags = [*known.values(), *_texts(card.get("tags"))]
    if dataset:
        tags += [f"{name}:{text}" for name in _OF_DATASETS for text in _texts(card.get(name))]
    else:
        tags += _texts(card.get("language"))
        tags += [before + text for name, before in _PREFIXED.items() for text in _texts(card.get(name))]
    return {"tags": list(dict.fromkeys(tags)), **known}


def _texts(value: Any) -> list[str]:
    return [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]


def parse_card(beginning: bytes) -> Card:
    """Return the metadata at the beginning of a card.

    The metadata is empty if the YAML is malformed, too deep or has aliases.
    """
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
