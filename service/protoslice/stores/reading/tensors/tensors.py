"""Tensors of an opened store: listings, single tensors, safetensors files, kerchunk references."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar
from urllib.parse import quote

from protoslice.concurrency.executor import Worker
from protoslice.concurrency.results import Results
from protoslice.errors import LimitExceeded
from protoslice.facts import TensorBranch, TensorEntry
from protoslice.graphs import Weight
from protoslice.sources.ropes import Rope
from protoslice.stores.objects.computed import Computed, Readable
from protoslice.stores.objects.joined import JoinedObject
from protoslice.stores.objects.representation import Representation
from protoslice.stores.objects.stored import StoredObject
from protoslice.stores.paging import PageBudget, ResultPage, first_item
from protoslice.stores.reading.tensors.groups import NamedTensors
from protoslice.stores.reading.tensors.order import TensorOrder, looks_job
from protoslice.stores.reading.tensors.searching import NameSearch, page_job
from protoslice.tensors.conversion import dequantized
from protoslice.tensors.listing import Tensors, chosen_job, entry_of, entry_weight, pattern, single, wanted
from protoslice.tensors.model import Model, Tensor
from protoslice.tensors.omitted import Omitted, refuse
from protoslice.tensors.reading import is_resolved, locate, read, resolve, tells_facts
from protoslice.tensors.references import References
from protoslice.tensors.safetensors_file import PLAIN_LAYOUT, SHARD_BYTES, FileLayout, Safetensors
from protoslice.tensors.statistics import statistics_job, statistics_text

T = TypeVar("T")

_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_FORMS: Final = {
    "npy": ("npy", _BYTES),
    "json": ("json", _JSON),
    "lod": ("lod.json", _JSON),
    "stats": ("stats.json", _JSON),
}
"""File name extension and media type of each form."""

_SUFFIXES: Final = {"/lod": "lod", "/stats": "stats"}
"""Forms that may be asked for behind the name of a tensor."""

_EXTENT_WEIGHT: Final = 32
_TENSOR_WEIGHT: Final = 400
"""Bytes of memory per tensor that was found, about."""
_AT_ONCE: Final = 256
"""Tensors per slice of long work."""
_MOST_REFERENCES: Final = 64 << 20

Etag = Callable[..., str]
Find = Callable[[], Awaitable[Tensors]]
Readables = Callable[[Rope], Sequence[Readable]]


class StoreTensors:
    """Tensors of one store, listed on first use and kept in memory."""

    def __init__(
        self,
        model: Model,
        row: int,
        find: Find,
        results: Results,
        worker: Worker,
        etag: Etag,
        tags: Sequence[str] | None = None,
    ) -> None:
        """`find` lists the tensors of `model`, or those with `tags`; the first caller that needs them waits for it."""
        self._model = model
        self._row = row
        self._find = find
        self._results = results
        self._worker = worker
        self._etag = etag
        self._tags = tags
        self._order = TensorOrder(row, tags, results, worker)

    async def page(
        self,
        *,
        name: str | None,
        dtype: str | None,
        limit: int,
        cursor: str | None,
        search: str | None = None,
        regex: str | None = None,
        prefix: str | None = None,
        sort: str | None = None,
    ) -> ResultPage[TensorEntry]:
        """Return a page of tensors: by `name` (may hold `*`), `dtype`, and a `NameSearch`."""
        means, sought, first = wanted(name, dtype), NameSearch(search, regex, prefix), first_item(cursor)
        found = await self.all()
        if sought.is_any and sort is None:
            return await self._worker.run(lambda: _page(found, name, dtype, limit, first))
        order = await self._order.by(found, sort)
        return await self._worker.finish(page_job(found, order, first, sought, means, PageBudget(limit)))

    async def weights(self, most: int) -> Sequence[Weight]:
        """Return all tensors as what nodes of a graph may use; none of a model with more than `most`."""
        found = await self.all()
        if len(found) > most:
            return ()
        elements, called, listed = await self._order.elements(found), found.key, list[Weight]()

        def add(number: int) -> None:
            listed.append(Weight(*called(number), max(elements[number], 0)))

        await self._worker.finish(looks_job(add, range(len(found))))
        return listed

    async def tree(self, prefix: str, start: int, end: int, limit: int) -> TensorBranch:
        """Return the tensors from place `start` to `end` with `prefix` as a tree of about `limit` nodes."""
        found = await self.all()
        named = NamedTensors(found, await self._order.totals(found))
        return await self._worker.finish(named.tree(prefix, start, end, limit))

    async def one(
        self, name: str, slice_text: str | None, form: str, sample: int | None = None, *, dequantize: bool = False
    ) -> Representation:
        """One tensor, or a slice of it, as `form`: raw bytes, `packed`, `npy`, `json`, `lod` or `stats`.

        Statistics are of about `sample` elements; see `statistics_job`. With `dequantize`, quantized elements and
        those of F16 and BF16 are given as F32.
        """
        found = await self.all()
        called, shown = _named(found, name, form)

        def look() -> Representation | Tensor:
            tensor = single(found, called)
            if shown != "stats" and (is_resolved(tensor) or tells_facts(tensor, shown)):
                return self._represented(tensor, slice_text, shown, dequantize=dequantize)
            # Invalid requests fail before the elements are counted.
            read(tensor, slice_text, "raw" if shown == "stats" else shown, compare=False)
            return tensor

        looked = await self._worker.run(look)
        if isinstance(looked, Representation):
            return looked
        if shown == "stats":
            return await self._summed_up(looked, slice_text, sample)
        tensor = await self._counted(looked)
        return await self._worker.run(lambda: self._represented(tensor, slice_text, shown, dequantize=dequantize))

    async def ready(self, name: str) -> Tensor:
        """The tensor of this name or address, with its elements located, and its varints counted."""
        found = await self.all()
        return await self._counted(await self._worker.run(lambda: single(found, name)))

    async def _counted(self, tensor: Tensor) -> Tensor:
        """The tensor with its elements located, and its varints counted."""
        if is_resolved(tensor):
            return tensor
        key = (self._row, "tensor", self._tags, tensor.address)
        return await self._results.get(key, lambda: self._worker.bulk(lambda: resolve(tensor)))

    async def _summed_up(self, tensor: Tensor, slice_text: str | None, sample: int | None) -> Representation:
        """The statistics of a tensor in JSON, made once for all who wait, and for nobody once they left."""

        async def made() -> tuple[bytes, int]:
            found = await self._worker.finish(statistics_job(await self._counted(tensor), slice_text, sample))
            text = statistics_text(found)
            return text, len(text)

        view = (tensor.address, slice_text, sample)
        text = await self._results.get((self._row, "statistics", self._tags, *view), made, cancellable=True)
        return self._given(tensor, Rope.joined([text]), "stats", self._etag("statistics", *view))

    def file_tag(self, names: Sequence[str], layout: FileLayout) -> str:
        """Entity tag of the file that `safetensors` makes."""
        return self._etag("safetensors", tuple(names), *layout.facts)

    def shard_tag(self, name: str, names: Sequence[str], shard_bytes: int | None, layout: FileLayout) -> str:
        """Entity tag of the file called `name` that `shards` makes."""
        chosen = [tuple(names)] if names else []
        return self._etag("shards", shard_bytes or SHARD_BYTES, name, *chosen, *layout.facts)

    async def safetensors(
        self, names: Sequence[str], *, strict: bool = False, layout: FileLayout = PLAIN_LAYOUT
    ) -> Representation:
        """One safetensors file of all tensors, or of those whose names match one of `names`.

        With `strict`, `Unsupported` if the file leaves any of them out.
        """
        found = await self.all()
        key = (self._row, "safetensors", self._tags, tuple(names), layout)
        made = await self._results.get(key, lambda: self._made(found, names, layout), cancellable=True)
        refuse(made.omitted, strict)
        return made

    async def _made(self, found: Tensors, names: Sequence[str], layout: FileLayout) -> tuple[Representation, int]:
        file = Safetensors(metadata=found.metadata, layout=layout)
        held = await self._fill(file, found, names)
        data = await self._worker.bulk(file.finish)
        name = self._model.root.rpartition("/")[2].rpartition(".")[0] or "model"
        etag = self.file_tag(names, layout)
        made, weight = await self._as_file(data, f"{name}.safetensors", etag, file.omitted)
        return made, weight + held

    async def shards(
        self,
        names: Sequence[str] = (),
        *,
        shard_bytes: int | None = None,
        strict: bool = False,
        layout: FileLayout = PLAIN_LAYOUT,
    ) -> Mapping[str, Representation]:
        """The tensors as the files that clients of Hugging Face look for; see `Safetensors.shards`."""
        found, most = await self.all(), shard_bytes or SHARD_BYTES
        key = (self._row, "shards", self._tags, tuple(names), most, layout)
        # Made to the end, once: clients give up on a head after ten seconds, and ask again.
        made = await self._results.get(key, lambda: self._cut(found, names, most, layout))
        for file in made.values():
            refuse(file.omitted, strict)
        return made

    async def _cut(
        self, found: Tensors, names: Sequence[str], shard_bytes: int, layout: FileLayout
    ) -> tuple[Mapping[str, Representation], int]:
        file = Safetensors(shard_bytes=shard_bytes, metadata=found.metadata, layout=layout)
        held = await self._fill(file, found, names)
        made = dict[str, Representation]()
        for name, data in (await self._worker.bulk(file.shards)).items():
            etag = self.shard_tag(name, names, shard_bytes, layout)
            made[name], weight = await self._as_file(data, name, etag, file.omitted)
            held += weight
        return made, held

    async def _fill(self, file: Safetensors, found: Tensors, names: Sequence[str]) -> int:
        """Add all tensors, or those with these names, to a file; returns the bytes of memory that they hold, about."""
        held = 0
        numbers = await self._worker.finish(chosen_job(found, names)) if names else range(len(found))

        def add(number: int) -> None:
            nonlocal held
            tensor, weight = locate(found[number])
            file.add(tensor)
            held += weight

        await self._worker.finish(looks_job(add, numbers))
        return held

    async def _as_file(self, data: Rope, name: str, etag: str, omitted: Omitted | None) -> tuple[Representation, int]:
        """A safetensors file, and the bytes of memory that it holds, about."""
        weight = await self._worker.bulk(lambda: data.literals + _EXTENT_WEIGHT * data.core.piece_count)
        file = Representation(data.core, self.readable(data), etag, name, kind="safetensors", omitted=omitted)
        return file, weight

    async def references(self, base: str) -> tuple[bytes, Omitted | None]:
        """Kerchunk references in JSON onto URLs that begin with `base`, and tensors without one.

        `LimitExceeded` beyond 64 MiB.
        """
        found = await self.all()
        made = References(
            self._model.files,
            file_url=lambda path: f"{base}/files/{quote(path)}",
            tensor_url=lambda address: f"{base}/tensors/{quote(address, safe='')}",
        )

        await self._worker.finish(looks_job(lambda number: made.add(found[number]), range(len(found))))
        text = bytearray()
        async for piece in self._worker.steps(_pieces(made.text())):
            text += piece
            if len(text) > _MOST_REFERENCES:
                raise LimitExceeded(
                    f"The zarr references would exceed {_MOST_REFERENCES} bytes: list the tensors page by page instead"
                )
        return bytes(text), made.omitted

    async def all(self) -> Tensors:
        """All tensors; the first call finds them."""

        async def made() -> tuple[Tensors, int]:
            found = await self._find()
            return found, _TENSOR_WEIGHT * len(found)

        return await self._results.get((self._row, "tensors", self._tags), made)

    def _represented(self, tensor: Tensor, slice_text: str | None, form: str, *, dequantize: bool) -> Representation:
        reading = read(dequantized(tensor) if dequantize else tensor, slice_text, form)
        etag = self._etag("tensor", tensor.address, slice_text, form, *(["dequantized"] if dequantize else []))
        return self._given(tensor, reading.bytes, form, etag, (reading.dtype.name, reading.shape))

    def _given(
        self, tensor: Tensor, data: Rope, form: str, etag: str, elements: tuple[str, tuple[int, ...]] | None = None
    ) -> Representation:
        ending, media_type = _FORMS.get(form, ("bin", _BYTES))
        return Representation(
            data.core,
            self.readable(data),
            etag,
            f"{_filename(tensor.name)}.{ending}",
            kind="tensor",
            media_type=media_type,
            elements=elements,
        )

    def readable(self, data: Rope) -> Sequence[Readable]:
        """The sources of `data`, as representations read them."""
        return [
            source if isinstance(source, StoredObject | JoinedObject) else Computed(source, self._worker)
            for source in data.sources
        ]


def _named(found: Tensors, name: str, form: str) -> tuple[str, str]:
    """The tensor and the form that `name` means: `w/lod` is `lod` of `w`, unless a tensor is called so."""
    for suffix, shown in _SUFFIXES.items():
        if name.endswith(suffix) and form == "raw" and not found.numbers(name):
            return name.removesuffix(suffix), shown
    return name, form


def _pieces(texts: Iterator[bytes]) -> Iterator[bytes]:
    while some := list(islice(texts, _AT_ONCE)):
        yield b"".join(some)


def _page(found: Tensors, name: str | None, dtype: str | None, limit: int, first: int) -> ResultPage[TensorEntry]:
    """Return a page of the tensors from number `first` on that match `name` and `dtype`; None matches all."""
    fits, means = wanted(name, dtype), pattern(name if name is not None and "*" in name else "*")
    numbers: Sequence[int] = range(len(found)) if name is None or "*" in name else sorted(found.numbers(name))
    entries, room = list[TensorEntry](), PageBudget(limit)
    for number in numbers[bisect_left(numbers, first) :]:
        if means(found.key(number)[0]) and fits(tensor := found[number]):
            entry = entry_of(tensor)
            if not room.takes(entry_weight(entry)):
                return ResultPage(entries, str(number))
            entries.append(entry)
    return ResultPage(entries, None)


def _filename(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-100:].strip("_") or "tensor"
