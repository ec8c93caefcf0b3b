"""The tensors of an opened store: listings, single tensors, safetensors files and kerchunk references.

If a view gets `tags`, it contains only tensors of the meta graph that has exactly these tags.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final
from urllib.parse import quote

from protoslice.catalog.paging import PageBudget, ResultPage, first_item
from protoslice.errors import LimitExceeded
from protoslice.facts import TensorBranch, TensorEntry
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.formats.tensorflow import tensors_with_tags
from protoslice.graphs import Weight
from protoslice.serving.joined import JoinedObject
from protoslice.serving.opened import OpenStore
from protoslice.serving.representation import Representation
from protoslice.serving.stored import Computed, Readable, StoredObject
from protoslice.sources.ropes import Rope
from protoslice.tensors.listing import Tensors, chosen_job, entry_of, pattern, single, wanted
from protoslice.tensors.model import Tensor
from protoslice.tensors.omitted import Omitted, refuse
from protoslice.tensors.reading import dequantized, is_resolved, locate, read, resolve, tells_facts
from protoslice.tensors.references import References
from protoslice.tensors.safetensors_file import PLAIN_LAYOUT, SHARD_BYTES, FileLayout, Safetensors
from protoslice.tensors.statistics import statistics_job, statistics_text
from protoslice.versions import READERS
from protoslice.views.tensor_names import (
    NamedTensors,
    NameSearch,
    elements_of,
    entry_bytes,
    looks_job,
    page_job,
    sorted_by,
    totals,
)

_BYTES: Final = "application/octet-stream"
_JSON: Final = "application/json"
_FORMS: Final = {
    "npy": ("npy", _BYTES),
    "json": ("json", _JSON),
    "lod": ("lod.json", _JSON),
    "stats": ("stats.json", _JSON),
}
"""The file name extension and media type of each form."""

_SUFFIXES: Final = {"/lod": "lod", "/stats": "stats"}
"""The forms that a request may append to the name of a tensor."""

_EXTENT_WEIGHT: Final = 32
_TENSOR_WEIGHT: Final = 400
"""The approximate memory per tensor in bytes."""
_AT_ONCE: Final = 256
"""The number of tensors per slice of long work."""
_MOST_REFERENCES: Final = 64 << 20

Tags = Sequence[str] | None


async def listed(opened: OpenStore, tags: Tags = None) -> Tensors:
    """Return all tensors; the first call finds them.

    Raise `NoRoot` if the store has no root and no format recognizes its files.
    """
    tags = _sorted(tags)

    async def made() -> tuple[Tensors, int]:
        if tags is None:
            found = await opened.reads.with_saved_reads(lambda: _found(opened))
        else:
            untagged = await listed(opened)
            found = await opened.worker.run_long(lambda: tensors_with_tags(opened.model, untagged, tags))
        return found, _TENSOR_WEIGHT * len(found)

    return await opened.results.get((opened.row, "tensors", tags), made, cancellable=True)


def _found(opened: OpenStore) -> Tensors:
    if not opened.model.root and not formats_of(opened.model):
        raise opened.no_root()
    found = tensors_of(opened.model)
    if opened.reads.are_remote and len(found):
        _ = found[0].use  # this reads the graph, so that the read is saved too
    return found


async def page(  # noqa: PLR0913 - each is a parameter of the query
    opened: OpenStore,
    *,
    name: str | None,
    dtype: str | None,
    limit: int,
    cursor: str | None,
    search: str | None = None,
    regex: str | None = None,
    prefix: str | None = None,
    sort: str | None = None,
    tags: Tags = None,
) -> ResultPage[TensorEntry]:
    """Return a page of the tensors that match `name` (which may contain `*`), `dtype` and a `NameSearch`."""
    means, sought, first = wanted(name, dtype), NameSearch(search, regex, prefix), first_item(cursor)
    found = await listed(opened, tags)
    if sought.is_any and sort is None:
        return await opened.worker.run(lambda: _page(found, name, dtype, limit, first))
    order = await sorted_by(opened, found, sort, _sorted(tags))
    return await opened.worker.finish(page_job(found, order, first, sought, means, PageBudget(limit)))


async def weights(opened: OpenStore, most: int) -> Sequence[Weight]:
    """Return all tensors in the form that graphs need, or no tensors for a model with more than `most` tensors."""
    found = await listed(opened)
    if len(found) > most:
        return ()
    elements, called, weighed = await elements_of(opened, found), found.key, list[Weight]()

    def add(number: int) -> None:
        weighed.append(Weight(*called(number), max(elements[number], 0)))

    await opened.worker.finish(looks_job(add, range(len(found))))
    return weighed


async def tree(opened: OpenStore, prefix: str, start: int, end: int, limit: int) -> TensorBranch:
    """Return a tree of about `limit` nodes for the tensors whose names begin with `prefix`.

    Only tensors from place `start` to `end` in the order of names are included.
    """
    found = await listed(opened)
    named = NamedTensors(found, await totals(opened, found))
    return await opened.worker.finish(named.tree(prefix, start, end, limit))


async def one(
    opened: OpenStore,
    name: str,
    slice_text: str | None,
    form: str,
    sample: int | None = None,
    *,
    dequantize: bool = False,
    tags: Tags = None,
) -> Representation:
    """Return one tensor or a slice of it in a form: `raw` bytes, `packed`, `npy`, `json`, `lod` or `stats`.

    Statistics cover about `sample` elements; see `statistics_job`. If `dequantize` is set, quantized, F16 and BF16
    elements are returned as F32.
    """
    found = await listed(opened, tags)
    called, shown = _named(found, name, form)

    def given(tensor: Tensor) -> Representation:
        reading = read(dequantized(tensor) if dequantize else tensor, slice_text, shown)
        etag = _etag(
            opened, tags, "tensor", tensor.address, slice_text, shown, *(["dequantized"] if dequantize else [])
        )
        return _given(opened, tensor, reading.bytes, shown, etag, (reading.dtype.name, reading.shape))

    def look() -> Representation | Tensor:
        tensor = single(found, called)
        if shown != "stats" and (is_resolved(tensor) or tells_facts(tensor, shown)):
            return given(tensor)
        # An invalid request must fail before the elements are counted.
        read(tensor, slice_text, "raw" if shown == "stats" else shown, compare=False)
        return tensor

    looked = await opened.worker.run(look)
    if isinstance(looked, Representation):
        return looked
    if shown == "stats":
        return await _summed_up(opened, looked, slice_text, sample, tags)
    tensor = await _counted(opened, looked, tags)
    return await opened.worker.run(lambda: given(tensor))


async def counted(opened: OpenStore, name: str) -> Tensor:
    """Return the tensor with this name or address; its elements are located and its varints are counted."""
    found = await listed(opened)
    return await _counted(opened, await opened.worker.run(lambda: single(found, name)))


async def _counted(opened: OpenStore, tensor: Tensor, tags: Tags = None) -> Tensor:
    if is_resolved(tensor):
        return tensor
    key = (opened.row, "tensor", _sorted(tags), tensor.address)
    return await opened.results.get(key, lambda: opened.worker.run_long(lambda: resolve(tensor)))


async def _summed_up(
    opened: OpenStore, tensor: Tensor, slice_text: str | None, sample: int | None, tags: Tags
) -> Representation:
    """Return a tensor's statistics as JSON; all callers share the work, which is cancelled when all have left."""

    async def made() -> tuple[bytes, int]:
        counted = await _counted(opened, tensor, tags)
        text = statistics_text(await opened.worker.finish(statistics_job(counted, slice_text, sample)))
        return text, len(text)

    view = (tensor.address, slice_text, sample)
    text = await opened.results.get((opened.row, "statistics", _sorted(tags), *view), made, cancellable=True)
    return _given(opened, tensor, Rope.joined([text]), "stats", _etag(opened, tags, "statistics", *view))


