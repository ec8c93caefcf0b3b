"""Parameter files of Paddle by themselves: tensors by their heads, names by a list beside them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.golden import MODELS, folder
from tests.support.paddle import TYPES, Parameter, blob, combined, filled, in_memory, json_program, program
from tests.support.tensors import content

from protoslice import open_model
from protoslice.detection import detect
from protoslice.errors import CorruptModel, InvalidInput, LimitExceeded, NotFound
from protoslice.formats import paddle_files
from protoslice.formats.registry import formats_of, tensors_of
from protoslice.library.models import root_in
from protoslice.sources.files import Folder
from protoslice.tensors.dtypes import DTYPES
from protoslice.tensors.listing import Tensors, row
from protoslice.tensors.model import Tensor, Unreadable
from protoslice.tensors.reading import read

Files = dict[str, bytes]


PARAMETERS = st.lists(
    st.builds(
        filled,
        st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=5),
        st.sampled_from(sorted(TYPES)),
        st.lists(st.integers(0, 4), max_size=3).map(tuple),
        levels=st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), max_size=2).map(tuple),
    ),
    min_size=1,
    max_size=9,
    unique_by=lambda parameter: parameter.name,
)
THREE = [filled("a"), filled("b", "I64", (4,), levels=((0, 2, 4),)), filled("c", "U8", (5,))]


def tensors(files: Files) -> Tensors:
    """The tensors of the model that `files` are."""
    return tensors_of(in_memory(files))


def names(found: Tensors) -> list[str]:
    return [found[number].name for number in range(len(found))]


@settings(max_examples=60)
@given(PARAMETERS, st.booleans())
def test_a_file_has_as_many_tensors_as_it_holds(parameters: list[Parameter], named: bool) -> None:
    ordered = sorted(parameters, key=lambda parameter: parameter.name)
    listed = "".join(f"{each.name}\n" for each in ordered).encode()
    data = combined(parameters)
    assert detect(data, "upload", len(data)).kind == "paddle"
    found = tensors({"m.pdiparams": data} | ({"m.pdiparams.names": listed} if named else {}))
    assert len(found) == len(parameters)
    for number, parameter in enumerate(ordered):
        tensor = found[number]
        assert (tensor.dtype, tensor.shape) == (DTYPES[parameter.dtype], parameter.shape)
        assert content(read(tensor).bytes) == parameter.data
        assert tensor.address == f"path:tensor[{number}]"
        assert tensor.name == (parameter.name if named else f"tensor[{number}]")
        assert list(found.numbers(tensor.name)) == list(found.numbers(tensor.address)) == [number]


def test_a_tensor_alone_in_its_file_is_called_like_it() -> None:
    assert names(tensors({"sub/fc_0.w_0": blob(filled("fc_0.w_0"))})) == ["fc_0.w_0"]
    assert names(tensors({"m.pdiparams": blob(filled("a"))})) == ["tensor[0]"]
    assert names(tensors({"__params__": blob(filled("a"))})) == ["tensor[0]"]


def test_selected_rows_alone() -> None:
    data = (MODELS / "paddle_dtypes_separate" / "selected_rows.bin").read_bytes()
    found = tensors({"selected_rows.bin": data})[0]
    assert (found.name, found.shape, content(read(found).bytes)) == ("selected_rows.bin", (2, 3), data[50:74])
    with pytest.raises(CorruptModel, match="bytes follow the last tensor"):
        tensors({"selected_rows.bin": data + data})


@pytest.mark.parametrize("case", ["paddle_combined", "paddle_dtypes_combined", "paddle_pir_json"])
def test_a_file_of_paddles_own_without_its_program(case: str, tmp_path: Path) -> None:
    (file,) = folder(case).glob("*.pdiparams")
    (tmp_path / file.name).write_bytes(file.read_bytes())
    (root,) = (
        path for path in folder(case).iterdir() if path.suffix in {".pdmodel", ".json"} and path.stem == file.stem
    )
    with open_model(tmp_path) as alone, open_model(folder(case), root.name) as whole:
        assert alone.model.root == file.name
        assert [(each.dtype, each.shape, content(read(each).bytes)) for each in alone.matching()] == [
            (each.dtype, each.shape, content(read(each).bytes)) for each in whole.matching()
        ]


@pytest.mark.parametrize("name", ["m.pdmodel", "m.json", "__model__"])
def test_beside_a_program_the_program_is_the_root(name: str, tmp_path: Path) -> None:
    parameters = [filled("a", shape=(1000,)), filled("b")]
    (tmp_path / name).write_bytes(json_program(parameters) if name.endswith("json") else program(parameters))
    (tmp_path / "m.pdiparams").write_bytes(combined(parameters))
    (tmp_path / "a").write_bytes(blob(parameters[0]))
    assert root_in(Folder(tmp_path)) == name


def test_names_are_as_many_as_tensors() -> None:
    for text, offset in ((b"a\nb\n", 0), (b"a\nb\nc\n\n", 0), (b"a\n\xff\nc\n", 2)):
        with pytest.raises(CorruptModel) as caught:
            tensors({"m.pdiparams": combined(THREE), "m.pdiparams.names": text})
        assert (caught.value.path, caught.value.offset) == ("m.pdiparams.names", offset)
    assert names(tensors({"m.pdiparams": combined(THREE), "m.pdiparams.names": b"x\r\ny z\r\n\r\n"})) == [
        "x",
        "y z",
        "",
    ]


def test_no_more_tensors_than_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paddle_files, "_MOST", 3)
    assert len(tensors({"m.pdiparams": combined(THREE)})) == 3
    with pytest.raises(LimitExceeded, match="more than 3 tensors"):
        tensors({"m.pdiparams": combined([*THREE, filled("d")])})
    monkeypatch.setattr(paddle_files, "_MOST_NAMES", 3)
    with pytest.raises(LimitExceeded, match="at most 3 bytes, but this one has 5"):
        tensors({"m.pdiparams": combined(THREE), "m.pdiparams.names": b"a\nb\nc"})


def test_what_is_no_parameter_file_is_not_taken_for_one() -> None:
    good = combined(THREE)
    assert detect(good, None, len(good)).kind == "paddle"
    for data in (
        bytes(10_000),
        good[:21],
        b"\1" + good[1:],
        good[:12] + b"\1" + good[13:],
        good[:20] + b"\x10" + good[21:],
        good[:21] + b"\x7f" + good[22:],
        good[:22] + b"\x18" + good[23:],
    ):
        assert detect(data, "m.pdiparams", len(data)).kind == "unknown", data[:30]
        assert formats_of(in_memory({"m.pdiparams": data})) == []


def test_damage_behind_the_first_head_is_told_with_its_place() -> None:
    at = len(blob(THREE[0]))
    data = combined(THREE)
    with pytest.raises(CorruptModel, match="version 7") as caught:
        tensors({"m.pdiparams": data[:at] + b"\7" + data[at + 1 :]})
    assert (caught.value.offset, caught.value.path) == (at, "m.pdiparams")
    with pytest.raises(CorruptModel, match="5 bytes expected, but only 4 remain"):
        tensors({"m.pdiparams": data[:-1]})


def told(tensor: Tensor, form: str) -> dict[str, Any]:
    """The facts of a tensor, as JSON gives them."""
    found: dict[str, Any] = json.loads(content(read(tensor, None, form).bytes))
    return found


@settings(max_examples=60)
@given(PARAMETERS)
def test_levels_of_detail_are_those_that_were_saved(parameters: list[Parameter]) -> None:
    ordered = sorted(parameters, key=lambda parameter: parameter.name)
    found = tensors({"m.pdiparams": combined(parameters)})
    for number, parameter in enumerate(ordered):
        levels = {"levels": [list(level) for level in parameter.levels]}
        assert told(found[number], "lod") == levels
        assert told(found[number], "json") == json.loads(json.dumps(row(found[number]))) | {"stored": levels}
        with pytest.raises(InvalidInput, match="leave out the slice"):
            read(found[number], "...", "lod")


@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_a_program_has_the_levels_of_its_parameters(layout: str, tmp_path: Path) -> None:
    (tmp_path / "__model__").write_bytes(program(THREE))
    for parameter in THREE:
        (tmp_path / parameter.name).write_bytes(blob(parameter))
    if layout == "combined":
        (tmp_path / "__params__").write_bytes(combined(THREE))
    with open_model(tmp_path) as model:
        assert [told(each, "lod")["levels"] for each in model.matching()] == [[], [[0, 2, 4]], []]


def test_levels_of_a_file_of_paddles_own() -> None:
    with open_model(folder("paddle_dtypes_separate"), "lod_one") as model:
        assert told(model.tensor("lod_one"), "lod") == {"levels": [[0, 2, 5]]}
    with open_model(folder("paddle_dtypes_separate"), "selected_rows.bin") as model:
        assert told(model.tensor("selected_rows.bin"), "lod") == {"rows": [0, 4], "height": 10}


def test_levels_without_bounds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tensors({"m.pdiparams": combined([filled("a", levels=((0, 1), (0, 2)))])})
    monkeypatch.setattr(paddle_files, "_MOST_NUMBERS", 4)
    assert told(found[0], "lod") == {"levels": [[0, 1], [0, 2]]}
    monkeypatch.setattr(paddle_files, "_MOST_NUMBERS", 3)
    with pytest.raises(LimitExceeded, match=r"than 3 numbers: download the file to read them \(at byte 44"):
        read(found[0], None, "lod")


def test_other_formats_have_no_levels() -> None:
    with open_model(folder("onnx_types_raw")) as model, pytest.raises(NotFound, match="no levels of detail"):
        read(model.tensors[0], None, "lod")


def test_files_of_one_tensor_each_are_one_model(tmp_path: Path) -> None:
    parameters = [filled(f"block.{number}/w" if number % 2 else f"w_{number}", shape=(number,)) for number in range(20)]
    for parameter in parameters:
        path = tmp_path / "model" / parameter.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(blob(parameter))
    (tmp_path / "model/notes.txt").write_text("no parameter")
    (tmp_path / "model/w_3x").write_bytes(blob(parameters[3]) + b"?")
    with open_model(tmp_path / "model") as model:
        found = {tensor.name: tensor for tensor in model.matching()}
        assert found.keys() == {*(each.name for each in parameters), "w_3x"}
        for parameter in parameters:
            assert content(read(found[parameter.name]).bytes) == parameter.data
            assert found[parameter.name].file == parameter.name
            assert model.tensor(parameter.name).address == found[parameter.name].address
        fault = found["w_3x"].data
        assert isinstance(fault, Unreadable)
        assert "follow the last tensor" in fault.error.message


def test_files_beside_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: blob(filled(name)) for name in "abcd"}
    assert len(tensors(files)) == 4
    monkeypatch.setattr(paddle_files, "_MOST_FILES", 3)
    with pytest.raises(LimitExceeded, match="at most 3"):
        tensors(files)
