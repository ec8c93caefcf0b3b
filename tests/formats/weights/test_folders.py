"""Folders of safetensors files: which files are the model, and which are other variants of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save, save_file
from tests.support.stores import open_stores, upload

from protoslice import open_model
from protoslice.concurrency import finish
from protoslice.formats.report import report_job
from protoslice.storage import MemoryStorage
from protoslice.tensors.model import MissingFile

NAME = "diffusion_pytorch_model"
BOTH = (f"{NAME}-00001-of-00002", f"{NAME}-00002-of-00002")
NEW = (f"{NAME}.fp16-00001-of-00002", f"{NAME}.fp16-00002-of-00002")
OLD = tuple(f"{each}.fp16" for each in BOTH)
OTHER = tuple(f"{NAME}.bf16-0000{number}-of-00003" for number in (1, 2, 3))
ALL = {
    "a component in one file": ([NAME], [NAME]),
    "shards": (BOTH, BOTH),
    "a variant": ([f"{NAME}.fp16"], [f"{NAME}.fp16"]),
    "shards of a variant": (NEW, NEW),
    "shards of a variant, with the older names": (OLD, OLD),
    "two variants": ([*OTHER, *NEW], OTHER),
    "a variant and the model": ([f"{NAME}.fp16", NAME], [NAME]),
    "shards of a variant and the model": ([*NEW, NAME], [NAME]),
    "shards of a variant and of the model": ([*NEW, *OLD, *BOTH], BOTH),
    "shards and a whole file": ([*BOTH, NAME], [NAME]),
    "shards left from a larger count": ([f"{NAME}-00003-of-00009", *BOTH], BOTH),
    "shards left from a smaller count": ([f"{NAME}.bf16-00002-of-00002", *OTHER], OTHER),
    "files with several names": (["one", "two", "one.fp16"], ["one", "two"]),
}


def written(folder: Path, names: Iterable[str]) -> None:
    """Write for each name a file with one tensor, which has that name; files of a variant are larger."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        save_file({name: np.zeros(9 if "." in name else 1)}, folder / f"{name}.safetensors")


@pytest.mark.parametrize("case", ALL)
def test_a_component_is_one_variant_with_all_its_shards(case: str, tmp_path: Path) -> None:
    names, expected = ALL[case]
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "X", "unet": ["diffusers", "U"]}))
    for order in (names, [*names][::-1]):
        written(tmp_path / "unet", order)
    with open_model(tmp_path) as model:
        assert sorted(each.name for each in model.matching()) == sorted(f"unet/{name}" for name in expected)
        assert finish(report_job(model.model)).missing == ()


def test_a_shard_that_a_component_lacks_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": "X", "unet": ["diffusers", "U"]}))
    written(tmp_path / "unet", NEW[:1])
    with open_model(tmp_path) as model:
        assert finish(report_job(model.model)).missing == (f"unet/{NEW[1]}.safetensors",)
        with pytest.raises(MissingFile, match=r"fp16-00002-of-00002\.safetensors"):
            len(model.tensors)


ROOTS = {
    "a variant": (["model.fp16", "model"], "model"),
    "shards of a variant": (["model.fp16-00001-of-00002", "model.fp16-00002-of-00002", "model"], "model"),
    "variants of shards": (
        [f"model{each}-0000{number}-of-00002" for each in (".fp16", "") for number in (1, 2)],
        "model-00001-of-00002",
    ),
    "variants of shards, with the older names": (
        [f"model-0000{number}-of-00002{each}" for each in (".fp16", "") for number in (1, 2)],
        "model-00001-of-00002",
    ),
    "shards of a variant alone": (
        ["model-00001-of-00002.fp16", "model-00002-of-00002.fp16"],
        "model-00001-of-00002.fp16",
    ),
    "a version is no variant": (["small", "model-v1.5"], "model-v1.5"),
    "a variant of a file elsewhere": (["model.fp16", "more/model"], "model.fp16"),
}


@pytest.mark.parametrize("case", ROOTS)
def test_the_file_without_a_variant_is_the_root(case: str, tmp_path: Path) -> None:
    names, expected = ROOTS[case]
    for name in names:
        written((tmp_path / name).parent, [])
        save_file({name: np.zeros(9 if "." in name else 1)}, tmp_path / f"{name}.safetensors")
    with open_model(tmp_path) as model:
        assert model.model.root == f"{expected}.safetensors"
        listed = sorted(each.name for each in model.matching())
    shards = [name for name in names if name.replace("2-of", "1-of") == expected]
    assert listed == sorted(shards or [expected])


@pytest.mark.parametrize("case", ROOTS)
def test_a_service_chooses_the_same_root(case: str) -> None:
    names, expected = ROOTS[case]

    async def work() -> str | None:
        stores = await open_stores(MemoryStorage())
        files = {f"{name}.safetensors": save({name: np.zeros(9 if "." in name else 1)}) for name in names}
        return (await upload(stores, files)).store.root

    assert asyncio.run(work()) == f"{expected}.safetensors"