def file_tag(opened: OpenStore, names: Sequence[str], layout: FileLayout, tags: Tags = None) -> str:
    """Return the entity tag of the file that `safetensors` makes."""
    return _etag(opened, tags, "safetensors", tuple(names), *layout.facts)


def shard_tag(
    opened: OpenStore,
    name: str,
    names: Sequence[str],
    shard_bytes: int | None,
    layout: FileLayout,
    tags: Tags = None,
) -> str:
    """Return the entity tag of the file `name` that `shards` makes."""
    chosen = [tuple(names)] if names else []
    return _etag(opened, tags, "shards", shard_bytes or SHARD_BYTES, name, *chosen, *layout.facts)


async def safetensors(
    opened: OpenStore,
    names: Sequence[str],
    *,
    strict: bool = False,
    layout: FileLayout = PLAIN_LAYOUT,
    tags: Tags = None,
) -> Representation:
    """Return a safetensors file of all tensors, or of the tensors whose names match one of `names`.

    If `strict` is set, raise `Unsupported` if the file leaves out any tensor.
    """
    found = await listed(opened, tags)

    async def made() -> tuple[Representation, int]:
        file = Safetensors(metadata=found.metadata, layout=layout)
        held = await _fill(opened, file, found, names)
        data = await opened.worker.run_long(file.finish)
        name = opened.model.root.rpartition("/")[2].rpartition(".")[0] or "model"
        etag = file_tag(opened, names, layout, tags)
        view, weight = await _as_file(opened, data, f"{name}.safetensors", etag, file.omitted)
        return view, weight + held

    key = (opened.row, "safetensors", _sorted(tags), tuple(names), layout)
    view = await opened.results.get(key, made, cancellable=True)
    refuse(view.omitted, strict)
    return view


