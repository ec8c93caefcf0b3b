"""Models in safetensors files: one, shards with or without an index, and pipelines of diffusers."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from protoslice.errors import CorruptModel, LimitExceeded
from protoslice.formats.model import Model, Tensors
from protoslice.formats.tensors.locations import beside
from protoslice.formats.weights.files import ENDING, joined, shard_facts, shards_of
from protoslice.formats.weights.header import SafetensorsFile
from protoslice.schema.detection.weights import INDEX_ENDING, PIPELINE, SAFETENSORS
from protoslice.sources.source import RangeSource

_LARGEST_INDEX: Final = 64 << 20
_LARGEST_PIPELINE: Final = 1 << 20
_MOST_FILES: Final = 4096


class SafetensorsFormat:
    """Safetensors files."""

    name = "safetensors"

    def wants(self, model: Model) -> bool:
        """True when the root is a safetensors file, an index of shards, or the index of a pipeline."""
        return model.proto is None and model.type == SAFETENSORS and model.root in model.files

    def tensors(self, model: Model) -> Tensors:
        """All tensors: of a file by its header, of a pipeline below the names of its folders."""
        if posixpath.basename(model.root) == PIPELINE:
            return _of_pipeline(model)
        if model.root.endswith(INDEX_ENDING):
            return _of_index(model)
        return _joined({path: SafetensorsFile(model.beside(path), path) for path in shards_of(model.root)})


def _of_index(model: Model) -> Tensors:
    """The tensors of all shards that an index names; Faults for those that it places where they are not."""
    declared = index_of(model.beside(model.root), model.root)
    paths = sorted({beside(model.root, each) for each in set(declared.values())})
    if len(paths) > _MOST_FILES:
        raise LimitExceeded(f"The index names {len(paths)} files, but a model may have at most {_MOST_FILES}")
    files = {path: SafetensorsFile(model.files[path], path) for path in paths if path in model.files}
    found = {part.name(number) for part in files.values() for number in range(len(part))}
    missing = {name: beside(model.root, file) for name, file in declared.items() if name not in found}
    return _joined(files, missing)


def index_of(source: RangeSource, path: str) -> Mapping[str, str]:
    """The file of each tensor by name."""
    found = _json(source, path, _LARGEST_INDEX).get("weight_map")
    if not isinstance(found, dict) or not all(isinstance(file, str) for file in found.values()):
        raise CorruptModel("The index needs a weight_map with the file of each tensor", path=path)
    return found


def _of_pipeline(model: Model) -> Tensors:
    """The tensors of all components of a pipeline, `unet/conv_in.weight`; each is in the folder that has its name."""
    folders, files = dict[str, list[str]](), dict[str, SafetensorsFile]()
    for path in model.files:
        if path.endswith(ENDING):
            folders.setdefault(posixpath.dirname(path), []).append(path)
    folder = posixpath.dirname(model.root)
    names = [name for name, what in _json(model.beside(model.root), model.root, _LARGEST_PIPELINE).items() if what]
    for name in names:
        for path in _of_one_variant(folders.get(posixpath.join(folder, name), ())):
            files[path] = SafetensorsFile(model.beside(path), path, f"{name}/")
            if len(files) > _MOST_FILES:
                raise LimitExceeded(f"A pipeline may have at most {_MOST_FILES} files")
    return _joined(files) if files else Tensors.of(())


def _joined(files: Mapping[str, SafetensorsFile], missing: Mapping[str, str] | None = None) -> Tensors:
    """The tensors of all files, with their metadata but for keys that they disagree about."""
    metadata, unequal = dict[str, str](), set[str]()
    for file in files.values():
        unequal.update(key for key, text in file.metadata.items() if metadata.setdefault(key, text) != text)
    return joined(files, missing, {key: text for key, text in metadata.items() if key not in unequal})


def _of_one_variant(paths: Iterable[str]) -> Iterator[str]:
    """The files that hold the model without a variant such as `model.fp16`, or the first variant if there is no other.

    `paths` are those of all variants; shards that are missing come too.
    """
    variants = dict[str, dict[str, Counter[str]]]()
    for path in paths:
        stem, first, _ = shard_facts(path)
        name, _, variant = posixpath.basename(stem).partition(".")
        variants.setdefault(variant, {}).setdefault(name, Counter())[first] += 1

    def rank(shards: Counter[str], first: str) -> tuple[bool, int, str]:
        count = shard_facts(first)[2]
        return shards[first] < count, count, first

    for _, shards in sorted(variants[min(variants)].items()) if variants else ():
        # A file may be there as shards of several numbers: take the fewest of which none is missing.
        yield from shards_of(min(shards, key=partial(rank, shards)))


def _json(source: RangeSource, path: str, most: int) -> dict[str, Any]:
    if source.size > most:
        raise LimitExceeded(f"{path} may have at most {most} bytes, but it has {source.size}", path=path)
    try:
        found = json.loads(source.read(0, source.size))
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{path} is not valid JSON", path=path) from error
    if not isinstance(found, dict):
        raise CorruptModel(f"{path} is not a JSON object", path=path)
    return found
