"""The tensors of an opened store: listed, found by name, and given out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from protoslice.errors import Conflict, InvalidInput, NotFound
from protoslice.formats.dtypes import DTYPES
from protoslice.formats.listing import row
from protoslice.formats.model import Bytes, Model, Tensor, Tensors
from protoslice.formats.reading import read
from protoslice.formats.references import references
from protoslice.formats.registry import tensors_of
from protoslice.formats.safetensors import safetensors
from protoslice.stores.computed import Computed, Readable
from protoslice.stores.model import Page, place_of
from protoslice.stores.objects import StoredObject
from protoslice.stores.runner import Worker
from protoslice.stores.serving import Representation

__all__ = ["StoreTensors"]

_BYTES: Final = "application/octet-stream"
_FORMS: Final = {"npy": ("npy", _BYTES), "json": ("json", "application/json")}
"""The ending of a form's file name, and its media type."""
_SHOWN: Final = 20
"""So many addresses are listed where a name is borne by several tensors."""

Etag = Callable[..., str]
Wanted = Callable[[Tensor], bool]


class StoreTensors:
    """The tensors of one store. They are found when somebody first asks, and kept."""

    def __init__(self, model: Model, worker: Worker, etag: Etag) -> None:
        self._model = model
        self._worker = worker
        self._etag = etag
        self._found: Tensors | None = None
        self._finding = asyncio.Lock()

    async def page(
        self, *, name: str | None, dtype: str | None, limit: int, cursor: str | None
    ) -> Page[dict[str, Any]]:
        """A page of what is known of each."""
        if dtype is not None and dtype not in DTYPES:
            raise InvalidInput(f"there is no dtype {dtype[:40]!r}; there are: {', '.join(DTYPES)}")
        found = await self._all()
        return await self._worker.run(lambda: _page(found, _wanted(name, dtype), limit, place_of(cursor)))

    async def one(self, name: str, slice_text: str | None, form: str) -> Representation:
        """One tensor, or a slice of it, as `form`."""
        found = await self._all()

        def look() -> Representation:
            tensor = _single(found, name)
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

        return await self._worker.run(look)

    async def safetensors(self, names: Sequence[str]) -> Representation:
        """All tensors, or those whose names match one of `names`, as one safetensors file."""
        found = await self._all()

        def make() -> Representation:
            data = safetensors(_chosen(found, names))
            name = self._model.root.rpartition("/")[2].rpartition(".")[0] or "model"
            etag = self._etag("safetensors", names)
            return Representation(data.rope, self._readable(data), etag, f"{name}.safetensors", kind="safetensors")

        return await self._worker.run(make)

    async def references(self, base: str) -> dict[str, Any]:
        """References onto this store's own URLs, which begin with `base`, as kerchunk writes them."""
        found = await self._all()
        return await self._worker.run(
            lambda: references(
                _each(found),
                self._model.files,
                file_url=lambda path: f"{base}/files/{quote(path)}",
                tensor_url=lambda address: f"{base}/tensors/{quote(address, safe='')}",
            )
        )

    async def _all(self) -> Tensors:
        async with self._finding:
            if self._found is None:
                self._found = await self._worker.run(lambda: tensors_of(self._model))
            return self._found

    def _readable(self, data: Bytes) -> Sequence[Readable]:
        return [
            source if isinstance(source, StoredObject) else Computed(source, self._worker) for source in data.sources
        ]


def _each(found: Tensors) -> Iterator[Tensor]:
    return (found[number] for number in range(len(found)))


def _page(found: Tensors, wanted: Wanted, limit: int, first: int) -> Page[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    number = first
    while number < len(found) and len(items) < limit:
        tensor = found[number]
        number += 1
        if wanted(tensor):
            items.append(row(tensor))
    return Page(items, str(number) if number < len(found) else None)


def _wanted(name: str | None, dtype: str | None) -> Wanted:
    fits = _fitting(name) if name is not None else None

    def wanted(tensor: Tensor) -> bool:
        if dtype is not None and (tensor.dtype is None or tensor.dtype.name != dtype):
            return False
        return fits is None or fits(tensor)

    return wanted


def _chosen(found: Tensors, names: Sequence[str]) -> list[Tensor]:
    """The tensors that any of `names` means; `NotFound` for one that means none."""
    if not names:
        return list(_each(found))
    fitting = {name: _fitting(name) for name in names}
    chosen = [tensor for tensor in _each(found) if any(fits(tensor) for fits in fitting.values())]
    for name, fits in fitting.items():
        if not any(fits(tensor) for tensor in chosen):
            raise NotFound(f"the store has no tensor {name!r}")
    return chosen


def _fitting(name: str) -> Wanted:
    """Which tensors `name` means: those so called, the one of this address; `*` in it stands for anything in a name."""
    if "*" not in name:
        return lambda tensor: name in {tensor.name, tensor.address}
    pattern = re.compile(".*".join(map(re.escape, re.split(r"\*+", name))), re.DOTALL)
    return lambda tensor: pattern.fullmatch(tensor.name) is not None


def _single(found: Tensors, name: str) -> Tensor:
    numbers = found.numbers(name)
    if not numbers:
        raise NotFound(f"the store has no tensor {name!r}")
    if len(numbers) > 1:
        addresses = [found[number].address for number in numbers[:_SHOWN]]
        more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
        raise Conflict(f"{len(numbers)} tensors are called {name!r}: ask by address, {', '.join(addresses)}{more}")
    return found[numbers[0]]


def _filename(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-100:].strip("_") or "tensor"