async def shards(
    opened: OpenStore,
    names: Sequence[str] = (),
    *,
    shard_bytes: int | None = None,
    strict: bool = False,
    layout: FileLayout = PLAIN_LAYOUT,
    tags: Tags = None,
) -> Mapping[str, Representation]:
    """Return the tensors as files for Hugging Face clients; see `Safetensors.shards`."""
    found, most = await listed(opened, tags), shard_bytes or SHARD_BYTES

    async def made() -> tuple[Mapping[str, Representation], int]:
        file = Safetensors(shard_bytes=most, metadata=found.metadata, layout=layout)
        held = await _fill(opened, file, found, names)
        views = dict[str, Representation]()
        for name, data in (await opened.worker.run_long(file.shards)).items():
            etag = shard_tag(opened, name, names, most, layout, tags)
            views[name], weight = await _as_file(opened, data, name, etag, file.omitted)
            held += weight
        return views, held

    # This work cannot be cancelled and is done once: clients abandon a HEAD request after ten seconds and repeat it.
    views = await opened.results.get((opened.row, "shards", _sorted(tags), tuple(names), most, layout), made)
    for view in views.values():
        refuse(view.omitted, strict)
    return views


async def _fill(opened: OpenStore, file: Safetensors, found: Tensors, names: Sequence[str]) -> int:
    """Add all tensors, or only those that match `names`, to `file`; return their approximate memory in bytes."""
    held = 0
    numbers = await opened.worker.finish(chosen_job(found, names)) if names else range(len(found))

    def add(number: int) -> None:
        nonlocal held
        tensor, weight = locate(found[number])
        file.add(tensor)
        held += weight

    await opened.worker.finish(looks_job(add, numbers))
    return held


async def _as_file(
    opened: OpenStore, data: Rope, name: str, etag: str, omitted: Omitted | None
) -> tuple[Representation, int]:
    """Return a safetensors file and its approximate memory in bytes."""
    weight = await opened.worker.run_long(lambda: data.literals + _EXTENT_WEIGHT * data.core.piece_count)
    file = Representation(data.core, readable(opened, data), etag, name, kind="safetensors", omitted=omitted)
    return file, weight


async def references(opened: OpenStore, base: str) -> tuple[bytes, Omitted | None]:
    """Return kerchunk references as JSON, and the tensors without a reference; all URLs begin with `base`.

    Raise `LimitExceeded` if the JSON exceeds 64 MiB.
    """
    found = await listed(opened)
    made = References(
        opened.model.files,
        file_url=lambda path: f"{base}/files/{quote(path)}",
        tensor_url=lambda address: f"{base}/tensors/{quote(address, safe='')}",
    )

    await opened.worker.finish(looks_job(lambda number: made.add(found[number]), range(len(found))))
    text = bytearray()
    async for piece in opened.worker.iterate(_pieces(made.text())):
        text += piece
        if len(text) > _MOST_REFERENCES:
            raise LimitExceeded(
                f"The zarr references would exceed {_MOST_REFERENCES} bytes: list the tensors page by page instead"
            )
    return bytes(text), made.omitted


def readable(opened: OpenStore, data: Rope) -> Sequence[Readable]:
    """Return the sources of `data` in the form that representations need."""
    return [
        source if isinstance(source, StoredObject | JoinedObject) else Computed(source, opened.worker)
        for source in data.sources
    ]


def _given(
    opened: OpenStore,
    tensor: Tensor,
    data: Rope,
    form: str,
    etag: str,
    elements: tuple[str, tuple[int, ...]] | None = None,
) -> Representation:
    ending, media_type = _FORMS.get(form, ("bin", _BYTES))
    return Representation(
        data.core,
        readable(opened, data),
        etag,
        f"{_filename(tensor.name)}.{ending}",
        kind="tensor",
        media_type=media_type,
        elements=elements,
    )


def _sorted(tags: Tags) -> tuple[str, ...] | None:
    return None if tags is None else tuple(sorted(set(tags)))


def _etag(opened: OpenStore, tags: Tags, *view: object) -> str:
    return opened.etag(READERS, *(() if tags is None else ("tags", _sorted(tags))), *view)


def _named(found: Tensors, name: str, form: str) -> tuple[str, str]:
    """Split `name` into tensor name and form: `w/lod` is the form `lod` of `w`, unless a tensor is called `w/lod`."""
    for suffix, shown in _SUFFIXES.items():
        if name.endswith(suffix) and form == "raw" and not found.numbers(name):
            return name.removesuffix(suffix), shown
    return name, form


def _pieces(texts: Iterator[bytes]) -> Iterator[bytes]:
    while some := list(islice(texts, _AT_ONCE)):
        yield b"".join(some)


def _page(found: Tensors, name: str | None, dtype: str | None, limit: int, first: int) -> ResultPage[TensorEntry]:
    """Return a page of tensors from number `first` on that match `name` and `dtype`, each of which may be None."""
    fits, means = wanted(name, dtype), pattern(name if name is not None and "*" in name else "*")
    numbers: Sequence[int] = range(len(found)) if name is None or "*" in name else sorted(found.numbers(name))
    entries, room = list[TensorEntry](), PageBudget(limit)
    for number in numbers[bisect_left(numbers, first) :]:
        if means(found.key(number)[0]) and fits(tensor := found[number]):
            entry = entry_of(tensor)
            if not room.takes(entry_bytes(entry)):
                return ResultPage(entries, str(number))
            entries.append(entry)
    return ResultPage(entries, None)


def _filename(name: str) -> str:
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[-100:].strip("_") or "tensor"
