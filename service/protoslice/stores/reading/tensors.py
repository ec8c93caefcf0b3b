"""The tensors of an opened store: listed, found by name, and given out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final
from urllib.parse import quote

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.singleflight import Kept
from protoslice.formats.model import Bytes, Model, Tensor, Tensors
from protoslice.formats.outputs.listing import items, row_text
from protoslice.formats.outputs.references import references
from protoslice.formats.outputs.safetensors import safetensors
from protoslice.formats.selection import Wanted, chosen, each, single, wanted
from protoslice.formats.tensors.reading import is_ready, looked_up, read, ready
from protoslice.stores.domain import Page, PageRoom, place_of
from protoslice.stores.reading.computed import Computed, Readable
from protoslice.stores.reading.objects import StoredObject
from protoslice.stores.reading.serving import Representation

__all__ = ["StoreTensors"]

_BYTES: Final = "application/octet-stream"
_FORMS: Final = {"npy": ("npy", _BYTES), "json": ("json", "application/json")}
"""The ending of a form's file name, and its media type."""

_MOST: Final = 16
_ROOM: Final = 16 << 20
"""So many of a kind are kept, and so many bytes of them: of a file mostly its head, of a tensor what was looked up."""
_EXTENT_WEIGHT: Final = 32

Etag = Callable[..., str]
Find = Callable[[], Awaitable[Tensors]]


class StoreTensors:
    """The tensors of one store. They are found when somebody first asks, and kept."""

    def __init__(self, model: Model, find: Find, worker: Worker, etag: Etag) -> None:
        """`find` finds them; the first call that needs them waits for it."""
        self._model = model
        self._find = find
        self._worker = worker
        self._etag = etag
        self._found: Tensors | None = None
        self._finding = asyncio.Lock()
        self._ready: Kept[str, Tensor] = Kept(most=_MOST, room=_ROOM)
        self._files: Kept[tuple[str, ...], Representation] = Kept(most=_MOST, room=_ROOM)

    async def page(self, *, name: str | None, dtype: str | None, limit: int, cursor: str | None) -> Page[bytes]:
        """A page of what is known of each, as items of a JSON list."""
        fits, first = wanted(name, dtype), place_of(cursor)
        found = await self._all()
        return await self._worker.run(lambda: _page(found, fits if name is not None else dtype, limit, first))

    async def one(self, name: str, slice_text: str | None, form: str) -> Representation:
        """One tensor, or a slice of it, as `form`."""
        found = await self._all()

        def look() -> Representation | Tensor:
            tensor = single(found, name)
            if is_ready(tensor):
                return self._represented(tensor, slice_text, form)
            read(tensor, slice_text, form, compare=False)  # what is refused is not counted first
            return tensor

        looked = await self._worker.run(look)
        if isinstance(looked, Representation):
            return looked
        tensor = await self._ready.get(looked.address, lambda: self._worker.bulk(lambda: ready(looked)))
        return await self._worker.run(lambda: self._represented(tensor, slice_text, form))

    async def safetensors(self, names: Sequence[str]) -> Representation:
        """All tensors, or those whose names match one of `names`, as one safetensors file."""
        found = await self._all()

        def make() -> tuple[Representation, int]:
            looked = [looked_up(tensor) for tensor in chosen(found, names)]
            data = safetensors(tensor for tensor, _ in looked)
            name = self._model.root.rpartition("/")[2].rpartition(".")[0] or "model"
            etag = self._etag("safetensors", names)
            weight = data.literals + _EXTENT_WEIGHT * data.rope.piece_count + sum(held for _, held in looked)
            made = Representation(data.rope, self._readable(data), etag, f"{name}.safetensors", kind="safetensors")
            return made, weight

        return await self._files.get(tuple(names), lambda: self._worker.bulk(make))

    async def references(self, base: str) -> dict[str, Any]:
        """References onto this store's own URLs, which begin with `base`, as kerchunk writes them."""
        found = await self._all()
        return await self._worker.bulk(
            lambda: references(
                each(found),
                self._model.files,
                file_url=lambda path: f"{base}/files/{quote(path)}",
                tensor_url=lambda address: f"{base}/tensors/{quote(address, safe='')}",
            )
        )

    async def _all(self) -> Tensors:
        async with self._finding:
            if self._found is None:
                self._found = await self._find()
            return self._found

    def _represented(self, tensor: Tensor, slice_text: str | None, form: str) -> Representation:
        reading = read(tensor, slice_text, form)
        ending, media_type = _FORMS.get(form, ("bin", _BYTES))
        return Representation(
            reading.bytes.rope,
            self._readable(reading.bytes),
            self._etag("tensor", tensor.address, slice_text, form),
            f"{_filename(tensor.name)}.{ending}",
            kind="tensor",
            media_type=media_type,
            headers=(
                (b"x-tensor-dtype", reading.dtype.name.encode()),
                (b"x-tensor-shape", ",".join(map(str, reading.shape)).encode()),
            ),
        )

    def _readable(self, data: Bytes) -> Sequence[Readable]:
        return [
            source if isinstance(source, StoredObject) else Computed(source, self._worker) for source in data.sources
        ]


def _page(found: Tensors, fits: Wanted | str | None, limit: int, first: int) -> Page[bytes]:
    """Those that fit; a type, or nothing, may be all that they have to fit."""
    if fits is None or isinstance(fits, str):
        text, count, number = items(found, first, limit, fits)
        texts = [text] if count else []
    else:
        texts, number, room = [], first, PageRoom(limit)
        while number < len(found):
            tensor = found[number]
            if fits(tensor):
                text = row_text(tensor)
                if not room.takes(len(text)):
                    break
                texts.append(text)
            number += 1
    return Page(texts, str(number) if number < len(found) else None)


def _filename(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-100:].strip("_") or "tensor"
