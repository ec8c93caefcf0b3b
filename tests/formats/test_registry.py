"""Formats of other packages, and the choice of a root among files."""

from __future__ import annotations

import json
import random
import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from protoslice import open_model, plugins
from protoslice.errors import CorruptModel, InvalidInput, Unsupported
from protoslice.formats import registry
from protoslice.formats.roots import Candidate, rank, rank_lazily
from protoslice.plugins import PluginWarning

FORMER = '''
import json

from protoslice.errors import CorruptModel
from protoslice.formats.tensors.dtypes import DTYPES
from protoslice.formats.model import Bytes, Listed, Model, Stored, Tensor, Tensors
from protoslice.formats.tensors.shapes import checked


class Columns:
    """Models with a JSON root, which gives the number of floats in each of the other files."""

    name = "columns"

    def wants(self, model: Model) -> bool:
        return model.root.endswith(".columns.json")

    def tensors(self, model: Model) -> Tensors:
        root = model.files[model.root]
        if root.size > 1 << 20:
            raise CorruptModel(f"the list of columns has {root.size} bytes: at most 1 MiB is allowed")
        columns = json.loads(root.read(0, root.size))
        return Listed([self._tensor(model, name, int(count)) for name, count in columns.items()])

    def _tensor(self, model: Model, name: str, count: int) -> Tensor:
        data = checked(Stored(Bytes.of(model.beside(name))), DTYPES["F32"], (count,))
        return Tensor(name, f"column:{name}", DTYPES["F32"], (count,), "column", name, data)
'''
"""The page's example from before `protoslice.tensors`; it works until 0.3."""

PAGE = Path(__file__).parents[2] / "docs/how-to/contribute/format.md"


@pytest.fixture(params=["now", "0.1"])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """Return the page's class, and the class of the page's first release, found like an installed package's class."""
    names: dict[str, Any] = {}
    page = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[-1]
    exec(page if request.param == "now" else FORMER, names)
    found: type[Any] = names["Columns"]

    class Point(EntryPoint):
        def load(self) -> type[Any]:
            return found

    def points(*, group: str) -> list[EntryPoint]:
        return [Point("columns", "my_package:Columns", group)] if group == "protoslice.formats" else []

    monkeypatch.setattr(plugins, "entry_points", points)
    _forget()
    return found


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    yield
    _forget()


def _forget() -> None:
    registry.FORMATS.forget()
    registry._others.cache_clear()


def _model(folder: Path, rows: int) -> Path:
    (folder / "a").write_bytes(np.arange(12, dtype="<f4").tobytes())
    (folder / "m.columns.json").write_text(json.dumps({"a": rows}))
    return folder / "m.columns.json"


def test_the_format_of_the_page_works(columns: type[Any], tmp_path: Path) -> None:
    with open_model(_model(tmp_path, 12)) as model:
        assert [tensor.name for tensor in model.matching()] == ["a"]
        assert model.read("column:a", "3:9:2").read() == np.arange(3, 9, 2, dtype="<f4").tobytes()


def test_and_refuses_what_does_not_fit(columns: type[Any], tmp_path: Path) -> None:
    with open_model(_model(tmp_path, 13)) as model, pytest.raises(CorruptModel, match="52 bytes"):
        len(model.tensors)


def test_without_it_nobody_knows_such_a_model(tmp_path: Path) -> None:
    with open_model(_model(tmp_path, 12)) as model, pytest.raises(Unsupported, match=r"onnx.*paddle"):
        len(model.tensors)


def test_a_format_is_registered_and_taken_back(columns: type[Any], tmp_path: Path) -> None:
    class More(columns):  # type: ignore[misc]
        name = "more"

        def matches(self, model: Any) -> bool:
            return bool(model.root.endswith(".more"))

        wants = matches

    (tmp_path / "a").write_bytes(bytes(48))
    (tmp_path / "m.more").write_text(json.dumps({"a": 12}))
    registry.register("more", More)
    with open_model(tmp_path, "m.more") as model:
        assert [tensor.name for tensor in model.matching()] == ["a"]
    with pytest.raises(InvalidInput, match="The format for 'onnx' is already registered by protoslice"):
        registry.register("onnx", More)
    registry.unregister("more")
    with open_model(tmp_path, "m.more") as model, pytest.raises(Unsupported):
        len(model.tensors)


@pytest.mark.parametrize(
    ("factory", "output"), [(object, "lacks name, tensors, matches"), (dict.fromkeys, "does not load")]
)
def test_what_is_no_format(factory: Any, output: str) -> None:
    with pytest.raises(Unsupported, match=output):
        registry.register("mine", factory)


def test_a_broken_format_of_a_package_is_passed_over_and_told(
    columns: type[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(columns, next(name for name in ("matches", "wants") if hasattr(columns, name)))
    warned = pytest.warns(
        PluginWarning, match="'columns' of package my_package lacks matches; models are read without it"
    )
    with (
        warned,
        open_model(_model(tmp_path, 12)) as model,
        pytest.raises(Unsupported, match="are not supported"),
    ):
        len(model.tensors)


# Roots among files: examining a few files gives the same choice as examining all.

NAMES = (
    "saved_model.pb",
    "saved_model.pbtxt",
    "__model__",
    "m.onnx",
    "m.cpb",
    "x.index",
    "named.mlmodel",
    "a",
    "b",
    "c",
    "m.safetensors",
    "m.fp16.safetensors",
    "m-00001-of-00002.safetensors",
)
KINDS = ("proto", "riegeli", "text", "json", "table", "paddle", "refused", "unknown", "tfrecord", "safetensors")
MANIFESTS = {
    "Manifest.json": json.dumps(
        {"rootModelIdentifier": "r", "itemInfoEntries": {"r": {"path": "named.mlmodel"}}}
    ).encode()
}


@pytest.mark.parametrize("seed", range(200))
def test_files_come_in_the_same_order(seed: int) -> None:
    chance = random.Random(seed)
    files = {
        path: Candidate(path, chance.choice(KINDS), chance.randrange(4))
        for path in {chance.choice(("", "d/", "e/")) + chance.choice(NAMES) for _ in range(chance.randrange(12))}
    }
    manifests = MANIFESTS if chance.random() < 0.3 else {}
    assert list(rank_lazily(files, files.__getitem__, manifests)) == rank(files.values(), manifests)


def test_no_file_is_looked_at_whose_name_is_less_likely() -> None:
    looked = []

    def look(path: str) -> Candidate:
        looked.append(path)
        return Candidate(path, "refused" if path == "__model__" else "proto", 1)

    paths = ["assets/vocabulary.txt", "m.onnx", "__model__", "weights.bin"]
    assert next(rank_lazily(paths, look, {})).path == "m.onnx"
    assert looked == ["__model__", "m.onnx"]
